"""Bin your own event recordings into frames, and augment the frames on their device."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad

from ultralif.data.readers.frames import Recordings, bin_events
from ultralif.errors import InputError

__all__ = ["drop", "flip", "jitter", "shift", "to_frames"]

FIELDS = {
    "t": ("t", "ts", "time", "timestamp"),
    "x": ("x",),
    "y": ("y",),
    "p": ("p", "pol", "polarity", "on"),
}
"""Accepted field names in structured arrays, in upper or lower case."""


def to_frames(events: Any, timesteps: int, size: int | Sequence[int]) -> Tensor:
    r"""Count events in ``timesteps`` frames of equal duration and return the frames as ``[T, *size]``.

    The bins match tonic's ``ToFrame(n_time_bins=T)``. With
    :math:`w = \lfloor (t_{last} - t_{first}) / T \rfloor`, frame i counts the events of
    :math:`[t_{first} + i w, t_{first} + (i+1) w)`. Later events, which always include the last one, are
    dropped. If times are not integers, or a recording is shorter than T ticks, w is not rounded down.

    To use it as a dataset transform, fix the other arguments:
    ``functools.partial(ul.data.to_frames, timesteps=10, size=(2, 34, 34))``.

    Args:
        events: one recording: a structured array with the fields ``t``, ``x``, ``y`` and ``p``, as tonic
            returns it, a tuple ``(t, x, y, p)`` of arrays, or an array ``[E, 4]`` with these columns. Leave
            ``y`` and ``p`` out for a one-dimensional sensor, such as the channels of a cochlea.
            A polarity of -1 counts as 0.
        timesteps: the number of frames, T.
        size: the shape of a frame: ``(polarities, height, width)``; ``(height, width)``, which sums both
            polarities; or a number of channels. tonic's ``sensor_size`` has the opposite order.

    Example:
        >>> t, x, y, p = [0, 10, 20, 30], [1, 1, 0, 0], [2, 2, 0, 0], [0, 1, 1, 1]
        >>> frames = to_frames((t, x, y, p), timesteps=3, size=(2, 4, 4))
        >>> frames.shape, frames.sum((1, 2, 3))
        (torch.Size([3, 2, 4, 4]), tensor([1., 1., 1.]))
    """
    shape = (size,) if isinstance(size, int) else tuple(size)
    if timesteps < 1 or not 1 <= len(shape) <= 3 or any(n < 1 for n in shape):
        raise InputError(
            "timesteps must be at least 1, and size (polarities, height, width), (height, width) or a "
            f"number of channels, got {timesteps} and {size}"
        )
    fields = _fields(events, ("t", "x", "y", "p") if len(shape) == 3 else ("t", "x", "y")[: 1 + len(shape)])
    address: NDArray[np.int64] = np.zeros(len(fields["t"]), np.int64)
    for name, length in zip(("p", "y", "x")[-len(shape) :], shape, strict=True):
        address = address * length + _cells(name, fields[name], length, shape)
    recording = Recordings(
        np.array([len(address)]), _ticks(fields["t"], timesteps), address, np.zeros(1, np.int64)
    )
    binned = bin_events(recording, timesteps, int(np.prod(shape)))
    frames = torch.zeros(timesteps, *shape)
    frames.view(-1)[torch.from_numpy(binned.keys.astype(np.int64))] = torch.from_numpy(
        binned.counts.astype(np.float32)
    )
    return frames


def drop(frames: Tensor, p: float, *, generator: torch.Generator | None = None) -> Tensor:
    """Drop each event with probability ``p``.

    Args:
        frames: integer event counts ``[T, B, *size]``.
        p: the probability, from 0 to 1.
        generator: random number generator on the device of ``frames``; None uses torch's default.
    """
    if not 0 <= p <= 1:
        raise InputError(f"p must be a probability from 0 to 1, got {p}")
    _check(frames)
    return torch.binomial(frames, torch.full_like(frames, 1 - p), generator=generator)


def flip(frames: Tensor, p: float = 0.5, *, generator: torch.Generator | None = None) -> Tensor:
    """Mirror each recording horizontally with probability ``p``.

    Args:
        frames: ``[T, B, *size]``.
        p: the probability, from 0 to 1.
        generator: as in `drop`.
    """
    if not 0 <= p <= 1:
        raise InputError(f"p must be a probability from 0 to 1, got {p}")
    _check(frames)
    chosen = torch.rand(frames.shape[1], generator=generator, device=frames.device) < p
    return torch.where(chosen.view(1, -1, *[1] * (frames.dim() - 2)), frames.flip(-1), frames)


def shift(frames: Tensor, pixels: int, *, generator: torch.Generator | None = None) -> Tensor:
    """Shift each recording by up to ``pixels`` along both axes; events that leave the frame are lost.

    Args:
        frames: ``[T, B, *size]``. Frames of a one-dimensional sensor are shifted along their only axis.
        pixels: the largest shift.
        generator: as in `drop`.
    """
    if pixels < 0:
        raise InputError(f"pixels must not be negative, got {pixels}")
    _check(frames)
    for axis in range(max(2, frames.dim() - 2), frames.dim()):
        length = frames.shape[axis]
        offset = torch.randint(2 * pixels + 1, (frames.shape[1],), generator=generator, device=frames.device)
        padded = pad(frames.movedim(axis, -1), [pixels, pixels])
        places = offset[:, None] + torch.arange(length, device=frames.device)
        index = places.view(1, -1, *[1] * (padded.dim() - 3), length)
        frames = padded.gather(-1, index.expand(*padded.shape[:-1], length)).movedim(-1, axis)
    return frames


def jitter(frames: Tensor, steps: int, *, generator: torch.Generator | None = None) -> Tensor:
    """Move each event in time by up to ``steps`` frames; moves are clipped at the ends, so no event is lost.

    Args:
        frames: integer event counts ``[T, B, *size]``.
        steps: the largest move in either direction; all moves are equally likely.
        generator: as in `drop`.
    """
    if steps < 0:
        raise InputError(f"steps must not be negative, got {steps}")
    _check(frames)
    left, moved = frames, torch.zeros_like(frames)
    time = torch.arange(len(frames), device=frames.device)
    for i, move in enumerate(range(-steps, steps + 1)):  # an event that has not moved yet may move now
        share = torch.full_like(left, 1 / (2 * steps + 1 - i))
        taken = torch.binomial(left, share, generator=generator)
        moved.index_add_(0, (time + move).clamp(0, len(frames) - 1), taken)
        left = left - taken
    return moved


def _fields(events: Any, needed: Sequence[str]) -> dict[str, NDArray[Any]]:
    """Return the fields by name, for a recording in any supported form."""
    if isinstance(events, tuple | list) and len(events) and not np.isscalar(events[0]):
        columns = [np.asarray(column).reshape(-1) for column in events]
    else:
        array = np.asarray(events)
        if array.dtype.names:
            by_name = {name.lower(): array[name] for name in array.dtype.names}
            found = {
                field: by_name[alias]
                for field, aliases in FIELDS.items()
                for alias in aliases
                if alias in by_name
            }
            missing = [name for name in needed if name not in found]
            if missing:
                raise InputError(
                    f"events have no field {', '.join(missing)}, only {', '.join(array.dtype.names)}; rename "
                    "the fields, or choose a size with fewer axes"
                )
            return found
        if array.ndim != 2:
            raise InputError(
                "events must be a structured array, a tuple (t, x, y, p) or an array [E, 4], got shape "
                f"{array.shape} of {array.dtype}"
            )
        columns = list(array.T)
    if not len(needed) <= len(columns) <= 4 or len({len(column) for column in columns}) > 1:
        raise InputError(
            f"events must have the columns {', '.join(needed)}, all of the same length, got lengths "
            f"{[len(column) for column in columns]}; pass (t, x, y, p)"
        )
    return dict(zip(("t", "x", "y", "p"), columns, strict=False))


def _cells(name: str, values: NDArray[Any], length: int, shape: tuple[int, ...]) -> NDArray[np.int64]:
    """Return positions along one frame axis, after checking that all are inside the frame."""
    if values.dtype.kind == "f" and not bool(np.all(values == np.floor(values))):
        raise InputError(f"{name} must be integers, got {values.dtype} with fractions; round them")
    cells: NDArray[np.int64] = values.astype(np.int64)
    if name == "p":
        cells = np.where(cells == -1, 0, cells)
    low, high = int(cells.min(initial=0)), int(cells.max(initial=0))
    if low < 0 or high >= length:
        raise InputError(
            f"{name} ranges from {low} to {high}, but size {shape} only allows 0 to {length - 1}; size is "
            "(polarities, height, width), the opposite order of tonic's sensor_size, and events are "
            "(t, x, y, p)"
        )
    return cells


def _ticks(times: NDArray[Any], timesteps: int) -> NDArray[np.int64]:
    """Return times as integers, on a scale fine enough for T bins."""
    if not times.size:
        return times.astype(np.int64)
    first, last = times.min(), times.max()
    if times.dtype.kind == "f" and not bool(np.isfinite(times).all()):
        raise InputError("t contains NaN or infinite times; remove those events")
    whole = times.dtype.kind in "iu"
    if whole and int(last) - int(first) >= timesteps:
        return times.astype(np.int64)
    span = float(last - first) or 1.0
    scaled: NDArray[np.int64] = np.floor((times - first) / span * (timesteps * 2.0**32)).astype(np.int64)
    return scaled


def _check(frames: Tensor) -> None:
    if frames.dim() < 3 or not frames.is_floating_point():
        raise InputError(
            f"frames must be floating-point counts [T, B, *size], got {frames.dtype} of shape "
            f"{tuple(frames.shape)}; add a missing batch axis with unsqueeze(1)"
        )
