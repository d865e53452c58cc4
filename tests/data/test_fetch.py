"""Downloads from a server on this machine: resumed, verified, from mirrors, by https alone."""

import hashlib
import os
import ssl
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from data.web_server import Server, serving
from ultralif.data import fetch
from ultralif.data.fetch import download, https_opener
from ultralif.data.table import Remote
from ultralif.errors import JobError

DATA = bytes(range(256)) * 800


def remote(server: Server, *behaviours: str) -> Remote:
    server.files["data.bin"] = DATA
    urls = tuple(f"{server.url}/{behaviour}/data.bin" for behaviour in behaviours)
    return Remote("data.bin", urls, f"md5:{hashlib.md5(DATA, usedforsecurity=False).hexdigest()}")


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_downloaded_once_and_shows_its_progress(tmp_path, server):
    seen = []
    file = remote(server, "good")
    for _ in range(2):
        path = download(file, tmp_path / "new", lambda *state: seen.append(state), server.opener)
        assert path.read_bytes() == DATA
    assert seen[-1] == ("data.bin", len(DATA), len(DATA))
    assert len(server.requests) == 1
    assert names(tmp_path / "new") == ["data.bin"]


@pytest.mark.parametrize("behaviour", ["good", "forgetful"])
def test_a_partial_file_is_taken_up(tmp_path, server, behaviour):
    (tmp_path / "data.bin.part").write_bytes(DATA[:5000])
    assert download(remote(server, behaviour), tmp_path, None, server.opener).read_bytes() == DATA
    assert server.requests == [(f"/{behaviour}/data.bin", "bytes=5000-")]
    assert names(tmp_path) == ["data.bin"]


@pytest.mark.parametrize("left", [b"nonsense" * 9, DATA + b"more", DATA])
def test_a_spoilt_partial_file_is_thrown_away(tmp_path, server, left):
    (tmp_path / "data.bin.part").write_bytes(left)
    assert download(remote(server, "good"), tmp_path, None, server.opener).read_bytes() == DATA


def test_a_connection_that_breaks_is_taken_up_at_once(tmp_path, server):
    small = DATA[:6000]
    file = remote(server, "breaking")
    server.files["data.bin"] = small
    file = Remote("data.bin", file.urls, f"sha256:{hashlib.sha256(small).hexdigest()}")
    assert download(file, tmp_path, None, server.opener).read_bytes() == small
    assert [wanted for _, wanted in server.requests] == [None, "bytes=3000-", "bytes=4500-", "bytes=5250-"]


def test_what_came_before_a_server_died_is_kept_for_the_next_time(tmp_path, server):
    with pytest.raises(JobError, match="503"):
        download(remote(server, "dying"), tmp_path, None, server.opener)
    assert names(tmp_path) == ["data.bin.part"]
    server.requests.clear()
    assert download(remote(server, "good"), tmp_path, None, server.opener).read_bytes() == DATA
    assert server.requests[0][1] == f"bytes={len(DATA) // 3}-"


def test_an_interrupted_download_hands_over_what_it_has(tmp_path, server):
    def interrupt(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        download(remote(server, "good"), tmp_path, interrupt, server.opener)
    assert names(tmp_path) == ["data.bin.part"]


def test_the_partial_file_of_a_killed_process_is_found(tmp_path, server):
    orphan = tmp_path / "data.bin.0123.part"
    orphan.write_bytes(DATA[:100])
    busy = tmp_path / "data.bin.4567.part"
    busy.write_bytes(b"another process is writing this")
    os.utime(orphan, (time.time() - 1000,) * 2)
    download(remote(server, "good"), tmp_path, None, server.opener)
    assert server.requests == [("/good/data.bin", "bytes=100-")]
    assert names(tmp_path) == ["data.bin", "data.bin.4567.part"]


TROUBLES = {
    "page": "sent a web page with the digest md5:",
    "wrong": "sent 204,800 bytes with the digest md5:",
    "empty": "answered 202",
    "absent": "answered 404",
    "huge": "more than the disk has room for",
}


@pytest.mark.parametrize("behaviour", TROUBLES)
def test_a_bad_server_is_named_and_nothing_is_kept(tmp_path, server, behaviour):
    file = remote(server, behaviour)
    with pytest.raises(JobError) as error:
        download(file, tmp_path, None, server.opener)
    for part in (file.urls[0], file.digest, TROUBLES[behaviour]):
        assert part in str(error.value)
    assert names(tmp_path) == []


def test_a_stalled_server_is_given_up(tmp_path, server, monkeypatch):
    monkeypatch.setattr(fetch, "_TIMEOUT", 0.2)
    monkeypatch.setattr(fetch, "_TRIES", 1)
    with pytest.raises(JobError, match=r"data\.bin"):
        download(remote(server, "stalled"), tmp_path, None, server.opener)


def test_a_mirror_is_tried_after_a_bad_server(tmp_path, server):
    file = remote(server, "absent", "page", "wrong", "good")
    assert download(file, tmp_path, None, server.opener).read_bytes() == DATA
    assert [path.split("/")[1] for path, _ in server.requests] == ["absent", "page", "wrong", "good"]
    assert names(tmp_path) == ["data.bin"]


@pytest.mark.parametrize(
    "url", ["http://localhost:1/a", "file:///etc/passwd", "ftp://localhost/a", "data:,a"]
)
def test_only_https_is_opened(tmp_path, url):
    file = Remote("a", (url,), "md5:0")
    with pytest.raises(JobError, match="unknown url type"):
        download(file, tmp_path)


def test_a_redirect_may_not_leave_https(tmp_path, server, monkeypatch):
    with serving(tmp_path, secure=False) as plain:
        plain.files["data.bin"] = DATA
        for target in (f"{plain.url}/good/data.bin", "file:///etc/passwd", "ftp://localhost/data.bin"):
            monkeypatch.setattr(type(server), "elsewhere", target)
            with pytest.raises(JobError, match=r"unknown url type|not allowed|302"):
                download(remote(server, "moved"), tmp_path / "new", None, server.opener)
        assert plain.requests == []
    monkeypatch.setattr(type(server), "elsewhere", f"{server.url}/good/data.bin")
    assert download(remote(server, "moved"), tmp_path, None, server.opener).read_bytes() == DATA


def test_a_server_without_a_known_certificate_is_not_trusted(tmp_path, server):
    with pytest.raises(JobError, match="certificate verify failed"):
        download(remote(server, "good"), tmp_path, None, https_opener())
    assert ssl.create_default_context().verify_mode == ssl.CERT_REQUIRED


def test_a_folder_that_cannot_be_written_is_named(tmp_path, server):
    (tmp_path / "file").touch()
    with pytest.raises(JobError, match=r"file/sub/data\.bin cannot be written: .*--data-dir"):
        download(remote(server, "good"), tmp_path / "file" / "sub", None, server.opener)


FULL = """
    import resource, signal, ssl, sys, urllib.request
    from pathlib import Path
    from ultralif.data.fetch import download, https_opener
    from ultralif.data.table import Remote
    from ultralif.errors import JobError

    url, digest, certificate, folder = sys.argv[1:]
    context = ssl.create_default_context(cafile=certificate)
    opener = https_opener(urllib.request.HTTPSHandler(context=context))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))  # writing more fails, as on a full disk
    try:
        download(Remote("data.bin", (url,), digest), Path(folder), None, opener)
    except JobError as error:
        print(error)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs limits of a Unix process")
def test_a_full_disk_gets_its_space_back(tmp_path, server):
    file = remote(server, "good")
    arguments = [file.urls[0], file.digest, str(server.certificate), str(tmp_path / "new")]
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(FULL), *arguments], capture_output=True, text=True, check=False
    )
    assert f"{tmp_path}/new/data.bin cannot be written: File too large; free some space" in done.stdout, (
        done.stderr
    )
    assert names(tmp_path / "new") == []
