"""A run that was stopped or killed goes on to exactly the end that it would have had."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from training.forks import MEMBERS
from training.small import checkpoints, files, mixed, notes, small, stop_after
from ultralif.errors import JobError
from ultralif.training import Interrupted, RunOptions, Store, train_stack
from ultralif.training import checkpoint as checkpoint_module

FORKS = Path(__file__).with_name("forks.py")


@pytest.mark.slow
def test_killed_at_twenty_moments(tmp_path: Path, python) -> None:
    """SIGKILL while training, saving, evaluating and writing: the bytes of all files are the same."""
    process = python.start(str(FORKS), "kill", str(tmp_path))
    out, err = process.communicate(timeout=280)
    assert process.returncode == 0, err
    found = json.loads(out)
    assert found["kills"] >= 20 and found["ended"] >= 1
    whole = Store(tmp_path / "whole")
    assert sorted(row.status for row in whole.rows()) == ["diverged", "done", "done", "done"]
    for number in range(found["ended"]):
        killed = Store(tmp_path / f"killed-{number}")
        assert len(killed.rows()) == len(MEMBERS)
        for config in MEMBERS:
            assert files(killed, config) == files(whole, config), config
        assert not any(killed.root.joinpath(".training").iterdir())


@pytest.mark.parametrize("steps", range(1, 7))
def test_stopped_at_any_step(steps: int, store: Store, tmp_path: Path) -> None:
    """Three steps make an epoch here: stops fall within epochs and on their ends."""
    configs = mixed()
    whole = Store(tmp_path / "whole")
    train_stack(configs, whole)
    with pytest.raises(Interrupted, match="resumes from there") as stopped:
        train_stack(configs, store, RunOptions(stopping=stop_after(steps, code=143)))
    assert stopped.value.code == 143 and not store.rows()
    said: list[str] = []
    train_stack(configs, store, RunOptions(report=notes(said)))
    epoch, step = divmod(steps, 3) if steps % 3 else (steps // 3 - 1, 3)
    assert said == [f"resuming from epoch {epoch + 1}, step {step}"]
    for config in configs:
        assert files(store, config) == files(whole, config), config


def test_checkpoints_are_removed_in_the_end_and_two_are_kept_before(store: Store) -> None:
    with pytest.raises(Interrupted):
        train_stack([small()], store, RunOptions(stopping=stop_after(5), checkpoint_seconds=0.0))
    assert len(checkpoints(store)) == 2
    train_stack([small()], store)
    assert not any((store.root / ".training").iterdir())


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def flip(path: Path) -> None:
    """Change one bit."""
    content = bytearray(path.read_bytes())
    where = len(content) // 3
    content[where] ^= 1 << (where % 8)
    path.write_bytes(content)


@pytest.mark.parametrize("damage", [cut, empty, flip, Path.unlink], ids=lambda damage: damage.__name__)
@pytest.mark.parametrize("file", ["manifest.json", "checkpoint.safetensors", "position.json", "history.json"])
def test_a_damaged_checkpoint_is_passed_over(file: str, damage, store: Store, tmp_path: Path) -> None:
    """The one before takes over, this is said, and the end is the same."""
    with pytest.raises(Interrupted):
        train_stack([small()], store, RunOptions(stopping=stop_after(5), checkpoint_seconds=0.0))
    damage(checkpoints(store)[-1] / file)
    said: list[str] = []
    train_stack([small()], store, RunOptions(report=notes(said)))
    assert len(said) == 2
    assert "is not used" in said[0] and "000001000002" in said[0]  # epoch 1, step 2, counted from 0
    assert said[1] == "resuming from epoch 2, step 1 (an older checkpoint)"
    whole = Store(tmp_path / "whole")
    train_stack([small()], whole)
    assert files(store, small()) == files(whole, small())


def test_all_checkpoints_damaged(store: Store, tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        train_stack([small()], store, RunOptions(stopping=stop_after(5), checkpoint_seconds=0.0))
    for folder in checkpoints(store):
        flip(folder / "checkpoint.safetensors")
    said: list[str] = []
    train_stack([small()], store, RunOptions(report=notes(said)))
    assert len(said) == 3 and said[2] == "all checkpoints are damaged; training starts over"
    whole = Store(tmp_path / "whole")
    train_stack([small()], whole)
    assert files(store, small()) == files(whole, small())


def test_a_thousand_flipped_bits_are_all_noticed(tmp_path: Path) -> None:
    """Neither safetensors nor JSON would notice most of them."""
    checkpoint_module.save_checkpoint(tmp_path, 0, {"w": torch.randn(64)}, {"position": {"epoch": 1}})
    (folder,) = tmp_path.iterdir()
    chance = np.random.default_rng(0)
    for path in sorted(folder.iterdir()):
        whole = path.read_bytes()
        for _ in range(350):
            content, where = bytearray(whole), chance.integers(len(whole))
            content[where] ^= 1 << int(chance.integers(8))
            path.write_bytes(content)
            if path.name == "manifest.json" and json_equal(whole, bytes(content)):
                continue  # the version that wrote it is a remark
            with pytest.raises(checkpoint_module.Damaged):
                checkpoint_module.read_folder(folder)
        path.write_bytes(whole)
    assert checkpoint_module.read_folder(folder).tensors()["w"].shape == (64,)


def json_equal(whole: bytes, changed: bytes) -> bool:
    """Tell whether two manifests say the same of all files."""
    try:
        one, other = json.loads(whole), json.loads(changed)
    except ValueError:
        return False
    return all(one[key] == other.get(key) for key in ("format", "sha256"))


def test_a_checkpoint_of_another_version(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A format that is not known is no damage to be silent about; a stack that does not fit is refused."""
    with monkeypatch.context() as patched:
        patched.setattr(checkpoint_module, "FORMAT", 99)
        with pytest.raises(Interrupted):
            train_stack([small()], store, RunOptions(stopping=stop_after(5)))
    said: list[str] = []
    train_stack([small()], store, RunOptions(report=notes(said)))
    assert "format 99" in said[0] and said[-1].endswith("training starts over")


def test_a_checkpoint_that_does_not_fit(store: Store) -> None:
    with pytest.raises(Interrupted):
        train_stack([small()], store, RunOptions(stopping=stop_after(5)))
    (folder,) = checkpoints(store)
    contents = checkpoint_module.read_folder(folder)
    tensors = {
        name: value for name, value in contents.tensors().items() if name != "stack.net.linears.0.weight"
    }
    checkpoint_module.write_folder(folder, "checkpoint", tensors, contents.documents)
    with pytest.raises(JobError, match="another version of ultralif"):
        train_stack([small()], store)
    assert checkpoints(store) == [folder]


def test_checkpoints_are_timed(store: Store) -> None:
    """None is written while the time has not come."""
    seen = []
    train_stack([small()], store, RunOptions(stopping=lambda: seen.append(checkpoints(store)) or 0))
    assert seen and not any(seen)
