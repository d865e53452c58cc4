"""Triton kernels for neurons on a ring: UltraDLIF and UltraDPLIF; see `recurrence`.

A program integrates a tile of lanes: a few whole rings, or a part of a long one. A thread has COLS lanes side
by side, so that most neighbours are in its own registers; one exchange in each step brings those at both
ends. In whole rings it is an exchange of the whole program, for which its warps wait. In a part of a ring it
is one of a warp: warps overlap by MARGIN lanes at both ends, which they renew from each other after as many
steps, or half as many going back. MARGIN is 0 for whole rings.

A part of a ring has a halo at both ends. The outermost neurons lack a neighbour, and the error moves inwards
by one neuron in each step. So a halo as wide as the number of steps keeps the inside right; the backward pass
needs twice that. Long sequences of parts are therefore cut into spans of a few steps. Each span is a launch,
which begins with the membrane that the launch before wrote at the border.

Time is cut into chunks, and arguments are tuples, as in `triton_temporal`. Positions on a ring are counted in
groups of COLS lanes.
"""

import triton
import triton.language as tl

from ultralif.ops.triton_constants import constants
from ultralif.ops.triton_parts import (
    AT_SPIKE,
    CENTERED,
    LEAK_FORM,
    MAX,
    MEMBRANE,
    RATE,
    bits,
    exp2,
    fire,
    inverse,
    largest,
    log2,
    only,
    settle,
    within,
)
from ultralif.ops.triton_places import address, exchange, in_round, lanes_of, place, renew, when
from ultralif.ops.triton_temporal import load_steps

__all__ = ["spatial_forward_kernel"]

FACTOR = tl.constexpr(1)
SHIFT = tl.constexpr(2)
LOG2_3 = tl.constexpr(1.584962500721156)
UNSPECIAL = ["known", "times"]
"""Arguments that Triton must not specialise on."""


@triton.jit
def beside(x, y, around):
    """Return x of the lane to the left, and y of that to the right, by one exchange."""
    GROUPS: tl.constexpr = x.shape[0]
    COLS: tl.constexpr = x.shape[1]
    if COLS == 1:
        from_left, from_right = exchange(tl.reshape(x, [GROUPS]), tl.reshape(y, [GROUPS]), around)
    elif COLS == 2:
        x_0, x_1 = tl.split(x)
        y_0, y_1 = tl.split(y)
        left, right = exchange(x_1, y_0, around)
        from_left, from_right = tl.join(left, x_0), tl.join(y_1, right)
    else:
        x_even, x_odd = tl.split(tl.reshape(x, [GROUPS, 2, 2]))
        y_even, y_odd = tl.split(tl.reshape(y, [GROUPS, 2, 2]))
        x_0, x_2 = tl.split(x_even)
        x_1, x_3 = tl.split(x_odd)
        y_0, y_2 = tl.split(y_even)
        y_1, y_3 = tl.split(y_odd)
        left, right = exchange(x_3, y_0, around)
        from_left = tl.join(tl.join(left, x_1), tl.join(x_0, x_2))
        from_right = tl.join(tl.join(y_1, y_3), tl.join(y_2, right))
    return tl.reshape(from_left, [GROUPS, COLS]), tl.reshape(from_right, [GROUPS, COLS])


@triton.jit
def terms(w, w_left, w_right, k, NATIVE: tl.constexpr):
    """Return the largest of three terms, the exponentials of the others, and their distances from it.

    The third term is the smaller of the neighbours; the second is the remaining one. Distances are below 0.
    """
    side, third = largest(w_left, w_right), tl.minimum(w_left, w_right)
    top, second = largest(side, w), tl.minimum(side, w)
    gap_2, gap_3 = (second - top) * k, (third - top) * k
    return top, exp2(gap_2, NATIVE), exp2(gap_3, NATIVE), gap_2, gap_3


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
    """Return the shares of left and right neighbour, and the level's derivative by eps in units of log 2.

    Ties share evenly.
    """
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
    entropy = log2(weight, NATIVE) - (u_2 * gap_2 + u_3 * gap_3) * whole
    if bits(RULE, CENTERED):
        entropy -= LOG2_3
    larger = tl.where(largest(w_left, w_right) > w, whole, u_2 * whole)  # of the neighbours
    smaller = u_3 * whole
    from_left = w_left > w_right
    return tl.where(from_left, larger, smaller), tl.where(from_left, smaller, larger), entropy


@triton.jit
def leaked(v, held, RULE: tl.constexpr):
    """Return the membrane after its leak."""
    if bits(RULE, LEAK_FORM) == FACTOR:
        return v * held[2]
    if bits(RULE, LEAK_FORM) == SHIFT:
        return v + held[3]
    return v


@triton.jit
def advance(x, v, around, held, v_reset, RULE: tl.constexpr, NATIVE: tl.constexpr):
    """Take one step: return V, the spike, and a trace (P, level, f, f', the three that are coupled)."""
    eps, k, _, _, threshold, amplitude = held
    w = leaked(v, held, RULE)
    if bits(RULE, AT_SPIKE):
        w += x
        x = 0.0 * x
    w_left, w_right = beside(w, w, around)
    trio = (w, w_left, w_right)
    base, weight = coupled(x, trio, eps, k, RULE, NATIVE)
    level, gate, steep, spike = fire(base, weight, threshold, eps, k, amplitude, RULE, NATIVE)
    potential = w if bits(RULE, AT_SPIKE) else level
    return settle(potential, spike, threshold, v_reset, RULE), spike, (potential, level, gate, steep, trio)


@triton.jit
def load_border(start, borders, span, total, pos, mask, HAS_START: tl.constexpr, CUT: tl.constexpr):
    """Return the state given before the first span, or written before a later one; zero if there is none."""
    v = tl.zeros(pos.shape, tl.float32)
    if HAS_START:
        v = tl.load(start + pos, mask=when(mask, span == 0), other=0.0)
    if CUT:
        left = borders + (span - 1) * total + pos
        v += tl.load(left, mask=when(mask, span > 0), other=0.0, cache_modifier=".cg")
    return v


@triton.jit(do_not_specialize=UNSPECIAL)
def spatial_forward_kernel(
    current,
    state,
    borders,
    out,
    last_state,
    known,
    times,
    shape,
    at_current,
    at_out,
    v_reset,
    RULE: tl.constexpr,
    HAS: tl.constexpr,
    CUT: tl.constexpr,
    CHUNK: tl.constexpr,
    EVEN: tl.constexpr,
    LANES: tl.constexpr,
    WIDTH: tl.constexpr,
    COLS: tl.constexpr,
    MARGIN: tl.constexpr,
    NATIVE: tl.constexpr,
):
    """Integrate rows of rings from a state: write the spikes or their mean, the state, and that at borders.

    HAS has one bit that tells whether there is a state, and one for an output.
    """
    ring, rows, rounds, stride_round = shape
    time, steps, tiles, halo, turn = times
    program, span = tl.program_id(0), tl.cast(turn if CUT else 0, tl.int64)
    length = tl.minimum(steps, time - span * steps).to(tl.int32)
    total = tl.cast(rows, tl.int64) * ring * COLS
    row, spot, own, around, owner = place(ring, program, tiles, halo, LANES, WIDTH, COLS, MARGIN)
    held = constants(known, lanes_of(row * ring + tl.minimum(spot, ring - 1), COLS), RULE, NATIVE)
    for i in range(rounds):
        inside, own_now, group, pos = in_round(i, stride_round, row, spot, own, ring, rows, COLS)
        source = current + address(group, at_current, COLS) + span * steps * at_current[0]
        xs = load_steps(source, at_current[0], inside, 0, length, CHUNK, EVEN)
        v = load_border(state, borders, span, total, pos, inside, HAS % 2, CUT)
        mean = tl.zeros(pos.shape, tl.float32)
        target = out + address(group, at_out, COLS)
        if not bits(RULE, RATE):
            target += span * steps * at_out[0]
        for first in range(0, length, CHUNK):
            source += CHUNK * at_current[0]
            more = within(inside, first + CHUNK, length, False)
            later = load_steps(source, at_current[0], more, first + CHUNK, length, CHUNK, EVEN)
            for j in tl.static_range(CHUNK):
                v = renew(v, owner, j, MARGIN)
                after, spike, _ = advance(xs[j], v, around, held, v_reset, RULE, NATIVE)
                now = within(own_now, first + j, length, EVEN)
                v = only(within(inside, first + j, length, EVEN), after, v, EVEN)
                if bits(RULE, RATE):
                    mean += tl.where(now, spike, 0.0)
                elif HAS // 2:
                    tl.store(target, spike, mask=now)
                    target += at_out[0]
            xs = later
        if HAS // 2 and bits(RULE, RATE):
            before = tl.load(target, mask=when(own_now, span > 0), other=0.0, cache_modifier=".cg")
            tl.store(target, before.to(tl.float32) + mean / time, mask=own_now)
        tl.store(last_state + pos, v, mask=when(own_now, (span + 1) * steps >= time))
        if CUT:
            tl.store(borders + span * total + pos, v, mask=when(own_now, (span + 1) * steps < time))
