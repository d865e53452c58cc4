"""Triton kernels for time in chunks: the map of each chunk, and the walk over the chunks; see `parallel`.

A chunk of C steps takes the membrane V at its start to the one at its end. Without a reset that is
lse(V + C log leak, A), where A is the end for V = -inf. With a saturating reset it is a Moebius map of
u = exp(V / eps), from A, the end for -inf, up to B, the end for +inf:
u' = (exp(A) + exp(B + x)) / (1 + exp(x)) with x = V + R, all in units of eps, and R follows from D, the end
for V = v_sat. For maxima both are min(max(V + C log leak, A), B).
"""

import triton
import triton.language as tl

from ultralif.ops.triton_constants import constants
from ultralif.ops.triton_parts import (
    MAX,
    MEMBRANE,
    RESET,
    SATURATE,
    address,
    bits,
    exp2,
    inverse,
    log2,
)
from ultralif.ops.triton_temporal import UNSPECIAL, advance, load_steps

__all__ = ["ends_kernel", "walk_back_kernel", "walk_kernel"]

LOWEST = tl.constexpr(-1e30)
"""A number in place of -inf, because -inf minus itself is NaN."""
AHEAD = tl.constexpr(8)
"""Number of chunks whose maps are loaded before the first is used."""


@triton.jit(do_not_specialize=UNSPECIAL)
def ends_kernel(
    current,
    ends,
    known,
    time,
    span,
    at_current,
    numbers,
    RULE: tl.constexpr,
    CHUNK: tl.constexpr,
    BLOCK: tl.constexpr,
    NATIVE: tl.constexpr,
):
    """Write the membrane at the end of every chunk, from -inf, and for a saturating reset +inf and v_sat."""
    total = span[0]
    pos = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = pos < total
    held = constants(known, pos, RULE, NATIVE)
    zero = tl.zeros((BLOCK,), tl.float32)
    source = current + address(pos, at_current)
    low, high, middle = (zero + LOWEST, zero, zero), (zero - LOWEST, zero, zero), (zero + held[5], zero, zero)
    for first in range(0, time, CHUNK):
        xs = load_steps(source, at_current[0], mask, first, time, CHUNK, True)
        source += CHUNK * at_current[0]
        for j in tl.static_range(CHUNK):
            low, _, _ = advance(xs[j], low, held, numbers, RULE, NATIVE)
            if bits(RULE, RESET) == SATURATE:
                high, _, _ = advance(xs[j], high, held, numbers, RULE, NATIVE)
                middle, _, _ = advance(xs[j], middle, held, numbers, RULE, NATIVE)
    tl.store(ends + pos, low[0], mask=mask)
    if bits(RULE, RESET) == SATURATE:
        tl.store(ends + total + pos, high[0], mask=mask)
        tl.store(ends + 2 * total + pos, middle[0], mask=mask)


@triton.jit
def log_add(x, y, NATIVE: tl.constexpr):
    """Return log2(2^x + 2^y)."""
    return tl.maximum(x, y) + log2(1.0 + exp2(-tl.abs(x - y), NATIVE), NATIVE)


@triton.jit
def log_minus(x, NATIVE: tl.constexpr):
    """Return log2(2^x - 1) for positive x."""
    return log2(tl.maximum(exp2(tl.minimum(x, 120.0), NATIVE) - 1.0, 1e-30), NATIVE)


@triton.jit
def shift(low, high, middle, held, NATIVE: tl.constexpr):
    """Return R of a saturating chunk, in bits of eps; its ends are in the same units."""
    up, down = tl.minimum(middle - low, 120.0), high - middle
    return log_minus(up, NATIVE) - up - log_minus(down, NATIVE) - held[5] * held[1]


@triton.jit
def load_maps(ends, pos, total, chunks, mask, first, RULE: tl.constexpr):
    """Load the ends of some chunks: from -inf, +inf and v_sat."""
    size = tl.cast(total, tl.int64) * chunks
    source = ends + pos + tl.cast(first, tl.int64) * total
    low = load_steps(source, total, mask, first, chunks, AHEAD, False)
    high, middle = low, low
    if bits(RULE, RESET) == SATURATE:
        high = load_steps(source + size, total, mask, first, chunks, AHEAD, False)
        middle = load_steps(source + 2 * size, total, mask, first, chunks, AHEAD, False)
    return low, high, middle


@triton.jit
def pass_chunk(v, low, high, middle, decay, held, RULE: tl.constexpr, NATIVE: tl.constexpr):
    """Return the membrane at the end of a chunk, and its derivative by the one at the start."""
    moved = v + decay
    if bits(RULE, MEMBRANE) == MAX:
        after = tl.maximum(moved, low)
        slope = tl.where(moved > low, 1.0, tl.where(moved == low, 0.5, 0.0))
        if bits(RULE, RESET) == SATURATE:
            after = tl.minimum(after, high)
            slope = slope * tl.where(moved < high, 1.0, tl.where(moved == high, 0.5, 0.0))
        return after, slope
    k = held[1]
    if bits(RULE, RESET) != SATURATE:
        after = log_add(moved * k, low * k, NATIVE)
        return after * held[0], exp2(moved * k - after, NATIVE)
    a, b = low * k, high * k
    x = v * k + shift(a, b, middle * k, held, NATIVE)
    after = log_add(a, b + x, NATIVE) - log_add(0.0 * x, x, NATIVE)
    small = exp2(-tl.abs(x), NATIVE)
    weight = inverse(1.0 + small, NATIVE)
    spread = (1.0 - exp2(a - b, NATIVE)) * exp2(b - after, NATIVE)
    return after * held[0], spread * small * weight * weight


@triton.jit(do_not_specialize=["known", "chunks", "length"])
def walk_kernel(
    ends,
    state,
    starts,
    known,
    chunks,
    length,
    total,
    RULE: tl.constexpr,
    HAS_STATE: tl.constexpr,
    BLOCK: tl.constexpr,
    NATIVE: tl.constexpr,
):
    """Write the membrane at the start of every chunk, and after the last."""
    pos = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = pos < total
    held = constants(known, pos, RULE, NATIVE)
    decay = held[3] * length
    v = tl.zeros((BLOCK,), tl.float32)
    if HAS_STATE:
        v = tl.load(state + pos, mask=mask, other=0.0)
    target = starts + pos
    for first in range(0, chunks, AHEAD):
        low, high, middle = load_maps(ends, pos, total, chunks, mask, first, RULE)
        for j in tl.static_range(AHEAD):
            inside = mask & (tl.zeros_like(mask).to(tl.int32) + first + j < chunks)
            tl.store(target, v, mask=inside)
            target += total
            after, _ = pass_chunk(v, low[j], high[j], middle[j], decay, held, RULE, NATIVE)
            v = tl.where(inside, after, v)
    tl.store(starts + pos + tl.cast(chunks, tl.int64) * total, v, mask=mask)


@triton.jit(do_not_specialize=["known", "chunks", "length"])
def walk_back_kernel(
    ends,
    starts,
    grad_last,
    own,
    grad_ends,
    grad_state,
    known,
    chunks,
    length,
    total,
    RULE: tl.constexpr,
    HAS: tl.constexpr,
    BLOCK: tl.constexpr,
    NATIVE: tl.constexpr,
):
    """Write the gradient at the end of every chunk, and that of the first membrane.

    ``own`` is the gradient of each chunk's own spikes for its start. HAS has one bit that tells whether
    ``own`` is given, and one for the gradient of the last membrane.
    """
    pos = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = pos < total
    held = constants(known, pos, RULE, NATIVE)
    decay = held[3] * length
    g = tl.zeros((BLOCK,), tl.float32)
    if HAS // 2:
        g = tl.load(grad_last + pos, mask=mask, other=0.0)
    for r in range(tl.cdiv(chunks, AHEAD)):
        first = (tl.cdiv(chunks, AHEAD) - 1 - r) * AHEAD
        low, high, middle = load_maps(ends, pos, total, chunks, mask, first, RULE)
        offset = pos + tl.cast(first, tl.int64) * total
        vs = load_steps(starts + offset, total, mask, first, chunks, AHEAD, False)
        owns = vs
        if HAS % 2:
            owns = load_steps(own + offset, total, mask, first, chunks, AHEAD, False)
        for j in tl.static_range(AHEAD - 1, -1, -1):
            inside = mask & (tl.zeros_like(mask).to(tl.int32) + first + j < chunks)
            tl.store(grad_ends + offset + j * total, g, mask=inside)
            _, slope = pass_chunk(vs[j], low[j], high[j], middle[j], decay, held, RULE, NATIVE)
            before = slope * g
            if HAS % 2:
                before += owns[j]
            g = tl.where(inside, before, g)
    tl.store(grad_state + pos, g, mask=mask)
