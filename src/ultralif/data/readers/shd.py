"""Readers for SHD: the published HDF5 files, and a packed form with millisecond resolution.

HDF5 is read in a separate process, because a bad file can crash the HDF5 library.
"""

import io
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np

from ultralif.data.files import Folder, damaged
from ultralif.data.readers.frames import Binned, Recordings, bin_events, bin_steps
from ultralif.data.readers.nmnist import Job, unpack
from ultralif.errors import InputError, JobError
from ultralif.files import opened

__all__ = ["CHANNELS", "packed_jobs", "parse_packed", "read_shd", "shd_jobs"]

CHANNELS = 700
"""Number of channels of the cochlea model."""
_PATIENCE = 600
"""Timeout in seconds for reading a file."""


def read_shd(path: Path) -> Recordings:
    """Return the spikes in an SHD file, with times in whole microseconds."""
    if not path.exists():
        raise JobError(f"{path} does not exist; get it with: ultralif data get shd")
    opened(path).close()  # HDF5 would block on a pipe
    reader = [sys.executable, "-P", str(Path(__file__).with_name("shd_process.py")), str(path)]
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "HDF5_USE_FILE_LOCKING": "FALSE"}
    try:
        done = subprocess.run(  # noqa: S603 (this interpreter, on a file of this package)
            reader, capture_output=True, timeout=_PATIENCE, env=environment, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise damaged(path, f"cannot be read within {_PATIENCE} seconds") from error
    if done.returncode:
        lines = done.stderr.decode("utf-8", "replace").split("\n")
        why = next((line for line in reversed(lines) if line.strip()), "it crashed the HDF5 library")
        raise damaged(path, f"cannot be read as SHD ({why})")
    stream = io.BytesIO(done.stdout)
    lengths, times, units, labels = (np.load(stream, allow_pickle=False) for _ in range(4))
    if units.size and units.max() >= CHANNELS:
        raise damaged(path, f"has a spike in channel {units.max()} of {CHANNELS}")
    return Recordings(lengths, times, units, labels)


def shd_jobs(
    folder: Folder, half: str, timesteps: int, *, step_ms: float | None = None, channels: int = CHANNELS
) -> list[Job]:
    """Return the jobs that read ``shd_train.h5`` or ``shd_test.h5``."""
    name = f"shd_{half}.h5"
    folder.check(name)
    recordings = read_shd(folder.path / name)
    starts = range(0, len(recordings.lengths), 256)
    return [partial(_bin, _part(recordings, i), timesteps, step_ms, channels) for i in starts]


def _part(recordings: Recordings, start: int) -> Recordings:
    lengths = recordings.lengths[start : start + 256]
    begin = int(recordings.lengths[:start].sum())
    events = slice(begin, begin + int(lengths.sum()))
    return Recordings(
        lengths,
        recordings.times[events],
        recordings.addresses[events],
        recordings.labels[start : start + 256],
    )


def parse_packed(data: bytes, path: Path) -> Recordings:
    """Return the spikes in a packed file, with times in microseconds.

    The file stores each sample's duration in milliseconds and its label, and the number of spikes in each
    millisecond (``counts``). Spikes are sorted by unit within a millisecond; each is stored as the difference
    between its unit and the previous one (``low`` and ``high`` byte). The first unit in a millisecond is
    relative to 0.
    """
    wanted = ("duration_ms", "counts", "low", "high", "labels")
    duration, counts, low, high, labels = unpack(data, path, wanted)
    length, number = duration.astype(np.int64), counts.astype(np.int64)
    spikes = int(number.sum())
    if length.size != labels.size or (length < 1).any() or (number < 0).any():
        raise damaged(path, "contains arrays whose sizes do not match")
    if int(length.sum()) != number.size or not low.size == high.size == spikes:
        raise damaged(path, "contains arrays whose sizes do not match")
    gap = low.astype(np.int64) | high.astype(np.int64) << 8
    running = np.cumsum(gap)
    busy = number[number > 0]
    starts = np.cumsum(busy) - busy
    units = running - np.repeat(running[starts] - gap[starts], busy)
    if units.size and not 0 <= units.min() <= units.max() < CHANNELS:
        raise damaged(path, f"has a spike in channel {units.max()} of {CHANNELS}")
    first = np.cumsum(length) - length
    ms = np.arange(number.size) - np.repeat(first, length)
    return Recordings(np.add.reduceat(number, first), np.repeat(ms, number) * 1000, units, labels)


def packed_jobs(
    folder: Folder, half: str, timesteps: int, *, step_ms: float | None = None, channels: int = CHANNELS
) -> list[Job]:
    """Return the jobs that read ``train-*.npz.xz`` or ``test-*.npz.xz``; each must have a known digest."""
    names = sorted(path.name for path in folder.path.glob(f"{half}-*.npz.xz"))
    for name in names:
        if name not in folder.digests:
            raise InputError(f"{folder.path / name} does not belong to the packed SHD; remove it")
    return [partial(_read_packed, folder, name, timesteps, step_ms, channels) for name in names]


def _read_packed(folder: Folder, name: str, timesteps: int, step_ms: float | None, channels: int) -> Binned:
    recordings = parse_packed(folder.read(name, 1 << 27), folder.path / name)
    return _bin(recordings, timesteps, step_ms, channels)


def _bin(recordings: Recordings, timesteps: int, step_ms: float | None, channels: int) -> Binned:
    """Bin spikes over each sample's own duration, or in fixed steps, and sum neighbouring channels."""
    if channels != CHANNELS:
        recordings = recordings._replace(addresses=recordings.addresses // (CHANNELS // channels))
    if step_ms is None:
        return bin_events(recordings, timesteps, channels)
    return bin_steps(recordings, timesteps, channels, round(1000 * step_ms))
