"""Triton kernels for neurons without neighbours: UltraLIF and the additive family; see `recurrence`.

A lane integrates one neuron of one sample over all time steps. Lanes advance over the batch by a multiple of
the period of the constants, so that each lane keeps its constants. Arguments that belong together are tuples,
because a launcher takes no structures.
"""

import triton
import triton.language as tl

from ultralif.ops.triton_constants import constants
from ultralif.ops.triton_parts import (
    ADAPT,
    ADD,
    LATE,
    MAX,
    MEMBRANE,
    RATE,
    RESET,
    SATURATE,
    address,
    bits,
    exp2,
    fire,
    largest,
    only,
    saturated,
    settle,
    within,
)

__all__ = ["temporal_forward_kernel"]

UNSPECIAL = ["known", "time"]
"""Arguments that Triton must not specialise on."""


@triton.jit
def membrane(x, v, k, leak, log_leak, RULE: tl.constexpr, NATIVE: tl.constexpr):
    """Return P in two parts, P = base + eps * log(weight); the weight is 1 except for a log-sum-exp."""
    one = tl.full(x.shape, 1.0, tl.float32)
    if bits(RULE, MEMBRANE) == ADD:
        return leak * v + x, one
    past = v + log_leak
    if bits(RULE, MEMBRANE) == MAX:
        return largest(past, x), one
    return tl.maximum(past, x), one + exp2(-(tl.abs(past - x) * k), NATIVE)


@triton.jit
def advance(x, state, held, numbers, RULE: tl.constexpr, NATIVE: tl.constexpr):
    """Take one step: return the next state, the spike, and a trace (P, f, f', threshold, weight)."""
    eps, k, leak, log_leak, threshold, amplitude = held
    v_reset, strength, decay = numbers
    v, b, last = state
    limit, adapted = threshold, b
    if bits(RULE, ADAPT):
        adapted = decay * b + (1.0 - decay) * last
        limit = threshold + strength * (b if bits(RULE, LATE) else adapted)
    base, weight = membrane(x, v, k, leak, log_leak, RULE, NATIVE)
    potential, gate, steep, spike = fire(base, weight, limit, eps, k, amplitude, RULE, NATIVE)
    if bits(RULE, RESET) == SATURATE:
        after, _, _ = saturated(potential, amplitude, eps, k, RULE, NATIVE)
    else:
        after = settle(potential, spike, limit, v_reset, RULE)
    return (after, adapted, spike), spike, (potential, gate, steep, limit, weight)


@triton.jit
def load_state(pointer, pos, total, mask, zero, HAS: tl.constexpr, RULE: tl.constexpr):
    """Return membrane, adaptation and last spike; without a state, all zero."""
    v, b, last = zero, zero, zero
    if HAS:
        v = tl.load(pointer + pos, mask=mask, other=0.0)
        if bits(RULE, ADAPT):
            b = tl.load(pointer + total + pos, mask=mask, other=0.0)
            last = tl.load(pointer + 2 * total + pos, mask=mask, other=0.0)
    return v, b, last


@triton.jit
def store_state(pointer, pos, total, mask, state, RULE: tl.constexpr):
    """Write membrane, adaptation and last spike."""
    tl.store(pointer + pos, state[0], mask=mask)
    if bits(RULE, ADAPT):
        tl.store(pointer + total + pos, state[1], mask=mask)
        tl.store(pointer + 2 * total + pos, state[2], mask=mask)


@triton.jit
def load_steps(source, stride, mask, first, time, CHUNK: tl.constexpr, EVEN: tl.constexpr):
    """Load a chunk of steps before any is used, so that many loads run at once."""
    xs = ()
    for j in tl.static_range(CHUNK):
        xs = xs + (tl.load(source, mask=within(mask, first + j, time, EVEN), other=0.0).to(tl.float32),)
        source += stride
    return xs


@triton.jit
def load_next(source, stride, mask, first, time, xs, CHUNK: tl.constexpr, EVEN: tl.constexpr):
    """Load the next chunk, if there is one, while the present one is integrated."""
    if CHUNK == 1:  # there is only one step
        return xs
    return load_steps(source, stride, within(mask, first, time, False), first, time, CHUNK, EVEN)


@triton.jit
def integrate(
    source,
    stride,
    target,
    stride_out,
    now,
    mask,
    end,
    time,
    held,
    numbers,
    RULE: tl.constexpr,
    CHUNK: tl.constexpr,
    EVEN: tl.constexpr,
    NATIVE: tl.constexpr,
):
    """Take steps up to ``end``, or the ``time`` of a lane; write spikes; return the state and their sum."""
    mean = tl.zeros_like(now[0])
    xs = load_steps(source, stride, mask, 0, time, CHUNK, EVEN)
    for first in range(0, end, CHUNK):
        source += CHUNK * stride
        later = load_next(source, stride, mask, first + CHUNK, time, xs, CHUNK, EVEN)
        for j in tl.static_range(CHUNK):
            after, spike, _ = advance(xs[j], now, held, numbers, RULE, NATIVE)
            inside = within(mask, first + j, time, EVEN)
            now = (
                only(inside, after[0], now[0], EVEN),
                only(inside, after[1], now[1], EVEN),
                only(inside, after[2], now[2], EVEN),
            )
            if bits(RULE, RATE):
                mean += tl.where(inside, spike, 0.0)
            else:
                tl.store(target, spike, mask=inside)
                target += stride_out
        xs = later
    return now, mean


@triton.jit(do_not_specialize=UNSPECIAL)
def temporal_forward_kernel(
    current,
    state,
    out,
    last_state,
    known,
    time,
    span,
    at_current,
    at_out,
    numbers,
    RULE: tl.constexpr,
    HAS_STATE: tl.constexpr,
    CHUNK: tl.constexpr,
    EVEN: tl.constexpr,
    BLOCK: tl.constexpr,
    NATIVE: tl.constexpr,
):
    """Integrate all steps: write the spikes, or their mean, and the last state."""
    total, rounds, stride_round = span
    if CHUNK == 1:  # there is only one step
        time = 1
    lane = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    held = constants(known, lane, RULE, NATIVE)
    zero = tl.zeros((BLOCK,), tl.float32)
    for i in range(rounds):
        pos = lane + tl.cast(i, tl.int64) * stride_round
        mask = pos < total
        source = current + address(pos, at_current)
        target = out + address(pos, at_out)
        now = load_state(state, pos, total, mask, zero, HAS_STATE, RULE)
        now, mean = integrate(
            source,
            at_current[0],
            target,
            at_out[0],
            now,
            mask,
            time,
            time,
            held,
            numbers,
            RULE,
            CHUNK,
            EVEN,
            NATIVE,
        )
        if bits(RULE, RATE):
            tl.store(target, mean / time, mask=mask)
        store_state(last_state, pos, total, mask, now, RULE)
