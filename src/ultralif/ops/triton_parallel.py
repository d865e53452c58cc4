"""The Triton kernel for long sequences of few neurons that no spike resets: time in chunks; see `parallel`.

A program takes a few neurons, and each thread a chunk of one neuron's time. A scan over the maps of all
chunks gives the membrane at the start of each.

A map takes the membrane V at the start of a chunk to that at its end, by three numbers. For a log-sum-exp it
is log2(2^(p + V) + 2^q) - log2(2^(r + V) + 1), in units of eps log 2, where the second logarithm is missing
without a reset; for a maximum it is min(max(p + V, q), r).
"""

import triton
import triton.language as tl

from ultralif.ops import launch
from ultralif.ops.triton_constants import constants
from ultralif.ops.triton_parts import (
    MAX,
    MEMBRANE,
    RATE,
    RESET,
    SATURATE,
    address,
    bits,
    clamp,
    exp2,
    largest,
    log2,
    only,
    within,
)
from ultralif.ops.triton_temporal import integrate, load_next, load_steps

__all__ = ["chunked_forward_kernel"]

UNSPECIAL = ["known", "time", "length"]
LOWEST = tl.constexpr(-1e30)
"""A number in place of -inf, because -inf minus itself is NaN."""
FAST = tl.constexpr(launch.NATIVE)
"""The argument NATIVE of other functions, for those that a scan calls."""


@triton.jit
def steps_of(chunk, length, time):
    """Return the number of steps of a chunk: the last ones may be short, or empty."""
    return tl.minimum(tl.maximum(time - chunk * length, 0), length).to(tl.int32)


@triton.jit
def log_add(x, y, NATIVE: tl.constexpr):
    """Return log2(2^x + 2^y)."""
    return tl.maximum(x, y) + log2(1.0 + exp2(-tl.abs(x - y), NATIVE), NATIVE)


@triton.jit
def then_shift(p, q, p2, q2):
    """Compose two maps without a reset."""
    return p + p2, log_add(q + p2, q2, FAST)


@triton.jit
def then_saturate(p, q, r, p2, q2, r2):
    """Compose two maps with a saturating reset: the product of [[p, q], [r, 0]], its last entry made 0."""
    s = log_add(r2 + q, 0.0 * q, FAST)
    return (
        log_add(p2 + p, q2 + r, FAST) - s,
        log_add(p2 + q, q2, FAST) - s,
        log_add(r2 + p, r, FAST) - s,
    )


@triton.jit
def then_clamp(p, q, r, p2, q2, r2):
    """Compose two maps of maxima."""
    return p + p2, clamp(q + p2, q2, r2), clamp(r + p2, q2, r2)


@triton.jit
def extend(p, q, r, x, held, RULE: tl.constexpr, NATIVE: tl.constexpr):
    """Return q and r of a map, and p of a saturating log-sum-exp, after one more step."""
    _, k, _, decay, _, top = held
    if bits(RULE, MEMBRANE) == MAX:
        q, r = largest(q + decay, x), largest(r + decay, x)
        if bits(RULE, RESET) == SATURATE:
            q, r = clamp(q, LOWEST, top), clamp(r, LOWEST, top)
        return p, q, r
    x, decay, top = x * k, decay * k, top * k
    q = log_add(q + decay, x, NATIVE)
    if bits(RULE, RESET) == SATURATE:
        p = log_add(p + decay, x + r, NATIVE)
        r = log_add(r, p - top, NATIVE)
        s = log_add(0.0 * q, q - top, NATIVE)
        p, q, r = p - s, q - s, r - s
    return p, q, r


@triton.jit
def find_maps(
    source,
    stride,
    mask,
    steps,
    length,
    zero,
    held,
    RULE: tl.constexpr,
    STEPS: tl.constexpr,
    EVEN: tl.constexpr,
    NATIVE: tl.constexpr,
):
    """Return the map of every chunk."""
    p, q, r = zero, zero + LOWEST, zero + LOWEST
    if bits(RULE, MEMBRANE) == MAX:
        r = zero - LOWEST
    xs = load_steps(source, stride, mask, 0, steps, STEPS, EVEN)
    for first in range(0, length, STEPS):
        source += STEPS * stride
        later = load_next(source, stride, mask, first + STEPS, steps, xs, STEPS, EVEN)
        for j in tl.static_range(STEPS):
            inside = within(mask, first + j, steps, EVEN)
            p2, q2, r2 = extend(p, q, r, xs[j], held, RULE, NATIVE)
            p, q, r = only(inside, p2, p, EVEN), only(inside, q2, q, EVEN), only(inside, r2, r, EVEN)
        xs = later
    return p, q, r


@triton.jit
def reach(v, p, q, r, steps, held, RULE: tl.constexpr, NATIVE: tl.constexpr):
    """Scan the maps of chunks with this number of steps; return the end of each, for a membrane at first."""
    if bits(RULE, MEMBRANE) == MAX:
        p, q, r = tl.associative_scan((steps * held[3] + 0.0 * q, q, r), 0, then_clamp)
        return clamp(v + p, q, r)
    v = v * held[1]
    if bits(RULE, RESET) == SATURATE:
        p, q, r = tl.associative_scan((p, q, r), 0, then_saturate)
        after = log_add(v + p, q, NATIVE) - log_add(v + r, 0.0 * v, NATIVE)
    else:
        p, q = tl.associative_scan((steps * held[3] * held[1] + 0.0 * q, q), 0, then_shift)
        after = log_add(v + p, q, NATIVE)
    return after * held[0]


@triton.jit(do_not_specialize=UNSPECIAL)
def chunked_forward_kernel(
    current,
    state,
    out,
    last_state,
    starts,
    known,
    time,
    length,
    total,
    at_current,
    at_out,
    numbers,
    RULE: tl.constexpr,
    HAS_STATE: tl.constexpr,
    CHUNKS: tl.constexpr,
    STEPS: tl.constexpr,
    EVEN: tl.constexpr,
    BLOCK: tl.constexpr,
    NATIVE: tl.constexpr,
):
    """Write the spikes, or their mean, the last membrane, and the membrane at the start of every chunk."""
    chunk = tl.arange(0, CHUNKS)[:, None].to(tl.int64)
    neuron = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[None, :]
    zero = tl.zeros((CHUNKS, BLOCK), tl.float32)
    pos = neuron + zero.to(tl.int32)
    mask = pos < total
    held = constants(known, pos, RULE, NATIVE)
    steps = steps_of(chunk, length, time)
    start = current + address(pos.to(tl.int64), at_current) + chunk * length * at_current[0]
    p, q, r = find_maps(start, at_current[0], mask, steps, length, zero, held, RULE, STEPS, EVEN, NATIVE)
    v = zero
    if HAS_STATE:
        v = tl.load(state + pos, mask=mask, other=0.0)
    end = reach(v, p, q, r, steps, held, RULE, NATIVE)
    row = starts + chunk * total + pos
    tl.store(row, v, mask=mask & (chunk == 0))
    tl.store(row + total, end, mask=mask & (chunk < CHUNKS - 1))
    tl.debug_barrier()  # a thread starts where its neighbour ends
    now = (tl.load(row, mask=mask, other=0.0), zero, zero)
    target = out + address(pos.to(tl.int64), at_out) + chunk * length * at_out[0]
    now, mean = integrate(
        start,
        at_current[0],
        target,
        at_out[0],
        now,
        mask,
        length,
        steps,
        held,
        numbers,
        RULE,
        STEPS,
        EVEN,
        NATIVE,
    )
    if bits(RULE, RATE):
        tl.store(
            out + address(neuron.to(tl.int64), at_out), tl.sum(mean, 0, True) / time, mask=neuron < total
        )
    tl.store(last_state + pos, now[0], mask=mask & (chunk == (time - 1) // length))
