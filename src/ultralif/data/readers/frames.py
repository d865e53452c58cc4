"""Bin events into T sparse frames that match tonic's ``ToFrame(n_time_bins=T)``."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Binned", "Recordings", "bin_events", "bin_steps", "merge_bins", "smallest"]

Integers = NDArray[np.integer[Any]]


class Recordings(NamedTuple):
    """The events of several recordings, one recording after the other."""

    lengths: Integers
    """Number of events in each recording, ``[R]``."""
    times: Integers
    """``[E]``"""
    addresses: Integers
    """The cell of each event, ``[E]``: polarity, y and x combined into one number."""
    labels: Integers
    """``[R]``"""


class Binned(NamedTuple):
    """The nonzero counts of several recordings, one recording after the other."""

    lengths: Integers
    """Number of entries in each recording, ``[R]``."""
    keys: Integers
    """``bin * cells + address`` of each entry, ascending within a recording, ``[N]``."""
    counts: Integers
    """Number of events in each entry, ``[N]``."""
    labels: Integers
    """``[R]``"""


def bin_events(recordings: Recordings, timesteps: int, cells: int) -> Binned:
    r"""Count each recording's events by time bin and cell.

    With :math:`w = \lfloor (t_{last} - t_{first}) / T \rfloor`, bin i contains the events in
    :math:`[t_{first} + i w, t_{first} + (i+1) w)`. As in tonic, events after the T-th bin are dropped: the
    last event, and those up to T - 1 microseconds before it. Unlike in tonic, out-of-order events are sorted
    first.

    Example:
        >>> events = Recordings(*map(np.array, ([5], [0, 10, 20, 30, 40], [2, 2, 2, 0, 1], [7])))
        >>> binned = bin_events(events, timesteps=2, cells=3)
        >>> binned.keys, binned.counts
        (array([2, 3, 5], dtype=int32), array([2, 1, 1], dtype=uint8))
    """
    lengths = recordings.lengths.astype(np.int64)
    ends = np.cumsum(lengths)
    busy = np.flatnonzero(lengths)
    times, addresses = _ordered(recordings, lengths, ends[busy[:-1]])
    first, last = np.zeros_like(lengths), np.zeros_like(lengths)
    first[busy], last[busy] = times[ends[busy] - lengths[busy]], times[ends[busy] - 1]
    width = (last - first) // timesteps
    # If all recordings are placed on one clock without overlap, a single sorted search finds all bins.
    room = last - first + 1
    clock = np.cumsum(room) - room
    edges = clock[:, None] + np.arange(timesteps + 1) * width[:, None]
    on_clock = times + np.repeat(clock - first, lengths)
    found = np.searchsorted(on_clock, edges.reshape(-1)).reshape(edges.shape)
    filled = np.diff(found, axis=1)
    kept = _ranges(found[:, 0], filled.sum(axis=1))
    narrow = np.int32 if filled.size * cells < 1 << 31 else np.int64
    cell = np.repeat(np.arange(filled.size, dtype=narrow) * cells, filled.reshape(-1))
    cell += addresses[kept].astype(narrow, copy=False)
    return _runs(np.sort(cell, kind="stable"), timesteps * cells, recordings.labels)


def bin_steps(recordings: Recordings, timesteps: int, cells: int, width: int) -> Binned:
    """Count each recording's events in steps of a fixed width; later events are dropped.

    Example:
        >>> events = Recordings(*map(np.array, ([4], [0, 10, 20, 90], [2, 2, 0, 1], [7])))
        >>> bin_steps(events, timesteps=2, cells=3, width=20).keys
        array([2, 3], dtype=int32)
    """
    recording = np.repeat(np.arange(len(recordings.lengths)), recordings.lengths)
    step = recordings.times.astype(np.int64) // width
    kept = (step >= 0) & (step < timesteps)
    cell = (recording[kept] * timesteps + step[kept]) * cells + recordings.addresses[kept]
    return _runs(np.sort(cell, kind="stable"), timesteps * cells, recordings.labels)


def merge_bins(binned: Binned, factor: int, timesteps: int, cells: int) -> Binned:
    """Sum neighbouring bins, ``factor`` at a time, into ``timesteps`` bins."""
    recording = np.repeat(np.arange(len(binned.lengths)), binned.lengths)
    keys = binned.keys.astype(np.int64)
    cell = (recording * timesteps + keys // (cells * factor)) * cells + keys % cells
    # Store the count in the low bits: sorting values is faster than argsort, and a stable sort merges the old
    # bins, which are already sorted runs.
    riding = np.sort(cell << 16 | binned.counts, kind="stable")
    return _runs(riding >> 16, timesteps * cells, binned.labels, weights=riding & 0xFFFF)


def smallest(values: Integers) -> Integers:
    """Convert counts to the smallest of uint8, int16 and int32 that can represent them."""
    top = int(values.max(initial=0))
    kind = np.uint8 if top < 1 << 8 else np.int16 if top < 1 << 15 else np.int32
    return values.astype(kind)


def _ordered(recordings: Recordings, lengths: Integers, joints: Integers) -> tuple[Integers, Integers]:
    """Return times and addresses with each recording sorted by time.

    Args:
        recordings: the events.
        lengths: number of events in each recording.
        joints: the start of every recording except the first.
    """
    times: NDArray[np.int64] = recordings.times.astype(np.int64)
    backwards = times[1:] < times[:-1]
    backwards[joints - 1] = False
    if not backwards.any():
        return times, recordings.addresses
    order = np.lexsort((times, np.repeat(np.arange(len(lengths)), lengths)))
    return times[order], recordings.addresses[order]


def _ranges(starts: Integers, lengths: Integers) -> Integers:
    """Return ``start, start + 1, ...`` for each range, one range after the other."""
    before = np.cumsum(lengths) - lengths
    ranges: Integers = np.arange(int(lengths.sum())) + np.repeat(starts - before, lengths)
    return ranges


def _runs(cell: Integers, size: int, labels: Integers, weights: Integers | None = None) -> Binned:
    """Count runs of equal cells, or sum their weights; a recording has ``size`` cells."""
    begins = np.flatnonzero(np.diff(cell, prepend=-1))
    if weights is None or not begins.size:
        counts = np.diff(begins, append=len(cell))
    else:
        counts = np.add.reduceat(weights, begins)
    unique = cell[begins]
    lengths = np.bincount(unique // size, minlength=len(labels))
    return Binned(lengths, (unique % size).astype(np.int32), smallest(counts), labels)
