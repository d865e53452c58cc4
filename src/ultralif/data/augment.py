"""Random crops and flips of a whole batch of images at once, on its device."""

import torch
from torch import Tensor
from torch.nn.functional import pad

__all__ = ["PADDING", "crop_and_flip"]

PADDING = 4
"""Pixels by which training images are shifted at most."""


def crop_and_flip(images: Tensor, generator: torch.Generator, padding: int = PADDING) -> Tensor:
    """Shift each image by up to ``padding`` pixels, black moving in, and mirror half of them (appendix D.1).

    Args:
        images: ``[B, C, H, W]`` of any type.
        generator: on the device of the images.
        padding: black pixels around an image before a window of its own size is cut from it.

    Example:
        >>> crop_and_flip(torch.ones(2, 3, 32, 32), torch.Generator()).shape
        torch.Size([2, 3, 32, 32])
    """
    batch, _, height, width = images.shape
    shifts = torch.randint(2 * padding + 1, (2, batch), generator=generator, device=images.device)
    mirrored = torch.rand(batch, generator=generator, device=images.device) < 0.5
    windows = pad(images, [padding] * 4).unfold(2, height, 1).unfold(3, width, 1)
    everyone = torch.arange(batch, device=images.device)
    cropped = windows[everyone, :, shifts[0], shifts[1]]
    return torch.where(mirrored.view(-1, 1, 1, 1), cropped.flip(-1), cropped)
