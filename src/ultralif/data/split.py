"""Samples on a device: images as bytes, events as sparse counts that are made dense for each batch."""

import math
from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor

__all__ = ["Events", "Frames", "Images", "SampleStore", "Split"]


class SampleStore(Protocol):
    """A container of samples that returns batches."""

    shape: tuple[int, ...]
    timesteps: int | None

    def gather(self, rows: Tensor) -> Tensor:
        """Return the samples in these rows as one batch."""
        ...


class Images:
    """Still images, ``[N, *shape]``: bytes from 0 to 255, or numbers that are used unchanged."""

    timesteps: int | None = None

    def __init__(self, pixels: Tensor) -> None:
        self.pixels = pixels
        self.shape = tuple(pixels.shape[1:])

    def gather(self, rows: Tensor) -> Tensor:
        """Return ``[B, *shape]``."""
        return self.pixels.index_select(0, rows)


class Frames:
    """Sequences without gaps, ``[N, T, *shape]``."""

    def __init__(self, pixels: Tensor) -> None:
        self.pixels = pixels
        self.shape = tuple(pixels.shape[2:])
        self.timesteps: int | None = pixels.shape[1]

    def gather(self, rows: Tensor) -> Tensor:
        """Return ``float32 [T, B, *shape]``."""
        return self.pixels.index_select(0, rows).transpose(0, 1).float()


class Events:
    """Recordings as event counts in T time bins; only nonzero counts are stored.

    Args:
        offsets: the index of each recording's first entry, and the total, ``int64 [N + 1]``.
        keys: ``bin * cells + address`` of each entry, ``int32``.
        counts: number of events in each entry.
        timesteps: the number of bins T.
        shape: the sensor's shape; its cells are numbered in C order.
    """

    def __init__(
        self, offsets: Tensor, keys: Tensor, counts: Tensor, timesteps: int, shape: tuple[int, ...]
    ) -> None:
        self.offsets = offsets
        self.keys = keys
        self.counts = counts
        self.timesteps: int | None = timesteps
        self.shape = shape

    def gather(self, rows: Tensor) -> Tensor:
        """Return the counts as frames ``float32 [T, B, *shape]``, made dense by one scatter."""
        batch, cells = len(rows), math.prod(self.shape)
        begin = self.offsets[rows]
        length = self.offsets[rows + 1] - begin
        before = length.cumsum(0) - length
        entry = torch.repeat_interleave(begin - before, length)
        entry += torch.arange(len(entry), device=rows.device)
        key = self.keys.index_select(0, entry)
        # Convert bin * cells + address to (bin * batch + sample) * cells + address.
        target = key.div(cells, rounding_mode="trunc").long().mul_((batch - 1) * cells).add_(key)
        target += torch.repeat_interleave(cells * torch.arange(batch, device=rows.device), length)
        frames = torch.zeros(self.timesteps or 0, batch, *self.shape, device=rows.device)
        frames.view(-1).scatter_(0, target, self.counts.index_select(0, entry).to(frames.dtype))
        return frames


@dataclass(frozen=True, eq=False)
class Split:
    """Labelled samples: a training or test set, or part of one.

    Example:
        >>> images = Images(torch.zeros(5, 1, 2, 2, dtype=torch.uint8))
        >>> split = Split(images, torch.tensor([0, 1, 2, 3, 4]), torch.arange(5))
        >>> part = split.subset([3, 4])
        >>> len(part), part.labels.tolist(), tuple(part.batch([0]).shape)
        (2, [3, 4], (1, 1, 2, 2))
    """

    store: SampleStore
    labels: Tensor
    """``int64 [N]``, on the device."""
    rows: Tensor
    """Index of each sample in the store, ``int64 [N]``."""
    streamed: ClassVar[bool] = False
    """True for a `ultralif.data.stream.Stream`."""

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def is_events(self) -> bool:
        """True if samples have a time axis; batches are then ``[T, B, *shape]``."""
        return self.store.timesteps is not None

    @property
    def timesteps(self) -> int | None:
        """The number of bins T of event frames; None for images."""
        return self.store.timesteps

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a sample at one time step."""
        return self.store.shape

    def batch(self, index: Tensor | list[int]) -> Tensor:
        """Return some samples: images ``uint8 [B, *shape]``, events ``float32 [T, B, *shape]``."""
        return self.store.gather(self.rows[self._positions(index)])

    def subset(self, index: Tensor | list[int]) -> "Split":
        """Return a split of these samples, in this order, that shares their memory."""
        positions = self._positions(index)
        return Split(self.store, self.labels[positions], self.rows[positions])

    def _positions(self, index: Tensor | list[int]) -> Tensor:
        return torch.as_tensor(index, dtype=torch.int64, device=self.labels.device)
