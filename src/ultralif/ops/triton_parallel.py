"""Triton kernels for long sequences of few neurons that no spike resets: time in chunks; see `parallel`.

A program takes a few neurons, and each thread a chunk of one neuron's time. Chunks meet twice: going forward,
a scan over their maps gives the membrane at the start of each, and going back, a scan over lines gives the
gradient at the end of each.

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
    saturated,
    unfire,
    within,
)
from ultralif.ops.triton_temporal import advance, load_next, load_steps
from ultralif.ops.triton_temporal_back import finish, retreat, share_of

__all__ = ["chunked_backward_kernel", "chunked_forward_kernel"]

UNSPECIAL = ["known", "time", "length"]
LOWEST = tl.constexpr(-1e30)
"""A number in place of -inf, because -inf minus itself is NaN."""
FAST = tl.constexpr(launch.NATIVE)
"""The argument NATIVE of other functions, for those that a scan calls."""


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
def then_line(a, c, a2, c2):
    """Compose two lines a g + c."""
    return a * a2, a2 * c + c2


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
    steps = tl.minimum(tl.maximum(time - chunk * length, 0), length).to(tl.int32)
    start = current + address(pos, at_current) + chunk * length * at_current[0]
    source = start
    p, q, r = zero, zero + LOWEST, zero + LOWEST
    if bits(RULE, MEMBRANE) == MAX:
        r = zero - LOWEST
    xs = load_steps(source, at_current[0], mask, 0, steps, STEPS, EVEN)
    for first in range(0, length, STEPS):
        source += STEPS * at_current[0]
        later = load_next(source, at_current[0], mask, first + STEPS, steps, xs, STEPS, EVEN)
        for j in tl.static_range(STEPS):
            inside = within(mask, first + j, steps, EVEN)
            p2, q2, r2 = extend(p, q, r, xs[j], held, RULE, NATIVE)
            p, q, r = only(inside, p2, p, EVEN), only(inside, q2, q, EVEN), only(inside, r2, r, EVEN)
        xs = later
    v = zero
    if HAS_STATE:
        v = tl.load(state + pos, mask=mask, other=0.0)
    end = reach(v, p, q, r, steps, held, RULE, NATIVE)
    row = starts + chunk * total + pos
    tl.store(row, v, mask=mask & (chunk == 0))
    tl.store(row + total, end, mask=mask & (chunk < CHUNKS - 1))
    tl.debug_barrier()  # a thread starts where its neighbour ends
    now = (tl.load(row, mask=mask, other=0.0), zero, zero)
    source = start
    target = out + address(pos, at_out) + chunk * length * at_out[0]
    mean = zero
    xs = load_steps(source, at_current[0], mask, 0, steps, STEPS, EVEN)
    for first in range(0, length, STEPS):
        source += STEPS * at_current[0]
        later = load_next(source, at_current[0], mask, first + STEPS, steps, xs, STEPS, EVEN)
        for j in tl.static_range(STEPS):
            inside = within(mask, first + j, steps, EVEN)
            after, spike, _ = advance(xs[j], now, held, numbers, RULE, NATIVE)
            now = (only(inside, after[0], now[0], EVEN), zero, zero)
            if bits(RULE, RATE):
                mean += tl.where(inside, spike, 0.0)
            else:
                tl.store(target, spike, mask=inside)
                target += at_out[0]
        xs = later
    if bits(RULE, RATE):
        tl.store(out + address(neuron, at_out), tl.sum(mean, 0, True) / time, mask=neuron < total)
    tl.store(last_state + pos, now[0], mask=mask & (chunk == (time - 1) // length))


@triton.jit
def sensitivity(
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
    steps = tl.minimum(tl.maximum(time - chunk * length, 0), length).to(tl.int32)
    source = current + address(pos, at_current) + chunk * length * at_current[0]
    incoming = grad_out + address(pos, at_grad) + chunk * length * at_grad[0]
    note = notes + chunk * (length // STEPS) * total + pos
    g_mean = zero
    if HAS // 2 % 2 and bits(RULE, RATE):
        g_mean = tl.load(incoming, mask=mask, other=0.0).to(tl.float32) / time
    now = (tl.load(starts + chunk * total + pos, mask=mask, other=0.0), zero, zero)
    a, c = zero + 1.0, zero
    for first in range(0, length, STEPS):
        tl.store(note, now[0], mask=mask)
        xs = load_steps(source, at_current[0], mask, first, steps, STEPS, EVEN)
        gs = xs
        if GIVEN:
            gs = load_steps(incoming, at_grad[0], mask, first, steps, STEPS, EVEN)
        for j in tl.static_range(STEPS):
            inside = within(mask, first + j, steps, EVEN)
            v = now[0]
            now, _, trace = advance(xs[j], now, held, numbers, RULE, NATIVE)
            given = gs[j] if GIVEN else g_mean
            a, c = sensitivity(a, c, given, v, xs[j], trace, inside, held, numbers, RULE, EVEN, NATIVE)
        source += STEPS * at_current[0]
        incoming += STEPS * at_grad[0]
        note += total
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
    outgoing = grad_current + address(pos, at_out) + (chunk + 1) * length * at_out[0]
    for r in range(length // STEPS):
        first = length - (r + 1) * STEPS
        source -= STEPS * at_current[0]
        incoming -= STEPS * at_grad[0]
        note -= total
        xs = load_steps(source, at_current[0], mask, first, steps, STEPS, EVEN)
        gs = xs
        if GIVEN:
            gs = load_steps(incoming, at_grad[0], mask, first, steps, STEPS, EVEN)
        now = (tl.load(note, mask=mask, other=0.0), zero, zero)
        traces, shares, to_epss = (), (), ()
        for j in tl.static_range(STEPS):
            v = now[0]
            now, _, trace = advance(xs[j], now, held, numbers, RULE, NATIVE)
            share, to_eps = share_of(xs[j], v, trace[4], held[1], held[3], RULE, NATIVE)
            traces, shares, to_epss = traces + (trace,), shares + (share,), to_epss + (to_eps,)
        for j in tl.static_range(STEPS - 1, -1, -1):
            inside = within(mask, first + j, steps, EVEN)
            given = gs[j] if GIVEN else g_mean
            to_current, flow, sums = retreat(
                given,
                flow,
                sums,
                traces[j],
                shares[j],
                to_epss[j],
                inside,
                held,
                numbers,
                RULE,
                EVEN,
                NATIVE,
            )
            outgoing -= at_out[0]
            tl.store(outgoing, to_current, mask=inside)
    if HAS % 2:
        tl.store(grad_start + pos, flow[0], mask=mask & (chunk == 0))
    if WAYS:
        lane = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        held = constants(known, lane, RULE, NATIVE)
        sums = (tl.sum(sums[0], 0), tl.sum(sums[1], 0), tl.sum(sums[2], 0), tl.sum(sums[3], 0))
        finish(sums, held, lane, total, known, grads, scratch, RULE, WAYS, BLOCK)
