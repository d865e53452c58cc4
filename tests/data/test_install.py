"""Getting, finding and verifying datasets."""

import dataclasses
import gzip
import hashlib
import io
import subprocess
import sys
import textwrap
import zipfile
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO

import numpy as np
import pytest

from data.dataset_files import idx, make_tar, nmnist
from ultralif.data import fetch
from ultralif.data import files as finding
from ultralif.data.dataset import verify
from ultralif.data.fetch import get
from ultralif.data.files import SUMS, find, home, missing, roots, without_network
from ultralif.data.table import DATASETS, Remote, find_spec
from ultralif.errors import InputError, JobError
from ultralif.files import opened

IDX = {name: idx(np.zeros((3, 28, 28))) for name in DATASETS["mnist"].forms[0].files}


@pytest.fixture(autouse=True)
def lonely(tmp_path, monkeypatch):
    """Search nothing but the folders of the test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(finding, "_SHARED", tmp_path / "usr")


def served(spec, server, files: dict[str, bytes]):
    """Give a dataset remotes on the test's server."""
    server.files.update(files)
    remotes = tuple(
        Remote(
            name,
            (f"{server.url}/good/{name}",),
            f"md5:{hashlib.md5(data, usedforsecurity=False).hexdigest()}",
        )
        for name, data in files.items()
    )
    return dataclasses.replace(spec, remotes=remotes)


def put(folder: Path, files: dict[str, bytes]) -> Path:
    folder.mkdir(parents=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder


@pytest.mark.parametrize("place", ["cache/datasets/mnist", "data/MNIST/raw", "data/mnist"])
def test_folders_of_other_libraries_are_found(tmp_path, place):
    folder = put(tmp_path / place, IDX)
    assert find(DATASETS["mnist"]).folder == folder


def test_debian_and_packed_files_are_found(tmp_path):
    folder = put(tmp_path / "usr" / "fashion-mnist", {f"{name}.gz": gzip.compress(b"") for name in IDX})
    assert find(DATASETS["fashion-mnist"]).folder == folder
    assert find(DATASETS["mnist"]) is None


def test_the_folders_are_searched_in_order(tmp_path, monkeypatch):
    spec = DATASETS["mnist"]
    last = put(tmp_path / "data" / "MNIST" / "raw", IDX)
    assert find(spec).folder == last
    second = put(tmp_path / "given" / "mnist", IDX)
    monkeypatch.setenv("ULTRALIF_DATA", str(tmp_path / "given"))
    assert find(spec).folder == second
    first = put(tmp_path / "direct", IDX)
    assert find(spec, first).folder == first
    assert roots(first)[:2] == [first, tmp_path / "given"]
    assert home() == tmp_path / "given"
    assert home(first) == first


def test_an_incomplete_folder_is_not_found(tmp_path):
    folder = put(tmp_path / "data" / "mnist", IDX)
    (folder / "train-labels-idx1-ubyte").unlink()
    assert find(DATASETS["mnist"]) is None


def test_what_is_missing_is_said_and_for_a_machine_without_a_network_in_full(tmp_path):
    short = str(missing(DATASETS["mnist"], tmp_path / "given", None))
    assert "ultralif data get mnist" in short and "--data-dir" in short and "md5" not in short
    message = without_network(DATASETS["mnist"], tmp_path / "given", None)
    for part in (
        "train-images-idx3-ubyte.gz (md5:f68b3c2dcbeaaa9fbdd348bbdeb94873)",
        str(tmp_path / "given"),
    ):
        assert part in message
    for root in roots():
        assert str(root) in message


def test_both_splits_of_the_gestures_are_told_apart(tmp_path):
    spec = DATASETS["dvs-gesture"]
    assert "may not be downloaded automatically" in str(missing(spec, None, "spikingjelly"))
    assert "38022171" not in str(missing(spec, None, "spikingjelly"))
    put(
        tmp_path / "data" / "DVS128Gesture" / "extract" / "DvsGesture",
        {"trials_to_train.txt": b"", "trials_to_test.txt": b""},
    )
    assert find(spec, split="spikingjelly").form.sizes == (1176, 288)
    assert find(spec, split="tonic") is None
    assert "load it with split='spikingjelly'" in str(missing(spec, None, "tonic"))


def test_names_are_forgiving():
    assert find_spec("Fashion_MNIST").name == "fashion-mnist"
    assert find_spec("nmnist").name == "n-mnist"
    with pytest.raises(InputError, match="dataset 'mnst' is not known; did you mean mnist"):
        find_spec("mnst")


def test_files_are_downloaded_into_their_place(tmp_path, server):
    spec = served(
        DATASETS["mnist"], server, {f"{name}.gz": gzip.compress(data) for name, data in IDX.items()}
    )
    found = get(spec, tmp_path / "here", None, server.opener)
    assert found.folder == tmp_path / "here" / "mnist"
    assert [path.name for path in (tmp_path / "here").iterdir()] == ["mnist"]
    server.requests.clear()
    assert get(spec, tmp_path / "here", None, server.opener) == found
    assert server.requests == []


def zipped(files: dict[str, bytes]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return file.getvalue()


def recordings(half: str, count: int) -> dict[str, bytes]:
    t = np.arange(50) * 1000
    return {
        f"{half}/{i % 10}/{i + 1:05d}.bin": nmnist(t % 34, t * 0 + i % 34, t % 2, t) for i in range(count)
    }


def small_nmnist(server):
    spec = served(
        DATASETS["n-mnist"],
        server,
        {"Train.zip": zipped(recordings("Train", 30)), "Test.zip": zipped(recordings("Test", 10))},
    )
    return dataclasses.replace(spec, sizes=(30, 10))


def test_archives_are_unpacked_into_place_and_verified(tmp_path, server):
    spec = small_nmnist(server)
    found = get(spec, None, None, server.opener)
    assert found.folder == tmp_path / "cache" / "datasets" / "n-mnist"
    report = verify(spec)
    assert (report.form, report.sizes, report.digests) == ("nmnist-raw", (30, 10), 40)
    victim = found.folder / "Test" / "3" / "00004.bin"
    data = bytearray(victim.read_bytes())
    data[11] ^= 1
    victim.write_bytes(data)
    with pytest.raises(InputError, match=r"Test/3/00004\.bin has the wrong content"):
        verify(spec)
    victim.unlink()
    with pytest.raises(InputError, match="has 9 recordings for test, but n-mnist has 10"):
        verify(spec)


def test_a_hostile_archive_leaves_no_trace(tmp_path, server):
    path = make_tar(tmp_path / "evil.tar.gz", [("cifar-10-batches-bin/../../../evil", b"x")])
    spec = served(DATASETS["cifar10"], server, {"cifar-10-binary.tar.gz": path.read_bytes()})
    with pytest.raises(InputError, match="written outside"):
        get(spec, tmp_path / "here", None, server.opener)
    assert [p.name for p in (tmp_path / "here").iterdir()] == ["downloads"]
    assert not (tmp_path / "evil").exists()


def test_an_archive_with_other_files_is_refused(tmp_path, server):
    path = make_tar(tmp_path / "other.tar.gz", [("readme", b"x")])
    spec = served(DATASETS["cifar10"], server, {"cifar-10-binary.tar.gz": path.read_bytes()})
    with pytest.raises(InputError, match="is missing files of cifar10"):
        get(spec, tmp_path / "here", None, server.opener)
    assert not (tmp_path / "here" / "cifar10").exists()


def test_a_folder_with_other_things_is_never_touched(tmp_path, server):
    mine = put(tmp_path / "here" / "mnist", {"holiday.jpg": b"mine"})
    spec = served(DATASETS["mnist"], server, {f"{name}.gz": b"" for name in IDX})
    with pytest.raises(JobError, match="exists, but is not a complete mnist; move it"):
        get(spec, tmp_path / "here", None, server.opener)
    assert (mine / "holiday.jpg").read_bytes() == b"mine"
    assert server.requests == []


def test_without_a_network_the_error_says_all(tmp_path):
    spec = DATASETS["shd"]
    dead = tuple(dataclasses.replace(remote, urls=("https://localhost:1/dead",)) for remote in spec.remotes)
    with pytest.raises(JobError) as error:
        get(dataclasses.replace(spec, remotes=dead), tmp_path / "here")
    for part in ("https://localhost:1/dead", "shd_test.h5.zip (md5:1503a506", str(tmp_path / "here")):
        assert part in str(error.value)
    assert not (tmp_path / "here" / "downloads").exists()


MANY = """
    import dataclasses, ssl, sys, urllib.request
    from ultralif.data.fetch import https_opener
    from ultralif.data.fetch import get
    from ultralif.data.table import Remote
    from ultralif.data.table import DATASETS

    certificate, folder, *files = sys.argv[1:]
    opener = https_opener(urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=certificate)))
    remotes = tuple(Remote(*file.split(" ")[:1], (file.split(" ")[1],), file.split(" ")[2]) for file in files)
    print(get(dataclasses.replace(DATASETS["n-mnist"], remotes=remotes), folder, None, opener).folder)
"""


def test_many_processes_get_one_copy(tmp_path, server):
    spec = small_nmnist(server)
    files = [f"{remote.file} {remote.urls[0]} {remote.digest}" for remote in spec.remotes]
    command = [
        sys.executable,
        "-c",
        textwrap.dedent(MANY),
        str(server.certificate),
        str(tmp_path / "here"),
        *files,
    ]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(6)]
    outputs = {process.communicate()[0] for process in running}
    assert all(process.returncode == 0 for process in running)
    assert outputs == {f"{tmp_path / 'here' / 'n-mnist'}\n"}
    assert verify(spec, tmp_path / "here").digests == 40
    assert [path.name for path in (tmp_path / "here").iterdir()] == ["n-mnist"]


def test_a_copy_of_another_process_is_taken(tmp_path, server, monkeypatch):
    """One that is ready just before ours is unpacked, and has removed what was downloaded."""
    spec = small_nmnist(server)

    def late(archive: Path) -> AbstractContextManager[IO[bytes]]:
        monkeypatch.setattr(fetch, "opened", opened)
        get(spec, tmp_path / "here", None, server.opener)
        return opened(archive)

    monkeypatch.setattr(fetch, "opened", late)
    found = get(spec, tmp_path / "here", None, server.opener)
    assert found.folder == tmp_path / "here" / "n-mnist"
    assert verify(spec, tmp_path / "here").digests == 40


def test_sums_can_be_checked_by_others(tmp_path, server):
    folder = get(small_nmnist(server), None, None, server.opener).folder
    for line in (folder / SUMS).read_text().splitlines():
        digest, name = line.split("  ")
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest


def test_every_dataset_says_where_it_comes_from():
    for spec in DATASETS.values():
        assert len(spec.class_names) == spec.classes == len(set(spec.class_names))
        for remote in spec.remotes:
            algorithm, _, value = remote.digest.partition(":")
            assert len(value) == {"md5": 32, "sha256": 64}[algorithm]
            assert remote.urls
            assert all(url.startswith("https://") for url in remote.urls)
