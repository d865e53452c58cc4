"""Power that fails at any moment of a whole training, with all that was not flushed lost or torn.

The library of faults records every change: files made, written, cut, flushed, moved and removed, SQLite's
among them. The model of a disk is a hard one: content is there once its file was flushed, until then any part
of it may be; a name is there once its folder was flushed, until then it may be or not.
"""

import random
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from torture.victims import SHORT, runs_of, train, train_again
from torture.warm import Faults, Row, lanes, run
from ultralif.training import Store


class Change(NamedTuple):
    """One change: its kind, as faults.c writes it, its paths, place and data."""

    kind: str
    path: Path
    to: Path
    at: int
    data: bytes


def recorded(log: Path) -> list[Change]:
    """Read what the library of faults has written."""
    data, at, changes = log.read_bytes(), 0, []
    while at < len(data):
        kind, first, second, place, size = struct.unpack_from("5q", data, at)
        at += 40
        one, two = data[at : at + first], data[at + first : at + first + second]
        at += first + second
        paths = Path(one.decode()), Path(two.decode())
        changes.append(Change(chr(kind), *paths, place, data[at : at + size]))
        at += size
    return changes


class File:
    """The content of a file: what was flushed, and what was written since."""

    def __init__(self) -> None:
        self.flushed = bytearray()
        self.pending: list[Change] = []

    def flush(self) -> None:
        for change in self.pending:
            _apply(self.flushed, change)
        self.pending.clear()

    def found(self, rng: random.Random) -> bytes:
        """Return what may be found: nothing of the rest, all, or any part of it."""
        content, chance = bytearray(self.flushed), rng.choice((0.0, 0.5, 1.0))
        for change in self.pending:
            if rng.random() < chance:
                torn = rng.randrange(len(change.data) + 1) if rng.random() < 0.3 else len(change.data)
                _apply(content, change._replace(data=change.data[:torn]))
        return bytes(content)


def _apply(content: bytearray, change: Change) -> None:
    if change.kind == "t":
        del content[change.at :]
        content.extend(bytes(change.at - len(content)))
        return
    content.extend(bytes(max(0, change.at - len(content))))
    content[change.at : change.at + len(change.data)] = change.data


def after_failure(changes: list[Change], rng: random.Random, root: Path) -> dict[Path, bytes]:
    """Return the files that may be found if the power fails after the last of the changes."""
    flushes: dict[Path, int] = {c.path: i for i, c in enumerate(changes) if c.kind == "s"}
    seen: dict[Path, File | None] = {}
    there: dict[Path, File | None] = {root: None}
    for i, change in enumerate(changes):
        place = change.to if change.kind == "m" else change.path
        lasts = i < flushes.get(place.parent, -1) or rng.random() < 0.5
        file = seen.get(change.path)
        if change.kind in "cd":
            seen[change.path] = File() if change.kind == "c" else None
            if lasts:
                there[change.path] = seen[change.path]
        elif change.kind in "wt" and file is not None:
            file.pending.append(change)
        elif change.kind == "s" and file is not None:
            file.flush()
        elif change.kind == "m":
            _move(seen, change)
            if lasts:
                _move(there, change)
                if change.to in seen:
                    there[change.to] = seen[change.to]
        elif change.kind == "u":
            seen.pop(change.path, None)
            if lasts:
                there.pop(change.path, None)
    return {
        path: file.found(rng)
        for path, file in there.items()
        if file is not None and not path.name.endswith("-shm") and all(p in there for p in _above(path, root))
    }


def _move(files: dict[Path, File | None], change: Change) -> None:
    gone = [path for path in files if path == change.to or change.to in path.parents]
    for path in gone:
        del files[path]
    for path in [path for path in files if path == change.path or change.path in path.parents]:
        files[change.to / path.relative_to(change.path)] = files.pop(path)


def _above(path: Path, root: Path) -> list[Path]:
    return [parent for parent in path.parents if root in (parent, *parent.parents)]


def power_failures(
    base: Path, faults: Faults, seed: int, tries: int, few: int, processes: int
) -> Iterator[Row]:
    """Let the power fail after every change of a training, and train to the end."""
    whole, log = base / "power", base / "power.log"

    def record() -> None:
        faults.record(log, whole)
        train(whole, SHORT)

    ended = run(record)
    assert ended.code == 0, ended.message
    changes, reference = recorded(log), runs_of(whole)
    moments = [(end, i) for end in [*range(1, len(changes), few), len(changes)] for i in range(tries)]

    def share(lane: int) -> list[tuple[bool, str]]:
        found = []
        for end, number in moments[lane::processes]:
            place, rng = base / f"power-found-{lane}", random.Random(f"{seed} {end} {number}")  # noqa: S311
            for path, data in after_failure(changes[:end], rng, whole).items():
                target = place / path.relative_to(whole)
                target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                target.write_bytes(data)
            # at the end the command had said that it was done
            kept = end < len(changes) or bool(run(lambda p=place: _is_kept(p)).message == "True")
            ended = run(lambda place=place: train_again(place))
            right = ended.code == 0 and runs_of(place) == reference
            why = (ended.message.strip() or "differs").splitlines()[-1][:150]
            found.append((kept, "" if right else f"after {end}: {why}"))
            shutil.rmtree(place, ignore_errors=True)
        return found

    found = [result for part in lanes(share, processes) for result in part]
    bad = [complaint for _, complaint in found if complaint]
    lost = sum(not kept for kept, _ in found)
    size = f"{len(changes)} changes of a training, {len(found)} failures"
    bar = "the run ends bit-identical; after the end it is there without being trained again"
    said = f"{len(found) - len(bad)}/{len(found)} identical, {tries - lost}/{tries} kept"
    said += "".join(f"; {line}" for line in bad[:3])
    yield Row("power failures in training", size, bar, said, not bad and not lost)


def _is_kept(place: Path) -> bool:
    return SHORT.id in Store(place).finished([SHORT.id]) or bool(Store(place).adopt([SHORT.id]))
