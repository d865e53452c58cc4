"""The derivative of neurons without neighbours.

Time is cut into chunks whose trace fits into registers: the kernel stores the state before each chunk, then
takes the chunks from the last to the first, integrates each again and differentiates it. So nothing is kept
from the forward pass.
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
    inverse,
    log2,
    only,
    saturated,
    unfire,
    within,
)
from ultralif.ops.triton_temporal import UNSPECIAL, advance, load_state, load_steps, store_state

__all__ = ["temporal_backward_kernel"]


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
    """Go back one step: return the gradients for the current and for the state before, and the sums."""
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
def trace_steps(xs, now, held, numbers, RULE: tl.constexpr, STEPS: tl.constexpr, NATIVE: tl.constexpr):
    """Integrate some steps again; return of each its trace, the past's share, and what eps gets of it."""
    traces, shares, to_epss = (), (), ()
    for j in tl.static_range(STEPS):
        v = now[0]
        now, _, trace = advance(xs[j], now, held, numbers, RULE, NATIVE)
        share, to_eps = share_of(xs[j], v, trace[4], held[1], held[3], RULE, NATIVE)
        traces, shares, to_epss = traces + (trace,), shares + (share,), to_epss + (to_eps,)
    return traces, shares, to_epss


@triton.jit
def retreat_steps(
    traces,
    shares,
    to_epss,
    gs,
    flow,
    sums,
    outgoing,
    stride,
    mask,
    first,
    time,
    held,
    numbers,
    RULE: tl.constexpr,
    GIVEN: tl.constexpr,
    CHUNK: tl.constexpr,
    EVEN: tl.constexpr,
    NATIVE: tl.constexpr,
):
    """Go back over some steps: write the current's gradients; return those of the state before, and the sums.

    ``gs`` has the gradient of each spike or, unless GIVEN, one for all.
    """
    for j in tl.static_range(CHUNK - 1, -1, -1):
        inside = within(mask, first + j, time, EVEN)
        to_current, flow, sums = retreat(
            gs[j] if GIVEN else gs,
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
        outgoing -= stride
    return flow, sums


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

    The bits of HAS tell whether there are a state, a gradient of the output and one of the last state. The
    kernel is longer than others, because Triton cannot carry the trace of a chunk out of a function.
    """
    total, rounds, stride_round = span
    if CHUNK == 1:  # there is only one step
        time = 1
    lane = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    held = constants(known, lane, RULE, NATIVE)
    zero = tl.zeros((BLOCK,), tl.float32)
    sums = (zero, zero, zero, zero)
    chunks = tl.cdiv(time, CHUNK)
    STATES: tl.constexpr = 3 if bits(RULE, ADAPT) else 1
    GIVEN: tl.constexpr = HAS // 2 % 2 == 1 and not bits(RULE, RATE)
    for i in range(rounds):
        pos = lane + tl.cast(i, tl.int64) * stride_round
        mask = pos < total
        source = current + address(pos, at_current)
        start = load_state(state, pos, total, mask, zero, HAS % 2 == 1, RULE)
        now = start
        xs = load_steps(source, at_current[0], mask, 0, time, CHUNK, EVEN)
        for n in range(1, chunks):  # store the state before each chunk but the first; earlier chunks are full
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
            if GIVEN:
                gs = load_steps(incoming + first * at_grad[0], at_grad[0], mask, first, time, CHUNK, EVEN)
            traces, shares, to_epss = trace_steps(xs, now, held, numbers, RULE, CHUNK, NATIVE)
            now = start
            if c > 1:
                now = load_state(notes + (c - 2) * total * STATES, pos, total, mask, zero, True, RULE)
            part = source + (first - CHUNK) * at_current[0]
            xs = load_steps(part, at_current[0], within(mask, 0, c, False), 0, time, CHUNK, True)
            outgoing = grad_current + address(pos, at_out) + (first + CHUNK - 1) * at_out[0]
            flow, sums = retreat_steps(
                traces,
                shares,
                to_epss,
                gs if GIVEN else g_mean,
                flow,
                sums,
                outgoing,
                at_out[0],
                mask,
                first,
                time,
                held,
                numbers,
                RULE,
                GIVEN,
                CHUNK,
                EVEN,
                NATIVE,
            )
        if HAS % 2:
            store_state(grad_start, pos, total, mask, flow, RULE)
    if WAYS:
        finish(sums, held, lane, total, known, grads, scratch, RULE, WAYS, BLOCK)
