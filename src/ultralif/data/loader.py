"""Training batches, shuffled, augmented and encoded on the device, and reproducible from the seed."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot, pad

from ultralif.data.encoders import NORMALIZED, Encoding, encode
from ultralif.data.split import Events, Images, Split
from ultralif.data.table import Normalization
from ultralif.errors import InputError

__all__ = [
    "CROP_AND_FLIP",
    "PADDING",
    "Augmentation",
    "DeviceBatches",
    "Loader",
    "cut_out",
    "mix",
    "shift_and_flip",
]

SLACK = 1e-3
"""Tolerance for values that rounding has moved outside [0, 1]."""
PADDING = 4
"""The paper's largest shift of training images, in pixels."""


@dataclass(frozen=True)
class Augmentation:
    """Random augmentation of training images."""

    flip: bool = False
    """Mirror half of them."""
    shift: int = 0
    """Shift each by up to this many pixels, padding with black."""
    cutout: int = 0
    """Black out a square of this size in each."""
    mixup: float = 0.0
    """Mix each image and its label with another's; the weight is drawn from Beta(mixup, mixup)."""

    def __call__(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """Return images ``[B, C, H, W]`` with shifts, mirroring and cutout applied."""
        if self.flip or self.shift:
            images = shift_and_flip(images, generator, self.shift, flip=self.flip)
        return cut_out(images, generator, self.cutout) if self.cutout else images


CROP_AND_FLIP = Augmentation(flip=True, shift=PADDING)
"""The paper's augmentation for CIFAR-10 (appendix D.1)."""


def shift_and_flip(
    images: Tensor, generator: torch.Generator, shift: int = PADDING, *, flip: bool = True
) -> Tensor:
    """Shift each image by up to ``shift`` pixels, padding with black, and mirror half of them.

    Args:
        images: ``[B, C, H, W]`` of any type.
        generator: on the device of the images.
        shift: width of the black padding that is added before cropping to the original size.
        flip: mirror half of them.

    Example:
        >>> shift_and_flip(torch.ones(2, 3, 32, 32), torch.Generator()).shape
        torch.Size([2, 3, 32, 32])
    """
    batch, _, height, width = images.shape
    moved = images
    if shift:
        shifts = torch.randint(2 * shift + 1, (2, batch), generator=generator, device=images.device)
        windows = pad(images, [shift] * 4).unfold(2, height, 1).unfold(3, width, 1)
        moved = windows[torch.arange(batch, device=images.device), :, shifts[0], shifts[1]]
    if not flip:
        return moved
    mirrored = torch.rand(batch, generator=generator, device=images.device) < 0.5
    return torch.where(mirrored.view(-1, 1, 1, 1), moved.flip(-1), moved)


def cut_out(images: Tensor, generator: torch.Generator, size: int) -> Tensor:
    """Black out a square of ``size`` pixels at a random place in each image; it may extend beyond the edge.

    Example:
        >>> int(cut_out(torch.ones(1, 1, 8, 8), torch.Generator().manual_seed(0), 4).sum()) < 64
        True
    """
    batch, _, height, width = images.shape
    inside = []
    for length in (height, width):
        middle = torch.randint(length, (batch, 1), generator=generator, device=images.device)
        offset = torch.arange(length, device=images.device) - middle + size // 2
        inside.append((offset >= 0) & (offset < size))
    square = inside[0].unsqueeze(2) & inside[1].unsqueeze(1)
    return images.masked_fill(square.unsqueeze(1), 0)


def mix(batch: Tensor, labels: Tensor, classes: int, strength: float, seed: int) -> tuple[Tensor, Tensor]:
    """Mix each sample with the one before it; labels ``[B]`` become probabilities ``[B, classes]``.

    Args:
        batch: samples along the first axis, in a random order.
        labels: their classes.
        classes: the number of classes.
        strength: parameter of Beta(strength, strength), from which the weight is drawn.
        seed: seed of the random numbers.

    Example:
        >>> x, y = mix(torch.eye(2), torch.tensor([0, 1]), 2, 1.0, seed=0)
        >>> torch.equal(x, y), y.sum(1)
        (True, tensor([1., 1.]))
    """
    weight = float(np.random.default_rng(seed).beta(strength, strength))
    certain = one_hot(labels, classes).to(batch.dtype)
    return tuple(weight * one + (1 - weight) * one.roll(1, 0) for one in (batch, certain))  # type: ignore[return-value]


class Loader:
    """Batches ``(x [T, B, *shape], labels [B])`` of a split.

    A batch depends only on the seed, the epoch and the step, so an epoch can be resumed at any step.

    Args:
        split: the samples.
        batch_size: samples in a batch; an epoch's last batch may have fewer.
        timesteps: T, for images; events already have a time axis.
        encoding: encoding of images as sequences, see `ultralif.data.encoders`.
        gain: factor applied to the spike probability in the encoding.
        normalization: for ``rate-normalized``.
        seed: seed for the order, the crops and the spikes.
        shuffle: draw a new sample order each epoch.
        augment: random augmentation of images; True means the paper's shift by up to 4 pixels and flip.
        classes: number of classes, required by mixup.

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
        if encoding == "rate":
            _check_rates(split)
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
        """Return the number of batches in an epoch."""
        return self.steps

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the batches of the next epoch; the first pass is epoch 0."""
        self.passes += 1
        return self.epoch(self.passes - 1)

    @property
    def steps(self) -> int:
        """Number of batches in an epoch."""
        return math.ceil(len(self.split) / self.batch_size)

    def epoch(self, epoch: int, start: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the batches of an epoch, starting at step ``start``."""
        order = self.order(epoch)
        for step in range(start, self.steps):
            index = order[step * self.batch_size : (step + 1) * self.batch_size]
            yield self._encoded(self.split.batch(index), self.split.labels[index], epoch, step)

    def order(self, epoch: int) -> Tensor:
        """Return the order of the samples, drawn on the CPU so that it is the same for every device."""
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
        """Combine the seed, an epoch and a purpose (0: order; 1 and above: steps) into one number."""
        return int(np.random.SeedSequence((self.seed, epoch, use)).generate_state(1, np.uint64)[0] >> 1)


def _check_rates(split: Split) -> None:
    """Reject values that are not probabilities. Bytes always pass, because they are divided by 255."""
    if isinstance(split.store, Images) and split.store.pixels.dtype != torch.uint8:
        low, high = (float(end) for end in split.store.pixels.aminmax())
        if low < -SLACK or high > 1 + SLACK:
            raise InputError(
                f"samples range from {low:g} to {high:g}, but encoding 'rate' needs probabilities "
                "in [0, 1]; scale the data to that range, or choose encoding 'constant'"
            )


def _check_split(split: Split, timesteps: int | None, augment: Augmentation) -> None:
    """Reject time steps and augmentation that the split does not support."""
    if not split.is_events:
        if timesteps is None:
            raise InputError("timesteps must be given for images; pass timesteps=10, for example")
        return
    if timesteps not in (None, split.timesteps):
        raise InputError(
            f"timesteps is {timesteps}, but the events were counted in {split.timesteps} bins; choose "
            f"timesteps={split.timesteps}, or count the events in {timesteps} bins when you create them"
        )
    if augment != Augmentation():
        raise InputError("augment is for images; event frames are used as they are")


class DeviceBatches:
    """The batches of a `Loader` on a GPU, written into the same memory every time.

    Samples follow the loader's order, but the GPU draws its own random numbers.

    Args:
        loader: a loader whose split is on a GPU.
        binary: clip event counts to 0 and 1.
    """

    def __init__(self, loader: Loader, *, binary: bool = False) -> None:
        self.loader, self.binary = loader, binary
        split = loader.split
        device = split.labels.device
        self.order = torch.zeros(len(split), dtype=torch.int64, device=device)
        self.labels = torch.zeros(len(split), dtype=torch.int64, device=device)
        self.position = torch.zeros(1, dtype=torch.int64, device=device)
        self.seed = torch.zeros(1, dtype=torch.int64, device=device)
        self.store = split.store
        if isinstance(self.store, Images):
            self.slope, self.offset = self._line(self.store, device)

    def _line(self, images: Images, device: torch.device) -> tuple[Tensor, Tensor]:
        """Return each channel's linear map from a byte to the spike probability or the current."""
        loader = self.loader
        channels = images.shape[0] if len(images.shape) > 2 else 1
        gain = loader.gain if self.draws else 1.0
        slope, offset = torch.full((channels,), gain / 255), torch.zeros(channels)
        if loader.encoding in NORMALIZED:
            if loader.normalization is None:
                raise InputError(
                    f"encoding {loader.encoding!r} needs the dataset's normalization; use 'rate'"
                )
            mean, std = (torch.tensor(values) for values in loader.normalization)
            slope, offset = slope / std, -gain * mean / std
        return slope.to(device), offset.to(device)

    @property
    def draws(self) -> bool:
        """True if images become random spikes, False if they become currents."""
        return self.loader.encoding.startswith("rate")

    def begin(self, epoch: int, step: int = 0) -> None:
        """Begin an epoch at the given batch."""
        order = self.loader.order(epoch)
        self.order.copy_(self.loader.split.rows[order])
        self.labels.copy_(self.loader.split.labels[order])
        self.position.fill_(step * self.loader.batch_size)
        self.seed.fill_(self.loader.seed_of(epoch, 1))

    def fill(self, x: Tensor, labels: Tensor) -> None:
        """Write the next batch to ``x [T, B, D]`` and ``labels [B]``; this can be recorded in a graph."""
        from ultralif.ops.triton.encode import encode_images, fill_frames

        wanted = {"labels": self.labels, "picked": labels}
        if isinstance(self.store, Events):
            parts = self.store.offsets, self.store.keys, self.store.counts
            fill_frames(x, *parts, self.order, self.position, binary=self.binary, **wanted)
        elif isinstance(self.store, Images):
            crop = self.loader.augment.shift
            lines = self.slope, self.offset
            most = self.loader.gain if self.loader.encoding == "rate-clipped" else 1.0
            image = self.store.pixels, self.order, self.position, self.seed
            encode_images(x, *image, *lines, most=most, draws=self.draws, crop=crop, **wanted)

    def advance(self, count: int) -> None:
        """Advance by a number of samples; this can be recorded in a graph."""
        self.position += count
