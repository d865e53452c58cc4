"""The derivative of long sequences in chunks: see `triton_parallel`.

The gradient at the start of a chunk is a line of that at its end, a g + c. A scan over the lines of all
chunks gives the gradient at the end of each, with which all are differentiated at once.
"""

import triton
import triton.language as tl

from ultralif.ops.triton_constants import constants
from ultralif.ops.triton_parallel import UNSPECIAL, steps_of
from ultralif.ops.triton_parts import (
    RATE,
    RESET,
    SATURATE,
    address,
    bits,
    only,
    saturated,
    unfire,
    within,
)
from ultralif.ops.triton_temporal import advance, load_steps
from ultralif.ops.triton_temporal_back import finish, retreat_steps, share_of, trace_steps

__all__ = ["chunked_backward_kernel"]


@triton.jit
def then_line(a, c, a2, c2):
    """Compose two lines a g + c."""
    return a * a2, a2 * c + c2


@triton.jit
def follow(
    a, c, gs, v, x, trace, inside, held, numbers, RULE: tl.constexpr, EVEN: tl.constexpr, NATIVE: tl.constexpr
):
    """Take a line over one step: a is dV/dV(start), c the gradient of all spikes so far for V(start)."""
    potential, gate, steep, limit, weight = trace
    share, _ = share_of(x, v, weight, held[1], held[3], RULE, NATIVE)
    _, back, _, _ = unfire(
        gs, 0.0 * gs, potential, potential, gate, steep, limit, held[1], held[5], numbers[0], RULE
    )
    reached = a * share
    after = reached
    if bits(RULE, RESET) == SATURATE:
        _, below, _ = saturated(potential, held[5], held[0], held[1], RULE, NATIVE)
        after = reached * below
    return only(inside, after, a, EVEN), only(inside, c + reached * back, c, EVEN)


@triton.jit
def find_lines(
    source,
    stride,
    incoming,
    stride_grad,
    g_mean,
    note,
    total,
    v,
    mask,
    steps,
    length,
    held,
    numbers,
    RULE: tl.constexpr,
    GIVEN: tl.constexpr,
    STEPS: tl.constexpr,
    EVEN: tl.constexpr,
    NATIVE: tl.constexpr,
):
    """Return the line of every chunk, and note the membrane before every few steps."""
    zero = tl.zeros_like(v)
    a, c, now = zero + 1.0, zero, (v, zero, zero)
    for first in range(0, length, STEPS):
        tl.store(note, now[0], mask=mask)
        xs = load_steps(source, stride, mask, first, steps, STEPS, EVEN)
        gs = xs
        if GIVEN:
            gs = load_steps(incoming, stride_grad, mask, first, steps, STEPS, EVEN)
        for j in tl.static_range(STEPS):
            inside = within(mask, first + j, steps, EVEN)
            v = now[0]
            now, _, trace = advance(xs[j], now, held, numbers, RULE, NATIVE)
            given = gs[j] if GIVEN else g_mean
            a, c = follow(a, c, given, v, xs[j], trace, inside, held, numbers, RULE, EVEN, NATIVE)
        source += STEPS * stride
        incoming += STEPS * stride_grad
        note += total
    return a, c


@triton.jit
def take_back(
    flow,
    sums,
    pointers,
    strides,
    g_mean,
    mask,
    steps,
    length,
    held,
    numbers,
    RULE: tl.constexpr,
    GIVEN: tl.constexpr,
    STEPS: tl.constexpr,
    EVEN: tl.constexpr,
    NATIVE: tl.constexpr,
):
    """Differentiate all chunks from their ends: return the gradient at their starts, and the sums.

    Pointers are to the first step of a chunk, for the gradient that is written to the last; strides as well
    are those of current, gradient, notes and output.
    """
    source, incoming, note, outgoing = pointers
    by_step, by_grad, by_note, by_out = strides
    source += tl.cast(length, tl.int64) * by_step
    incoming += tl.cast(length, tl.int64) * by_grad
    note += tl.cast(length // STEPS, tl.int64) * by_note
    for r in range(length // STEPS):
        first = length - (r + 1) * STEPS
        source -= STEPS * by_step
        incoming -= STEPS * by_grad
        note -= by_note
        xs = load_steps(source, by_step, mask, first, steps, STEPS, EVEN)
        gs = xs
        if GIVEN:
            gs = load_steps(incoming, by_grad, mask, first, steps, STEPS, EVEN)
        now = (tl.load(note, mask=mask, other=0.0), 0.0 * g_mean, 0.0 * g_mean)
        traces, shares, to_epss = trace_steps(xs, now, held, numbers, RULE, STEPS, NATIVE)
        flow, sums = retreat_steps(
            traces,
            shares,
            to_epss,
            gs if GIVEN else g_mean,
            flow,
            sums,
            outgoing,
            by_out,
            mask,
            first,
            steps,
            held,
            numbers,
            RULE,
            GIVEN,
            STEPS,
            EVEN,
            NATIVE,
        )
        outgoing -= STEPS * by_out
    return flow, sums


@triton.jit(do_not_specialize=UNSPECIAL)
def chunked_backward_kernel(
    grad_out,
    grad_state,
    current,
    starts,
    grad_current,
    grad_start,
    ends,
    notes,
    known,
    grads,
    scratch,
    time,
    length,
    total,
    at_current,
    at_grad,
    at_out,
    numbers,
    RULE: tl.constexpr,
    HAS: tl.constexpr,
    WAYS: tl.constexpr,
    CHUNKS: tl.constexpr,
    STEPS: tl.constexpr,
    EVEN: tl.constexpr,
    BLOCK: tl.constexpr,
    NATIVE: tl.constexpr,
):
    """Differentiate: write the gradients for current, state and constants.

    The first thread has the last chunk. ``ends`` is for the gradient at the end of every chunk, and ``notes``
    for the membrane before every few steps.
    """
    GIVEN: tl.constexpr = HAS // 2 % 2 == 1 and not bits(RULE, RATE)
    chunk = CHUNKS - 1 - tl.arange(0, CHUNKS)[:, None].to(tl.int64)
    zero = tl.zeros((CHUNKS, BLOCK), tl.float32)
    pos = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[None, :] + zero.to(tl.int32)
    mask = pos < total
    held = constants(known, pos, RULE, NATIVE)
    steps = steps_of(chunk, length, time)
    source = current + address(pos.to(tl.int64), at_current) + chunk * length * at_current[0]
    incoming = grad_out + address(pos.to(tl.int64), at_grad) + chunk * length * at_grad[0]
    note = notes + chunk * (length // STEPS) * total + pos
    g_mean = zero
    if HAS // 2 % 2 and bits(RULE, RATE):
        g_mean = tl.load(incoming, mask=mask, other=0.0).to(tl.float32) / time
    v = tl.load(starts + chunk * total + pos, mask=mask, other=0.0)
    a, c = find_lines(
        source,
        at_current[0],
        incoming,
        at_grad[0],
        g_mean,
        note,
        total,
        v,
        mask,
        steps,
        length,
        held,
        numbers,
        RULE,
        GIVEN,
        STEPS,
        EVEN,
        NATIVE,
    )
    a, c = tl.associative_scan((a, c), 0, then_line)
    g = zero
    if HAS // 4:
        g = tl.load(grad_state + pos, mask=mask, other=0.0)
    row = ends + chunk * total + pos
    tl.store(row, g, mask=mask & (chunk == CHUNKS - 1))
    tl.store(row - total, a * g + c, mask=mask & (chunk > 0))
    tl.debug_barrier()  # the end of a chunk is the start of the next
    flow = (tl.load(row, mask=mask, other=0.0), zero, zero)
    sums = (zero, zero, zero, zero)
    outgoing = grad_current + address(pos.to(tl.int64), at_out) + ((chunk + 1) * length - 1) * at_out[0]
    flow, sums = take_back(
        flow,
        sums,
        (source, incoming, note, outgoing),
        (at_current[0], at_grad[0], total, at_out[0]),
        g_mean,
        mask,
        steps,
        length,
        held,
        numbers,
        RULE,
        GIVEN,
        STEPS,
        EVEN,
        NATIVE,
    )
    if HAS % 2:
        tl.store(grad_start + pos, flow[0], mask=mask & (chunk == 0))
    if WAYS:
        lane = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        held = constants(known, lane, RULE, NATIVE)
        sums = (tl.sum(sums[0], 0), tl.sum(sums[1], 0), tl.sum(sums[2], 0), tl.sum(sums[3], 0))
        finish(sums, held, lane, total, known, grads, scratch, RULE, WAYS, BLOCK)
