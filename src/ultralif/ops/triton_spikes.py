"""The derivative of UltraLIF from its soft spikes, from which the membrane follows without integrating."""

import triton
import triton.language as tl

from ultralif.ops.triton_constants import constants
from ultralif.ops.triton_parts import (
    FAR,
    LN2,
    address,
    exp2,
    log2,
    only,
    unfire,
    within,
)
from ultralif.ops.triton_temporal import UNSPECIAL
from ultralif.ops.triton_temporal_back import finish

__all__ = ["temporal_spikes_backward_kernel"]


@triton.jit
def recall(spike, held, v_reset, NATIVE: tl.constexpr):
    """Return the logit of a soft spike, P = threshold + eps logit, and V after reset; all stay finite."""
    logit = log2(tl.maximum(spike, 1.2e-38), NATIVE) - log2(tl.maximum(1.0 - spike, 3e-8), NATIVE)
    potential = held[4] + held[0] * logit
    return logit, potential, potential * (1.0 - spike) + v_reset * spike


@triton.jit
def retrace(
    gs,
    gv,
    sums,
    spike,
    recalled,
    v_before,
    inside,
    held,
    v_reset,
    RULE: tl.constexpr,
    EVEN: tl.constexpr,
    NATIVE: tl.constexpr,
):
    """Take the gradient of UltraLIF back one step, from its soft spike and the membrane before it."""
    logit, potential, _ = recalled
    k, log_leak = held[1], held[3]
    fed, back, kept, _ = unfire(
        gs, gv, potential, potential, spike, spike, held[4], k, held[5], v_reset, RULE
    )
    g = only(inside, back + kept, 0.0 * gv, EVEN)
    back = only(inside, back, 0.0 * gv, EVEN)
    gap = tl.maximum((potential - v_before - log_leak) * k, 0.0)  # log2 of 1 / p
    share = exp2(-gap, NATIVE)
    rest = 1.0 - share
    entropy = share * tl.minimum(gap, FAR) - rest * log2(tl.maximum(rest, 1e-30), NATIVE)
    past = g * share
    sums = (sums[0] + (g * entropy - back * logit) * LN2, sums[1] + past, sums[2] - back, sums[3])
    return g - past, only(inside, past, gv, EVEN), sums


@triton.jit
def load_back(reading, incoming, at_spikes, at_grad, mask, left, past, CHUNK: tl.constexpr):
    """Load the gradients of a chunk, its last step first, and the spike before each.

    The mask is empty past ``left`` steps, and for spikes past ``past`` steps.
    """
    gs, earlier = (), ()
    for j in tl.static_range(CHUNK):
        gs = gs + (tl.load(incoming, mask=within(mask, j, left, False), other=0.0),)
        reading -= at_spikes
        earlier = earlier + (tl.load(reading, mask=within(mask, j + 1, past, False), other=0.5),)
        incoming -= at_grad
    return gs, earlier


@triton.jit(do_not_specialize=UNSPECIAL)
def temporal_spikes_backward_kernel(
    grad_out,
    spikes,
    state,
    grad_current,
    grad_start,
    known,
    grads,
    scratch,
    time,
    span,
    at_spikes,
    at_grad,
    at_out,
    numbers,
    RULE: tl.constexpr,
    HAS_STATE: tl.constexpr,
    WAYS: tl.constexpr,
    CHUNK: tl.constexpr,
    EVEN: tl.constexpr,
    BLOCK: tl.constexpr,
    NATIVE: tl.constexpr,
):
    """Differentiate UltraLIF from its soft spikes, from which the membrane follows without integrating."""
    total, rounds, stride_round = span
    lane = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    held = constants(known, lane, RULE, NATIVE)
    zero = tl.zeros((BLOCK,), tl.float32)
    sums = (zero, zero, zero, zero)
    for i in range(rounds):
        pos = lane + tl.cast(i, tl.int64) * stride_round
        mask = pos < total
        start = zero
        if HAS_STATE:
            start = tl.load(state + pos, mask=mask, other=0.0)
        end = tl.cast(time - 1, tl.int64)
        reading = spikes + address(pos, at_spikes) + end * at_spikes[0]
        incoming = grad_out + address(pos, at_grad) + end * at_grad[0]
        outgoing = grad_current + address(pos, at_out) + end * at_out[0]
        spike = tl.load(reading, mask=mask, other=0.5)
        recalled = recall(spike, held, numbers[0], NATIVE)
        flow = zero
        gs, earlier = load_back(reading, incoming, at_spikes[0], at_grad[0], mask, time, time, CHUNK)
        for r in range(tl.cdiv(time, CHUNK)):
            left = time - r * CHUNK  # steps that are left
            reading -= CHUNK * at_spikes[0]
            incoming -= CHUNK * at_grad[0]
            rest = left - CHUNK
            after = load_back(reading, incoming, at_spikes[0], at_grad[0], mask, rest, rest, CHUNK)
            for j in tl.static_range(CHUNK):
                inside = within(mask, j, left, EVEN)
                before = recall(earlier[j], held, numbers[0], NATIVE)
                v_before = tl.where(within(mask, j + 1, left, False), before[2], start)
                to_current, flow, sums = retrace(
                    gs[j], flow, sums, spike, recalled, v_before, inside, held, numbers[0], RULE, EVEN, NATIVE
                )
                spike, recalled = earlier[j], before
                tl.store(outgoing, to_current, mask=inside)
                outgoing -= at_out[0]
            gs, earlier = after
        if HAS_STATE:
            tl.store(grad_start + pos, flow, mask=mask)
    if WAYS:
        finish(sums, held, lane, total, known, grads, scratch, RULE, WAYS, BLOCK)
