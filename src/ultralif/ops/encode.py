"""Batches made on the GPU by one kernel: images into spikes, events into frames."""

from torch import Tensor
from triton import cdiv

from ultralif.ops.triton_encode import frames_kernel, images_kernel

__all__ = ["encode_images", "fill_frames"]


def encode_images(
    out: Tensor,
    pixels: Tensor,
    order: Tensor,
    position: Tensor,
    seed: Tensor,
    slope: Tensor,
    offset: Tensor,
    *,
    most: float = 1.0,
    draws: bool = True,
    crop: int = 0,
    labels: Tensor | None = None,
    picked: Tensor | None = None,
) -> None:
    """Fill ``out [T, B, D]`` with spikes of the probability ``slope * pixel + offset``, or with that number.

    Args:
        out: the tensor to fill.
        pixels: all images, ``uint8 [N, C, H, W]``.
        order: the rows of an epoch, one after another, ``int64``.
        position: the place in ``order`` where the batch begins, an ``int64`` on the device.
        seed: seed of the random numbers, an ``int64`` on the device.
        slope: factor for each channel, for pixels from 0 to 255.
        offset: summand for each channel.
        most: the greatest probability.
        draws: draw spikes; otherwise the number itself is the current of every step.
        crop: the most pixels by which an image is shifted at random; it may also be flipped; 0, neither.
        labels: all labels, in the order of the epoch; those of the batch are written to ``picked``.
        picked: ``[B]``.
    """
    time, batch, size = out.shape
    height, width = (pixels.shape[-2], pixels.shape[-1]) if pixels.dim() > 2 else (1, size)
    images_kernel[(batch, cdiv(size, 256))](
        pixels,
        order,
        position,
        seed,
        slope,
        offset,
        out,
        labels,
        picked,
        time,
        batch,
        size,
        height,
        width,
        most,
        DRAWS=draws,
        PAD=crop,
        BLOCK=256,
        num_warps=4,
        enable_fp_fusion=True,
    )


def fill_frames(
    out: Tensor,
    offsets: Tensor,
    keys: Tensor,
    counts: Tensor,
    order: Tensor,
    position: Tensor,
    *,
    binary: bool = False,
    labels: Tensor | None = None,
    picked: Tensor | None = None,
) -> None:
    """Fill ``out [T, B, D]`` with the event counts of recordings, see `ultralif.data.split.Events`."""
    out.zero_()
    _, batch, size = out.shape
    largest = 1.0 if binary else 3e38
    frames_kernel[(batch, 4)](
        offsets,
        keys,
        counts,
        order,
        position,
        out,
        labels,
        picked,
        batch,
        size,
        largest,
        BLOCK=256,
        num_warps=4,
    )
