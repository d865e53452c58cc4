"""Stream batches from a user's DataLoader or Dataset without keeping them in memory."""

import hashlib
import random
import warnings
from collections.abc import Iterator, Sequence
from copy import copy
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, IterableDataset

from ultralif.data.code import code_of
from ultralif.data.loader import Loader
from ultralif.errors import DataWarning, InputError

__all__ = ["Stream", "StreamLoader", "pad_samples"]

COMPARED = 256
"""Largest number of samples hashed to identify a dataset."""


def pad_samples(samples: Sequence[tuple[Any, ...]]) -> tuple[Tensor, Tensor, Tensor]:
    """Collate samples ``[T, ...]`` of different lengths; return zero-padded samples, targets and lengths.

    Use it as a DataLoader's ``collate_fn``. Targets with a time axis are padded as well.

    Args:
        samples: pairs of a sample, with time as its first axis, and its target.

    Example:
        >>> x, y, lengths = pad_samples([(torch.ones(2, 4), 0), (torch.ones(3, 4), 1)])
        >>> x.shape, y, lengths
        (torch.Size([2, 3, 4]), tensor([0, 1]), tensor([2, 3]))
    """
    xs = [torch.as_tensor(np.asarray(x)) for x, _ in samples]
    ys = [torch.as_tensor(y) for _, y in samples]
    timed = all(y.dim() and len(y) == len(x) for x, y in zip(xs, ys, strict=True))
    targets = pad_sequence(ys, batch_first=True) if timed else torch.stack(ys)
    return pad_sequence(xs, batch_first=True), targets, torch.tensor([len(x) for x in xs])


class Stream:
    """Samples from a DataLoader, read batch by batch; a replacement for `ultralif.data.split.Split`.

    Args:
        name: ``train``, ``test`` or ``validation``, for messages.
        loader: yields ``(x, targets)``, or ``(x, targets, lengths)`` for padded samples.
        events: samples have a time axis: ``[B, T, ...]``, or ``[T, B, ...]`` if the loader puts time first.
        timed: targets have a time axis as well.
    """

    store = None
    streamed = True

    def __init__(
        self,
        name: str,
        loader: DataLoader[Any],
        *,
        events: bool,
        timed: bool = False,
    ) -> None:
        self.name, self.loader, self.is_events, self.timed = name, loader, events, timed
        self.device = torch.device("cpu")
        self.time_first = self.has_lengths = False
        x, targets, _ = self.first = self._example()
        self.shape = tuple(x.shape[2:] if events else x.shape[1:])
        self.timesteps: int | None = (x.shape[0] if self.time_first else x.shape[1]) if events else None
        self.has_classes = targets.dim() == 1 and not targets.is_floating_point() and not timed
        left = len(self) % (loader.batch_size or 1)
        if loader.drop_last and left and name != "train":
            warnings.warn(
                f"{name} leaves out up to {left} of its {len(self)} samples, because its DataLoader has "
                "drop_last=True",
                DataWarning,
                stacklevel=2,
            )

    def to(self, device: torch.device) -> "Stream":
        """Return the same stream for another device."""
        moved = copy(self)
        moved.device = device
        return moved

    def __len__(self) -> int:
        """Return the number of samples; 0 if the dataset has no length."""
        data: Any = self.loader.dataset
        return 0 if isinstance(data, IterableDataset) else len(data)

    @property
    def steps(self) -> int:
        """Number of batches in an epoch; 0 if the loader has no length."""
        try:
            return len(self.loader)
        except TypeError:
            return 0

    def batches(self, seeds: Iterator[int]) -> Iterator[tuple[Tensor, Tensor, Tensor | None]]:
        """Yield the batches of one pass: ``x [T, B, ...]`` or images ``[B, ...]``, targets and mask.

        Args:
            seeds: two for the pass and one for each batch, so that random numbers can be reproduced.
        """
        _seed_generators(self.loader, next(seeds))
        _seed(next(seeds))
        source = iter(self.loader)
        while True:
            _seed(next(seeds))
            try:
                batch = next(source)
            except StopIteration:
                return
            x, targets, lengths = self._parts(batch)
            x = x.to(self.device, non_blocking=True)
            targets = targets.to(self.device, non_blocking=True)
            if self.is_events:
                x = (x if self.time_first else x.transpose(0, 1)).float()
            if self.timed and not self.time_first:
                targets = targets.transpose(0, 1)
            mask = None
            if lengths is not None:
                mask = torch.arange(len(x), device=self.device)[:, None] < lengths.to(self.device)
            yield x, targets, mask

    def digest(self) -> str:
        """Return a digest of the code, the length, and up to 256 samples spread over the data."""
        data = self.loader.dataset
        seen = hashlib.sha256(code_of(type(data)).encode())
        seen.update(f"{self.is_events} {self.timed} {self.loader.drop_last} {self.steps}".encode())
        if isinstance(data, IterableDataset):
            samples: Iterator[Any] = iter((self.first,))
        else:
            count = len(self)
            seen.update(f"{count}".encode())
            places = sorted({round(i * (count - 1) / COMPARED) for i in range(COMPARED + 1)})
            samples = (_drawn(data, i) for i in places)
            collate: Any = self.loader.collate_fn
            if getattr(collate, "__self__", None) is data:  # the dataset, whose samples are compared already
                collate = collate.__func__
            seen.update(f"{_drawn(_Order(self.loader), 0)} {code_of(collate)}".encode())
        for sample in samples:
            for part in sample:
                value = np.ascontiguousarray(np.asarray(part))
                seen.update(f"{value.dtype} {value.shape}".encode() + value.tobytes())
        return seen.hexdigest()

    def _example(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return a small batch, and detect whether its first axis is time."""
        data, collate = self.loader.dataset, self.loader.collate_fn
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            if isinstance(data, IterableDataset) or self.loader.batch_sampler is None:
                self.time_first = self.is_events and not getattr(collate, "batch_first", True)
                for batch in self.loader:
                    return self._parts(batch)
                raise InputError(f"{self.name} yields nothing")
            count = len(self)
            if not count:
                raise InputError(f"{self.name} has no samples")
            most = min(count, self.loader.batch_size or count)
            for size in (each for each in (2, 3, 1) if each <= most):
                batch = self._collated(data, size)
                axes = tuple(np.shape(batch[0]))[:2]
                if axes[:1] == (size,) and axes[1:] != (size,):
                    break
                if self.is_events and axes[1:] == (size,) and axes[0] != size:
                    self.time_first = True
                    break
        return self._parts(batch)

    def _collated(self, data: Any, size: int) -> Any:
        samples = [_drawn(data, i) for i in range(size)]
        for sample in samples:
            if not isinstance(sample, tuple | list) or len(sample) not in (2, 3):
                raise InputError(
                    f"{self.name} must yield pairs of a sample and its target, got {type(sample).__name__}"
                )
            if getattr(getattr(sample[0], "dtype", None), "names", None):
                raise InputError(
                    f"{self.name} yields events as structured arrays; count them in frames with the "
                    "transform ul.data.to_frames(events, timesteps, size)"
                )
        try:
            return self.loader.collate_fn(samples)
        except (RuntimeError, TypeError, ValueError) as error:
            raise InputError(
                f"samples of {self.name} cannot be put into a batch ({str(error).splitlines()[0]}); if their "
                "lengths differ, pass collate_fn=ul.data.pad_samples to the DataLoader"
            ) from error

    def _parts(self, batch: Any) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return a batch's samples, targets and lengths, after checking that their shapes match."""
        if not isinstance(batch, tuple | list) or len(batch) not in (2, 3):
            raise InputError(
                f"{self.name} must yield pairs of samples and targets, or these and lengths, got "
                f"{type(batch).__name__}"
            )
        x, targets = (torch.as_tensor(part) for part in batch[:2])
        self.has_lengths = len(batch) == 3
        lengths = torch.as_tensor(batch[2]) if self.has_lengths else None
        least = 3 if self.is_events else 2
        axis = 1 if self.time_first else 0
        rows = targets.shape[axis if self.timed else 0] if targets.dim() else 0
        if x.dim() < least or x.shape[axis] != rows or (lengths is not None and len(lengths) != rows):
            wanted = ("[T, B, ...]" if self.time_first else "[B, T, ...]") if self.is_events else "[B, ...]"
            raise InputError(
                f"{self.name} must yield samples {wanted} and as many targets, got {tuple(x.shape)} and "
                f"{tuple(targets.shape)}; samples have a time axis only with events=True"
            )
        if lengths is not None and bool((lengths == x.shape[1 - axis]).all()):
            lengths = None
        if targets.dtype in (torch.int8, torch.int16, torch.int32, torch.uint8, torch.bool):
            targets = targets.long()
        if x.is_floating_point() and not bool(torch.isfinite(x).all()):
            raise InputError(f"{self.name} contains NaN or infinite values; remove those samples")
        return x, targets.float() if targets.dtype == torch.float64 else targets, lengths


class StreamLoader(Loader):
    """The batches of a `Stream`, encoded as in a `Loader`; an epoch can be resumed at any step.

    Each batch's seed depends on the epoch and the step. A resumed epoch therefore reads the earlier batches
    again, without training on them.
    """

    split: Any

    @property
    def steps(self) -> int:
        """Number of batches in an epoch; 0 if the loader has no length."""
        return int(self.split.steps)

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Any]:
        """Yield an epoch's ``(x, targets, mask)``, starting at step ``start``."""
        for source in (self.split.loader.sampler, self.split.loader.batch_sampler, self.split.loader.dataset):
            if hasattr(source, "set_epoch"):
                source.set_epoch(epoch)
        seeds = (self.seed_of(epoch, use) for use in range(2**62))
        step = -1
        for step, (x, targets, mask) in enumerate(self.split.batches(seeds)):
            if step >= start:
                yield (*self._encoded(x, targets, epoch, step), mask)
        if step < 0:
            raise InputError(
                f"{self.split.name} yielded no batch; make sure that every pass starts from the beginning "
                "and, with drop_last, that the set fills at least one batch"
            )


def _seed_generators(loader: DataLoader[Any], seed: int) -> None:
    """Seed the generators of a loader and its samplers."""
    for source in (loader, loader.sampler, loader.batch_sampler):
        generator = getattr(source, "generator", None)
        if isinstance(generator, torch.Generator):
            generator.manual_seed(seed)


def _seed(seed: int) -> None:
    """Seed every random number generator that a dataset may use."""
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)


class _Order:
    """The indices of a loader's first samples, in its sampler's order."""

    def __init__(self, loader: DataLoader[Any]) -> None:
        self.loader = loader

    def __getitem__(self, index: int) -> list[Any]:
        _seed_generators(self.loader, index)
        return list(islice(iter(self.loader.batch_sampler or self.loader.sampler), 64))


def _drawn(data: Any, index: int) -> Any:
    """Return a sample; a random transform draws the same numbers each time."""
    states = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=[]):
        _seed(index)
        try:
            return data[index]
        finally:
            random.setstate(states[0])
            np.random.set_state(states[1])
