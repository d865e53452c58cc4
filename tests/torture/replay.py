"""Power that fails between any two writes: every prefix of what saving does, with what was not flushed lost.

The model: a file's content is on the disk once it was flushed, and until then any part of it may be; a name
(made, moved or removed) is on the disk once its folder was flushed, and until then it may be or not.
"""

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch

from torture.warm import Row
from ultralif.training import checkpoint


class Change(NamedTuple):
    """Something that saving did: write, move, remove or flush."""

    kind: str
    path: Path
    value: Any = None


def recorded(folder: Path, saves: int) -> list[Change]:
    """Save checkpoints and return all changes in their order."""
    changes: list[Change] = []
    before = {name: getattr(checkpoint, name) for name in ("write_synced", "_replace", "sync_folder")}
    remove = checkpoint.shutil.rmtree

    def noted(kind: str, real: Callable[..., object]) -> Callable[..., object]:
        def act(path: Path, *rest: Any, **options: Any) -> object:
            if kind != "remove" or Path(path).exists():
                changes.append(Change(kind, Path(path), rest[0] if rest else None))
            return real(path, *rest, **options)

        return act

    kinds = {"write_synced": "write", "_replace": "move", "sync_folder": "flush"}
    for name, kind in kinds.items():
        setattr(checkpoint, name, noted(kind, before[name]))
    checkpoint.shutil.rmtree = noted("remove", remove)
    try:
        for number in range(saves):
            tensors = {"weight": torch.full((64,), float(number))}
            checkpoint.save_checkpoint(folder, number, tensors, {"position": number})
    finally:
        for name, real in before.items():
            setattr(checkpoint, name, real)
        checkpoint.shutil.rmtree = remove
    return changes


def after_failure(changes: list[Change], rng: random.Random) -> dict[Path, bytes]:
    """Return the files that may be found when the power fails after the last of the changes."""
    flushed = {}
    for i, change in enumerate(changes):
        if change.kind == "flush":
            flushed[change.path] = i
    files: dict[Path, bytes] = {}
    for i, change in enumerate(changes):
        lasts = i < flushed.get(change.path.parent, -1)
        if change.kind == "write":  # which flushes the content itself
            whole = i < len(changes) - 1
            files[change.path] = change.value if whole else change.value[: rng.randrange(len(change.value))]
        elif change.kind == "move" and (lasts or rng.random() < 0.5):
            moved = {path: data for path, data in files.items() if change.path in path.parents}
            for path, data in moved.items():
                del files[path]
                files[change.value / path.relative_to(change.path)] = data
        elif change.kind == "remove" and (lasts or rng.random() < 0.5):
            gone = [path for path in files if change.path in path.parents and (lasts or rng.random() < 0.7)]
            for path in gone:
                del files[path]
    return files


def power_failures(base: Path, rng: random.Random, saves: int, tries: int) -> Row:
    """Let the power fail after every change, and look for a whole checkpoint."""
    changes = recorded(base / "power", saves)
    published, tried, lost, wrong = -1, 0, 0, 0
    for end in range(1, len(changes) + 1):
        last = changes[end - 1]
        moved = [c for c in changes[:end] if c.kind == "move"]
        if last.kind == "flush" and last.path == base / "power" and moved:
            published = int(moved[-1].value.name)
        for _ in range(tries):
            place = base / "power-found"
            shutil.rmtree(place, ignore_errors=True)
            for path, data in after_failure(changes[:end], rng).items():
                target = place / path.relative_to(base / "power")
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(data)
            found, _ = checkpoint.newest(place)
            tried += 1
            if found is None:
                lost += published >= 0
                continue
            number = found.documents["position"]
            lost += number < published
            wrong += not bool((found.tensors()["weight"] == number).all())
    size = f"{len(changes)} changes of {saves} saves, {tried} failures"
    bar = "the last flushed checkpoint or a newer one is found; never a wrong one"
    return Row("power failures", size, bar, f"{lost} lost, {wrong} wrong", not lost and not wrong)
