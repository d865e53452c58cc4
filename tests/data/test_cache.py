"""The cache of frames: all or nothing, found again, made again when damaged, honest when it cannot be."""

import json
import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest

from ultralif.data.cache import cached, staging
from ultralif.errors import InputError, JobError

KEYS = np.arange(1000, dtype=np.int32)


def pieces():
    yield "train.keys", KEYS[:600]
    yield "train.counts", np.ones(1000, np.uint8)
    yield "train.keys", KEYS[600:]
    yield "test.keys", np.empty(0, np.int32)


def never():
    raise AssertionError("it should have been found")
    yield


def entries(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_what_was_made_is_found_again(tmp_path):
    made = cached(tmp_path / "a", pieces)
    found = cached(tmp_path / "a", never)
    assert np.array_equal(found.arrays["train.keys"], KEYS)
    assert found.arrays["train.counts"].dtype == np.uint8
    assert found.arrays["test.keys"].size == 0
    assert found.checksum == made.checksum
    assert entries(tmp_path) == ["a"]


def test_the_checksum_is_of_the_content(tmp_path):
    first = cached(tmp_path / "a", pieces).checksum
    assert cached(tmp_path / "b", pieces).checksum == first

    def others():
        yield from pieces()
        yield "train.counts", np.array([2], np.uint8)

    assert cached(tmp_path / "c", others).checksum != first


@pytest.mark.parametrize("name", ["train.keys.bin", "train.counts.bin", "manifest.json"])
@pytest.mark.parametrize("harm", ["flip", "cut", "delete", "empty"])
def test_damage_is_noticed_and_the_cache_made_again(tmp_path, name, harm):
    cached(tmp_path / "a", pieces)
    path = tmp_path / "a" / name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    if harm == "delete":
        path.unlink()
    else:
        path.write_bytes({"flip": bytes(data), "cut": bytes(data[:-3]), "empty": b""}[harm])
    assert np.array_equal(cached(tmp_path / "a", pieces).arrays["train.keys"], KEYS)
    assert np.array_equal(cached(tmp_path / "a", never).arrays["train.keys"], KEYS)


def test_a_manifest_cannot_claim_more_than_there_is(tmp_path):
    cached(tmp_path / "a", pieces)
    path = tmp_path / "a" / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["train.keys"]["size"] = 10**12
    path.write_text(json.dumps(manifest))
    assert len(cached(tmp_path / "a", pieces).arrays["train.keys"]) == 1000


def test_a_failure_leaves_nothing(tmp_path):
    def broken():
        yield from pieces()
        raise InputError("the recording is damaged")

    with pytest.raises(InputError, match="the recording"):
        cached(tmp_path / "a", broken)
    assert entries(tmp_path) == []


def test_a_cache_that_another_process_made_first_is_used(tmp_path):
    def late():
        yield from pieces()
        cached(tmp_path / "a", pieces)

    assert np.array_equal(cached(tmp_path / "a", late).arrays["train.keys"], KEYS)
    assert entries(tmp_path) == ["a"]


def test_what_killed_processes_left_is_swept_away(tmp_path):
    (tmp_path / ".tmp-old").mkdir()
    (tmp_path / ".tmp-new").mkdir()
    os.utime(tmp_path / ".tmp-old", (time.time() - 90_000,) * 2)
    cached(tmp_path / "a", pieces)
    assert entries(tmp_path) == [".tmp-new", "a"]


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(JobError, match=r"file/frames/a cannot be written: Not a directory; .*ULTRALIF_CACHE"):
        cached(tmp_path / "file" / "frames" / "a", pieces)


@pytest.mark.skipif(
    not Path("/sys/kernel").is_dir(), reason="needs a file system that not even root can write"
)
def test_a_read_only_cache_is_named():
    with pytest.raises(JobError, match=r"/sys/kernel/ultralif/a cannot be written: .*ULTRALIF_CACHE"):
        cached(Path("/sys/kernel/ultralif/a"), pieces)


FULL = """
    import resource, signal, sys
    from pathlib import Path
    import numpy as np
    from ultralif.data.cache import cached
    from ultralif.errors import JobError

    folder = Path(sys.argv[1])
    cached(folder / "old", lambda: iter([("a", np.arange(10))]))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))  # writing more fails, as on a full disk
    try:
        cached(folder / "new", lambda: iter([("a", np.arange(1 << 20))]))
    except JobError as error:
        print(error)
    assert cached(folder / "old", None).arrays["a"].tolist() == list(range(10))
    print(sorted(path.name for path in folder.iterdir()))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs limits of a Unix process")
def test_a_full_disk_is_named_and_leaves_the_cache_as_it_was(tmp_path):
    script = textwrap.dedent(FULL)
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    message, listed = done.stdout.splitlines()
    assert f"{tmp_path}/new cannot be written: File too large; free some space" in message
    assert listed == "['old']"


def test_many_processes_make_one_cache(tmp_path):
    script = textwrap.dedent("""
        import sys
        from pathlib import Path
        import numpy as np
        from ultralif.data.cache import cached
        made = cached(Path(sys.argv[1]), lambda: iter([("a", np.arange(100_000))] * 20))
        print(made.checksum, int(made.arrays["a"].sum()))
    """)
    command = [sys.executable, "-c", script, str(tmp_path / "a")]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    outputs = {process.communicate()[0] for process in running}
    assert all(process.returncode == 0 for process in running)
    assert len(outputs) == 1
    assert entries(tmp_path) == ["a"]


def test_staging_gives_a_folder_that_others_may_read(tmp_path):
    with staging(tmp_path / "a") as folder:
        (folder / "b").touch()
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o755
