"""Triton kernels for the constants of many programs: a row of decoded ones for each, and its derivative.

A row has what `triton_constants.constants` returns; its gradient has the sums of a program's lanes for the
four constants.
"""

import triton
import triton.language as tl

from ultralif.ops.triton_constants import HELD, decode, derived, pull

__all__ = ["decode_kernel", "gather_kernel"]


@triton.jit
def value_of(raw, table, index, numbers, C: tl.constexpr, here):
    """Return constant C of each row: decoded, or where its index is negative, a number."""
    at = tl.load(index + C, mask=here, other=0)
    value, _, _, _ = decode(raw, table, 7, tl.maximum(at, 0))
    return tl.where(at < 0, tl.load(numbers + C, mask=here, other=1.0), value)


@triton.jit
def decode_kernel(held, raw, table, index, numbers, rows, NATIVE: tl.constexpr, BLOCK: tl.constexpr):
    """Write the rows; the fifth index of a row tells whether its first constant is a sharpness."""
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    here = row < rows
    index += row * 5
    numbers += row * 4
    eps = value_of(raw, table, index, numbers, 0, here)
    leak = value_of(raw, table, index, numbers, 1, here)
    threshold = value_of(raw, table, index, numbers, 2, here)
    amplitude = value_of(raw, table, index, numbers, 3, here)
    sharp = tl.load(index + 4, mask=here, other=0) > 0
    plain, steep = (
        derived(eps, leak, threshold, amplitude, 0, NATIVE),
        derived(eps, leak, threshold, amplitude, 1, NATIVE),
    )
    for i in tl.static_range(6):
        tl.store(held + row * HELD + i, tl.where(sharp, steep[i], plain[i]), mask=here)


@triton.jit
def gather_kernel(grads, raw, table, sums, to_raw, BLOCK: tl.constexpr):
    """Write the gradient of one raw parameter: the sum over all rows that it serves, in a fixed order.

    ``sums`` has for each parameter the place of its first sum, how many consecutive rows it serves, from
    where to where these runs repeat, and the number of rows in all.
    """
    entry = tl.program_id(0)
    first, side = tl.load(sums + entry * 4), tl.load(sums + entry * 4 + 1)
    jump, count = tl.load(sums + entry * 4 + 2), tl.load(sums + entry * 4 + 3)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, count, BLOCK):
        i = start + tl.arange(0, BLOCK)
        row = i // side * jump + i % side
        total += tl.load(grads + first + row * HELD, mask=i < count, other=0.0)
    tl.store(to_raw + entry, pull(tl.sum(total), raw, table, 7, entry))
