"""Triton kernels for neurons on a ring: UltraDLIF and UltraDPLIF; see `recurrence`.

A program integrates a tile: a few whole rings, or a part of one long ring; its lanes exchange their membranes
at every step. A part carries a halo: at its ends the neighbours are missing, and what is wrong there moves
inwards by one neuron a step, so a halo as wide as the number of steps keeps the inside right; the backward
walk doubles it.

Time is cut into chunks, and arguments are tuples, as in `triton_temporal`.
"""

import triton
import triton.language as tl

from ultralif.ops.triton_constants import constants, reduce
from ultralif.ops.triton_parts import (
    AT_SPIKE,
    CENTERED,
    LEAK_FORM,
    LN2,
    MAX,
    MEMBRANE,
    RATE,
    address,
    bits,
    exp2,
    fire,
    inverse,
    largest,
    log2,
    settle,
    unfire,
    within,
)
from ultralif.ops.triton_temporal import load_steps, only

__all__ = ["spatial_backward_kernel", "spatial_forward_kernel"]

FACTOR = tl.constexpr(1)
SHIFT = tl.constexpr(2)
LOG2_3 = tl.constexpr(1.584962500721156)
UNSPECIAL = ["known", "time", "halo", "mean_of"]
"""Arguments that Triton must not specialise on."""


@triton.jit
def place(ring, halo, LANES: tl.constexpr, WIDTH: tl.constexpr, WHOLE: tl.constexpr):
    """Return the lanes' row, place on the ring, whether it is their own, and their neighbours.

    WHOLE is 1 for whole rings, 0 for parts, and 2 for parts that begin at multiples of four neurons.
    """
    lane = tl.arange(0, LANES)
    row = lane // WIDTH
    along = lane % WIDTH
    if WHOLE == 1:
        left = tl.where(along == 0, lane + ring - 1, lane - 1)
        right = tl.where(along == ring - 1, lane - ring + 1, lane + 1)
        return row, along, along < ring, (left % LANES, right % LANES)
    inner = WIDTH - 2 * halo
    spot = tl.program_id(1) * inner - halo + along
    own = (along >= halo) & (along < halo + inner) & (spot < ring)
    around = (spot + ring) % ring
    if WHOLE == 2:  # so that they are loaded side by side
        around = tl.max_contiguous(tl.multiple_of(around, 4), 4)
    return row, around, own, (tl.maximum(lane - 1, 0), tl.minimum(lane + 1, LANES - 1))


@triton.jit
def neighbours(w, around):
    """Return what is to the left and to the right of each lane, by one exchange."""
    both = tl.reshape(tl.join(around[0], around[1]), [2 * w.shape[0]])
    left, right = tl.split(tl.reshape(tl.gather(w, both, 0), [w.shape[0], 2]))
    return left, right


@triton.jit
def terms(w, w_left, w_right, k, NATIVE: tl.constexpr):
    """Return the largest of three terms, the exponentials of the others, and how far below these are.

    The third term is the smaller of the neighbours; the second is what is left.
    """
    side, third = largest(w_left, w_right), tl.minimum(w_left, w_right)
    top, second = largest(side, w), tl.minimum(side, w)
    gap_2, gap_3 = (top - second) * k, (top - third) * k
    return top, exp2(-gap_2, NATIVE), exp2(-gap_3, NATIVE), gap_2, gap_3


@triton.jit
def coupled(x, trio, eps, k, RULE: tl.constexpr, NATIVE: tl.constexpr):
    """Return the level in two parts, base + eps * log(weight), see `fire`."""
    w, w_left, w_right = trio
    if bits(RULE, MEMBRANE) == MAX:
        return largest(largest(w_left, w_right), w) + x, tl.full(w.shape, 1.0, tl.float32)
    top, u_2, u_3, _, _ = terms(w, w_left, w_right, k, NATIVE)
    base = top + x
    if bits(RULE, CENTERED):
        base -= eps * LOG2_3
    return base, 1.0 + u_2 + u_3


@triton.jit
def shares(trio, k, RULE: tl.constexpr, NATIVE: tl.constexpr):
    """Return the shares of left and right neighbour, and the level's derivative by eps. Ties share evenly."""
    w, w_left, w_right = trio
    if bits(RULE, MEMBRANE) == MAX:
        top = tl.maximum(tl.maximum(w_left, w_right), w)
        a = tl.where(w_left == top, 1.0, 0.0)
        b = tl.where(w_right == top, 1.0, 0.0)
        whole = 1.0 / (a + b + tl.where(w == top, 1.0, 0.0))
        return a * whole, b * whole, 0.0 * whole
    _, u_2, u_3, gap_2, gap_3 = terms(w, w_left, w_right, k, NATIVE)
    weight = 1.0 + u_2 + u_3
    whole = inverse(weight, NATIVE)
    entropy = log2(weight, NATIVE) + (u_2 * gap_2 + u_3 * gap_3) * whole
    if bits(RULE, CENTERED):
        entropy -= LOG2_3
    larger = tl.where(tl.maximum(w_left, w_right) > w, whole, u_2 * whole)  # of the neighbours
    smaller = u_3 * whole
    from_left = w_left > w_right
    return tl.where(from_left, larger, smaller), tl.where(from_left, smaller, larger), LN2 * entropy


@triton.jit
def advance(x, v, around, held, v_reset, RULE: tl.constexpr, NATIVE: tl.constexpr):
    """Take one step: return V, the spike, and a trace (P, level, f, f', the three that are coupled)."""
    eps, k, leak, log_leak, threshold, amplitude = held
    w = v
    if bits(RULE, LEAK_FORM) == FACTOR:
        w = v * leak
    elif bits(RULE, LEAK_FORM) == SHIFT:
        w = v + log_leak
    if bits(RULE, AT_SPIKE):
        w += x
        x = 0.0 * x
    w_left, w_right = neighbours(w, around)
    trio = (w, w_left, w_right)
    base, weight = coupled(x, trio, eps, k, RULE, NATIVE)
    level, gate, steep, spike = fire(base, weight, threshold, eps, k, amplitude, RULE, NATIVE)
    potential = w if bits(RULE, AT_SPIKE) else level
    return settle(potential, spike, threshold, v_reset, RULE), spike, (potential, level, gate, steep, trio)


@triton.jit(do_not_specialize=UNSPECIAL)
def spatial_forward_kernel(
    current,
    state,
    out,
    last_state,
    known,
    time,
    halo,
    mean_of,
    span,
    at_current,
    at_out,
    v_reset,
    RULE: tl.constexpr,
    HAS: tl.constexpr,
    CHUNK: tl.constexpr,
    EVEN: tl.constexpr,
    LANES: tl.constexpr,
    WIDTH: tl.constexpr,
    WHOLE: tl.constexpr,
    NATIVE: tl.constexpr,
):
    """Integrate rows of rings from a state: write the spikes, or add to their mean, and the state.

    HAS has a bit each for a state, an output, and a mean that is added to.
    """
    ring, rows, rounds, stride_round = span
    row, spot, own, around = place(ring, halo, LANES, WIDTH, WHOLE)
    row += tl.program_id(0) * (LANES // WIDTH)
    held = constants(known, row * ring + tl.minimum(spot, ring - 1), NATIVE)
    zero = tl.zeros((LANES,), tl.float32)
    for i in range(rounds):
        at_row = row + tl.cast(i, tl.int64) * stride_round
        inside = (at_row < rows) & (spot < ring)
        own_now = own & (at_row < rows)
        pos = at_row * ring + spot
        source = current + address(pos, at_current)
        target = out + address(pos, at_out)
        v, mean = zero, zero
        if HAS % 2:
            v = tl.load(state + pos, mask=inside, other=0.0)
        for first in range(0, time, CHUNK):
            xs = load_steps(source, at_current[0], inside, first, time, CHUNK, EVEN)
            source += CHUNK * at_current[0]
            for j in tl.static_range(CHUNK):
                after, spike, _ = advance(xs[j], v, around, held, v_reset, RULE, NATIVE)
                now = within(own_now, first + j, time, EVEN)
                v = only(within(inside, first + j, time, EVEN), after, v, EVEN)
                if bits(RULE, RATE):
                    mean += tl.where(now, spike, 0.0)
                elif HAS // 2 % 2:
                    tl.store(target, spike, mask=now)
                    target += at_out[0]
        if HAS // 2 % 2 and bits(RULE, RATE):
            mean = mean / mean_of
            if HAS // 4:
                mean += tl.load(target, mask=own_now, other=0.0).to(tl.float32)
            tl.store(target, mean, mask=own_now)
        tl.store(last_state + pos, v, mask=own_now)


@triton.jit
def retreat(
    gs,
    gv,
    sums,
    trace,
    v,
    to_sides,
    around,
    inside,
    own,
    held,
    v_reset,
    RULE: tl.constexpr,
    EVEN: tl.constexpr,
):
    """Walk one step back: return the gradients for the current and for V before, and the sums."""
    eps, k, leak, log_leak, threshold, amplitude = held
    potential, level, gate, steep, _ = trace
    _, back, kept, to_limit = unfire(
        gs, gv, potential, level, gate, steep, threshold, k, amplitude, v_reset, RULE
    )
    back, kept = only(inside, back, 0.0 * gv, EVEN), only(inside, kept, 0.0 * gv, EVEN)
    g = back if bits(RULE, AT_SPIKE) else back + kept
    to_left, to_right = g * to_sides[0], g * to_sides[1]
    to_w = g - to_left - to_right + tl.gather(to_right, around[0], 0) + tl.gather(to_left, around[1], 0)
    if bits(RULE, AT_SPIKE):
        to_w += kept
        g_current = to_w
    else:
        g_current = g
    to_eps = g * to_sides[2] - back * (level - threshold) * (k * LN2)
    to_leak = 0.0 * gv
    if bits(RULE, LEAK_FORM) == FACTOR:
        to_leak = to_w * v
    elif bits(RULE, LEAK_FORM) == SHIFT:
        to_leak = to_w / leak
    to_limit = only(inside, to_limit, 0.0 * gv, EVEN) - back
    sums = (
        sums[0] + tl.where(own, to_eps, 0.0),
        sums[1] + tl.where(own, to_leak, 0.0),
        sums[2] + tl.where(own, to_limit, 0.0),
    )
    before = to_w * leak if bits(RULE, LEAK_FORM) == FACTOR else to_w
    return g_current, only(inside, before, gv, EVEN), sums


@triton.jit(do_not_specialize=UNSPECIAL)
def spatial_backward_kernel(
    grad_out,
    grad_state,
    current,
    state,
    grad_current,
    grad_start,
    notes,
    known,
    grads,
    scratch,
    time,
    halo,
    mean_of,
    span,
    at_current,
    at_grad,
    at_out,
    v_reset,
    RULE: tl.constexpr,
    HAS: tl.constexpr,
    WAYS: tl.constexpr,
    CHUNK: tl.constexpr,
    EVEN: tl.constexpr,
    LANES: tl.constexpr,
    WIDTH: tl.constexpr,
    WHOLE: tl.constexpr,
    NATIVE: tl.constexpr,
):
    """Differentiate: write the gradients for current, state and constants.

    HAS has a bit each for a state, a gradient of the output and one of the last state. The kernel is longer
    than others, because Triton cannot carry the trace of a chunk out of a function.
    """
    ring, rows, rounds, stride_round = span
    row, spot, own, around = place(ring, halo, LANES, WIDTH, WHOLE)
    row += tl.program_id(0) * (LANES // WIDTH)
    held = constants(known, row * ring + tl.minimum(spot, ring - 1), NATIVE)
    zero = tl.zeros((LANES,), tl.float32)
    sums = (zero, zero, zero)
    chunks = tl.cdiv(time, CHUNK)
    program = tl.program_id(1).to(tl.int64) * tl.num_programs(0) + tl.program_id(0)
    note = notes + program * LANES + tl.arange(0, LANES)
    note_stride = tl.num_programs(0).to(tl.int64) * tl.num_programs(1) * LANES
    for i in range(rounds):
        at_row = row + tl.cast(i, tl.int64) * stride_round
        inside = (at_row < rows) & (spot < ring)
        own_now = own & (at_row < rows)
        pos = at_row * ring + spot
        source = current + address(pos, at_current)
        start, flow, g_mean = zero, zero, zero
        if HAS % 2:
            start = tl.load(state + pos, mask=inside, other=0.0)
        v = start
        for n in range(chunks - 1):  # note the state after each chunk but the last; these are full
            xs = load_steps(
                source + tl.cast(n, tl.int64) * CHUNK * at_current[0],
                at_current[0],
                inside,
                0,
                time,
                CHUNK,
                True,
            )
            for j in tl.static_range(CHUNK):
                v, _, _ = advance(xs[j], v, around, held, v_reset, RULE, NATIVE)
            tl.store(note + n * note_stride, v)

        if HAS // 4:
            flow = tl.load(grad_state + pos, mask=inside, other=0.0)
        incoming = grad_out + address(pos, at_grad)
        if HAS // 2 % 2 and bits(RULE, RATE):
            g_mean = tl.load(incoming, mask=inside, other=0.0).to(tl.float32) / mean_of
        for r in range(chunks):
            c = tl.cast(chunks - 1 - r, tl.int64)
            v = start
            if c > 0:
                v = tl.load(note + (c - 1) * note_stride)
            first = c * CHUNK
            xs = load_steps(source + first * at_current[0], at_current[0], inside, first, time, CHUNK, EVEN)
            gs = xs
            if HAS // 2 % 2 and not bits(RULE, RATE):
                gs = load_steps(incoming + first * at_grad[0], at_grad[0], inside, first, time, CHUNK, EVEN)
            vs, traces, sides = (), (), ()
            for j in tl.static_range(CHUNK):
                vs = vs + (v,)
                v, _, trace = advance(xs[j], v, around, held, v_reset, RULE, NATIVE)
                traces, sides = traces + (trace,), sides + (shares(trace[4], held[1], RULE, NATIVE),)
            outgoing = grad_current + address(pos, at_out) + (first + CHUNK - 1) * at_out[0]
            for j in tl.static_range(CHUNK - 1, -1, -1):
                now = within(inside, first + j, time, EVEN)
                given = g_mean if bits(RULE, RATE) or HAS // 2 % 2 == 0 else gs[j]
                to_current, flow, sums = retreat(
                    given,
                    flow,
                    sums,
                    traces[j],
                    vs[j],
                    sides[j],
                    around,
                    now,
                    own_now,
                    held,
                    v_reset,
                    RULE,
                    EVEN,
                )
                tl.store(outgoing, to_current, mask=within(own_now, first + j, time, EVEN))
                outgoing -= at_out[0]
        tl.store(grad_start + pos, flow, mask=own_now)
    if WAYS:
        own = own & (row < rows)
        pos = row * ring + spot
        reduce(sums[0], 0, pos, own, known, grads, scratch, WAYS, LANES)
        reduce(sums[1], 1, pos, own, known, grads, scratch, WAYS, LANES)
        reduce(sums[2], 2, pos, own, known, grads, scratch, WAYS, LANES)
