"""Split time into chunks for long sequences of few neurons without spike resets: kernels and launches.

A program handles a few neurons, and each thread one chunk of a neuron's sequence. A scan over the maps of all
chunks gives the membrane at the start of each; see `ultralif.ops.cpu.chunks` for the idea.

A map takes the membrane V at the start of a chunk to the membrane at its end; it is described by the three
numbers p, q and r. For a log-sum-exp it is log2(2^(p + V) + 2^q) - log2(2^(r + V) + 1), in units of
eps log 2; without a reset, the second logarithm is missing. For a maximum it is min(max(p + V, q), r).

In the backward pass, the gradient at the start of a chunk is a linear function a g + c of the gradient g at
its end. A scan over these functions yields the gradient at the end of each chunk; then all chunks are
differentiated at once.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from ultralif.ops.layout import Steps
from ultralif.ops.rule import Constants, Rule
from ultralif.ops.triton import launch
from ultralif.ops.triton.common import (
    MAX,
    SATURATE,
    address,
    choice,
    clamp,
    constants,
    exp2,
    fire_backward,
    largest,
    log2,
    only,
    saturated,
    within,
)
from ultralif.ops.triton.launch import Launch
from ultralif.ops.triton.temporal import (
    advance,
    finish,
    integrate,
    load_next,
    load_steps,
    share_of,
    steps_backward,
    trace_steps,
)

if TYPE_CHECKING:
    from ultralif.ops.triton.plan import LaunchPlan

__all__ = ["Tile", "backward", "find_tile", "forward"]

LANES = 16384
"""Layers with more neurons, counted over all samples, keep a GPU busy without chunks."""
SHORTEST = 4096
"""Sequences with fewer steps are not split on a GPU."""
PROGRAMS = 128
"""Approximate number of a GPU's multiprocessors; with more neurons, a program handles several."""
THREADS = 512
"""The maximum number of threads per program, enough to keep a multiprocessor busy."""
STEPS = 8
"""The number of steps that a thread loads at once, and the minimum in a chunk."""
WIDEST = 32
"""The maximum number of neurons per program: their currents fill one line of memory."""
NARROWEST = 4
"""The minimum number of neurons when a program is narrowed to simplify summing the constants' gradients."""


class Tile(NamedTuple):
    """The work of one GPU program: all chunks of some neurons; each thread has one chunk of one neuron."""

    neurons: int
    chunks: int
    length: int
    """Steps of a chunk, a multiple of `STEPS`; the last chunks may be shorter or empty."""


def find_tile(rule: Rule, lanes: int, time: int, units: Sequence[int] = ()) -> Tile | None:
    """Return the tile for a sequence on a GPU; None means that it is integrated step by step.

    Args:
        rule: what to compute.
        lanes: number of neurons times number of samples.
        time: steps.
        units: numbers that should be divisible by a program's number of neurons.
    """
    if not rule.linear or not 0 < lanes <= LANES or time < SHORTEST:
        return None
    neurons = 1
    while neurons < WIDEST and lanes >= 2 * neurons * PROGRAMS:
        neurons *= 2
    while neurons > NARROWEST and any(unit % neurons for unit in units):
        neurons //= 2
    loads = -(-time // STEPS)
    count = min(THREADS // neurons, 1 << (loads - 1).bit_length())
    return Tile(neurons, count, STEPS * -(-loads // count))


UNSPECIAL = ["known", "time", "length"]
LOWEST = tl.constexpr(-1e30)
"""Stands for -inf, because -inf minus itself is NaN."""


@triton.jit
def steps_of(chunk, length, time):
    """Return the number of steps in a chunk; the last chunks may be short or empty."""
    return tl.minimum(tl.maximum(time - chunk * length, 0), length).to(tl.int32)


@triton.jit
def log_add(x, y):
    """Return log2(2^x + 2^y)."""
    return tl.maximum(x, y) + log2(1.0 + exp2(-tl.abs(x - y)))


@triton.jit
def then_shift(p, q, p2, q2):
    """Compose two maps without a reset."""
    return p + p2, log_add(q + p2, q2)


@triton.jit
def then_saturate(p, q, r, p2, q2, r2):
    """Compose two maps with a saturating reset: the product of [[p, q], [r, 0]], shifted to end in 0."""
    s = log_add(r2 + q, 0.0 * q)
    return log_add(p2 + p, q2 + r) - s, log_add(p2 + q, q2) - s, log_add(r2 + p, r) - s


@triton.jit
def then_clamp(p, q, r, p2, q2, r2):
    """Compose two maps for a maximum."""
    return p + p2, clamp(q + p2, q2, r2), clamp(r + p2, q2, r2)


@triton.jit
def extend(p, q, r, x, held, RULE: tl.constexpr):
    """Return q and r of a map, and p of a saturating log-sum-exp, after one more step."""
    k, decay, top = held[1], held[3], held[5]
    if choice(RULE, "membrane") == MAX:
        q, r = largest(q + decay, x), largest(r + decay, x)
        if choice(RULE, "reset") == SATURATE:
            q, r = clamp(q, LOWEST, top), clamp(r, LOWEST, top)
        return p, q, r
    x, decay, top = x * k, decay * k, top * k
    q = log_add(q + decay, x)
    if choice(RULE, "reset") == SATURATE:
        p = log_add(p + decay, x + r)
        r = log_add(r, p - top)
        s = log_add(0.0 * q, q - top)
        p, q, r = p - s, q - s, r - s
    return p, q, r


@triton.jit
def find_maps(source, mask, steps, length, zero, held, RULE: tl.constexpr, STEPS: tl.constexpr):
    """Return the map of every chunk; ``source`` is the address of its first step and the stride of time."""
    source, stride = source
    p, q, r = zero, zero + LOWEST, zero + LOWEST
    if choice(RULE, "membrane") == MAX:
        r = zero - LOWEST
    xs = load_steps(source, stride, mask, 0, steps, RULE, STEPS)
    for first in range(0, length, STEPS):
        source += STEPS * stride
        later = load_next(source, stride, mask, first + STEPS, steps, xs, RULE, STEPS)
        for j in tl.static_range(STEPS):
            inside = within(mask, first + j, steps, RULE)
            p2, q2, r2 = extend(p, q, r, xs[j], held, RULE)
            p, q, r = only(inside, p2, p, RULE), only(inside, q2, q, RULE), only(inside, r2, r, RULE)
        xs = later
    return p, q, r


@triton.jit
def reach(v, p, q, r, steps, held, RULE: tl.constexpr):
    """Scan the maps of chunks with these step counts; return the membrane at the end of each, from v."""
    if choice(RULE, "membrane") == MAX:
        p, q, r = tl.associative_scan((steps * held[3] + 0.0 * q, q, r), 0, then_clamp)
        return clamp(v + p, q, r)
    v = v * held[1]
    if choice(RULE, "reset") == SATURATE:
        p, q, r = tl.associative_scan((p, q, r), 0, then_saturate)
        after = log_add(v + p, q) - log_add(v + r, 0.0 * v)
    else:
        p, q = tl.associative_scan((steps * held[3] * held[1] + 0.0 * q, q), 0, then_shift)
        after = log_add(v + p, q)
    return after * held[0]


@triton.jit(do_not_specialize=UNSPECIAL)
def chunked_forward_kernel(
    current,
    state,
    out,
    last_state,
    starts,
    known,
    time,
    length,
    total,
    at_current,
    at_out,
    numbers,
    RULE: tl.constexpr,
    HAS_STATE: tl.constexpr,
    CHUNKS: tl.constexpr,
    STEPS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Write the spikes, or their mean, the last membrane, and the membrane at the start of every chunk."""
    chunk = tl.arange(0, CHUNKS)[:, None].to(tl.int64)
    neuron = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[None, :]
    zero = tl.zeros((CHUNKS, BLOCK), tl.float32)
    pos = neuron + zero.to(tl.int32)
    mask = pos < total
    held = constants(known, numbers, pos, RULE)
    steps = steps_of(chunk, length, time)
    start = current + address(pos.to(tl.int64), at_current) + chunk * length * at_current[0]
    source = (start, at_current[0])
    p, q, r = find_maps(source, mask, steps, length, zero, held, RULE, STEPS)
    v = zero
    if HAS_STATE:
        v = tl.load(state + pos, mask=mask, other=0.0)
    end = reach(v, p, q, r, steps, held, RULE)
    row = starts + chunk * total + pos
    tl.store(row, v, mask=mask & (chunk == 0))
    tl.store(row + total, end, mask=mask & (chunk < CHUNKS - 1))
    tl.debug_barrier()  # a thread starts where its neighbour ends
    now = (tl.load(row, mask=mask, other=0.0), zero, zero)
    target = out + address(pos.to(tl.int64), at_out) + chunk * length * at_out[0]
    now, mean = integrate(source, (target, at_out[0]), now, mask, length, steps, held, RULE, STEPS)
    if choice(RULE, "rate"):
        tl.store(
            out + address(neuron.to(tl.int64), at_out), tl.sum(mean, 0, True) / time, mask=neuron < total
        )
    tl.store(last_state + pos, now[0], mask=mask & (chunk == (time - 1) // length))


@triton.jit
def then_line(a, c, a2, c2):
    """Compose two lines a g + c."""
    return a * a2, a2 * c + c2


@triton.jit
def follow(a, c, gs, v, x, trace, inside, held, RULE: tl.constexpr):
    """Extend a line by one step: a is dV/dV(start), c the gradient of all spikes so far for V(start)."""
    potential, gate, steep, limit, weight, _, _ = trace
    share, _ = share_of(x, v, weight, held, RULE)
    _, back, _, _ = fire_backward(gs, 0.0 * gs, potential, potential, gate, steep, limit, held, held[6], RULE)
    reached = a * share
    after = reached
    if choice(RULE, "reset") == SATURATE:
        _, below, _ = saturated(potential, held, RULE)
        after = reached * below
    return only(inside, after, a, RULE), only(inside, c + reached * back, c, RULE)


@triton.jit
def find_lines(
    pointers,
    strides,
    g_mean,
    v,
    mask,
    steps,
    length,
    held,
    RULE: tl.constexpr,
    GIVEN: tl.constexpr,
    STEPS: tl.constexpr,
):
    """Return the line of every chunk, and record the membrane before every few steps.

    Pointers and strides belong to current, gradient and notes.
    """
    source, incoming, note = pointers
    zero = tl.zeros_like(v)
    a, c, now = zero + 1.0, zero, (v, zero, zero)
    for first in range(0, length, STEPS):
        tl.store(note, now[0], mask=mask)
        xs = load_steps(source, strides[0], mask, first, steps, RULE, STEPS)
        gs = xs
        if GIVEN:
            gs = load_steps(incoming, strides[1], mask, first, steps, RULE, STEPS)
        for j in tl.static_range(STEPS):
            inside = within(mask, first + j, steps, RULE)
            v = now[0]
            now, _, trace = advance(xs[j], now, held, RULE)
            a, c = follow(a, c, gs[j] if GIVEN else g_mean, v, xs[j], trace, inside, held, RULE)
        source += STEPS * strides[0]
        incoming += STEPS * strides[1]
        note += strides[2]
    return a, c


@triton.jit
def take_back(
    flow,
    sums,
    pointers,
    strides,
    target,
    g_mean,
    mask,
    steps,
    length,
    held,
    RULE: tl.constexpr,
    GIVEN: tl.constexpr,
    STEPS: tl.constexpr,
):
    """Differentiate all chunks from their ends: return the gradient at their starts, and the sums.

    Pointers and strides are as in `find_lines`; ``target`` is the address of the last step's gradient, and
    the stride of time.
    """
    source, incoming, note = pointers
    outgoing, by_out = target
    source += tl.cast(length, tl.int64) * strides[0]
    incoming += tl.cast(length, tl.int64) * strides[1]
    note += tl.cast(length // STEPS, tl.int64) * strides[2]
    for r in range(length // STEPS):
        first = length - (r + 1) * STEPS
        source -= STEPS * strides[0]
        incoming -= STEPS * strides[1]
        note -= strides[2]
        xs = load_steps(source, strides[0], mask, first, steps, RULE, STEPS)
        gs = xs
        if GIVEN:
            gs = load_steps(incoming, strides[1], mask, first, steps, RULE, STEPS)
        now = (tl.load(note, mask=mask, other=0.0), 0.0 * g_mean, 0.0 * g_mean)
        traces = trace_steps(xs, now, held, RULE, STEPS)
        given, target = gs if GIVEN else g_mean, (outgoing, by_out)
        flow, sums = steps_backward(
            traces, given, flow, sums, target, mask, first, steps, held, RULE, GIVEN, STEPS
        )
        outgoing -= STEPS * by_out
    return flow, sums


@triton.jit(do_not_specialize=UNSPECIAL)
def chunked_backward_kernel(
    grad_out,
    grad_state,
    current,
    starts,
    grad_current,
    grad_start,
    ends,
    notes,
    known,
    grads,
    scratch,
    time,
    length,
    total,
    at_current,
    at_grad,
    at_out,
    numbers,
    RULE: tl.constexpr,
    HAS: tl.constexpr,
    WAYS: tl.constexpr,
    CHUNKS: tl.constexpr,
    STEPS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Differentiate: write the gradients for current, state and constants.

    The first thread handles the last chunk. ``ends`` stores the gradient at the end of every chunk, and
    ``notes`` the membrane before every few steps.
    """
    GIVEN: tl.constexpr = HAS // 2 % 2 == 1 and not choice(RULE, "rate")
    chunk = CHUNKS - 1 - tl.arange(0, CHUNKS)[:, None].to(tl.int64)
    zero = tl.zeros((CHUNKS, BLOCK), tl.float32)
    pos = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[None, :] + zero.to(tl.int32)
    mask = pos < total
    held = constants(known, numbers, pos, RULE)
    steps = steps_of(chunk, length, time)
    source = current + address(pos.to(tl.int64), at_current) + chunk * length * at_current[0]
    incoming = grad_out + address(pos.to(tl.int64), at_grad) + chunk * length * at_grad[0]
    note = notes + chunk * (length // STEPS) * total + pos
    pointers, strides = (source, incoming, note), (at_current[0], at_grad[0], total)
    g_mean = zero
    if HAS // 2 % 2 and choice(RULE, "rate"):
        g_mean = tl.load(incoming, mask=mask, other=0.0).to(tl.float32) / time
    v = tl.load(starts + chunk * total + pos, mask=mask, other=0.0)
    a, c = find_lines(pointers, strides, g_mean, v, mask, steps, length, held, RULE, GIVEN, STEPS)
    a, c = tl.associative_scan((a, c), 0, then_line)
    g = zero
    if HAS // 4:
        g = tl.load(grad_state + pos, mask=mask, other=0.0)
    row = ends + chunk * total + pos
    tl.store(row, g, mask=mask & (chunk == CHUNKS - 1))
    tl.store(row - total, a * g + c, mask=mask & (chunk > 0))
    tl.debug_barrier()  # the end of a chunk is the start of the next
    flow = (tl.load(row, mask=mask, other=0.0), zero, zero)
    sums = (zero, zero, zero, zero)
    outgoing = grad_current + address(pos.to(tl.int64), at_out) + ((chunk + 1) * length - 1) * at_out[0]
    target = (outgoing, at_out[0])
    flow, sums = take_back(
        flow, sums, pointers, strides, target, g_mean, mask, steps, length, held, RULE, GIVEN, STEPS
    )
    if HAS % 2:
        tl.store(grad_start + pos, flow[0], mask=mask & (chunk == 0))
    if WAYS:
        lane = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        held = constants(known, numbers, lane, RULE)
        sums = (tl.sum(sums[0], 0), tl.sum(sums[1], 0), tl.sum(sums[2], 0), tl.sum(sums[3], 0))
        own = lane < total
        learning = (known, grads, scratch, tl.program_id(0), tl.num_programs(0))
        finish(sums, held, lane, own, learning, RULE, WAYS, BLOCK)


def forward(
    plan: "LaunchPlan",
    tile: Tile,
    current: Tensor,
    at: Steps,
    state: Tensor | None,
    constants: Constants,
    out: Tensor,
    last: Tensor,
) -> Tensor:
    """Launch the forward kernel; return the membrane at the start of every chunk."""
    starts = torch.empty((tile.chunks, plan.total), dtype=torch.float32, device=plan.device)
    if plan.launch is None:
        choices = (_code(plan, tile), state is not None, tile.chunks, STEPS, tile.neurons)
        kernel = chunked_forward_kernel
        plan.launch = Launch(kernel, (plan.programs,), choices, plan.warps)
    known = (plan.raws(constants), plan.tables, plan.where)
    at_out = plan.at_mean if plan.rule.rate else plan.at_out
    sizes = (plan.time, tile.length, plan.total)
    plan.launch(current, state, out, last, starts, known, *sizes, tuple(at), tuple(at_out), plan.numbers)
    return starts


def backward(
    plan: "LaunchPlan",
    tile: Tile,
    given: tuple[Tensor | None, ...],
    at_grad: Steps,
    starts: Tensor | None,
    constants: Constants,
    learned: Sequence[bool],
) -> list[Tensor | None]:
    """Differentiate; return the gradients of the constants."""
    grad_out, grad_state, current, state, g_current, g_state = given
    assert current is not None and starts is not None  # noqa: S101
    has = (state is not None) + 2 * (grad_out is not None) + 4 * (grad_state is not None)
    key = (has, tuple(learned), at_grad, 0 if grad_out is None else grad_out.data_ptr() % 16)
    found = plan.backwards.get(key)
    if found is None:
        ways = tuple(
            launch.way_of(p, plan.block) if wanted else 0
            for p, wanted in zip(plan.found, learned, strict=True)
        )
        number = sum(way << 2 * i for i, way in enumerate(ways))
        choices = (_code(plan, tile), has, number, tile.chunks, STEPS, tile.neurons)
        kernel = chunked_backward_kernel
        found = plan.backwards[key] = Launch(kernel, (plan.programs,), choices, plan.warps), ways
    run, ways = found
    region = plan.programs * plan.block
    grads, partials, counters, groups = launch.begin(plan, constants, learned, ways, plan.where, region)
    at = plan.at_current
    if at is None:
        current, at = plan.readable(current)
    rows = tile.chunks * tile.length // STEPS
    room = torch.empty((tile.chunks + rows, plan.total), dtype=torch.float32, device=plan.device)
    ends, notes = room[: tile.chunks], room[tile.chunks :]
    grad = grad_out if grad_out is not None else current
    run(
        *(grad, grad_state, current, starts, g_current, g_state, ends, notes),
        *(
            (plan.raws(constants), plan.tables, plan.where),
            tuple(grads),
            (partials, counters, groups, region),
        ),
        *(plan.time, tile.length, plan.total, tuple(at), tuple(at_grad), tuple(plan.at_out), plan.numbers),
    )
    return launch.end(plan, constants, grads, partials, learned, ways, plan.size)


def _code(plan: "LaunchPlan", tile: Tile) -> int:
    """Return a rule's code, including whether all chunks are full."""
    return plan.rule_code + (launch.FULL if tile.chunks * tile.length == plan.time else 0)
