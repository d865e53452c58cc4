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
"""A job that reads several recordings in order and returns their counts."""

_SIDE = 34
CELLS = 2 * _SIDE * _SIDE
"""Number of cells of N-MNIST's sensor: polarities x rows x columns."""
_LIMIT = 1 << 20
"""Largest allowed recording, in bytes; the largest published ones have about 50,000."""


def parse_nmnist(parts: Sequence[bytes], paths: Sequence[Path], labels: Sequence[int]) -> Recordings:
    """Return the events in several N-MNIST files.

    An event has five bytes: x, y, one polarity bit and 23 bits of time in microseconds. An entry with y = 240
    is not an event: it advances the clock by 8192.
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
            where, f"has an event at x={x[outside[0]]}, y={y[outside[0]]}, outside {_SIDE} x {_SIDE}"
        )
    return Recordings(lengths, times, ((high >> 7) * _SIDE + y) * _SIDE + x, np.asarray(labels))


def _clock(overflow: NDArray[np.bool_], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return how far the recording's clock was advanced before each event."""
    passed = np.cumsum(overflow)
    starts = np.cumsum(lengths) - lengths
    moved: NDArray[np.int64] = 8192 * (passed - np.repeat(passed[starts] - overflow[starts], lengths))
    return moved


def raw_jobs(folder: Folder, half: str, timesteps: int) -> list[Job]:
    """Return the jobs that read ``Train`` or ``Test`` in order of file number, which is MNIST's order."""
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
        raise JobError(f"{path} cannot be listed: {error.strerror}; it should contain recordings") from error


def _read_raw(folder: Folder, names: list[str], labels: list[int], timesteps: int) -> Binned:
    parts = [folder.read(name, _LIMIT) for name in names]
    recordings = parse_nmnist(parts, [folder.path / name for name in names], labels)
    return bin_events(recordings, timesteps, CELLS)


_BINS = 30
_SLICE = 1000
"""Number of recordings decoded at a time; small, because decoding needs wide integers."""


def parse_binned(data: bytes, path: Path) -> Iterator[Binned]:
    """Yield the recordings in a ``.npz.xz`` file, in 30 bins.

    The file stores the number of entries of each recording (``length``). For each entry it stores the count
    and the difference between its key and the previous one (``gap``; 255 means the next value in ``big``).
    The first key of a recording is relative to 0.
    """
    gap, big, count, length, label = unpack(data, path, ("gap", "big", "count", "length", "label"))
    sizes = length.astype(np.int64)
    fits = gap.size == count.size == int(sizes.sum()) and sizes.size == label.size
    if not fits or (sizes <= 0).any() or (count <= 0).any() or big.size != np.count_nonzero(gap == 255):
        raise damaged(path, "contains arrays whose sizes do not match")
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
    """Sum the key differences within each recording."""
    starts = np.cumsum(lengths) - lengths
    running = np.cumsum(steps)
    keys = running - np.repeat(running[starts] - steps[starts], lengths)
    steps[starts] = 1  # only the first key of a recording may be 0
    if (steps <= 0).any() or (keys >= _BINS * CELLS).any():
        raise damaged(path, "contains keys that are not ascending, or are beyond the last bin")
    narrow: NDArray[np.int32] = keys.astype(np.int32)
    return narrow


def _unxz(data: bytes, path: Path) -> bytes:
    limit = 1 << 28
    unpacker = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=limit)
    try:
        content = unpacker.decompress(data, limit)
    except lzma.LZMAError as error:
        raise damaged(path, f"is not a valid xz file ({error})") from error
    if not unpacker.eof:
        raise damaged(path, f"is truncated, or unpacks to more than {limit:,} bytes")
    return content


def unpack(data: bytes, path: Path, names: Sequence[str]) -> list[NDArray[Any]]:
    """Return integer arrays from a ``.npz.xz`` file, given its contents."""
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
        raise damaged(path, "contains arrays that are not one-dimensional integer arrays")
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
