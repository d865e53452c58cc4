"""Readers for N-MNIST: the raw recordings, and a compact form in 30 time bins."""

import io
import lzma
import os
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ultralif.data.files import Folder, damaged, parse_npy, read_file
from ultralif.data.readers.frames import Binned, Recordings, bin_events, merge_bins
from ultralif.errors import InputError, JobError

__all__ = ["CELLS", "Job", "binned_jobs", "parse_binned", "parse_nmnist", "raw_jobs", "unpack"]

Job = Callable[[], Binned]
"""One unit of reading: some recordings, in order, as counts."""

_SIDE = 34
CELLS = 2 * _SIDE * _SIDE
"""Polarities, rows and columns of N-MNIST's sensor."""
_LIMIT = 1 << 20
"""No recording is larger; the largest take about 50,000 bytes."""


def parse_nmnist(parts: Sequence[bytes], paths: Sequence[Path], labels: Sequence[int]) -> Recordings:
    """Return the events of some N-MNIST files.

    An event has five bytes: x, y, then one bit of polarity and 23 of time in microseconds. A y of 240 is no
    event: it moves the clock on by 8192.
    """
    sizes = np.array([len(part) for part in parts])
    for path, size in zip(paths, sizes, strict=True):
        if size == 0 or size % 5:
            raise damaged(path, f"has {size} bytes; an event has 5, so this must be a positive multiple of 5")
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
    """Return how far the clock had been advanced before each event of its recording."""
    passed = np.cumsum(overflow)
    starts = np.cumsum(lengths) - lengths
    moved: NDArray[np.int64] = 8192 * (passed - np.repeat(passed[starts] - overflow[starts], lengths))
    return moved


def raw_jobs(folder: Folder, half: str, timesteps: int) -> list[Job]:
    """Return the jobs that read ``Train`` or ``Test`` in the order of the file numbers, which is MNIST's."""
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


_BINS = 30
_SLICE = 1000
"""Number of recordings that are decoded at a time; small, because decoding needs wide integers."""


def parse_binned(data: bytes, path: Path) -> Iterator[Binned]:
    """Yield the recordings of a ``.npz.xz`` file, in 30 bins.

    It holds the number of entries of each recording (``length``) and for each entry its count and the
    distance of its key from the one before (``gap``; 255: take the next of ``big``); the first key counts
    from 0.
    """
    gap, big, count, length, label = unpack(data, path, ("gap", "big", "count", "length", "label"))
    sizes = length.astype(np.int64)
    fits = gap.size == count.size == int(sizes.sum()) and sizes.size == label.size
    if not fits or (sizes <= 0).any() or (count <= 0).any() or big.size != np.count_nonzero(gap == 255):
        raise damaged(path, "holds arrays that do not fit together")
    begin = taken = 0
    for i in range(0, sizes.size, _SLICE):
        lengths = sizes[i : i + _SLICE]
        end = begin + int(lengths.sum())
        steps = gap[begin:end].astype(np.int64)
        escaped = np.flatnonzero(steps == 255)
        steps[escaped] = big[taken : taken + escaped.size]
        yield Binned(lengths, _keys(steps, lengths, path), count[begin:end], label[i : i + _SLICE])
        begin, taken = end, taken + escaped.size


def _keys(steps: NDArray[np.int64], lengths: NDArray[np.int64], path: Path) -> NDArray[np.int32]:
    """Sum the distances within each recording."""
    starts = np.cumsum(lengths) - lengths
    running = np.cumsum(steps)
    keys = running - np.repeat(running[starts] - steps[starts], lengths)
    steps[starts] = 1  # only the first key of a recording may be 0
    if (steps <= 0).any() or (keys >= _BINS * CELLS).any():
        raise damaged(path, "holds keys that are not ascending, or beyond the last bin")
    narrow: NDArray[np.int32] = keys.astype(np.int32)
    return narrow


def _unxz(data: bytes, path: Path) -> bytes:
    limit = 1 << 28
    unpacker = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=limit)
    try:
        content = unpacker.decompress(data, limit)
    except lzma.LZMAError as error:
        raise damaged(path, f"is not sound xz ({error})") from error
    if not unpacker.eof:
        raise damaged(path, f"is cut off, or unpacks to more than {limit:,} bytes")
    return content


def unpack(data: bytes, path: Path, names: Sequence[str]) -> list[NDArray[Any]]:
    """Return arrays of integers from a ``.npz.xz`` file, given its content."""
    content, arrays = _unxz(data, path), []
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            for name in names:
                with archive.open(f"{name}.npy") as file:
                    arrays.append(parse_npy(file.read(len(content)), path))
    except InputError:
        raise
    except (KeyError, OSError, EOFError, RuntimeError, ValueError, OverflowError) as error:
        raise damaged(path, f"is not an archive of arrays ({error})") from error
    except (zipfile.BadZipFile, struct.error, zlib.error) as error:
        raise damaged(path, f"is not an archive of arrays ({error})") from error
    if any(array.ndim != 1 or array.dtype.kind not in "iu" for array in arrays):
        raise damaged(path, "holds arrays that are not rows of integers")
    return arrays


def binned_jobs(folder: Folder, half: str, timesteps: int) -> list[Job]:
    """Return the jobs that read ``train-*.npz.xz`` or ``test-*.npz.xz``."""
    if _BINS % timesteps:
        choices = ", ".join(str(n) for n in range(1, _BINS + 1) if _BINS % n == 0)
        raise InputError(
            f"timesteps must divide the {_BINS} bins of the recordings in {folder.path}, got {timesteps}; "
            f"choose one of {choices}, or get the raw recordings with: ultralif data get n-mnist"
        )
    paths = sorted(folder.path.glob(f"{half}-*.npz.xz"), key=lambda path: (len(path.name), path.name))
    return [partial(_read, path, timesteps) for path in paths]


def _read(path: Path, timesteps: int) -> Binned:
    parts = parse_binned(read_file(path, 1 << 27), path)
    if timesteps < _BINS:
        parts = (merge_bins(part, _BINS // timesteps, timesteps, CELLS) for part in parts)
    columns = zip(*parts, strict=True)
    return Binned(*(np.concatenate(column) for column in columns))
