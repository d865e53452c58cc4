"""The reader for N-MNIST in 30 bins: a small form of the set, for tests and for slow networks."""

import io
import lzma
import struct
import zipfile
import zlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ultralif.data.events import CELLS, Job
from ultralif.data.files import Folder, damaged, read_file
from ultralif.data.frames import Binned, merge_bins
from ultralif.data.npy import parse_npy
from ultralif.errors import InputError

__all__ = ["binned_jobs", "parse_binned"]

_BINS = 30
_SLICE = 1000
"""Recordings that are decoded at a time; few, because decoding needs wide integers."""


def parse_binned(data: bytes, path: Path) -> Iterator[Binned]:
    """Yield the recordings of a ``.npz.xz`` file, in 30 bins.

    It holds the number of entries of each recording (``length``) and for each entry its count and the
    distance of its key from the one before (``gap``; 255: take the next of ``big``); the first key counts
    from 0.
    """
    gap, big, count, length, label = _arrays(_unxz(data, path), path)
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
    """Add up the distances within each recording."""
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


def _arrays(content: bytes, path: Path) -> list[NDArray[Any]]:
    """Return the arrays gap, big, count, length and label."""
    arrays = []
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            for name in ("gap", "big", "count", "length", "label"):
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
    """Return the work of reading ``train-*.npz.xz`` or ``test-*.npz.xz``."""
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
