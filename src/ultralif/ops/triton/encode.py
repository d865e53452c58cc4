"""Build batches on the GPU with one kernel: images become spikes, events become frames.

The indices of the next samples, and the seed, are in device memory, so that a recorded graph can be
replayed for every batch. The random number for pixel d of sample i at step t is Philox(seed; d, t, i): it
depends on neither the batch size nor the number of steps, so a draw for T steps equals the start of a longer
draw.
"""

import triton
import triton.language as tl
from torch import Tensor
from triton import cdiv

from ultralif.ops.triton.launch import on_device

__all__ = ["encode_images", "fill_frames"]


@triton.jit
def uniform(bits):
    """Turn 32 random bits into a float in [0, 1)."""
    return (bits >> 8).to(tl.float32) * 5.9604644775390625e-08


@triton.jit
def shifted(d, seed, number, height, width, PAD: tl.constexpr):
    """Return the source of pixel d after a random crop and flip, and whether it is inside the image."""
    zero = tl.zeros_like(d).to(tl.uint32)
    a, b, c, _ = tl.philox(seed, zero, zero, zero + number.to(tl.uint32), zero + 1)
    y = d // width % height + (uniform(a) * (2 * PAD + 1)).to(tl.int32) - PAD
    x = d % width
    x = tl.where(uniform(c) < 0.5, width - 1 - x, x) + (uniform(b) * (2 * PAD + 1)).to(tl.int32) - PAD
    inside = (y >= 0) & (y < height) & (x >= 0) & (x < width)
    return (d // (height * width) * height + y) * width + x, inside


@triton.jit
def pick(labels, picked, number):
    """Write the label of a program's sample, if labels are wanted."""
    if labels is not None:  # noqa: SIM102 - known at compile time, unlike the next
        if tl.program_id(1) == 0:
            tl.store(picked + tl.program_id(0), tl.load(labels + number))


@triton.jit
def images_kernel(
    pixels,
    order,
    position,
    seed_pointer,
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
    DRAWS: tl.constexpr,
    PAD: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Write the encoded images, ``[T, B, D]``.

    With DRAWS, they are spikes with probability ``slope * pixel + offset``, capped at ``most``. Otherwise,
    that value itself is written at every step, without the cap.
    """
    number = tl.load(position) + tl.program_id(0)
    pick(labels, picked, number)
    row = tl.load(order + number)
    seed = tl.load(seed_pointer)
    d = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = d < size
    source = d
    known = inside
    if PAD:
        source, fits = shifted(d, seed, number, height, width, PAD)
        known = inside & fits
    pixel = tl.load(pixels + row * size + source, mask=known, other=0).to(tl.float32)
    plane = d // (height * width)
    chance = tl.load(slope + plane, mask=inside, other=0.0) * pixel
    chance += tl.load(offset + plane, mask=inside, other=0.0)
    target = out + tl.program_id(0).to(tl.int64) * size + d
    if DRAWS:
        chance = tl.minimum(chance, most)
        counter = d.to(tl.uint32)
        zero = tl.zeros_like(counter)
        for q in range(tl.cdiv(time, 4)):
            bits = tl.philox(seed, counter, zero + q, zero + number.to(tl.uint32), zero)
            for j in tl.static_range(4):
                at = tl.cast(q * 4 + j, tl.int64) * batch * size
                spike = tl.where(uniform(bits[j]) < chance, 1.0, 0.0)
                tl.store(target + at, spike, mask=inside & (tl.zeros_like(d) + q * 4 + j < time))
    else:
        for t in range(time):
            tl.store(target + tl.cast(t, tl.int64) * batch * size, chance, mask=inside)


@triton.jit
def frames_kernel(
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
    BLOCK: tl.constexpr,
):
    """Write the counts of sparse events into zeroed frames ``[T, B, D]``."""
    number = tl.load(position) + tl.program_id(0)
    pick(labels, picked, number)
    row = tl.load(order + number)
    end = tl.load(offsets + row + 1)
    first = tl.load(offsets + row) + tl.program_id(1) * BLOCK
    for start in range(first, end, tl.num_programs(1) * BLOCK):
        entry = start + tl.arange(0, BLOCK)
        inside = entry < end
        key = tl.load(keys + entry, mask=inside, other=0)
        count = tl.minimum(tl.load(counts + entry, mask=inside, other=0).to(tl.float32), largest)
        at = ((key // size).to(tl.int64) * batch + tl.program_id(0)) * size + key % size
        tl.store(out + at, count, mask=inside)


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
    """Fill ``out [T, B, D]`` with spikes of probability ``slope * pixel + offset``, or with that value.

    Args:
        out: the tensor to fill.
        pixels: all images, ``uint8 [N, C, H, W]``.
        order: the row numbers of an epoch, in order, ``int64``.
        position: the position in ``order`` where the batch starts, an ``int64`` on the device.
        seed: seed of the random numbers, an ``int64`` on the device.
        slope: factor for each channel, for pixels from 0 to 255.
        offset: value added for each channel.
        most: the maximum probability.
        draws: draw spikes; otherwise the value itself is the current at every step.
        crop: the maximum random shift in pixels; images may also be flipped; 0 turns off both.
        labels: all labels, in the order of the epoch; the batch's labels are written to ``picked``.
        picked: ``[B]``.
    """
    time, batch, size = out.shape
    height, width = (pixels.shape[-2], pixels.shape[-1]) if pixels.dim() > 2 else (1, size)
    with on_device(out.device):
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
    with on_device(out.device):
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
