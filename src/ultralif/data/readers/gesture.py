"""Readers for DVS-Gesture: AEDAT 3.1 with label tables, and recordings split into ``.npy`` files."""

import struct
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ultralif.data.files import Folder, damaged, parse_npy
from ultralif.data.readers.frames import Binned, Recordings, bin_events
from ultralif.data.readers.nmnist import Job

__all__ = ["aedat_jobs", "npy_jobs", "parse_aedat", "parse_labels", "parse_recording"]

_SIDE = 128
_CELLS = 2 * _SIDE * _SIDE
_CLASSES = 11
_LIMIT = 1 << 30
_LONGEST = 1 << 40
"""Upper limit for the duration of a recording in microseconds, about twelve days."""

Events = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Times and addresses."""


def parse_aedat(data: bytes, path: Path) -> Events:
    """Return the polarity events of an AEDAT 3.1 file.

    A text header, which ends with ``#!END-HEADER``, is followed by packets. Each has a 28-byte header (type,
    source, event size, time offset, time overflow, capacity, number, valid; little-endian), then the events.
    A polarity event, type 1, has 32 data bits (polarity from bit 1, y from bit 2, x from bit 17) and 31 time
    bits. Its validity bit is ignored, as in SpikingJelly, which defined this split.
    """
    mark = b"#!END-HEADER\r\n"
    position = data.find(mark, 0, 1 << 16)
    if not data.startswith(b"#!AER-DAT3.1\r\n") or position < 0:
        raise damaged(path, "is not an AEDAT 3.1 file")
    position += len(mark)
    times, words = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    while position < len(data):
        if len(data) - position < 28:
            raise damaged(path, "is truncated within a packet header")
        kind, _, size, _, overflow, capacity, number, _ = struct.unpack_from("<HHIIIIII", data, position)
        position += 28
        if size == 0 or number > capacity or capacity * size > len(data) - position or overflow >= 1 << 20:
            raise damaged(path, f"is truncated, or has an invalid packet header at byte {position - 28:,}")
        if kind == 1 and size == 8:
            packet = np.frombuffer(data, "<u4", 2 * number, position).reshape(-1, 2)
            words.append(packet[:, 0].astype(np.int64))
            times.append((packet[:, 1].astype(np.int64) & 0x7FFFFFFF) + (overflow << 31))
        position += capacity * size
    word = np.concatenate(words)
    return np.concatenate(times), _addresses(word >> 17, word >> 2 & 0x7FFF, word >> 1 & 1, path)


def _addresses(
    x: NDArray[np.int64], y: NDArray[np.int64], p: NDArray[np.int64], path: Path
) -> NDArray[np.int64]:
    if any(v.size and not 0 <= v.min() <= v.max() < size for v, size in ((x, _SIDE), (y, _SIDE), (p, 2))):
        raise damaged(path, f"has events outside the sensor's {_SIDE} x {_SIDE} x 2 cells")
    return (p * _SIDE + y) * _SIDE + x


def parse_labels(data: bytes, path: Path) -> NDArray[np.int64]:
    """Return the rows of a label table: class from 0, start and end time in microseconds."""
    lines = data.decode("ascii", "replace").split()
    try:
        rows = np.array([[int(field) for field in line.split(",")] for line in lines[1:]], np.int64)
    except (ValueError, OverflowError) as error:
        raise damaged(path, f"is not a table of class, start and end ({error})") from error
    if not lines or lines[0] != "class,startTime_usec,endTime_usec" or rows.ndim != 2 or rows.shape[1] != 3:
        raise damaged(path, "is not a table of class, startTime_usec, endTime_usec")
    if rows[:, 0].min() < 1 or rows[:, 0].max() > _CLASSES or (rows[:, 1] > rows[:, 2]).any():
        raise damaged(path, f"has classes outside 1 to {_CLASSES}, or a gesture that ends before it begins")
    return rows - (1, 0, 0)


def aedat_jobs(folder: Folder, half: str, timesteps: int) -> list[Job]:
    """Return the jobs that read the training or the test trials, in listed order."""
    trials = folder.read(f"trials_to_{half}.txt", 1 << 20).decode("ascii", "replace").split()
    for trial in trials:
        if not trial.endswith(".aedat") or "/" in trial or "\\" in trial:
            raise damaged(
                folder.path / f"trials_to_{half}.txt", f"lists {trial!r}, not the name of an .aedat file"
            )
    return [partial(_read_trial, folder, trial, timesteps) for trial in trials]


def _read_trial(folder: Folder, trial: str, timesteps: int) -> Binned:
    times, addresses = parse_aedat(folder.read(trial, _LIMIT), folder.path / trial)
    if times.size and times.max() >= _LONGEST:
        raise damaged(folder.path / trial, f"has an event after {times.max():,} microseconds")
    table = trial.removesuffix(".aedat") + "_labels.csv"
    rows = parse_labels(folder.read(table, 1 << 20), folder.path / table)
    within = [np.flatnonzero((times >= start) & (times < end)) for _, start, end in rows]
    events = np.concatenate(within)
    lengths = np.array([len(part) for part in within])
    return bin_events(Recordings(lengths, times[events], addresses[events], rows[:, 0]), timesteps, _CELLS)


def parse_recording(data: bytes, path: Path) -> Events:
    """Return the events of one ``.npy`` recording: columns x, y, polarity, milliseconds."""
    rows = parse_npy(data, path)
    if rows.ndim != 2 or rows.shape[1] != 4 or not len(rows):
        raise damaged(path, f"has shape {rows.shape} instead of one row (x, y, polarity, time) per event")
    if not (np.isfinite(rows).all() and 0 <= rows.min() <= rows.max() < _LONGEST / 1000):
        raise damaged(path, "has values that are not coordinates and times")
    wide = rows.astype(np.float64 if rows.dtype.kind == "f" else np.int64)
    times = (wide[:, 3] * 1000).astype(np.int64)
    x, y, p = wide[:, :3].astype(np.int64).T
    return times, _addresses(x, y, p, path)


def npy_jobs(folder: Folder, half: str, timesteps: int) -> list[Job]:
    """Return the jobs that read ``ibmGestureTrain`` or ``ibmGestureTest``, by user, light and class."""
    top = folder.path / f"ibmGesture{half.capitalize()}"
    paths = sorted(top.glob("user*/*.npy"), key=lambda path: (path.parent.name, len(path.name), path.name))
    for path in paths:
        if not (path.stem.isdecimal() and int(path.stem) < _CLASSES):
            raise damaged(path, f"is named {path.name}; the name must be a class from 0 to {_CLASSES - 1}")
    names = [path.relative_to(folder.path).as_posix() for path in paths]
    return [partial(_read_recordings, folder, names[i : i + 8], timesteps) for i in range(0, len(names), 8)]


def _read_recordings(folder: Folder, names: list[str], timesteps: int) -> Binned:
    events = [parse_recording(folder.read(name, _LIMIT), folder.path / name) for name in names]
    times, addresses = (np.concatenate(column) for column in zip(*events, strict=True))
    lengths = np.array([len(part) for part, _ in events])
    labels = np.array([int(Path(name).stem) for name in names])
    return bin_events(Recordings(lengths, times, addresses, labels), timesteps, _CELLS)
