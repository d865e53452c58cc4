"""Triton kernels for neurons without neighbours: UltraLIF and the additive family; see `recurrence`.

A lane integrates one neuron of one sample over all time steps. The backward kernel cuts time into chunks
whose trace fits into registers: it notes the state at the start of each chunk, then takes the chunks from the
last to the first, integrates each once more and walks it back. So nothing is kept from the forward pass.

Lanes advance over the batch by a multiple of the number of features: a lane keeps its feature, and with it
the constants and the sums for their gradients.
"""

import triton
import triton.language as tl

from ultralif.ops.triton_parts import ADD, LN2, LSE, MAX, constant, exp2, fire, inverse, largest, log2, within

__all__ = ["temporal_backward_kernel", "temporal_forward_kernel"]

FAR = tl.constexpr(1000.0)
"""A gap whose power of two is 0 in float32, and which times 0 is 0, as an infinite one's is not."""
UNSPECIAL = [
    "eps_pointer",
    "leak_pointer",
    "threshold_pointer",
    "amplitude_pointer",
    "time",
    "rounds",
    "eps_run",
    "leak_run",
    "threshold_run",
    "amplitude_run",
]
"""Arguments of which no value gets a kernel of its own, not even 1 and multiples of 16."""


@triton.jit
def membrane(x, v, k, leak, log_leak, MEMBRANE: tl.constexpr, NATIVE: tl.constexpr):
    """Return P in two parts, P = base + eps * log(weight): the weight is 1 but for a log-sum-exp."""
    one = tl.full(x.shape, 1.0, tl.float32)
    if MEMBRANE == ADD:
        return leak * v + x, one
    past = v + log_leak
    if MEMBRANE == MAX:
        return largest(past, x), one
    return tl.maximum(past, x), one + exp2(-(tl.abs(past - x) * k), NATIVE)


@triton.jit
def adapt(b, last, threshold, strength, decay, ADAPT: tl.constexpr, LATE: tl.constexpr):
    """Return AdaLIF's threshold and adaptation."""
    if ADAPT:
        adapted = decay * b + (1.0 - decay) * last
        return threshold + strength * (b if LATE else adapted), adapted
    return threshold, b


@triton.jit(do_not_specialize=UNSPECIAL)
def temporal_forward_kernel(
    current,
    state,
    eps_pointer,
    leak_pointer,
    threshold_pointer,
    amplitude_pointer,
    out,
    last_state,
    time,
    features,
    total,
    stride_time,
    stride_batch,
    rounds,
    stride_round,
    eps_run,
    leak_run,
    threshold_run,
    amplitude_run,
    v_reset,
    strength,
    decay,
    MEMBRANE: tl.constexpr,
    SOFT: tl.constexpr,
    UNIT: tl.constexpr,
    RATE: tl.constexpr,
    ADAPT: tl.constexpr,
    LATE: tl.constexpr,
    HAS_STATE: tl.constexpr,
    CHUNK: tl.constexpr,
    EVEN: tl.constexpr,
    BLOCK: tl.constexpr,
    NATIVE: tl.constexpr,
):
    """Integrate ``[T, B, F]``: write the spikes, or their mean, and the last state."""
    lane = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    feature = lane % features
    eps = constant(eps_pointer, feature, eps_run, lane < total)
    leak = constant(leak_pointer, feature, leak_run, lane < total)
    threshold = constant(threshold_pointer, feature, threshold_run, lane < total)
    amplitude = constant(amplitude_pointer, feature, amplitude_run, lane < total)
    k = inverse(LN2 * eps, NATIVE)
    log_leak = tl.log(leak)
    eps = eps * LN2
    for i in range(rounds):
        element = lane + tl.cast(i, tl.int64) * stride_round
        mask = element < total
        sample = lane // features + tl.cast(i, tl.int64) * (stride_round // features)
        source = current + sample * stride_batch + feature
        v = tl.zeros((BLOCK,), tl.float32)
        b = v
        last = v
        if HAS_STATE:
            v = tl.load(state + element, mask=mask, other=0.0)
            if ADAPT:
                b = tl.load(state + total + element, mask=mask, other=0.0)
                last = tl.load(state + 2 * total + element, mask=mask, other=0.0)
        mean = tl.zeros((BLOCK,), tl.float32)
        target = out + element
        for first in range(0, time, CHUNK):
            xs = ()
            for j in tl.static_range(CHUNK):
                inside = within(mask, first + j, time, EVEN)
                xs = xs + (tl.load(source, mask=inside, other=0.0).to(tl.float32),)
                source += stride_time
            for j in tl.static_range(CHUNK):
                limit, adapted = adapt(b, last, threshold, strength, decay, ADAPT, LATE)
                base, weight = membrane(xs[j], v, k, leak, log_leak, MEMBRANE, NATIVE)
                potential, gate, spike = fire(
                    base, weight, limit, eps, k, amplitude, MEMBRANE, SOFT, UNIT, NATIVE
                )
                after = potential * (1.0 - spike) + v_reset * spike
                if EVEN:
                    v, b, last = after, adapted, spike
                    mean += spike
                else:
                    now = within(mask, first + j, time, EVEN)
                    v = tl.where(now, after, v)
                    b = tl.where(now, adapted, b)
                    last = tl.where(now, spike, last)
                    mean += tl.where(now, spike, 0.0)
                if not RATE:
                    tl.store(target, spike, mask=within(mask, first + j, time, EVEN))
                    target += total
        if RATE:
            tl.store(target, mean / time, mask=mask)
        tl.store(last_state + element, v, mask=mask)
        if ADAPT:
            tl.store(last_state + total + element, b, mask=mask)
            tl.store(last_state + 2 * total + element, last, mask=mask)


@triton.jit
def share_of(x, v, weight, k, log_leak, MEMBRANE: tl.constexpr, NATIVE: tl.constexpr):
    """Return dP/dV of a log-sum-exp or a maximum, and dP/deps; for a sum, V, which is dP/dleak."""
    if MEMBRANE == ADD:
        return v, 0.0 * v
    past = v + log_leak
    if MEMBRANE == MAX:
        return tl.where(past > x, 1.0, tl.where(past == x, 0.5, 0.0)), 0.0 * v
    gap = tl.minimum(tl.abs(past - x) * k, FAR)
    large = inverse(weight, NATIVE)
    small = exp2(-gap, NATIVE) * large
    return tl.where(past > x, large, small), LN2 * (log2(weight, NATIVE) + gap * small)


@triton.jit(do_not_specialize=UNSPECIAL)
def temporal_backward_kernel(
    grad_out,
    grad_state,
    current,
    state,
    eps_pointer,
    leak_pointer,
    threshold_pointer,
    amplitude_pointer,
    grad_current,
    grad_start,
    sums,
    notes,
    time,
    features,
    total,
    stride_time,
    stride_batch,
    out_stride_time,
    rounds,
    stride_round,
    eps_run,
    leak_run,
    threshold_run,
    amplitude_run,
    v_reset,
    strength,
    decay,
    MEMBRANE: tl.constexpr,
    SOFT: tl.constexpr,
    THROUGH_RESET: tl.constexpr,
    UNIT: tl.constexpr,
    RATE: tl.constexpr,
    ADAPT: tl.constexpr,
    LATE: tl.constexpr,
    HAS_STATE: tl.constexpr,
    HAS_OUT: tl.constexpr,
    HAS_GRAD_STATE: tl.constexpr,
    LEARN: tl.constexpr,
    CHUNK: tl.constexpr,
    EVEN: tl.constexpr,
    BLOCK: tl.constexpr,
    NATIVE: tl.constexpr,
):
    """Differentiate: write the gradients for current and state, and the sums for the constants."""
    lane = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    feature = lane % features
    eps = constant(eps_pointer, feature, eps_run, lane < total)
    leak = constant(leak_pointer, feature, leak_run, lane < total)
    threshold = constant(threshold_pointer, feature, threshold_run, lane < total)
    amplitude = constant(amplitude_pointer, feature, amplitude_run, lane < total)
    k = inverse(LN2 * eps, NATIVE)
    log_leak = tl.log(leak)
    eps = eps * LN2
    zero = tl.zeros((BLOCK,), tl.float32)
    sum_eps, sum_entropy, sum_leak, sum_threshold, sum_amplitude = zero, zero, zero, zero, zero
    steep = k * LN2 if UNIT else k * LN2 * amplitude
    chunks = tl.cdiv(time, CHUNK)
    for i in range(rounds):
        element = lane + tl.cast(i, tl.int64) * stride_round
        mask = element < total
        sample = lane // features + tl.cast(i, tl.int64) * (stride_round // features)
        source = current + sample * stride_batch + feature
        start, start_b, start_last = zero, zero, zero
        if HAS_STATE:
            start = tl.load(state + element, mask=mask, other=0.0)
            if ADAPT:
                start_b = tl.load(state + total + element, mask=mask, other=0.0)
                start_last = tl.load(state + 2 * total + element, mask=mask, other=0.0)

        # Note the state after each chunk but the last; these are full.
        v, b, last = start, start_b, start_last
        reading = source
        for c in range(chunks - 1):
            xs = ()
            for _ in tl.static_range(CHUNK):
                xs = xs + (tl.load(reading, mask=mask, other=0.0).to(tl.float32),)
                reading += stride_time
            for j in tl.static_range(CHUNK):
                limit, b = adapt(b, last, threshold, strength, decay, ADAPT, LATE)
                base, weight = membrane(xs[j], v, k, leak, log_leak, MEMBRANE, NATIVE)
                potential, gate, last = fire(
                    base, weight, limit, eps, k, amplitude, MEMBRANE, SOFT, UNIT, NATIVE
                )
                v = potential * (1.0 - last) + v_reset * last
            note = notes + tl.cast(c, tl.int64) * total * (3 if ADAPT else 1) + element
            tl.store(note, v, mask=mask)
            if ADAPT:
                tl.store(note + total, b, mask=mask)
                tl.store(note + 2 * total, last, mask=mask)

        gv, gb, gl = zero, zero, zero
        if HAS_GRAD_STATE:
            gv = tl.load(grad_state + element, mask=mask, other=0.0)
            if ADAPT:
                gb = tl.load(grad_state + total + element, mask=mask, other=0.0)
                gl = tl.load(grad_state + 2 * total + element, mask=mask, other=0.0)
        g_mean = zero
        if HAS_OUT and RATE:
            g_mean = tl.load(grad_out + element, mask=mask, other=0.0).to(tl.float32) / time
        for r in range(chunks):
            c = chunks - 1 - r
            v, b, last = start, start_b, start_last
            if c > 0:
                note = notes + tl.cast(c - 1, tl.int64) * total * (3 if ADAPT else 1) + element
                v = tl.load(note, mask=mask, other=0.0)
                if ADAPT:
                    b = tl.load(note + total, mask=mask, other=0.0)
                    last = tl.load(note + 2 * total, mask=mask, other=0.0)
            first = c * CHUNK
            reading = source + tl.cast(first, tl.int64) * stride_time
            incoming = grad_out + tl.cast(first, tl.int64) * out_stride_time + element if HAS_OUT else element
            xs, gs, potentials, limits, gates, pasts, to_epss = (), (), (), (), (), (), ()
            for j in tl.static_range(CHUNK):
                inside = within(mask, first + j, time, EVEN)
                xs = xs + (tl.load(reading, mask=inside, other=0.0).to(tl.float32),)
                reading += stride_time
                if HAS_OUT and not RATE:
                    gs = gs + (tl.load(incoming, mask=inside, other=0.0).to(tl.float32),)
                    incoming += out_stride_time
                else:
                    gs = gs + (g_mean,)
            for j in tl.static_range(CHUNK):
                limit, b = adapt(b, last, threshold, strength, decay, ADAPT, LATE)
                base, weight = membrane(xs[j], v, k, leak, log_leak, MEMBRANE, NATIVE)
                potential, gate, last = fire(
                    base, weight, limit, eps, k, amplitude, MEMBRANE, SOFT, UNIT, NATIVE
                )
                share, to_eps = share_of(xs[j], v, weight, k, log_leak, MEMBRANE, NATIVE)
                potentials, limits, gates = potentials + (potential,), limits + (limit,), gates + (gate,)
                pasts, to_epss = pasts + (share,), to_epss + (to_eps,)
                v = potential * (1.0 - last) + v_reset * last
            outgoing = grad_current + tl.cast(first + CHUNK - 1, tl.int64) * total + element
            for j in tl.static_range(CHUNK - 1, -1, -1):
                potential, limit, gate = potentials[j], limits[j], gates[j]
                if SOFT:
                    spike = gate if UNIT else amplitude * gate + (1.0 - amplitude) * 0.5
                else:
                    spike = tl.where(potential > limit, 1.0, 0.0)
                fed = gs[j] + gl
                if THROUGH_RESET:
                    fed += gv * (v_reset - potential)
                back = fed * (gate * (1.0 - gate) * steep)
                g = back + gv * (1.0 - spike)
                if not EVEN:  # steps past the end have no part in anything
                    now = within(mask, first + j, time, EVEN)
                    fed = tl.where(now, fed, 0.0)
                    back = tl.where(now, back, 0.0)
                    g = tl.where(now, g, 0.0)
                past = g * (leak if MEMBRANE == ADD else pasts[j])
                if LEARN:
                    sum_threshold -= back
                    sum_eps -= back * (potential - limit)
                    if MEMBRANE == LSE:
                        sum_entropy += g * to_epss[j]
                    sum_leak += g * pasts[j]
                    if not UNIT:
                        sum_amplitude += fed * (gate - 0.5)
                to_current = g if MEMBRANE == ADD else g - past
                tl.store(outgoing, to_current, mask=within(mask, first + j, time, EVEN))
                outgoing -= total
                gv = past if EVEN else tl.where(now, past, gv)
                if ADAPT:
                    pull = -strength * back
                    adapted = gb if LATE else gb + pull
                    before = decay * adapted + (pull if LATE else zero)
                    gb = before if EVEN else tl.where(now, before, gb)
                    gl = (1.0 - decay) * adapted if EVEN else tl.where(now, (1.0 - decay) * adapted, gl)
        if HAS_STATE:
            tl.store(grad_start + element, gv, mask=mask)
            if ADAPT:
                tl.store(grad_start + total + element, gb, mask=mask)
                tl.store(grad_start + 2 * total + element, gl, mask=mask)
    if LEARN:
        mask = lane < total
        if MEMBRANE != ADD:
            sum_leak = sum_leak / leak
        tl.store(sums + lane, sum_eps * (k * LN2) + sum_entropy, mask=mask)
        tl.store(sums + stride_round + lane, sum_leak, mask=mask)
        tl.store(sums + 2 * stride_round + lane, sum_threshold, mask=mask)
        tl.store(sums + 3 * stride_round + lane, sum_amplitude, mask=mask)
