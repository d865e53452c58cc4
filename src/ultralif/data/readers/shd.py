"""The reader for SHD: HDF5 is read by a process of its own, since a bad file can crash the HDF5 library."""

import io
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np

from ultralif.data.files import Folder, damaged
from ultralif.data.readers.frames import Binned, Recordings, bin_events
from ultralif.data.readers.nmnist import Job
from ultralif.errors import JobError
from ultralif.files import opened

__all__ = ["read_shd", "shd_jobs"]

_CHANNELS = 700
_PATIENCE = 600
"""Seconds after which reading a file is given up."""


def read_shd(path: Path) -> Recordings:
    """Return the spikes of an SHD file, with times in whole microseconds."""
    if not path.exists():
        raise JobError(f"{path} is not there; get it with: ultralif data get shd")
    opened(path).close()  # HDF5 would wait for a pipe
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
    if units.size and units.max() >= _CHANNELS:
        raise damaged(path, f"has a spike in channel {units.max()} of {_CHANNELS}")
    return Recordings(lengths, times, units, labels)


def shd_jobs(folder: Folder, half: str, timesteps: int) -> list[Job]:
    """Return the work of reading ``shd_train.h5`` or ``shd_test.h5``."""
    name = f"shd_{half}.h5"
    folder.check(name)
    recordings = read_shd(folder.path / name)
    return [partial(_bin, recordings, i, timesteps) for i in range(0, len(recordings.lengths), 256)]


def _bin(recordings: Recordings, start: int, timesteps: int) -> Binned:
    lengths = recordings.lengths[start : start + 256]
    begin = int(recordings.lengths[:start].sum())
    events = slice(begin, begin + int(lengths.sum()))
    part = Recordings(
        lengths,
        recordings.times[events],
        recordings.addresses[events],
        recordings.labels[start : start + 256],
    )
    return bin_events(part, timesteps, _CHANNELS)
