"""Triton kernels for neurons without neighbours: UltraLIF and the additive family; see `recurrence`.

A lane integrates one neuron of one sample over all time steps. The backward kernel cuts time into chunks
whose trace fits into registers: it notes the state at the start of each chunk, then takes the chunks from the
last to the first, integrates each again and walks it back. So nothing is kept from the forward pass. Where
the spikes themselves tell the membrane, another kernel walks back over them alone.

Lanes advance over the batch by a multiple of the period of the constants, so that each keeps its own.
The arguments are tuples of what belongs together, because a launcher takes no structures.
"""

import triton
import triton.language as tl

from ultralif.ops.triton_constants import constants, reduce
from ultralif.ops.triton_parts import (
    ADAPT,
    ADD,
    FAR,
    LATE,
    LN2,
    LSE,
    MAX,
    MEMBRANE,
    RATE,
    RESET,
    SATURATE,
    SHARP,
    UNIT,
    address,
    bits,
    exp2,
    fire,
    inverse,
    largest,
    log2,
    only,
    saturated,
    settle,
    unfire,
    within,
)

__all__ = ["temporal_backward_kernel", "temporal_forward_kernel", "temporal_spikes_backward_kernel"]

UNSPECIAL = ["known", "time"]
"""Arguments that Triton must not specialise on."""


@triton.jit
def membrane(x, v, k, leak, log_leak, RULE: tl.constexpr, NATIVE: tl.constexpr):
    """Return P in two parts, P = base + eps * log(weight): the weight is 1 but for a log-sum-exp."""
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
    """Load a chunk of steps before any is used, so that many loads are under way."""
    xs = ()
    for j in tl.static_range(CHUNK):
        xs = xs + (tl.load(source, mask=within(mask, first + j, time, EVEN), other=0.0).to(tl.float32),)
        source += stride
    return xs


@triton.jit
def load_next(source, stride, mask, first, time, xs, CHUNK: tl.constexpr, EVEN: tl.constexpr):
    """Load the chunk after the one at work, if there is one, so that it is on its way meanwhile."""
    if CHUNK == 1:  # there is but one step
        return xs
    return load_steps(source, stride, within(mask, first, time, False), first, time, CHUNK, EVEN)


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
    lane = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    held = constants(known, lane, RULE, NATIVE)
    zero = tl.zeros((BLOCK,), tl.float32)
    for i in range(rounds):
        pos = lane + tl.cast(i, tl.int64) * stride_round
        mask = pos < total
        source = current + address(pos, at_current)
        target = out + address(pos, at_out)
        now = load_state(state, pos, total, mask, zero, HAS_STATE, RULE)
        mean = zero
        xs = load_steps(source, at_current[0], mask, 0, time, CHUNK, EVEN)
        for first in range(0, time, CHUNK):
            source += CHUNK * at_current[0]
            later = load_next(source, at_current[0], mask, first + CHUNK, time, xs, CHUNK, EVEN)
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
                    target += at_out[0]
            xs = later
        if bits(RULE, RATE):
            tl.store(target, mean / time, mask=mask)
        store_state(last_state, pos, total, mask, now, RULE)


@triton.jit
def share_of(x, v, weight, k, log_leak, RULE: tl.constexpr, NATIVE: tl.constexpr):
    """Return dP/dV of a log-sum-exp or a maximum, and dP/deps; for a sum, V, which is dP/dleak."""
    if bits(RULE, MEMBRANE) == ADD:
        return v, 0.0 * v
    past = v + log_leak
    if bits(RULE, MEMBRANE) == MAX:
        return tl.where(past > x, 1.0, tl.where(past == x, 0.5, 0.0)), 0.0 * v
    gap = tl.minimum(tl.abs(past - x) * k, FAR)
    large = inverse(weight, NATIVE)
    small = exp2(-gap, NATIVE) * large
    return tl.where(past > x, large, small), LN2 * (log2(weight, NATIVE) + gap * small)


@triton.jit
def retreat(
    gs,
    grads,
    sums,
    trace,
    share,
    to_eps,
    inside,
    held,
    numbers,
    RULE: tl.constexpr,
    EVEN: tl.constexpr,
    NATIVE: tl.constexpr,
):
    """Walk one step back: return the gradients for the current and for the state before, and the sums."""
    eps, k, leak, log_leak, threshold, amplitude = held
    v_reset, strength, decay = numbers
    potential, gate, steep, limit, weight = trace
    gv, gb, gl = grads
    fed, back, kept, to_limit = unfire(
        gs + gl, gv, potential, potential, gate, steep, limit, k, amplitude, v_reset, RULE
    )
    to_top, resets_eps = 0.0 * gv, 0.0 * gv
    if bits(RULE, RESET) == SATURATE:
        _, below, entropy = saturated(potential, amplitude, eps, k, RULE, NATIVE)
        kept = gv * below
        to_top, resets_eps = only(inside, gv - kept, to_top, EVEN), only(inside, gv * entropy, to_top, EVEN)
    g = only(inside, back + kept, 0.0 * gv, EVEN)
    fed, back = only(inside, fed, 0.0 * gv, EVEN), only(inside, back, 0.0 * gv, EVEN)
    to_limit = only(inside, to_limit, 0.0 * gv, EVEN) - back
    past = g * (leak if bits(RULE, MEMBRANE) == ADD else share)
    sum_eps = sums[0] - back * (potential - limit) * (k * LN2) - resets_eps
    if bits(RULE, MEMBRANE) == LSE:
        sum_eps += g * to_eps
    sum_amplitude = sums[3] + to_top if bits(RULE, UNIT) else sums[3] + fed * (gate - 0.5)
    sums = (sum_eps, sums[1] + g * share, sums[2] + to_limit, sum_amplitude)
    if bits(RULE, ADAPT):
        pull = strength * to_limit
        adapted = gb if bits(RULE, LATE) else gb + pull
        before = decay * adapted + (pull if bits(RULE, LATE) else 0.0 * pull)
        gb = only(inside, before, gb, EVEN)
        gl = only(inside, (1.0 - decay) * adapted, gl, EVEN)
    to_current = g if bits(RULE, MEMBRANE) == ADD else g - past
    return to_current, (only(inside, past, gv, EVEN), gb, gl), sums


@triton.jit
def finish(
    sums,
    held,
    lane,
    total,
    known,
    grads,
    scratch,
    RULE: tl.constexpr,
    WAYS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Reduce the sums of all lanes to the gradients of the constants."""
    own = lane < total
    program, programs = tl.program_id(0), tl.num_programs(0)
    to_eps, to_limit = sums[0], sums[2]
    to_leak = sums[1] if bits(RULE, MEMBRANE) == ADD else sums[1] / held[2]
    if bits(RULE, SHARP):  # eps = threshold / b, A = 1 / tanh(b / 2)
        share = held[0] / (LN2 * held[4])  # 1 / b
        to_limit += to_eps * share
        to_eps = -to_eps * held[4] * share * share - sums[3] * 0.5 * (held[5] * held[5] - 1.0)
    reduce(to_eps, 0, lane, own, known, grads, scratch, program, programs, WAYS, BLOCK)
    reduce(to_leak, 1, lane, own, known, grads, scratch, program, programs, WAYS, BLOCK)
    reduce(to_limit, 2, lane, own, known, grads, scratch, program, programs, WAYS, BLOCK)
    reduce(sums[3], 3, lane, own, known, grads, scratch, program, programs, WAYS, BLOCK)


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
    EVEN: tl.constexpr,
    BLOCK: tl.constexpr,
    NATIVE: tl.constexpr,
):
    """Differentiate: write the gradients for current, state and constants.

    HAS has a bit each for a state, a gradient of the output and one of the last state.
    """
    total, rounds, stride_round = span
    lane = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    held = constants(known, lane, RULE, NATIVE)
    zero = tl.zeros((BLOCK,), tl.float32)
    sums = (zero, zero, zero, zero)
    chunks = tl.cdiv(time, CHUNK)
    STATES: tl.constexpr = 3 if bits(RULE, ADAPT) else 1
    for i in range(rounds):
        pos = lane + tl.cast(i, tl.int64) * stride_round
        mask = pos < total
        source = current + address(pos, at_current)
        start = load_state(state, pos, total, mask, zero, HAS % 2 == 1, RULE)
        now = start
        xs = load_steps(source, at_current[0], mask, 0, time, CHUNK, EVEN)
        for n in range(1, chunks):  # note the state before each chunk but the first; those before it are full
            part = source + tl.cast(n, tl.int64) * CHUNK * at_current[0]
            later = load_steps(part, at_current[0], mask, n * CHUNK, time, CHUNK, EVEN)
            for j in tl.static_range(CHUNK):
                now, _, _ = advance(xs[j], now, held, numbers, RULE, NATIVE)
            store_state(notes + tl.cast(n - 1, tl.int64) * total * STATES, pos, total, mask, now, RULE)
            xs = later

        flow = load_state(grad_state, pos, total, mask, zero, HAS // 4 == 1, RULE)
        g_mean = zero
        incoming = grad_out + address(pos, at_grad)
        if HAS // 2 % 2 and bits(RULE, RATE):
            g_mean = tl.load(incoming, mask=mask, other=0.0).to(tl.float32) / time
        for r in range(chunks):
            c = tl.cast(chunks - 1 - r, tl.int64)
            first = c * CHUNK
            gs = xs
            if HAS // 2 % 2 and not bits(RULE, RATE):
                gs = load_steps(incoming + first * at_grad[0], at_grad[0], mask, first, time, CHUNK, EVEN)
            traces, shares, to_epss = (), (), ()
            for j in tl.static_range(CHUNK):
                v = now[0]
                now, _, trace = advance(xs[j], now, held, numbers, RULE, NATIVE)
                share, to_eps = share_of(xs[j], v, trace[4], held[1], held[3], RULE, NATIVE)
                traces, shares, to_epss = traces + (trace,), shares + (share,), to_epss + (to_eps,)
            now = start
            if c > 1:
                now = load_state(notes + (c - 2) * total * STATES, pos, total, mask, zero, True, RULE)
            part = source + (first - CHUNK) * at_current[0]
            xs = load_steps(part, at_current[0], within(mask, 0, c, False), 0, time, CHUNK, True)
            outgoing = grad_current + address(pos, at_out) + (first + CHUNK - 1) * at_out[0]
            for j in tl.static_range(CHUNK - 1, -1, -1):
                inside = within(mask, first + j, time, EVEN)
                given = g_mean if bits(RULE, RATE) or HAS // 2 % 2 == 0 else gs[j]
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
                tl.store(outgoing, to_current, mask=inside)
                outgoing -= at_out[0]
        if HAS % 2:
            store_state(grad_start, pos, total, mask, flow, RULE)
    if WAYS:
        finish(sums, held, lane, total, known, grads, scratch, RULE, WAYS, BLOCK)


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
    """Walk UltraLIF one step back, from its soft spike and the membrane before it."""
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
def load_back(reading, incoming, at_spikes, at_grad, mask, left, CHUNK: tl.constexpr):
    """Load the gradients of a chunk, from its last step, and the spikes before each, of the steps left."""
    gs, earlier = (), ()
    for j in tl.static_range(CHUNK):
        gs = gs + (tl.load(incoming, mask=within(mask, j, left, False), other=0.0),)
        reading -= at_spikes
        earlier = earlier + (tl.load(reading, mask=within(mask, j + 1, left, False), other=0.5),)
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
    """Differentiate UltraLIF with soft spikes, which tell its membrane: nothing is integrated again."""
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
        gs, earlier = load_back(reading, incoming, at_spikes[0], at_grad[0], mask, time, CHUNK)
        for r in range(tl.cdiv(time, CHUNK)):
            left = time - r * CHUNK  # steps that are left
            reading -= CHUNK * at_spikes[0]
            incoming -= CHUNK * at_grad[0]
            after = load_back(reading, incoming, at_spikes[0], at_grad[0], mask, left - CHUNK, CHUNK)
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
