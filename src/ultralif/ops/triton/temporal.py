"""Kernels for neurons without neighbours, UltraLIF and the additive family, and their launches.

A lane integrates one neuron of one sample over all time steps. Lanes advance over the batch by a multiple of
the period of the constants, so that each lane keeps its constants. Arguments that belong together are tuples,
because a launcher accepts no structures.

For the derivative, time is cut into chunks whose trace fits into registers: the kernel stores the state
before each chunk, then goes through the chunks from last to first, integrates each again and differentiates
it. So the forward pass stores nothing. UltraLIF's membrane can be computed from its soft spikes without
integrating, by a separate kernel.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton import cdiv

from ultralif.ops.layout import Steps
from ultralif.ops.rule import Constants
from ultralif.ops.triton import launch
from ultralif.ops.triton.common import (
    ADD,
    FAR,
    FULL,
    LN2,
    LSE,
    MAX,
    SATURATE,
    ZERO,
    address,
    apply_reset,
    choice,
    constants,
    exp2,
    fire,
    fire_backward,
    has_step,
    inverse,
    largest,
    log2,
    only,
    reduce,
    saturated,
    within,
)
from ultralif.ops.triton.launch import Launch, chunk_of

if TYPE_CHECKING:
    from ultralif.ops.triton.plan import LaunchPlan

__all__ = ["backward", "forward"]

UNSPECIAL = ["known", "time"]
"""Arguments that Triton must not specialise on."""


@triton.jit
def membrane(x, v, held, RULE: tl.constexpr):
    """Return P in two parts, P = base + eps * log(weight); the weight is 1 except for a log-sum-exp."""
    one = tl.full(x.shape, 1.0, tl.float32)
    if choice(RULE, "membrane") == ADD:
        return held[2] * v + x, one
    past = v + held[3]
    if choice(RULE, "membrane") == MAX:
        return largest(past, x), one
    return tl.maximum(past, x), one + exp2(-(tl.abs(past - x) * held[1]))


@triton.jit
def advance(x, state, held, RULE: tl.constexpr):
    """Take one step: return the next state, the spike, and a trace.

    The trace is (P, f, f', threshold, weight, P before a delayed reset, last spike). Its length is the same
    for all rules because Triton 3.6 also compiles code after a return.
    """
    eps, _, _, _, threshold, _, v_reset, strength, decay = held
    v, b, last = state
    limit, adapted = threshold, b
    if choice(RULE, "adapt"):
        adapted = decay * b + (1.0 - decay) * last
        limit = threshold + strength * b
    base, weight = membrane(x, v, held, RULE)
    if choice(RULE, "delayed"):
        potential = base
        if choice(RULE, "membrane") == LSE:
            potential = base + eps * log2(weight)
        after = apply_reset(potential, last, limit, v_reset, RULE)
        _, gate, steep, spike = fire(after, tl.full(x.shape, 1.0, tl.float32), limit, held, RULE)
        return (after, b, spike), spike, (after, gate, steep, limit, weight, potential, last)
    potential, gate, steep, spike = fire(base, weight, limit, held, RULE)
    if choice(RULE, "reset") == SATURATE:
        after, _, _ = saturated(potential, held, RULE)
    else:
        after = apply_reset(potential, spike, limit, v_reset, RULE)
    return (after, adapted, spike), spike, (potential, gate, steep, limit, weight, potential, last)


@triton.jit
def with_spike(state, held, RULE: tl.constexpr):
    """Return a state completed with the spike of its membrane, which the first delayed reset uses."""
    if not choice(RULE, "delayed"):
        return state
    _, _, _, spike = fire(state[0], tl.full(state[0].shape, 1.0, tl.float32), held[4], held, RULE)
    return state[0], state[1], spike


@triton.jit
def load_state(pointer, pos, total, mask, zero, HAS: tl.constexpr, RULE: tl.constexpr):
    """Return membrane, adaptation and last spike; without a state, all zero."""
    v, b, last = zero, zero, zero
    if HAS:
        v = tl.load(pointer + pos, mask=mask, other=0.0)
        if choice(RULE, "adapt"):
            b = tl.load(pointer + total + pos, mask=mask, other=0.0)
            last = tl.load(pointer + 2 * total + pos, mask=mask, other=0.0)
    return v, b, last


@triton.jit
def store_state(pointer, pos, total, mask, state, RULE: tl.constexpr):
    """Write membrane, adaptation and last spike."""
    tl.store(pointer + pos, state[0], mask=mask)
    if choice(RULE, "adapt"):
        tl.store(pointer + total + pos, state[1], mask=mask)
        tl.store(pointer + 2 * total + pos, state[2], mask=mask)


@triton.jit
def load_steps(source, stride, mask, first, time, RULE: tl.constexpr, CHUNK: tl.constexpr):
    """Load a chunk of steps before any is used, so that many loads run at once."""
    xs = ()
    for j in tl.static_range(CHUNK):
        xs = xs + (tl.load(source, mask=within(mask, first + j, time, RULE), other=0.0).to(tl.float32),)
        source += stride
    return xs


@triton.jit
def load_next(source, stride, mask, first, time, xs, RULE: tl.constexpr, CHUNK: tl.constexpr):
    """Load the next chunk, if any, while the current one is integrated."""
    if CHUNK == 1:  # there is only one step
        return xs
    return load_steps(source, stride, has_step(mask, first, time), first, time, RULE, CHUNK)


@triton.jit
def integrate(source, target, now, mask, end, time, held, RULE: tl.constexpr, CHUNK: tl.constexpr):
    """Take steps up to ``end``, or a lane's ``time``; write the spikes; return the state and their sum.

    ``source`` and ``target`` are the addresses of a step and the strides of time.
    """
    source, stride = source
    target, stride_out = target
    mean = tl.zeros_like(now[0])
    xs = load_steps(source, stride, mask, 0, time, RULE, CHUNK)
    for first in range(0, end, CHUNK):
        source += CHUNK * stride
        later = load_next(source, stride, mask, first + CHUNK, time, xs, RULE, CHUNK)
        for j in tl.static_range(CHUNK):
            after, spike, _ = advance(xs[j], now, held, RULE)
            inside = within(mask, first + j, time, RULE)
            now = (
                only(inside, after[0], now[0], RULE),
                only(inside, after[1], now[1], RULE),
                only(inside, after[2], now[2], RULE),
            )
            if choice(RULE, "rate"):
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
    BLOCK: tl.constexpr,
):
    """Integrate all steps: write the spikes, or their mean, and the last state."""
    total, rounds, stride_round = span
    if CHUNK == 1:  # there is only one step
        time = 1
    lane = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    held = constants(known, numbers, lane, RULE)
    zero = tl.zeros((BLOCK,), tl.float32)
    for i in range(rounds):
        pos = lane + tl.cast(i, tl.int64) * stride_round
        mask = pos < total
        source = current + address(pos, at_current)
        target = out + address(pos, at_out)
        now = with_spike(load_state(state, pos, total, mask, zero, HAS_STATE, RULE), held, RULE)
        now, mean = integrate(
            (source, at_current[0]), (target, at_out[0]), now, mask, time, time, held, RULE, CHUNK
        )
        if choice(RULE, "rate"):
            tl.store(target, mean / time, mask=mask)
        store_state(last_state, pos, total, mask, now, RULE)


@triton.jit
def share_of(x, v, weight, held, RULE: tl.constexpr):
    """Return dP/dV of a log-sum-exp or a maximum, and dP/deps; for a sum, V, which is dP/dleak."""
    if choice(RULE, "membrane") == ADD:
        return v, 0.0 * v
    past = v + held[3]
    if choice(RULE, "membrane") == MAX:
        return tl.where(past > x, 1.0, tl.where(past == x, 0.5, 0.0)), 0.0 * v
    gap = tl.minimum(tl.abs(past - x) * held[1], FAR)
    large = inverse(weight)
    small = exp2(-gap) * large
    return tl.where(past > x, large, small), LN2 * (log2(weight) + gap * small)


@triton.jit
def spike_backward(gs, level, gate, steep, limit, held, RULE: tl.constexpr):
    """Return the gradients for a spike and, through it, for the membrane that fires; no reset follows."""
    fed, back, _, _ = fire_backward(gs, 0.0 * gs, 0.0 * level, level, gate, steep, limit, held, 0.0, RULE)
    return fed, back


@triton.jit
def delayed_backward(gs, grads, sums, trace, inside, held, RULE: tl.constexpr):
    """Go back one step of a neuron that is reset by the previous step's spike."""
    level, gate, steep, limit, _, potential, earlier, share, to_eps = trace
    gv, gb, gl = grads
    none = 0.0 * gv
    fed, back = spike_backward(gs + gl, level, gate, steep, limit, held, RULE)
    fed, back = only(inside, fed, none, RULE), only(inside, back, none, RULE)
    whole = only(inside, gv + back, none, RULE)
    g, to_earlier, to_limit = whole, -whole * limit, -whole * earlier
    if choice(RULE, "reset") == ZERO:
        g, to_earlier, to_limit = whole * (1.0 - earlier), whole * (held[6] - potential), none
    if choice(RULE, "detach"):
        to_earlier = none
    past = g * (held[2] if choice(RULE, "membrane") == ADD else share)
    sum_eps = sums[0] - back * (level - limit) * (held[1] * LN2)
    if choice(RULE, "membrane") == LSE:
        sum_eps += g * to_eps
    sum_amplitude = sums[3] + fed * (gate - 0.5) if choice(RULE, "clipped") else sums[3]
    sums = (sum_eps, sums[1] + g * share, sums[2] + to_limit - back, sum_amplitude)
    to_current = g if choice(RULE, "membrane") == ADD else g - past
    return to_current, (only(inside, past, gv, RULE), gb, only(inside, to_earlier, gl, RULE)), sums


@triton.jit
def start_backward(flow, sums, v, held, RULE: tl.constexpr):
    """Propagate the gradient back through the spike of the first state: see `with_spike`."""
    if not choice(RULE, "delayed"):
        return flow, sums
    limit = held[4]
    _, gate, steep, _ = fire(v, tl.full(v.shape, 1.0, tl.float32), limit, held, RULE)
    fed, back = spike_backward(flow[2], v, gate, steep, limit, held, RULE)
    sum_amplitude = sums[3] + fed * (gate - 0.5) if choice(RULE, "clipped") else sums[3]
    sums = (sums[0] - back * (v - limit) * (held[1] * LN2), sums[1], sums[2] - back, sum_amplitude)
    return (flow[0] + back, flow[1], flow[2]), sums


@triton.jit
def step_backward(gs, grads, sums, trace, inside, held, RULE: tl.constexpr):
    """Go back one step: return the gradients for the current and for the state before, and the sums."""
    if choice(RULE, "delayed"):
        return delayed_backward(gs, grads, sums, trace, inside, held, RULE)
    _, k, leak, _, _, _, v_reset, strength, decay = held
    potential, gate, steep, limit, weight, _, _, share, to_eps = trace
    gv, gb, gl = grads
    fed, back, kept, to_limit = fire_backward(
        gs + gl, gv, potential, potential, gate, steep, limit, held, v_reset, RULE
    )
    to_top, resets_eps = 0.0 * gv, 0.0 * gv
    if choice(RULE, "reset") == SATURATE:
        _, below, entropy = saturated(potential, held, RULE)
        kept = gv * below
        to_top, resets_eps = only(inside, gv - kept, to_top, RULE), only(inside, gv * entropy, to_top, RULE)
    g = only(inside, back + kept, 0.0 * gv, RULE)
    fed, back = only(inside, fed, 0.0 * gv, RULE), only(inside, back, 0.0 * gv, RULE)
    to_limit = only(inside, to_limit, 0.0 * gv, RULE) - back
    past = g * (leak if choice(RULE, "membrane") == ADD else share)
    sum_eps = sums[0] - back * (potential - limit) * (k * LN2) - resets_eps
    if choice(RULE, "membrane") == LSE:
        sum_eps += g * to_eps
    sum_amplitude = sums[3] + fed * (gate - 0.5) if choice(RULE, "clipped") else sums[3] + to_top
    sums = (sum_eps, sums[1] + g * share, sums[2] + to_limit, sum_amplitude)
    if choice(RULE, "adapt"):
        pull = strength * to_limit
        gl = only(inside, (1.0 - decay) * gb, gl, RULE)
        gb = only(inside, decay * gb + pull, gb, RULE)
    to_current = g if choice(RULE, "membrane") == ADD else g - past
    return to_current, (only(inside, past, gv, RULE), gb, gl), sums


@triton.jit
def trace_steps(xs, now, held, RULE: tl.constexpr, CHUNK: tl.constexpr):
    """Integrate some steps again; return the trace of each, followed by the result of `share_of`."""
    traces = ()
    for j in tl.static_range(CHUNK):
        v = now[0]
        now, _, trace = advance(xs[j], now, held, RULE)
        traces = traces + (trace + share_of(xs[j], v, trace[4], held, RULE),)
    return traces


@triton.jit
def steps_backward(
    traces,
    gs,
    flow,
    sums,
    target,
    mask,
    first,
    time,
    held,
    RULE: tl.constexpr,
    GIVEN: tl.constexpr,
    CHUNK: tl.constexpr,
):
    """Go back over some steps: write the current's gradients; return those of the state before, and the sums.

    ``gs`` holds one gradient per spike if GIVEN, otherwise a single gradient for all spikes. ``target`` is
    the address of the last step and the stride of time.
    """
    outgoing, stride = target
    for j in tl.static_range(CHUNK - 1, -1, -1):
        inside = within(mask, first + j, time, RULE)
        given = gs[j] if GIVEN else gs
        to_current, flow, sums = step_backward(given, flow, sums, traces[j], inside, held, RULE)
        tl.store(outgoing, to_current, mask=inside)
        outgoing -= stride
    return flow, sums


@triton.jit
def finish(sums, held, lane, own, learning, RULE: tl.constexpr, WAYS: tl.constexpr, BLOCK: tl.constexpr):
    """Reduce the sums of all lanes to the gradients of the constants; see `reduce`."""
    to_eps, to_limit = sums[0], sums[2]
    to_leak = sums[1] if choice(RULE, "membrane") == ADD else sums[1] / held[2]
    if choice(RULE, "sharp"):  # eps = threshold / b, A = 1 / tanh(b / 2)
        share = held[0] / (LN2 * held[4])  # 1 / b
        to_limit += to_eps * share
        to_eps = -to_eps * held[4] * share * share - sums[3] * 0.5 * (held[5] * held[5] - 1.0)
    reduce(to_eps, 0, lane, own, learning, WAYS, BLOCK)
    reduce(to_leak, 1, lane, own, learning, WAYS, BLOCK)
    reduce(to_limit, 2, lane, own, learning, WAYS, BLOCK)
    reduce(sums[3], 3, lane, own, learning, WAYS, BLOCK)


@triton.jit(do_not_specialize=UNSPECIAL)
def temporal_backward_kernel(
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
    span,
    at_current,
    at_grad,
    at_out,
    numbers,
    RULE: tl.constexpr,
    HAS: tl.constexpr,
    WAYS: tl.constexpr,
    CHUNK: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Differentiate: write the gradients for current, state and constants.

    The bits of HAS indicate a state, a gradient of the output and a gradient of the last state. The
    kernel is longer than others, because Triton cannot carry the trace of a chunk out of a function.
    """
    total, rounds, stride_round = span
    if CHUNK == 1:  # there is only one step
        time = 1
    lane = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    held = constants(known, numbers, lane, RULE)
    zero = tl.zeros((BLOCK,), tl.float32)
    sums = (zero, zero, zero, zero)
    chunks = tl.cdiv(time, CHUNK)
    STATES: tl.constexpr = 3 if choice(RULE, "adapt") else 1
    GIVEN: tl.constexpr = HAS // 2 % 2 == 1 and not choice(RULE, "rate")
    for i in range(rounds):
        pos = lane + tl.cast(i, tl.int64) * stride_round
        mask = pos < total
        source = current + address(pos, at_current)
        start = with_spike(load_state(state, pos, total, mask, zero, HAS % 2 == 1, RULE), held, RULE)
        now = start
        xs = load_steps(source, at_current[0], mask, 0, time, RULE, CHUNK)
        for n in range(1, chunks):  # store the state before each chunk but the first; earlier chunks are full
            part = source + tl.cast(n, tl.int64) * CHUNK * at_current[0]
            later = load_steps(part, at_current[0], mask, n * CHUNK, time, RULE, CHUNK)
            for j in tl.static_range(CHUNK):
                now, _, _ = advance(xs[j], now, held, RULE)
            store_state(notes + tl.cast(n - 1, tl.int64) * total * STATES, pos, total, mask, now, RULE)
            xs = later

        flow = load_state(grad_state, pos, total, mask, zero, HAS // 4 == 1, RULE)
        g_mean = zero
        incoming = grad_out + address(pos, at_grad)
        if HAS // 2 % 2 and choice(RULE, "rate"):
            g_mean = tl.load(incoming, mask=mask, other=0.0).to(tl.float32) / time
        for r in range(chunks):
            c = tl.cast(chunks - 1 - r, tl.int64)
            first = c * CHUNK
            gs = xs
            if GIVEN:
                gs = load_steps(incoming + first * at_grad[0], at_grad[0], mask, first, time, RULE, CHUNK)
            traces = trace_steps(xs, now, held, RULE, CHUNK)
            now = start
            if c > 1:
                earlier = load_state(notes + (c - 2) * total * STATES, pos, total, mask, zero, True, RULE)
                now = with_spike(earlier, held, RULE)
            part = source + (first - CHUNK) * at_current[0]
            xs = load_steps(part, at_current[0], has_step(mask, 0, c), 0, time, FULL, CHUNK)
            outgoing = grad_current + address(pos, at_out) + (first + CHUNK - 1) * at_out[0]
            given, target = gs if GIVEN else g_mean, (outgoing, at_out[0])
            flow, sums = steps_backward(
                traces, given, flow, sums, target, mask, first, time, held, RULE, GIVEN, CHUNK
            )
        flow, sums = start_backward(flow, sums, start[0], held, RULE)
        if HAS % 2:
            store_state(grad_start, pos, total, mask, flow, RULE)
    if WAYS:
        own = lane < total
        learning = (known, grads, scratch, tl.program_id(0), tl.num_programs(0))
        finish(sums, held, lane, own, learning, RULE, WAYS, BLOCK)


@triton.jit
def membrane_from_spike(spike, held):
    """Return the logit of a soft spike, P = threshold + eps logit, and V after reset; all stay finite."""
    logit = log2(tl.maximum(spike, 1.2e-38)) - log2(tl.maximum(1.0 - spike, 3e-8))
    potential = held[4] + held[0] * logit
    return logit, potential, potential * (1.0 - spike) + held[6] * spike


@triton.jit
def step_backward_from_spike(gs, gv, sums, spike, told, v_before, inside, held, RULE: tl.constexpr):
    """Propagate the gradient of UltraLIF back one step, from its soft spike and the membrane before it."""
    logit, potential, _ = told
    fed, back, kept, _ = fire_backward(
        gs, gv, potential, potential, spike, spike, held[4], held, held[6], RULE
    )
    g = only(inside, back + kept, 0.0 * gv, RULE)
    back = only(inside, back, 0.0 * gv, RULE)
    gap = tl.maximum((potential - v_before - held[3]) * held[1], 0.0)  # log2 of 1 / p
    share = exp2(-gap)
    rest = 1.0 - share
    entropy = share * tl.minimum(gap, FAR) - rest * log2(tl.maximum(rest, 1e-30))
    past = g * share
    sums = (sums[0] + (g * entropy - back * logit) * LN2, sums[1] + past, sums[2] - back, sums[3])
    return g - past, only(inside, past, gv, RULE), sums


@triton.jit
def load_back(reading, incoming, at_spikes, at_grad, mask, left, past, CHUNK: tl.constexpr):
    """Load the gradients of a chunk, its last step first, and the spike before each.

    The mask is empty beyond ``left`` steps, and beyond ``past`` steps for spikes.
    """
    gs, earlier = (), ()
    for j in tl.static_range(CHUNK):
        gs = gs + (tl.load(incoming, mask=has_step(mask, j, left), other=0.0),)
        reading -= at_spikes
        earlier = earlier + (tl.load(reading, mask=has_step(mask, j + 1, past), other=0.5),)
        incoming -= at_grad
    return gs, earlier


@triton.jit(do_not_specialize=UNSPECIAL)
def temporal_backward_from_spikes_kernel(
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
    BLOCK: tl.constexpr,
):
    """Differentiate UltraLIF from its soft spikes, which determine the membrane without integrating."""
    total, rounds, stride_round = span
    lane = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    held = constants(known, numbers, lane, RULE)
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
        told = membrane_from_spike(spike, held)
        flow = zero
        gs, earlier = load_back(reading, incoming, at_spikes[0], at_grad[0], mask, time, time, CHUNK)
        for r in range(tl.cdiv(time, CHUNK)):
            left = time - r * CHUNK  # remaining steps
            reading -= CHUNK * at_spikes[0]
            incoming -= CHUNK * at_grad[0]
            rest = left - CHUNK
            after = load_back(reading, incoming, at_spikes[0], at_grad[0], mask, rest, rest, CHUNK)
            for j in tl.static_range(CHUNK):
                inside = within(mask, j, left, RULE)
                before = membrane_from_spike(earlier[j], held)
                v_before = tl.where(has_step(mask, j + 1, left), before[2], start)
                to_current, flow, sums = step_backward_from_spike(
                    gs[j], flow, sums, spike, told, v_before, inside, held, RULE
                )
                spike, told = earlier[j], before
                tl.store(outgoing, to_current, mask=inside)
                outgoing -= at_out[0]
            gs, earlier = after
        if HAS_STATE:
            tl.store(grad_start + pos, flow, mask=mask)
    if WAYS:
        own = lane < total
        learning = (known, grads, scratch, tl.program_id(0), tl.num_programs(0))
        finish(sums, held, lane, own, learning, RULE, WAYS, BLOCK)


def forward(
    plan: "LaunchPlan",
    current: Tensor,
    at: Steps,
    state: Tensor | None,
    constants: Constants,
    out: Tensor,
    last: Tensor,
) -> None:
    """Launch the forward kernel."""
    if plan.launch is None:
        chunk, full = chunk_of(plan.time, launch.CHUNK)
        choices = (plan.rule_code + full, state is not None, chunk, plan.block)
        kernel = temporal_forward_kernel
        plan.launch = Launch(kernel, (plan.programs,), choices, plan.warps)
    plan.launch(
        current,
        state,
        out,
        last,
        (plan.raws(constants), plan.tables, plan.where),
        plan.time,
        plan.span,
        tuple(at),
        tuple(plan.at_mean if plan.rule.rate else plan.at_out),
        plan.numbers,
    )


def backward(
    plan: "LaunchPlan",
    given: tuple[Tensor | None, ...],
    at_grad: Steps,
    constants: Constants,
    learned: Sequence[bool],
    spikes: Tensor | None,
) -> list[Tensor | None]:
    """Differentiate; return the gradients of the constants."""
    grad_out, grad_state, current, state, g_current, g_state = given
    assert current is not None and g_current is not None  # noqa: S101
    from_spikes = spikes is not None and grad_state is None and grad_out is not None
    has = (state is not None) + 2 * (grad_out is not None) + 4 * (grad_state is not None)
    key = (from_spikes, has, tuple(learned), at_grad, _aligned(grad_out))
    found = plan.backwards.get(key)
    if found is None:
        chunk, full = chunk_of(plan.time, launch.CHUNK)
        ways = tuple(
            (launch.READY if plan.is_ready else launch.way_of(p, plan.block)) if wanted else 0
            for p, wanted in zip(plan.found, learned, strict=True)
        )
        kernel: Any = temporal_backward_kernel
        if from_spikes:
            kernel, has = temporal_backward_from_spikes_kernel, has % 2
        number = sum(way << 2 * i for i, way in enumerate(ways))
        choices = (plan.rule_code + full, has, number, chunk, plan.block)
        run = Launch(kernel, (plan.programs,), choices, plan.warps)
        found = plan.backwards[key] = run, ways, chunk
    run, ways, chunk = found
    region = plan.programs * plan.block
    grads, partials, counters, groups = launch.begin(plan, constants, learned, ways, plan.where, region)
    scratch = (partials, counters, groups, region)
    known = (plan.raws(constants), plan.tables, plan.where)
    common = (known, tuple(grads), scratch, plan.time, plan.span)
    if from_spikes:
        arguments: tuple[object, ...] = (grad_out, spikes, state, g_current, g_state)
        run(*arguments, *common, tuple(plan.at_out), tuple(at_grad), tuple(plan.at_out), plan.numbers)
        return launch.end(plan, constants, grads, partials, learned, ways, plan.size)
    at = plan.at_current
    if at is None:
        current, at = plan.readable(current)
    notes = torch.empty(
        (cdiv(plan.time, chunk) - 1) * plan.rule.states * plan.total,
        dtype=torch.float32,
        device=plan.device,
    )
    grad = grad_out if grad_out is not None else current
    arguments = (grad, grad_state, current, state, g_current, g_state, notes)
    run(*arguments, *common, tuple(at), tuple(at_grad), tuple(plan.at_out), plan.numbers)
    return launch.end(plan, constants, grads, partials, learned, ways, plan.size)


def _aligned(x: Tensor | None) -> int:
    return 0 if x is None else x.data_ptr() % 16
