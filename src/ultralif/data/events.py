"""The reader for N-MNIST's recordings, and the type that every reader of events returns."""

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ultralif.data.files import Folder, damaged
from ultralif.data.frames import Binned, Recordings, bin_events
from ultralif.errors import JobError

__all__ = ["CELLS", "Job", "parse_nmnist", "raw_jobs"]

Job = Callable[[], Binned]
"""A piece of reading: some recordings, in order, as counts."""

_SIDE = 34
CELLS = 2 * _SIDE * _SIDE
"""Polarities, rows and columns of N-MNIST's sensor."""
_LIMIT = 1 << 20
"""No recording is larger: the largest have some 50,000 bytes."""


def parse_nmnist(parts: Sequence[bytes], paths: Sequence[Path], labels: Sequence[int]) -> Recordings:
    """Return the events of some N-MNIST files.

    An event has five bytes: x, y, then one bit of polarity and 23 of time in microseconds. A y of 240 is no
    event: it moves the clock on by 8192.
    """
    sizes = np.array([len(part) for part in parts])
    for path, size in zip(paths, sizes, strict=True):
        if size == 0 or size % 5:
            raise damaged(path, f"has {size} bytes, not a positive multiple of the five of an event")
    raw = np.frombuffer(b"".join(parts), np.uint8).reshape(-1, 5)
    lengths = sizes // 5
    x, y = raw[:, 0].astype(np.int32), raw[:, 1].astype(np.int32)
    high = raw[:, 2].astype(np.int32)
    times = (high & 127) << 16 | raw[:, 3].astype(np.int32) << 8 | raw[:, 4]
    overflow = y == 240
    if overflow.any():
        times = times.astype(np.int64) + _clock(overflow, lengths)
        starts = np.cumsum(lengths) - lengths
        lengths = lengths - np.add.reduceat(overflow.astype(np.int64), starts)
        keep = ~overflow
        x, y, high, times = x[keep], y[keep], high[keep], times[keep]
    outside = np.flatnonzero((x >= _SIDE) | (y >= _SIDE))
    if outside.size:
        where = paths[int(np.searchsorted(np.cumsum(lengths), outside[0], side="right"))]
        raise damaged(
            where, f"has an event at x={x[outside[0]]}, y={y[outside[0]]}, beyond {_SIDE} x {_SIDE}"
        )
    return Recordings(lengths, times, ((high >> 7) * _SIDE + y) * _SIDE + x, np.asarray(labels))


def _clock(overflow: NDArray[np.bool_], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return how far the clock of each event was moved on within its recording."""
    passed = np.cumsum(overflow)
    starts = np.cumsum(lengths) - lengths
    moved: NDArray[np.int64] = 8192 * (passed - np.repeat(passed[starts] - overflow[starts], lengths))
    return moved


def raw_jobs(folder: Folder, half: str, timesteps: int) -> list[Job]:
    """Return the work of reading ``Train`` or ``Test`` in the order of the file numbers, which is MNIST's."""
    top = half.capitalize()
    files = []
    for label in range(10):
        names = _listed(folder.path / top / str(label))
        files += [(name, label) for name in names if name.endswith(".bin") and not name.startswith(".")]
    files.sort()
    jobs: list[Job] = []
    for start in range(0, len(files), 512):
        part = files[start : start + 512]
        names = [f"{top}/{label}/{name}" for name, label in part]
        jobs.append(partial(_read_raw, folder, names, [label for _, label in part], timesteps))
    return jobs


def _listed(path: Path) -> list[str]:
    try:
        return [entry.name for entry in os.scandir(path)]
    except OSError as error:
        raise JobError(f"{path} cannot be listed: {error.strerror}; it should hold recordings") from error


def _read_raw(folder: Folder, names: list[str], labels: list[int], timesteps: int) -> Binned:
    parts = [folder.read(name, _LIMIT) for name in names]
    recordings = parse_nmnist(parts, [folder.path / name for name in names], labels)
    return bin_events(recordings, timesteps, CELLS)
