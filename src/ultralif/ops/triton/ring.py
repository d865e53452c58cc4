"""Kernels for neurons on a ring, UltraDLIF and UltraDPLIF, and their launches.

A program integrates a tile of lanes: a few whole rings, or a part of a long one. A thread holds COLS lanes
side by side, so that most neighbours are in its own registers; one exchange per step fetches those at both
ends. For whole rings the exchange involves the whole program, and its warps wait for each other. For a part
of a ring it stays within a warp: warps overlap by MARGIN lanes at both ends, which they renew from each other
after MARGIN steps, or half as many in the backward pass. MARGIN is 0 for whole rings.

A part of a ring has a halo at both ends. The outermost neurons lack a neighbour, and the error moves inwards
by one neuron in each step. So a halo as wide as the number of steps keeps the inside correct; the backward
pass needs twice that. Long sequences of parts are therefore cut into spans of a few steps. Each span is a
launch, which starts from the membrane that the previous launch wrote at the border.

In the backward pass spans are processed from last to first. Where soft spikes determine the membrane, a
program reads them. If one of them is 0 in float32, its membrane is lost. The program then integrates its span
again, from the membrane that the forward pass wrote at the border.

Time is cut into chunks, and arguments are tuples, as in `temporal`. Positions on a ring are counted in
groups of COLS lanes; see `ring_layout`.
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
    FULL,
    LN2,
    MAX,
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
    within,
)
from ultralif.ops.triton.launch import EACH, LEFT, READY, SHARED, Launch, chunk_of
from ultralif.ops.triton.ring_layout import (
    CHUNK_ALONE,
    Tiling,
    address,
    exchange,
    in_round,
    lanes_of,
    place,
    renew,
    spread,
    tiling_of,
    when,
)
from ultralif.ops.triton.temporal import load_back, load_steps, membrane_from_spike

if TYPE_CHECKING:
    from ultralif.ops.triton.plan import LaunchPlan

__all__ = ["backward", "forward", "shape_of_rows", "ways"]

LOG2_3 = tl.constexpr(1.584962500721156)
CHUNK = 3  # steps that are loaded at once
CHUNK_BACK, FEW_BACK = 3, 5  # steps whose trace a lane keeps in registers; the same for a small layer
REGISTERS = 128  # registers of a thread in the backward pass: with more, fewer programs run at once
CHUNK_SPIKES, REGISTERS_SPIKES = 2, 80  # the same where the membrane follows from spikes
BACK_ALONE, REGISTERS_ALONE = 4, 224  # the same for parts that each have a multiprocessor
UNSPECIAL = ["known", "times"]
"""Arguments that Triton must not specialise on."""


@triton.jit
def beside(x, y, around):
    """Return x from the lane on the left and y from the lane on the right, with one exchange."""
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
def terms(w, w_left, w_right, k):
    """Return the largest of three terms, the exponentials of the others, and their distances from it.

    The third term is the smaller of the neighbours; the second is the remaining one. Distances are below 0.
    """
    side, third = largest(w_left, w_right), tl.minimum(w_left, w_right)
    top, second = largest(side, w), tl.minimum(side, w)
    gap_2, gap_3 = (second - top) * k, (third - top) * k
    return top, exp2(gap_2), exp2(gap_3), gap_2, gap_3


@triton.jit
def coupled(x, trio, held, RULE: tl.constexpr):
    """Return the level in two parts, base + eps * log(weight), see `fire`."""
    w, w_left, w_right = trio
    if choice(RULE, "membrane") == MAX:
        return largest(largest(w_left, w_right), w) + x, tl.full(w.shape, 1.0, tl.float32)
    top, u_2, u_3, _, _ = terms(w, w_left, w_right, held[1])
    base = top + x
    if choice(RULE, "centered"):
        base -= held[0] * LOG2_3
    return base, 1.0 + u_2 + u_3


@triton.jit
def shares(trio, k, RULE: tl.constexpr):
    """Return the shares of left and right neighbour, and the level's derivative in eps in units of log 2.

    Ties are split evenly.
    """
    w, w_left, w_right = trio
    if choice(RULE, "membrane") == MAX:
        top = tl.maximum(tl.maximum(w_left, w_right), w)
        a = tl.where(w_left == top, 1.0, 0.0)
        b = tl.where(w_right == top, 1.0, 0.0)
        whole = 1.0 / (a + b + tl.where(w == top, 1.0, 0.0))
        return a * whole, b * whole, 0.0 * whole
    _, u_2, u_3, gap_2, gap_3 = terms(w, w_left, w_right, k)
    weight = 1.0 + u_2 + u_3
    whole = inverse(weight)
    entropy = log2(weight) - (u_2 * gap_2 + u_3 * gap_3) * whole
    if choice(RULE, "centered"):
        entropy -= LOG2_3
    larger = tl.where(largest(w_left, w_right) > w, whole, u_2 * whole)  # of the neighbours
    smaller = u_3 * whole
    from_left = w_left > w_right
    return tl.where(from_left, larger, smaller), tl.where(from_left, smaller, larger), entropy


@triton.jit
def leaked(v, held, RULE: tl.constexpr):
    """Return the membrane after its leak."""
    return v * held[2] if choice(RULE, "leaks") else v


@triton.jit
def advance(x, v, around, held, RULE: tl.constexpr):
    """Take one step: return V, the spike, and a trace (P, level, f, f', the three coupled terms)."""
    w = leaked(v, held, RULE)
    w_left, w_right = beside(w, w, around)
    trio = (w, w_left, w_right)
    base, weight = coupled(x, trio, held, RULE)
    level, gate, steep, spike = fire(base, weight, held[4], held, RULE)
    return apply_reset(level, spike, held[4], held[6], RULE), spike, (level, gate, steep, trio)


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
def ring_forward_kernel(
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
    LANES: tl.constexpr,
    WIDTH: tl.constexpr,
    COLS: tl.constexpr,
    MARGIN: tl.constexpr,
):
    """Integrate rows of rings: write the spikes or their mean, and the states at the end and at borders.

    Bit 0 of HAS: a state is given; bit 1: an output is wanted.
    """
    ring, rows, rounds, stride_round = shape
    time, steps, tiles, halo, turn = times
    program, span = tl.program_id(0), tl.cast(turn if CUT else 0, tl.int64)
    length = tl.minimum(steps, time - span * steps).to(tl.int32)
    total = tl.cast(rows, tl.int64) * ring * COLS
    row, spot, own, around, owner = place(ring, program, tiles, halo, LANES, WIDTH, COLS, MARGIN)
    lane = lanes_of(row * ring + tl.minimum(spot, ring - 1), COLS)
    held = constants(known, (v_reset, 0.0, 0.0), lane, RULE)
    for i in range(rounds):
        inside, own_now, group, pos = in_round(i, stride_round, row, spot, own, ring, rows, COLS)
        source = current + address(group, at_current, COLS) + span * steps * at_current[0]
        xs = load_steps(source, at_current[0], inside, 0, length, RULE, CHUNK)
        v = load_border(state, borders, span, total, pos, inside, HAS % 2, CUT)
        mean = tl.zeros(pos.shape, tl.float32)
        target = out + address(group, at_out, COLS)
        if not choice(RULE, "rate"):
            target += span * steps * at_out[0]
        for first in range(0, length, CHUNK):
            source += CHUNK * at_current[0]
            more = has_step(inside, first + CHUNK, length)
            later = load_steps(source, at_current[0], more, first + CHUNK, length, RULE, CHUNK)
            for j in tl.static_range(CHUNK):
                v = renew(v, owner, j, MARGIN)
                after, spike, _ = advance(xs[j], v, around, held, RULE)
                now = within(own_now, first + j, length, RULE)
                v = only(within(inside, first + j, length, RULE), after, v, RULE)
                if choice(RULE, "rate"):
                    mean += tl.where(now, spike, 0.0)
                elif HAS // 2:
                    tl.store(target, spike, mask=now)
                    target += at_out[0]
            xs = later
        if HAS // 2 and choice(RULE, "rate"):
            before = tl.load(target, mask=when(own_now, span > 0), other=0.0, cache_modifier=".cg")
            tl.store(target, before.to(tl.float32) + mean / time, mask=own_now)
        tl.store(last_state + pos, v, mask=when(own_now, (span + 1) * steps >= time))
        if CUT:
            tl.store(borders + span * total + pos, v, mask=when(own_now, (span + 1) * steps < time))


@triton.jit
def step_backward(gs, gv, sums, trace, sides, v, around, inside, held, RULE: tl.constexpr):
    """Go back one step: return the gradients for the current and for the previous V, and the sums.

    At the end, the sums of lanes that belong to another program are left out; lanes outside any ring have
    sums of 0.
    """
    k, threshold = held[1], held[4]
    level, gate, steep, _ = trace
    share_left, share_right, by_eps = sides
    _, back, kept, to_limit = fire_backward(gs, gv, level, level, gate, steep, threshold, held, held[6], RULE)
    zero = 0.0 * gv
    back, kept = only(inside, back, zero, RULE), only(inside, kept, zero, RULE)
    g = back + kept
    to_left, to_right = g * share_left, g * share_right
    from_left, from_right = beside(to_right, to_left, around)
    to_w = g - to_left - to_right + from_left + from_right
    to_eps = g * by_eps - back * (level - threshold) * k  # in units of log 2
    to_leak = zero
    if choice(RULE, "leaks"):
        to_leak = to_w * v
    to_limit = only(inside, to_limit, zero, RULE) - back
    sums = (sums[0] + to_eps, sums[1] + to_leak, sums[2] + to_limit)
    before = to_w * held[2] if choice(RULE, "leaks") else to_w
    return g, only(inside, before, gv, RULE), sums


@triton.jit
def span_backward_from_spikes(
    sums,
    low,
    flow,
    start,
    pointers,
    strides,
    lanes,
    held,
    length,
    past,
    RULE: tl.constexpr,
    CHUNK: tl.constexpr,
    MARGIN: tl.constexpr,
):
    """Differentiate a span from its spikes: return the gradient for the first V, the sums, the lowest spike.

    ``past`` is the number of steps up to the end of the span, and ``start`` the membrane before them.
    ``lanes`` holds the lanes' neighbours and owners, the lanes on a ring, and the program's own lanes.
    """
    around, owner, inside, own = lanes
    reading, incoming, outgoing = pointers
    at_spikes, at_grad, at_out = strides
    spike = tl.load(reading, mask=inside, other=0.5)
    low = tl.minimum(low, spike)
    potential = membrane_from_spike(spike, held)[1]
    gs, earlier = load_back(reading, incoming, at_spikes, at_grad, inside, length, past, CHUNK)
    for _ in range(tl.cdiv(length, CHUNK)):
        reading -= CHUNK * at_spikes
        incoming -= CHUNK * at_grad
        left, before = length - CHUNK, past - CHUNK
        after = load_back(reading, incoming, at_spikes, at_grad, inside, left, before, CHUNK)
        for j in tl.static_range(CHUNK):
            flow = renew(flow, owner, j, MARGIN // 2)
            now = within(inside, j, length, RULE)
            told = membrane_from_spike(earlier[j], held)
            v = tl.where(has_step(inside, j + 1, past), told[2], start)
            w, k = leaked(v, held, RULE), held[1]
            if choice(RULE, "same"):
                w, k = w * k, 1.0
            w_left, w_right = beside(w, w, around)
            sides = shares((w, w_left, w_right), k, RULE)
            trace = (potential, spike, spike, v)
            to_current, flow, sums = step_backward(
                gs[j], flow, sums, trace, sides, v, around, now, held, RULE
            )
            tl.store(outgoing, to_current, mask=within(own, j, length, RULE))
            outgoing -= at_out
            spike, potential = earlier[j], told[1]
            low = tl.minimum(low, spike)
        gs, earlier = after
        length, past = left, before
    return flow, sums, low


TINY = tl.constexpr(1e-37)
"""A spike below this value does not determine the membrane."""


@triton.jit
def pass_on(flow, grad_start, flows, turn, total, pos, own, span, HAS_START: tl.constexpr, CUT: tl.constexpr):
    """Store the gradient for V before a span."""
    if HAS_START:
        tl.store(grad_start + pos, flow, mask=when(own, span == 0))
    if CUT:
        tl.store(flows + turn * total + pos, flow, mask=when(own, span > 0))


@triton.jit
def finish(sums, pos, own, learning, WAYS: tl.constexpr, LANES: tl.constexpr):
    """Reduce the sums of all lanes to the gradients of the constants; see `reduce`."""
    pos, own = tl.reshape(pos, [LANES]), tl.reshape(own, [LANES])
    reduce(tl.reshape(sums[0] * LN2, [LANES]), 0, pos, own, learning, WAYS, LANES)
    reduce(tl.reshape(sums[1], [LANES]), 1, pos, own, learning, WAYS, LANES)
    reduce(tl.reshape(sums[2], [LANES]), 2, pos, own, learning, WAYS, LANES)


@triton.jit(do_not_specialize=UNSPECIAL)
def ring_backward_kernel(
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
    LANES: tl.constexpr,
    WIDTH: tl.constexpr,
    COLS: tl.constexpr,
    MARGIN: tl.constexpr,
):
    """Differentiate: write the gradients for current, state and constants.

    The bits of HAS indicate a state, a gradient of the output, a gradient of the last state, several spans,
    and spikes that determine the membrane. The kernel is longer than others, because Triton cannot
    carry the trace of a chunk out of a function.
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
    lane = lanes_of(row * ring + tl.minimum(spot, ring - 1), COLS)
    held = constants(known, (v_reset, 0.0, 0.0), lane, RULE)
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
            flow, sums, low = span_backward_from_spikes(
                sums,
                low,
                flow,
                start,
                (spikes + target, incoming, grad_current + target),
                (at_out[0], at_grad[0], at_out[0]),
                (around, owner, inside, own_now),
                held,
                length,
                end + 1,
                RULE,
                CHUNK,
                MARGIN,
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
        xs = load_steps(source, at_current[0], inside, 0, length, RULE, CHUNK)
        for n in range(1, chunks):  # store the state before each chunk but the first; earlier chunks are full
            part = source + tl.cast(n, tl.int64) * CHUNK * at_current[0]
            later = load_steps(part, at_current[0], inside, n * CHUNK, length, RULE, CHUNK)
            for j in tl.static_range(CHUNK):
                v = renew(v, owner, j, MARGIN // 2)
                v, _, _ = advance(xs[j], v, around, held, RULE)
            tl.store(note + (n - 1) * note_stride, v)
            xs = later
        tl.debug_barrier()  # any thread may read a state that another one wrote

        incoming = grad_out + address(group, at_grad, COLS)
        if HAS // 2 % 2 and choice(RULE, "rate"):
            g_mean = tl.load(incoming, mask=inside, other=0.0).to(tl.float32) / time
        for r in range(chunks):
            c = chunks - 1 - r
            first = c * CHUNK
            step = span * steps + first
            gs = xs
            if HAS // 2 % 2 and not choice(RULE, "rate"):
                part = incoming + step * at_grad[0]
                gs = load_steps(part, at_grad[0], inside, first, length, RULE, CHUNK)
            vs, traces, sides = (), (), ()
            for j in tl.static_range(CHUNK):
                v = renew(v, owner, j, MARGIN // 2)
                vs = vs + (v,)
                v, _, trace = advance(xs[j], v, around, held, RULE)
                traces, sides = traces + (trace,), sides + (shares(trace[3], held[1], RULE),)
            if r == 0:
                flow = load_border(grad_state, flows, turn, total, pos, inside, HAS // 4 % 2, CUT)
            part = source + tl.cast(first - CHUNK, tl.int64) * at_current[0]
            xs = load_steps(part, at_current[0], has_step(inside, 0, c), 0, length, FULL, CHUNK)
            v = start
            if c > 1:
                v = tl.load(note + (c - 2) * note_stride)
            outgoing = grad_current + address(group, at_out, COLS) + (step + CHUNK - 1) * at_out[0]
            for j in tl.static_range(CHUNK - 1, -1, -1):
                flow = renew(flow, owner, 0 if j == CHUNK - 1 else j + 1, MARGIN // 2)
                now = within(inside, first + j, length, RULE)
                given = g_mean if choice(RULE, "rate") or HAS // 2 % 2 == 0 else gs[j]
                to_current, flow, sums = step_backward(
                    given, flow, sums, traces[j], sides[j], vs[j], around, now, held, RULE
                )
                tl.store(outgoing, to_current, mask=within(own_now, first + j, length, RULE))
                outgoing -= at_out[0]
        pass_on(flow, grad_start, flows, turn, total, pos, own_now, span, HAS % 2, CUT)
    if WAYS:
        own = spread(own & (row < rows), COLS)
        pos = lanes_of(row * ring + spot, COLS) + span * 4 * scratch[3]  # each span has its own region
        finish(sums, pos, own, (known, grads, scratch, work, programs * spans), WAYS, LANES)


def forward(
    plan: "LaunchPlan",
    current: Tensor,
    at: Steps,
    state: Tensor | None,
    constants: Constants,
    out: Tensor | None,
    last: Tensor,
) -> Tensor | None:
    """Launch the forward kernel; return the membrane at the borders of spans, if there are several."""
    rule, device = plan.rule, plan.device
    run, tiles, where, spans = _forward_launch(plan, (state is not None) + 2 * (out is not None))
    borders = None
    target = last if out is None else out
    if spans > 1:
        borders = torch.empty((spans - 1, plan.total), dtype=torch.float32, device=device)
        if rule.rate and out is not None and out.dtype != torch.float32:  # every span adds to it
            target = torch.empty_strided(out.shape, out.stride(), dtype=torch.float32, device=device)
    before = (current, state, borders, target, last, (plan.raws(constants), plan.tables, where))
    after = (
        tiles.shape(plan.total // rule.ring, rule.ring),
        tiles.at(at),
        tiles.at(plan.at_mean if rule.rate else plan.at_out),
        plan.numbers[0],
    )
    for turn in range(spans):
        run(*before, tiles.times(plan.time, turn), *after)
    if out is not None and target is not out:
        out.copy_(target)
    return borders


def _forward_launch(plan: "LaunchPlan", has: int) -> tuple[Any, Tiling, tuple[int, ...], int]:
    found = plan.backwards.get(("forward", has))
    if found is None:
        tiles = tiling_of(plan, back=False)
        pairs = zip(plan.found, plan.row, strict=True)
        where = tuple(n for place, row in pairs for n in (place.run, place.entries, row, 1))
        chunk, full = _chunk(plan, tiles, CHUNK_ALONE if tiles.alone else CHUNK)
        choices = (plan.rule_code + full, has, tiles.spans > 1, chunk, *tiles.choices)
        kernel = ring_forward_kernel
        registers = 64 if tiles.warps > 8 else None  # as many as 1,024 threads can have
        run = Launch(kernel, (tiles.programs,), choices, tiles.warps, registers)
        found = plan.backwards["forward", has] = run, tiles, where, tiles.spans
    return found


def _chunk(plan: "LaunchPlan", tiles: Tiling, longest: int) -> tuple[int, int]:
    """Choose a chunk as `chunk_of` does, for all spans."""
    chunk, full = chunk_of(tiles.steps, longest)
    return chunk, full if plan.time % tiles.steps % chunk == 0 else 0


def _way(plan: "LaunchPlan", i: int, tiles: Tiling) -> tuple[int, int]:
    """Return how a gradient is reduced, and how many programs share its entries; see `triton.common`."""
    place, ring, rows = plan.found[i], plan.rule.ring, tiles.lanes // tiles.width
    if plan.is_ready:
        return READY, 1
    if place.entries == 1:
        return SHARED, tiles.work
    if tiles.halo or (plan.total // ring) % rows:
        return LEFT, 1
    if place.run % (ring * rows) == 0:
        return SHARED, place.run // (ring * rows)
    if place.run == 1 and tiles.lanes == ring and place.entries % ring == 0:
        return EACH, place.entries // ring
    return LEFT, 1


def ways(plan: "LaunchPlan") -> list[int]:
    """Return how the gradient of each constant is reduced."""
    tiles = tiling_of(plan, back=True)
    return [_way(plan, i, tiles)[0] for i in range(len(plan.found))]


def shape_of_rows(plan: "LaunchPlan") -> tuple[int, int]:
    """Return the result of `LaunchPlan.shape_of_rows`; no programs if rings are cut into parts."""
    tiles = tiling_of(plan, back=True)
    return 0 if tiles.halo else tiles.programs, tiles.lanes // tiles.width * plan.rule.ring


def backward(
    plan: "LaunchPlan",
    given: tuple[Tensor | None, ...],
    at_grad: Steps,
    constants: Constants,
    learned: Sequence[bool],
    spikes: Tensor | None,
    borders: Tensor | None,
) -> list[Tensor | None]:
    """Differentiate, from spikes if they determine the membrane; return the gradients of constants."""
    grad_out, grad_state, current, state, g_current, g_state = given
    assert current is not None  # noqa: S101
    rule = plan.rule
    at = plan.at_current
    if at is None:
        current, at = plan.readable(current)
    has = (state is not None) + 2 * (grad_out is not None) + 4 * (grad_state is not None)
    told = spikes is not None and grad_out is not None
    run, tiles, ways, where, chunk = _backward_launch(plan, has + 16 * told, at_grad, tuple(learned))
    wide: dict[str, Any] = {"dtype": torch.float32, "device": plan.device}
    flows = None
    if tiles.spans > 1:
        if borders is None:  # integrate again
            borders = forward(plan, current, at, state, constants, None, torch.empty(plan.total, **wide))
        flows = torch.empty((tiles.spans - 1, plan.total), **wide)
    region = max(tiles.size * rule.ring, tiles.work * (tiles.lanes if tiles.spans == 1 else 1))
    grads, partials, counters, groups = launch.begin(
        plan, constants, learned, ways, where, region, tiles.spans
    )
    notes = torch.empty((cdiv(tiles.steps, chunk) - 1) * tiles.programs * tiles.lanes, **wide)
    before = (
        current if grad_out is None else grad_out,
        grad_state,
        current,
        spikes if told else current,
        state,
        borders,
        g_current,
        g_state,
        (notes, notes if flows is None else flows),
        (plan.raws(constants), plan.tables, where),
        tuple(grads),
        (partials, counters, groups, region),
    )
    after = (
        tiles.shape(plan.total // rule.ring, rule.ring),
        (tiles.at(at), tiles.at(at_grad), tiles.at(plan.at_out)),
        plan.numbers[0],
    )
    for turn in range(tiles.spans):
        run(*before, tiles.times(plan.time, turn), *after)
    return launch.end(plan, constants, grads, partials, learned, ways, tiles.size * rule.ring)


def _backward_launch(
    plan: "LaunchPlan", has: int, at_grad: Steps, learned: tuple[bool, ...]
) -> tuple[Any, ...]:
    key = (has, at_grad, learned)
    found = plan.backwards.get(key)
    if found is None:
        tiles = tiling_of(plan, back=True)
        pairs = [_way(plan, i, tiles) if wanted else (0, 1) for i, wanted in enumerate(learned)]
        where = tuple(
            n
            for p, row, (_, side) in zip(plan.found, plan.row, pairs, strict=True)
            for n in (p.run, p.entries, row, side)
        )
        ways = tuple(way for way, _ in pairs)
        number = sum(way << 2 * i for i, way in enumerate(ways))
        chunk, registers = (CHUNK_SPIKES, REGISTERS_SPIKES) if has // 16 else (CHUNK_BACK, REGISTERS)
        if tiles.alone:
            chunk, registers = BACK_ALONE, min(REGISTERS_ALONE, 65536 // (32 * tiles.warps))
        elif tiles.warps == 32 or (tiles.warps == 16 and has // 16):  # as many as 1,024 threads can have
            chunk, registers = 1, 64
        elif any(place.entries > 1 for place in plan.found):
            registers = REGISTERS
        is_set = tiles.cols == 4 or tiles.alone or tiles.warps == 32
        chunk, full = _chunk(plan, tiles, chunk if is_set else FEW_BACK)
        choices = (plan.rule_code + full, has + 8 * (tiles.spans > 1), number, chunk, *tiles.choices)
        kernel = ring_backward_kernel
        most = registers if is_set else None
        run = Launch(kernel, (tiles.programs,), choices, tiles.warps, most)
        found = plan.backwards[key] = (run, tiles, ways, where, chunk)
    return found
