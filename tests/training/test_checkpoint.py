"""Folders of checkpoints: whole after any loss of power, and harmless whoever wrote them."""

import hashlib
import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from ultralif.errors import JobError
from ultralif.files import write_file
from ultralif.training import checkpoint
from ultralif.training.checkpoint import Damaged, newest, read_folder, save_checkpoint


def save(root: Path, number: int) -> None:
    save_checkpoint(root, number, {"w": torch.full((300,), float(number))}, {"position": {"step": number}})


class PowerFails(Exception):
    """Nothing that was not flushed survives."""


def without_power_after(steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a file be written, flushed or renamed so many times more; what was not flushed is cut in half."""
    left = steps
    write, rename = checkpoint.write_synced, Path.rename

    def count() -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise PowerFails

    def written(path: Path, content: bytes) -> None:
        count()
        path.write_bytes(content[: len(content) // 2])  # it got this far when the power failed
        count()
        path.unlink()
        write(path, content)

    def renamed(path: Path, target: Path) -> Path:
        count()
        return rename(path, target)

    monkeypatch.setattr(checkpoint, "write_synced", written)
    monkeypatch.setattr(Path, "rename", renamed)


@pytest.mark.parametrize("steps", range(22))
def test_power_fails_while_saving(steps: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is always a whole checkpoint, and never a wrong one."""
    save(tmp_path, 1)
    with monkeypatch.context() as patched:
        without_power_after(steps, patched)
        try:
            for number in (2, 3, 4):
                save(tmp_path, number)
        except PowerFails:
            pass
    found, complaints = newest(tmp_path)
    assert found is not None and complaints == []
    number = found.documents["position"]["step"]
    assert found.tensors()["w"].tolist() == [float(number)] * 300
    assert number == 1 + min(3, steps // 7), "seven steps make a checkpoint"
    save(tmp_path, 9)
    assert sorted(path.name for path in tmp_path.iterdir())[-1] == "000000000009"
    assert len(list(tmp_path.iterdir())) == 2, "what the failure left is gone"


def forge(folder: Path, files: dict[str, bytes], **manifest: object) -> None:
    """Write a folder whose manifest vouches for anything."""
    folder.mkdir(parents=True)
    for name, content in files.items():
        (folder / Path(name).name).write_bytes(content)
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    (folder / "manifest.json").write_text(
        json.dumps({"format": 1, "ultralif": "0.1.0", "sha256": digests, **manifest})
    )


class Trap:
    """An object whose unpickling would leave a trace."""

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return Path.touch, (Path("trapped"),)


def bomb(header: dict[str, object] | bytes) -> bytes:
    """Return a safetensors file with a header of one's own."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text


HOSTILE = {
    "pickle": pickle.dumps(Trap()),
    "empty": b"",
    "huge header": (2**62).to_bytes(8, "little"),
    "huge shape": bomb({"w": {"dtype": "F32", "shape": [10**12], "data_offsets": [0, 4 * 10**12]}}),
    "overlap": bomb(
        {
            "a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]},
            "b": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]},
        }
    )
    + bytes(4),
    "negative": bomb({"w": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}) + bytes(4),
    "deep": bomb(b"[" * 50_000),
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=list(HOSTILE))
def test_hostile_tensors(content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their hash is right, and yet they are refused, and nothing of theirs is run."""
    monkeypatch.chdir(tmp_path)
    forge(tmp_path / "run", {"model.safetensors": content, "config.json": b"{}"})
    with pytest.raises(Damaged):
        read_folder(tmp_path / "run").tensors()
    assert not Path("trapped").exists()


@pytest.mark.parametrize(
    "manifest",
    [
        {"sha256": {"../secret": hashlib.sha256(b"s").hexdigest()}},
        {"sha256": {"/etc/hostname": "0" * 64}},
        {"sha256": {"": "0" * 64}},
        {"sha256": []},
        {"sha256": None},
        {"sha256": {"config.json": 3}},
        {"format": "1"},
    ],
    ids=str,
)
def test_hostile_manifests(manifest: dict[str, object], tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"s")
    forge(tmp_path / "run", {"config.json": b"{}"}, **manifest)
    try:
        found = read_folder(tmp_path / "run")
    except Damaged:
        return
    assert found.documents == {} and found.file == b"", "at most there is nothing in it"


def test_json_that_is_too_deep(tmp_path: Path) -> None:
    forge(tmp_path / "run", {"config.json": b"[" * 200_000})
    with pytest.raises(Damaged):
        read_folder(tmp_path / "run")


def test_a_file_is_written_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a" / "table.csv"
    write_file(path, b"old")
    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left")))
        with pytest.raises(JobError, match="No space left"):
            write_file(path, b"new")
    assert path.read_bytes() == b"old" and list(path.parent.iterdir()) == [path]
    shutil.rmtree(tmp_path / "a")


def test_what_was_passed_over_is_removed_by_the_next(tmp_path) -> None:
    """A checkpoint with a higher number is a damaged one: it must not push out a whole one."""
    for number in (1, 9, 2):
        save_checkpoint(tmp_path, number, {"x": torch.zeros(1)}, {"state": number})
    assert sorted(int(path.name) for path in tmp_path.iterdir()) == [1, 2]
