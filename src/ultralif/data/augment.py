"""Random changes of a whole batch of images at once, on its device."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot, pad

__all__ = ["CROP_AND_FLIP", "PADDING", "Augmentation", "cut_out", "mix", "shift_and_flip"]

PADDING = 4
"""Pixels by which the paper shifts training images at most."""


@dataclass(frozen=True)
class Augmentation:
    """Random changes of training images."""

    flip: bool = False
    """Mirror half of them."""
    shift: int = 0
    """Shift each by up to this many pixels; black moves in."""
    cutout: int = 0
    """Blacken a square of this size in each."""
    mixup: float = 0.0
    """Mix each with another, and their labels; the weight is drawn from Beta(mixup, mixup)."""

    def __call__(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """Return ``[B, C, H, W]`` shifted, mirrored and cut out."""
        if self.flip or self.shift:
            images = shift_and_flip(images, generator, self.shift, flip=self.flip)
        return cut_out(images, generator, self.cutout) if self.cutout else images


CROP_AND_FLIP = Augmentation(flip=True, shift=PADDING)
"""The paper's for CIFAR-10 (appendix D.1)."""


def shift_and_flip(
    images: Tensor, generator: torch.Generator, shift: int = PADDING, *, flip: bool = True
) -> Tensor:
    """Shift each image by up to ``shift`` pixels, black moving in, and mirror half of them.

    Args:
        images: ``[B, C, H, W]`` of any type.
        generator: on the device of the images.
        shift: black pixels around an image before a window of its own size is cut from it.
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
    """Blacken a square of ``size`` pixels at a random place of each image; it may reach over the edge.

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
        classes: how many there are.
        strength: of Beta(strength, strength), from which the weight is drawn.
        seed: of the draw.

    Example:
        >>> x, y = mix(torch.eye(2), torch.tensor([0, 1]), 2, 1.0, seed=0)
        >>> torch.equal(x, y), y.sum(1)
        (True, tensor([1., 1.]))
    """
    weight = float(np.random.default_rng(seed).beta(strength, strength))
    certain = one_hot(labels, classes).to(batch.dtype)
    return tuple(weight * one + (1 - weight) * one.roll(1, 0) for one in (batch, certain))  # type: ignore[return-value]
