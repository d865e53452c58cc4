"""Batches for training: shuffled, augmented and encoded on the device, the same for the same seed."""

import math
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from ultralif.data.augment import CROP_AND_FLIP, Augmentation, mix
from ultralif.data.encoders import Encoding, encode
from ultralif.data.spec import Normalization
from ultralif.data.split import Split
from ultralif.errors import InputError

__all__ = ["Loader"]


class Loader:
    """Batches ``(x [T, B, *shape], labels [B])`` of a split.

    A batch depends on the seed, the epoch and the step alone, so an epoch can be resumed at any step.

    Args:
        split: the samples.
        batch_size: samples in a batch; the last one of an epoch may have fewer.
        timesteps: T, for images; events have it already.
        encoding: encoding of images as sequences, see `ultralif.data.encoders`.
        gain: factor of the spike probability in the encoding.
        normalization: for ``rate-normalized``.
        seed: seed of the order, the crops and the spikes.
        shuffle: take the samples in a new order each epoch.
        augment: random changes of images; True, the paper's shift by up to 4 pixels and flip.
        classes: number of classes, needed by mixup.

    Example:
        >>> from ultralif.data import load
        >>> loader = Loader(load("randman").train, batch_size=128)
        >>> x, labels = next(loader.epoch(0))
        >>> x.shape, labels.shape, loader.steps
        (torch.Size([30, 128, 64]), torch.Size([128]), 16)
    """

    def __init__(
        self,
        split: Split,
        batch_size: int = 128,
        timesteps: int | None = None,
        encoding: Encoding = "rate",
        gain: float = 0.5,
        normalization: Normalization | None = None,
        seed: int = 42,
        shuffle: bool = True,
        augment: bool | Augmentation = False,
        classes: int = 0,
    ) -> None:
        if batch_size < 1:
            raise InputError(f"batch_size must be at least 1, got {batch_size}")
        if seed < 0:
            raise InputError(f"seed must not be negative, got {seed}")
        if isinstance(augment, bool):
            augment = CROP_AND_FLIP if augment else Augmentation()
        _check_split(split, timesteps, augment)
        if augment.mixup and classes < 1:
            raise InputError("augment with mixup needs the number of classes; pass classes=10, for example")
        self.split = split
        self.batch_size = batch_size
        self.timesteps = timesteps or split.timesteps or 1
        self.encoding: Encoding = encoding
        self.gain = gain
        self.normalization = normalization
        self.seed = seed
        self.shuffle = shuffle
        self.augment = augment
        self.classes = classes
        self.passes = 0

    def __len__(self) -> int:
        """Return the batches in an epoch."""
        return self.steps

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the batches of the next epoch; the first pass is epoch 0."""
        self.passes += 1
        return self.epoch(self.passes - 1)

    @property
    def steps(self) -> int:
        """Batches in an epoch."""
        return math.ceil(len(self.split) / self.batch_size)

    def epoch(self, epoch: int, start: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the batches of an epoch from the step ``start`` on."""
        order = self.order(epoch)
        for step in range(start, self.steps):
            index = order[step * self.batch_size : (step + 1) * self.batch_size]
            yield self._encoded(self.split.batch(index), self.split.labels[index], epoch, step)

    def order(self, epoch: int) -> Tensor:
        """Return the order of the samples, drawn on the CPU so that every device has the same."""
        device = self.split.labels.device
        if not self.shuffle:
            return torch.arange(len(self.split), device=device)
        generator = torch.Generator().manual_seed(self.seed_of(epoch, 0))
        return torch.randperm(len(self.split), generator=generator).to(device)

    def _encoded(self, batch: Tensor, labels: Tensor, epoch: int, step: int) -> tuple[Tensor, Tensor]:
        if self.split.is_events:
            return batch, labels
        seed = self.seed_of(epoch, 1 + step)
        generator = torch.Generator(batch.device).manual_seed(seed)
        batch = self.augment(batch, generator)
        pixels = batch.float() / 255 if batch.dtype == torch.uint8 else batch.float()
        if self.augment.mixup:
            pixels, labels = mix(pixels, labels, self.classes, self.augment.mixup, seed)
        x = encode(
            pixels,
            self.timesteps,
            generator,
            encoding=self.encoding,
            gain=self.gain,
            normalization=self.normalization,
        )
        return x, labels

    def seed_of(self, epoch: int, use: int) -> int:
        """Mix the seed with an epoch and a use (0: the order; from 1: the steps) into one number."""
        return int(np.random.SeedSequence((self.seed, epoch, use)).generate_state(1, np.uint64)[0] >> 1)


def _check_split(split: Split, timesteps: int | None, augment: Augmentation) -> None:
    """Refuse time steps and augmentation that images or events do not have."""
    if not split.is_events:
        if timesteps is None:
            raise InputError("timesteps must be given for images; pass timesteps=10, for example")
        return
    if timesteps not in (None, split.timesteps):
        raise InputError(
            f"timesteps is {timesteps}, but the events were counted in {split.timesteps} bins; load the "
            f"dataset with timesteps={timesteps}"
        )
    if augment != Augmentation():
        raise InputError("augment is for images; event frames are used as they are")
