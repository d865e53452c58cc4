"""The derivative of neurons on a ring; see `triton_spatial` for tiles, halos, and spans.

Spans are taken from the last to the first. Where soft spikes tell the membrane, a program reads them. If one
of them is 0 in float32, its membrane is lost, and the program begins anew as others do: it integrates
its span again, from the membrane that the forward pass wrote at the border.
"""

import triton
import triton.language as tl

from ultralif.ops.triton_constants import constants, reduce
from ultralif.ops.triton_parts import LN2, RATE, bits, within
from ultralif.ops.triton_places import address, in_round, lanes_of, place, renew, spread, when
from ultralif.ops.triton_spatial import UNSPECIAL, advance, load_border, shares
from ultralif.ops.triton_spatial_retreat import retrace, retreat
from ultralif.ops.triton_temporal import load_steps

__all__ = ["spatial_backward_kernel"]

TINY = tl.constexpr(1e-37)
"""A spike below this does not tell the membrane."""


@triton.jit
def pass_on(flow, grad_start, flows, turn, total, pos, own, span, HAS_START: tl.constexpr, CUT: tl.constexpr):
    """Store the gradient for V before a span."""
    if HAS_START:
        tl.store(grad_start + pos, flow, mask=when(own, span == 0))
    if CUT:
        tl.store(flows + turn * total + pos, flow, mask=when(own, span > 0))


@triton.jit
def finish(
    sums,
    pos,
    own,
    known,
    grads,
    scratch,
    work,
    span,
    programs,
    WAYS: tl.constexpr,
    LANES: tl.constexpr,
):
    """Reduce the sums of all lanes to the gradients of the constants; spans have regions of their own."""
    pos, own = tl.reshape(pos + span * 4 * scratch[3], [LANES]), tl.reshape(own, [LANES])
    to_eps = tl.reshape(sums[0] * LN2, [LANES])
    reduce(to_eps, 0, pos, own, known, grads, scratch, work, programs, WAYS, LANES)
    reduce(tl.reshape(sums[1], [LANES]), 1, pos, own, known, grads, scratch, work, programs, WAYS, LANES)
    reduce(tl.reshape(sums[2], [LANES]), 2, pos, own, known, grads, scratch, work, programs, WAYS, LANES)


@triton.jit(do_not_specialize=UNSPECIAL)
def spatial_backward_kernel(
    grad_out,
    grad_state,
    current,
    spikes,
    state,
    borders,
    grad_current,
    grad_start,
    rooms,
    known,
    grads,
    scratch,
    times,
    shape,
    places,
    v_reset,
    RULE: tl.constexpr,
    HAS: tl.constexpr,
    WAYS: tl.constexpr,
    CHUNK: tl.constexpr,
    EVEN: tl.constexpr,
    LANES: tl.constexpr,
    WIDTH: tl.constexpr,
    COLS: tl.constexpr,
    MARGIN: tl.constexpr,
    NATIVE: tl.constexpr,
):
    """Differentiate: write the gradients for current, state and constants.

    The bits of HAS tell whether there are a state, a gradient of the output, one of the last state, several
    spans, and spikes that tell the membrane. The kernel is longer than others, because Triton cannot carry
    the trace of a chunk out of a function.
    """
    CUT: tl.constexpr = HAS // 8 % 2
    at_current, at_grad, at_out = places
    notes, flows = rooms
    ring, rows, rounds, stride_round = shape
    time, steps, tiles, halo, turn = times
    program, programs = tl.program_id(0), tl.num_programs(0)
    spans = (time + steps - 1) // steps if CUT else 1
    turn = turn if CUT else 0
    span = tl.cast(spans - 1 - turn, tl.int64)
    work = turn * programs + program
    length = tl.minimum(steps, time - span * steps).to(tl.int32)
    total = tl.cast(rows, tl.int64) * ring * COLS
    row, spot, own, around, owner = place(ring, program, tiles, halo, LANES, WIDTH, COLS, MARGIN)
    held = constants(known, lanes_of(row * ring + tl.minimum(spot, ring - 1), COLS), RULE, NATIVE)
    zero = tl.zeros((LANES // COLS, COLS), tl.float32)
    sums = (zero, zero, zero)
    chunks = tl.cdiv(length, CHUNK)
    lane = lanes_of(tl.arange(0, LANES // COLS), COLS)
    note = notes + tl.cast(program, tl.int64) * LANES + lane
    note_stride = tl.num_programs(0).to(tl.int64) * LANES
    again = rounds
    if HAS // 16:
        low = zero + 0.5
        end = span * steps + length - 1
        for i in range(rounds):
            inside, own_now, group, pos = in_round(i, stride_round, row, spot, own, ring, rows, COLS)
            start, flow = zero, load_border(grad_state, flows, turn, total, pos, inside, HAS // 4 % 2, CUT)
            if HAS % 2:
                start = tl.load(state + pos, mask=inside, other=0.0)
            target = address(group, at_out, COLS) + end * at_out[0]
            incoming = grad_out + address(group, at_grad, COLS) + end * at_grad[0]
            flow, sums, low = retrace(
                sums,
                low,
                flow,
                start,
                (spikes + target, incoming, grad_current + target),
                (at_out[0], at_grad[0], at_out[0]),
                around,
                owner,
                inside,
                own_now,
                held,
                v_reset,
                length,
                end + 1,
                RULE,
                CHUNK,
                EVEN,
                MARGIN,
                NATIVE,
            )
            pass_on(flow, grad_start, flows, turn, total, pos, own_now, span, HAS % 2, CUT)
        again = tl.where(tl.min(low) < TINY, rounds, 0)
        zeros = zero + again
        sums = (
            tl.where(zeros > 0.0, 0.0, sums[0]),
            tl.where(zeros > 0.0, 0.0, sums[1]),
            tl.where(zeros > 0.0, 0.0, sums[2]),
        )
    for i in range(again):
        inside, own_now, group, pos = in_round(i, stride_round, row, spot, own, ring, rows, COLS)
        source = current + address(group, at_current, COLS) + span * steps * at_current[0]
        start = load_border(state, borders, span, total, pos, inside, HAS % 2, CUT)
        v, flow, g_mean = start, zero, zero
        xs = load_steps(source, at_current[0], inside, 0, length, CHUNK, EVEN)
        for n in range(1, chunks):  # store the state before each chunk but the first; earlier chunks are full
            part = source + tl.cast(n, tl.int64) * CHUNK * at_current[0]
            later = load_steps(part, at_current[0], inside, n * CHUNK, length, CHUNK, EVEN)
            for j in tl.static_range(CHUNK):
                v = renew(v, owner, j, MARGIN // 2)
                v, _, _ = advance(xs[j], v, around, held, v_reset, RULE, NATIVE)
            tl.store(note + (n - 1) * note_stride, v)
            xs = later
        tl.debug_barrier()  # any thread may read the state that another wrote

        incoming = grad_out + address(group, at_grad, COLS)
        if HAS // 2 % 2 and bits(RULE, RATE):
            g_mean = tl.load(incoming, mask=inside, other=0.0).to(tl.float32) / time
        for r in range(chunks):
            c = chunks - 1 - r
            first = c * CHUNK
            step = span * steps + first
            gs = xs
            if HAS // 2 % 2 and not bits(RULE, RATE):
                part = incoming + step * at_grad[0]
                gs = load_steps(part, at_grad[0], inside, first, length, CHUNK, EVEN)
            vs, traces, sides = (), (), ()
            for j in tl.static_range(CHUNK):
                v = renew(v, owner, j, MARGIN // 2)
                vs = vs + (v,)
                v, _, trace = advance(xs[j], v, around, held, v_reset, RULE, NATIVE)
                traces, sides = traces + (trace,), sides + (shares(trace[4], held[1], RULE, NATIVE),)
            if r == 0:
                flow = load_border(grad_state, flows, turn, total, pos, inside, HAS // 4 % 2, CUT)
            part = source + tl.cast(first - CHUNK, tl.int64) * at_current[0]
            xs = load_steps(part, at_current[0], within(inside, 0, c, False), 0, length, CHUNK, True)
            v = start
            if c > 1:
                v = tl.load(note + (c - 2) * note_stride)
            outgoing = grad_current + address(group, at_out, COLS) + (step + CHUNK - 1) * at_out[0]
            for j in tl.static_range(CHUNK - 1, -1, -1):
                flow = renew(flow, owner, 0 if j == CHUNK - 1 else j + 1, MARGIN // 2)
                now = within(inside, first + j, length, EVEN)
                given = g_mean if bits(RULE, RATE) or HAS // 2 % 2 == 0 else gs[j]
                to_current, flow, sums = retreat(
                    given,
                    flow,
                    sums,
                    traces[j],
                    sides[j],
                    vs[j],
                    around,
                    now,
                    held,
                    v_reset,
                    RULE,
                    EVEN,
                )
                tl.store(outgoing, to_current, mask=within(own_now, first + j, length, EVEN))
                outgoing -= at_out[0]
        pass_on(flow, grad_start, flows, turn, total, pos, own_now, span, HAS % 2, CUT)
    if WAYS:
        own = spread(own & (row < rows), COLS)
        pos = lanes_of(row * ring + spot, COLS)
        finish(sums, pos, own, known, grads, scratch, work, span, programs * spans, WAYS, LANES)
