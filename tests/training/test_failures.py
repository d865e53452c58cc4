"""What goes wrong around a run is said in one sentence, and costs nothing that was written before."""

import errno
import os
import signal
import subprocess
from pathlib import Path

import pytest

from training.small import checkpoints, files, notes, small, stop_after
from ultralif.errors import JobError
from ultralif.training import Interrupted, RunOptions, Store, train_stack
from ultralif.training import checkpoint as checkpoint_module
from ultralif.training.store import locked


def one_line(error: pytest.ExceptionInfo[JobError]) -> str:
    message = str(error.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize("number", range(12))
def test_the_disk_is_full_at_any_write(
    number: int, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of a file arrives, and then no more: of checkpoints (0 to 7) as of the finished run."""
    whole = Store(tmp_path / "whole")
    train_stack([small()], whole)
    with pytest.raises(Interrupted):
        train_stack([small()], store, RunOptions(stopping=stop_after(4), checkpoint_seconds=0.0))
    before = {path: path.read_bytes() for path in store.root.rglob("*.json")}
    write, count = checkpoint_module.write_synced, 0

    def full(path: Path, content: bytes) -> None:
        nonlocal count
        count += 1
        if count > number:
            path.write_bytes(content[: len(content) // 2])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(path, content)

    with monkeypatch.context() as patched:
        patched.setattr(checkpoint_module, "write_synced", full)
        with pytest.raises(JobError) as error:
            train_stack([small()], store, RunOptions(checkpoint_seconds=0.0))
    message = one_line(error)
    assert str(store.root) in message and os.strerror(errno.ENOSPC) in message and "bytes" in message
    assert not store.rows()
    if number < 4:  # no newer checkpoint was finished: those that were there are untouched
        assert before.items() <= {path: path.read_bytes() for path in store.root.rglob("*.json")}.items()
    said: list[str] = []
    train_stack([small()], store, RunOptions(report=notes(said)))  # there is room again
    assert len(said) == 1 and said[0].startswith("resuming from epoch 2")
    assert files(store, small()) == files(whole, small())


@pytest.mark.parametrize(
    ("limit", "said"),
    [pytest.param(1000, "index.sqlite", marks=pytest.mark.slow), (80_000, "File too large")],
)
def test_a_real_limit_of_the_system(tmp_path: Path, python, limit: int, said: str) -> None:
    """No file may grow beyond a limit: the command names what did not fit in one line and leaves with 1."""
    code = (
        "import resource, sys; from ultralif.cli import main; import torch; "
        "from ultralif.training import train_stack; from ultralif.data import load; load('digits'); "
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit})); "
        "sys.exit(main(['train', '--epochs', '1', '--hidden', '512', '--quiet', "
        f"'--runs-dir', {str(tmp_path / 'runs')!r}]))"
    )
    done = python.run("-c", code, check=False)
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.count("\n") == 1 and said in done.stderr, done.stderr
    assert "free some space" in done.stderr
    assert not list(tmp_path.glob("runs/[0-9a-f]*/manifest.json"))


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root may mount")
def test_a_disk_that_is_full(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=48k", "none", str(disk)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("nothing can be mounted here")
    try:
        with pytest.raises(JobError, match="No space left on device") as error:
            train_stack([small()], Store(disk / "runs"), RunOptions(checkpoint_seconds=0.0))
        assert "bytes" in one_line(error)
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_a_folder_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(JobError, match="--runs-dir") as error:
        train_stack([small()], Store(tmp_path / "file" / "runs"))
    assert str(tmp_path / "file") in one_line(error)


def test_looking_for_runs_makes_no_folder(store: Store) -> None:
    assert store.rows() == [] and store.finished(["a"]) == set() and store.rebuild() == (0, [])
    assert not store.root.exists()


def test_folders_are_private(store: Store) -> None:
    train_stack([small(epochs=1)], store)
    assert store.root.stat().st_mode & 0o077 == 0


def test_one_process_at_a_time(tmp_path: Path, python) -> None:
    """The second is told which process is at work; a crash of the first lets go."""
    lock = tmp_path / "stack.lock"
    code = (
        "import sys, time, pathlib; from ultralif.training.store import locked\n"
        "with locked(pathlib.Path(sys.argv[1])): print('locked', flush=True); time.sleep(100)"
    )
    first = python.start("-c", code, str(lock))
    try:
        assert first.stdout is not None and first.stdout.readline() == "locked\n"
        with pytest.raises(JobError, match=f"process {first.pid} is already training this"), locked(lock):
            pass
    finally:
        first.send_signal(signal.SIGKILL)
        first.communicate()
    with locked(lock):
        assert lock.exists()
    assert not lock.exists()


def test_two_trainings_of_one_run(store: Store) -> None:
    """While the first is at a step, the second is refused and does no harm."""
    refused = []

    def second() -> int:
        if not refused:
            with pytest.raises(JobError, match="is already training this") as error:
                train_stack([small()], store)
            refused.append(error)
        return 0

    (result,) = train_stack([small()], store, RunOptions(stopping=second))
    assert refused and result.status == "done" and len(store.rows()) == 1
    assert not checkpoints(store)


def test_a_damaged_run_is_not_read(store: Store) -> None:
    train_stack([small(epochs=1)], store)
    path = store.path(small(epochs=1).id) / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(JobError, match="SHA-256 differs"):
        store.read(small(epochs=1).id)
