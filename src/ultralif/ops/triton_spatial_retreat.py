"""One step back on a ring, and the steps of a span back from soft spikes, which tell the membrane."""

import triton
import triton.language as tl

from ultralif.ops.triton_parts import AT_SPIKE, LEAK_FORM, SAME, bits, only, unfire, within
from ultralif.ops.triton_places import renew
from ultralif.ops.triton_spatial import FACTOR, SHIFT, beside, leaked, shares
from ultralif.ops.triton_spikes import load_back, recall

__all__ = ["retrace", "retreat"]


@triton.jit
def retreat(
    gs,
    gv,
    sums,
    trace,
    sides,
    v,
    around,
    inside,
    held,
    v_reset,
    RULE: tl.constexpr,
    EVEN: tl.constexpr,
):
    """Go back one step: return the gradients for the current and for V before, and the sums.

    The sums of lanes that are not a program's own are left out in the end; those of no ring are 0.
    """
    eps, k, leak, log_leak, threshold, amplitude = held
    potential, level, gate, steep, _ = trace
    share_left, share_right, by_eps = sides
    _, back, kept, to_limit = unfire(
        gs, gv, potential, level, gate, steep, threshold, k, amplitude, v_reset, RULE
    )
    zero = 0.0 * gv
    back, kept = only(inside, back, zero, EVEN), only(inside, kept, zero, EVEN)
    g = back if bits(RULE, AT_SPIKE) else back + kept
    to_left, to_right = g * share_left, g * share_right
    from_left, from_right = beside(to_right, to_left, around)
    to_w = g - to_left - to_right + from_left + from_right
    if bits(RULE, AT_SPIKE):
        to_w += kept
        g_current = to_w
    else:
        g_current = g
    to_eps = g * by_eps - back * (level - threshold) * k  # in units of log 2
    to_leak = zero
    if bits(RULE, LEAK_FORM) == FACTOR:
        to_leak = to_w * v
    elif bits(RULE, LEAK_FORM) == SHIFT:
        to_leak = to_w / leak
    to_limit = only(inside, to_limit, zero, EVEN) - back
    sums = (sums[0] + to_eps, sums[1] + to_leak, sums[2] + to_limit)
    before = to_w * leak if bits(RULE, LEAK_FORM) == FACTOR else to_w
    return g_current, only(inside, before, gv, EVEN), sums


@triton.jit
def retrace(
    sums,
    low,
    flow,
    start,
    pointers,
    strides,
    around,
    owner,
    inside,
    own,
    held,
    v_reset,
    length,
    past,
    RULE: tl.constexpr,
    CHUNK: tl.constexpr,
    EVEN: tl.constexpr,
    MARGIN: tl.constexpr,
    NATIVE: tl.constexpr,
):
    """Differentiate a span from its spikes: return the gradient for V before it, the sums, the least spike.

    ``past`` is the number of steps up to the end of the span, and ``start`` the membrane before them.
    """
    reading, incoming, outgoing = pointers
    at_spikes, at_grad, at_out = strides
    spike = tl.load(reading, mask=inside, other=0.5)
    low = tl.minimum(low, spike)
    potential = recall(spike, held, v_reset, NATIVE)[1]
    gs, earlier = load_back(reading, incoming, at_spikes, at_grad, inside, length, past, CHUNK)
    for _ in range(tl.cdiv(length, CHUNK)):
        reading -= CHUNK * at_spikes
        incoming -= CHUNK * at_grad
        left, before = length - CHUNK, past - CHUNK
        after = load_back(reading, incoming, at_spikes, at_grad, inside, left, before, CHUNK)
        for j in tl.static_range(CHUNK):
            flow = renew(flow, owner, j, MARGIN // 2)
            now = within(inside, j, length, EVEN)
            recalled = recall(earlier[j], held, v_reset, NATIVE)
            v = tl.where(within(inside, j + 1, past, False), recalled[2], start)
            w, k = leaked(v, held, RULE), held[1]
            if bits(RULE, SAME):
                w, k = w * k, 1.0
            w_left, w_right = beside(w, w, around)
            sides = shares((w, w_left, w_right), k, RULE, NATIVE)
            trace = (potential, potential, spike, spike, v)
            to_current, flow, sums = retreat(
                gs[j], flow, sums, trace, sides, v, around, now, held, v_reset, RULE, EVEN
            )
            tl.store(outgoing, to_current, mask=within(own, j, length, EVEN))
            outgoing -= at_out
            spike, potential = earlier[j], recalled[1]
            low = tl.minimum(low, spike)
        gs, earlier = after
        length, past = left, before
    return flow, sums, low
