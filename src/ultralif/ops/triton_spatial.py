"""Triton kernels for neurons on a ring: UltraDLIF and UltraDPLIF, see `recurrence`.

A program integrates a tile: a few whole rings, or a part of one long ring; its lanes exchange their membranes
at every step. A part carries a halo: at its ends the neighbours are missing, and what is wrong there moves
inwards by one neuron a step, so a halo as wide as the number of steps keeps the inside right; the backward
walk doubles it.

Time is cut into chunks as in `triton_temporal`.
"""

import triton
import triton.language as tl

from ultralif.ops.triton_parts import LN2, MAX, constant, exp2, fire, inverse, largest, log2, within

__all__ = ["spatial_backward_kernel", "spatial_forward_kernel"]

FACTOR = tl.constexpr(1)
SHIFT = tl.constexpr(2)
LOG2_3 = tl.constexpr(1.584962500721156)
UNSPECIAL = [
    "eps_pointer",
    "leak_pointer",
    "threshold_pointer",
    "time",
    "halo",
    "rounds",
    "mean_of",
    "eps_run",
    "leak_run",
    "threshold_run",
]
"""Arguments of which no value gets a kernel of its own, not even 1 and multiples of 16."""


@triton.jit
def place(ring, halo, LANES: tl.constexpr, WIDTH: tl.constexpr, WHOLE: tl.constexpr):
    """Return where the lanes stand: row, place on the ring, whether it is their own, their neighbours."""
    lane = tl.arange(0, LANES)
    row = lane // WIDTH
    along = lane % WIDTH
    if WHOLE:
        left = tl.where(along == 0, lane + ring - 1, lane - 1)
        right = tl.where(along == ring - 1, lane - ring + 1, lane + 1)
        return row, along, along < ring, left % LANES, right % LANES
    inner = WIDTH - 2 * halo
    spot = tl.program_id(1) * inner - halo + along
    own = (along >= halo) & (along < halo + inner) & (spot < ring)
    return row, (spot + ring) % ring, own, tl.maximum(lane - 1, 0), tl.minimum(lane + 1, LANES - 1)


@triton.jit
def decayed(v, leak, log_leak, LEAK: tl.constexpr):
    """Return the membrane after its leak."""
    if LEAK == FACTOR:
        return v * leak
    if LEAK == SHIFT:
        return v + log_leak
    return v


@triton.jit
def neighbours(w, both):
    """Return what stands to the left and to the right of each lane, by one exchange."""
    left, right = tl.split(tl.reshape(tl.gather(w, both, 0), [w.shape[0], 2]))
    return left, right


@triton.jit
def terms(w, w_left, w_right, k, NATIVE: tl.constexpr):
    """Return the largest of three terms, the exponentials of the others, and how far these lie below.

    The third term is the smaller of the neighbours; the second what is left.
    """
    side, third = largest(w_left, w_right), tl.minimum(w_left, w_right)
    top, second = largest(side, w), tl.minimum(side, w)
    gap_2, gap_3 = (top - second) * k, (top - third) * k
    return top, exp2(-gap_2, NATIVE), exp2(-gap_3, NATIVE), gap_2, gap_3


@triton.jit
def coupled(
    x, w, w_left, w_right, eps, k, MEMBRANE: tl.constexpr, CENTERED: tl.constexpr, NATIVE: tl.constexpr
):
    """Return P in two parts, P = base + eps * log(weight), see `fire`."""
    if MEMBRANE == MAX:
        return largest(largest(w_left, w_right), w) + x, tl.full(x.shape, 1.0, tl.float32)
    top, u_2, u_3, gap_2, gap_3 = terms(w, w_left, w_right, k, NATIVE)
    base = top + x
    if CENTERED:
        base -= eps * LOG2_3
    return base, 1.0 + u_2 + u_3


@triton.jit
def shares(w, w_left, w_right, k, MEMBRANE: tl.constexpr, CENTERED: tl.constexpr, NATIVE: tl.constexpr):
    """Return the shares of left and right neighbour, and dP/deps."""
    if MEMBRANE == MAX:
        top = tl.maximum(tl.maximum(w_left, w_right), w)
        a = tl.where(w_left == top, 1.0, 0.0)
        b = tl.where(w_right == top, 1.0, 0.0)
        whole = 1.0 / (a + b + tl.where(w == top, 1.0, 0.0))
        return a * whole, b * whole, 0.0 * whole
    top, u_2, u_3, gap_2, gap_3 = terms(w, w_left, w_right, k, NATIVE)
    weight = 1.0 + u_2 + u_3
    whole = inverse(weight, NATIVE)
    entropy = log2(weight, NATIVE) + (u_2 * gap_2 + u_3 * gap_3) * whole
    if CENTERED:
        entropy -= LOG2_3
    larger = tl.where(tl.maximum(w_left, w_right) > w, whole, u_2 * whole)  # of the neighbours
    smaller = u_3 * whole
    from_left = w_left > w_right
    return tl.where(from_left, larger, smaller), tl.where(from_left, smaller, larger), LN2 * entropy


@triton.jit(do_not_specialize=UNSPECIAL)
def spatial_forward_kernel(
    current,
    state,
    eps_pointer,
    leak_pointer,
    threshold_pointer,
    out,
    last_state,
    time,
    ring,
    rings,
    rows,
    stride_time,
    stride_batch,
    out_stride_time,
    halo,
    rounds,
    stride_round,
    mean_of,
    eps_run,
    leak_run,
    threshold_run,
    v_reset,
    MEMBRANE: tl.constexpr,
    SOFT: tl.constexpr,
    RATE: tl.constexpr,
    CENTERED: tl.constexpr,
    LEAK: tl.constexpr,
    HAS_STATE: tl.constexpr,
    HAS_OUT: tl.constexpr,
    ADD_TO_MEAN: tl.constexpr,
    CHUNK: tl.constexpr,
    EVEN: tl.constexpr,
    LANES: tl.constexpr,
    WIDTH: tl.constexpr,
    WHOLE: tl.constexpr,
    NATIVE: tl.constexpr,
):
    """Integrate rows of rings from a state: write the spikes, or add to their mean, and the state."""
    row, spot, own, left, right = place(ring, halo, LANES, WIDTH, WHOLE)
    both = tl.reshape(tl.join(left, right), [2 * LANES])
    row += tl.program_id(0) * (LANES // WIDTH)
    feature = row % rings * ring + spot
    known = (row < rows) & (spot < ring)
    own = own & (row < rows)
    eps = constant(eps_pointer, feature, eps_run, known)
    leak = constant(leak_pointer, feature, leak_run, known)
    threshold = constant(threshold_pointer, feature, threshold_run, known)
    k = inverse(LN2 * eps, NATIVE)
    log_leak = tl.log(leak)
    eps = eps * LN2
    for i in range(rounds):
        at_row = row + tl.cast(i, tl.int64) * stride_round
        known = (at_row < rows) & (spot < ring)
        own_now = own & (at_row < rows)
        sample = row // rings + tl.cast(i, tl.int64) * (stride_round // rings)
        source = current + sample * stride_batch + feature
        element = at_row * ring + spot
        v = tl.zeros((LANES,), tl.float32)
        if HAS_STATE:
            v = tl.load(state + element, mask=known, other=0.0)
        mean = tl.zeros((LANES,), tl.float32)
        target = out + element if HAS_OUT else element
        for first in range(0, time, CHUNK):
            xs = ()
            for j in tl.static_range(CHUNK):
                inside = within(known, first + j, time, EVEN)
                xs = xs + (tl.load(source, mask=inside, other=0.0).to(tl.float32),)
                source += stride_time
            for j in tl.static_range(CHUNK):
                w = decayed(v, leak, log_leak, LEAK)
                w_left, w_right = neighbours(w, both)
                base, weight = coupled(xs[j], w, w_left, w_right, eps, k, MEMBRANE, CENTERED, NATIVE)
                potential, gate, spike = fire(
                    base, weight, threshold, eps, k, 1.0, MEMBRANE, SOFT, True, NATIVE
                )
                after = potential * (1.0 - spike) + v_reset * spike
                if EVEN:
                    v = after
                    mean += spike
                else:
                    now = within(known, first + j, time, EVEN)
                    v = tl.where(now, after, v)
                    mean += tl.where(now, spike, 0.0)
                if HAS_OUT and not RATE:
                    tl.store(target, spike, mask=within(own_now, first + j, time, EVEN))
                    target += out_stride_time
        if HAS_OUT and RATE:
            mean = mean / mean_of
            if ADD_TO_MEAN:
                mean += tl.load(target, mask=own_now, other=0.0)
            tl.store(target, mean, mask=own_now)
        tl.store(last_state + element, v, mask=own_now)


@triton.jit(do_not_specialize=UNSPECIAL)
def spatial_backward_kernel(
    grad_out,
    grad_state,
    current,
    state,
    eps_pointer,
    leak_pointer,
    threshold_pointer,
    grad_current,
    grad_start,
    sums,
    notes,
    time,
    ring,
    rings,
    rows,
    stride_time,
    stride_batch,
    out_stride_time,
    grad_stride_time,
    halo,
    rounds,
    stride_round,
    sum_stride,
    mean_of,
    eps_run,
    leak_run,
    threshold_run,
    v_reset,
    MEMBRANE: tl.constexpr,
    SOFT: tl.constexpr,
    THROUGH_RESET: tl.constexpr,
    RATE: tl.constexpr,
    CENTERED: tl.constexpr,
    LEAK: tl.constexpr,
    HAS_STATE: tl.constexpr,
    HAS_OUT: tl.constexpr,
    HAS_GRAD_STATE: tl.constexpr,
    LEARN: tl.constexpr,
    ADD_TO_SUMS: tl.constexpr,
    CHUNK: tl.constexpr,
    EVEN: tl.constexpr,
    LANES: tl.constexpr,
    WIDTH: tl.constexpr,
    WHOLE: tl.constexpr,
    NATIVE: tl.constexpr,
):
    """Differentiate: write the gradients for current and state, and the sums for the constants."""
    row, spot, own, left, right = place(ring, halo, LANES, WIDTH, WHOLE)
    both = tl.reshape(tl.join(left, right), [2 * LANES])
    row += tl.program_id(0) * (LANES // WIDTH)
    feature = row % rings * ring + spot
    known = (row < rows) & (spot < ring)
    own = own & (row < rows)
    program = tl.program_id(1).to(tl.int64) * tl.num_programs(0) + tl.program_id(0)
    eps = constant(eps_pointer, feature, eps_run, known)
    leak = constant(leak_pointer, feature, leak_run, known)
    threshold = constant(threshold_pointer, feature, threshold_run, known)
    k = inverse(LN2 * eps, NATIVE)
    log_leak = tl.log(leak)
    eps = eps * LN2
    zero = tl.zeros((LANES,), tl.float32)
    sum_eps, sum_leak, sum_threshold = zero, zero, zero
    chunks = tl.cdiv(time, CHUNK)
    note = notes + program * LANES + tl.arange(0, LANES)
    note_stride = tl.num_programs(0).to(tl.int64) * tl.num_programs(1) * LANES
    for i in range(rounds):
        at_row = row + tl.cast(i, tl.int64) * stride_round
        known = (at_row < rows) & (spot < ring)
        own_now = own & (at_row < rows)
        sample = row // rings + tl.cast(i, tl.int64) * (stride_round // rings)
        source = current + sample * stride_batch + feature
        element = at_row * ring + spot
        start = zero
        if HAS_STATE:
            start = tl.load(state + element, mask=known, other=0.0)

        v = start
        reading = source
        for c in range(chunks - 1):
            xs = ()
            for _ in tl.static_range(CHUNK):
                xs = xs + (tl.load(reading, mask=known, other=0.0).to(tl.float32),)
                reading += stride_time
            for j in tl.static_range(CHUNK):
                w = decayed(v, leak, log_leak, LEAK)
                w_left, w_right = neighbours(w, both)
                base, weight = coupled(xs[j], w, w_left, w_right, eps, k, MEMBRANE, CENTERED, NATIVE)
                potential, gate, spike = fire(
                    base, weight, threshold, eps, k, 1.0, MEMBRANE, SOFT, True, NATIVE
                )
                v = potential * (1.0 - spike) + v_reset * spike
            tl.store(note + c * note_stride, v)

        gv = zero
        if HAS_GRAD_STATE:
            gv = tl.load(grad_state + element, mask=known, other=0.0)
        g_mean = zero
        if HAS_OUT and RATE:
            g_mean = tl.load(grad_out + element, mask=known, other=0.0).to(tl.float32) / mean_of
        for r in range(chunks):
            c = chunks - 1 - r
            v = start
            if c > 0:
                v = tl.load(note + (c - 1) * note_stride)
            first = c * CHUNK
            reading = source + tl.cast(first, tl.int64) * stride_time
            incoming = grad_out + tl.cast(first, tl.int64) * out_stride_time + element if HAS_OUT else element
            xs, gs, vs, potentials, gates, lefts, rights, to_epss = (), (), (), (), (), (), (), ()
            for j in tl.static_range(CHUNK):
                inside = within(known, first + j, time, EVEN)
                xs = xs + (tl.load(reading, mask=inside, other=0.0).to(tl.float32),)
                reading += stride_time
                if HAS_OUT and not RATE:
                    gs = gs + (tl.load(incoming, mask=inside, other=0.0).to(tl.float32),)
                    incoming += out_stride_time
                else:
                    gs = gs + (g_mean,)
            for j in tl.static_range(CHUNK):
                w = decayed(v, leak, log_leak, LEAK)
                w_left, w_right = neighbours(w, both)
                base, weight = coupled(xs[j], w, w_left, w_right, eps, k, MEMBRANE, CENTERED, NATIVE)
                potential, gate, spike = fire(
                    base, weight, threshold, eps, k, 1.0, MEMBRANE, SOFT, True, NATIVE
                )
                to_left, to_right, to_eps = shares(w, w_left, w_right, k, MEMBRANE, CENTERED, NATIVE)
                vs, potentials, gates = vs + (v,), potentials + (potential,), gates + (gate,)
                lefts, rights, to_epss = lefts + (to_left,), rights + (to_right,), to_epss + (to_eps,)
                v = potential * (1.0 - spike) + v_reset * spike
            outgoing = grad_current + tl.cast(first + CHUNK - 1, tl.int64) * grad_stride_time + element
            for j in tl.static_range(CHUNK - 1, -1, -1):
                potential, gate = potentials[j], gates[j]
                spike = gate if SOFT else tl.where(potential > threshold, 1.0, 0.0)
                fed = gs[j]
                if THROUGH_RESET:
                    fed += gv * (v_reset - potential)
                back = fed * (gate * (1.0 - gate) * (k * LN2))
                g = back + gv * (1.0 - spike)
                if not EVEN:  # steps past the end have no part in anything
                    now = within(known, first + j, time, EVEN)
                    back = tl.where(now, back, 0.0)
                    g = tl.where(now, g, 0.0)
                to_left, to_right = g * lefts[j], g * rights[j]
                to_w = g - to_left - to_right + tl.gather(to_right, left, 0) + tl.gather(to_left, right, 0)
                if LEARN:
                    sum_threshold -= tl.where(own_now, back, 0.0)
                    sum_eps += tl.where(
                        own_now, g * to_epss[j] - back * (potential - threshold) * (k * LN2), 0.0
                    )
                    if LEAK == FACTOR:
                        sum_leak += tl.where(own_now, to_w * vs[j], 0.0)
                    elif LEAK == SHIFT:
                        sum_leak += tl.where(own_now, to_w / leak, 0.0)
                tl.store(outgoing, g, mask=within(own_now, first + j, time, EVEN))
                outgoing -= grad_stride_time
                before = to_w * leak if LEAK == FACTOR else to_w
                gv = before if EVEN else tl.where(now, before, gv)
        tl.store(grad_start + element, gv, mask=own_now)
    if LEARN:
        lane = row * ring + spot
        if ADD_TO_SUMS:
            sum_eps += tl.load(sums + lane, mask=own, other=0.0)
            sum_leak += tl.load(sums + sum_stride + lane, mask=own, other=0.0)
            sum_threshold += tl.load(sums + 2 * sum_stride + lane, mask=own, other=0.0)
        tl.store(sums + lane, sum_eps, mask=own)
        tl.store(sums + sum_stride + lane, sum_leak, mask=own)
        tl.store(sums + 2 * sum_stride + lane, sum_threshold, mask=own)
