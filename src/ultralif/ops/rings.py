"""Launches for neurons on a ring: tiles of whole rings, or parts of long ones over spans of time."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from triton import cdiv, next_power_of_2

from ultralif.ops import launch, reduction, triton_spatial, triton_spatial_back
from ultralif.ops.layout import Steps
from ultralif.ops.recurrence import Constants
from ultralif.ops.reduction import EACH, LEFT, READY, SHARED

if TYPE_CHECKING:
    from ultralif.ops.plan import Plan

__all__ = ["Tiling", "backward", "forward", "shape_of_rows", "ways"]

WIDE = 1024  # neurons of the longest ring that one program takes whole
WIDER, WIDEST = 2048, 4096  # the same if there are many rings; and if their spikes tell the membrane
MANY = 96  # rings that fill a large GPU with one program each
PART = 1024  # lanes of a part of a longer ring, its halo included
SPAN = 50  # steps that parts integrate in a launch, or more where multiprocessors would be idle
UNITS = 132  # multiprocessors of a large GPU
MARGIN = 4  # lanes by which the warps of a part overlap at each end
CHUNK = 3  # steps that are loaded at once
CHUNK_BACK, FEW_BACK = 3, 5  # steps whose trace a lane keeps in registers; the same for a small layer
REGISTERS = 128  # of a thread of the backward pass: with more, fewer programs run at once
CHUNK_TOLD, REGISTERS_TOLD = 2, 80  # the same where spikes tell the membrane
LANES = 1 << 19  # as in `launch`, for programs of 4,096 lanes
CHUNK_ALONE, BACK_ALONE, REGISTERS_ALONE = 4, 4, 224  # for parts with a multiprocessor each
FEW = 1 << 15  # lanes of a small layer, which are spread over all multiprocessors
FEW_LONG = 1 << 17  # the same of rings in parts


class Tiling(NamedTuple):
    """The layout of rings over programs."""

    rounds: int
    size: int  # rows of a round
    tiles: int  # parts of a ring
    spans: int
    steps: int  # steps of a span
    lanes: int
    width: int  # lanes of a ring, or of a part
    cols: int  # lanes side by side
    halo: int
    margin: int  # lanes by which warps overlap
    warps: int

    @property
    def programs(self) -> int:
        """Number of programs of one span."""
        return -(-self.size // (self.lanes // self.width)) * self.tiles

    @property
    def alone(self) -> bool:
        """True for parts of rings if each has a multiprocessor for itself."""
        return self.halo > 0 and self.programs <= UNITS

    @property
    def work(self) -> int:
        """Number of programs of all spans."""
        return self.programs * self.spans

    def times(self, time: int, turn: int) -> tuple[int, ...]:
        """Return the tuple ``times`` of the kernels, for one of the launches."""
        return time, self.steps, self.tiles, self.halo // self.cols, turn

    def shape(self, rows: int, ring: int) -> tuple[int, ...]:
        """Return the tuple ``shape`` of the kernels."""
        return ring // self.cols, rows, self.rounds, self.size

    def at(self, steps: Steps) -> tuple[int, ...]:
        """Return the strides of a tensor, with the inner size in groups of lanes."""
        return steps.time, steps.outer, steps.inner, max(1, steps.size // self.cols)

    def choices(self, chunk: int, even: int) -> tuple[int, ...]:
        """Return the last choices of a kernel, without NATIVE."""
        return chunk, even, self.lanes, self.width, self.cols, self.margin


def covered(lanes: int, cols: int) -> int:
    """Return the neurons of a part of a ring, its halo included: its warps overlap."""
    return lanes - 2 * MARGIN * (lanes // (32 * max(2, cols)) - 1)


def span_of(rows: int, ring: int, time: int, cols: int) -> int:
    """Return the steps of a span, for which there are enough programs with a halo of twice as many lanes."""
    cover = covered(PART, cols)
    idle = min(UNITS // rows, cdiv(ring, PART // 4))
    tiles = max(cdiv(ring, cover - 4 * min(time, SPAN)), idle)
    most = min(time, (cover - cdiv(ring, tiles)) // 4)
    fair = cdiv(time, cdiv(time, most))
    return next((n for n in range(fair, most + 1) if n % CHUNK_ALONE == 0 == time % n % CHUNK_ALONE), fair)


def tiling(
    rows: int, period: int, ring: int, time: int, most: int, back: bool, tells: bool = False
) -> Tiling:
    """Lay out rows of rings; a round has a multiple of the rows after which the constants repeat."""
    width = next_power_of_2(ring)
    # A thread has at most four lanes and a program at most 1,024 threads: the longest need all four.
    whole = ring <= (WIDE if rows < MANY else WIDEST if tells and ring % 4 == 0 else WIDER)
    few = rows * ring < (FEW if whole else FEW_LONG)
    # Where constants differ between rows, a program has lanes of one row, so that it reduces their gradients.
    cols = math.gcd(ring, 2 if few or (period > 1 and width < 128) else 4)
    if whole:
        spans, steps, halo, margin, tiles = 1, time, 0, 0, 1
        lanes = max(width, 32 * max(cols, 2))
    else:
        margin = MARGIN
        steps = span_of(rows, ring, time, cols)
        spans = cdiv(time, steps)
        halo = max(cdiv(steps * (1 + back), cols) * cols, MARGIN)
        lanes = width = PART
        tiles = cdiv(ring, covered(lanes, cols) - 2 * halo)
    warps = max(1, lanes // (32 * max(2, cols)))
    step = math.lcm(period, lanes // width)
    most = LANES if lanes > WIDER else most
    rounds = cdiv(rows, step * max(1, most // (width * tiles) // step))
    size = step * cdiv(cdiv(rows, rounds), step) if rounds > 1 else rows
    return Tiling(cdiv(rows, size), size, tiles, spans, steps, lanes, width, cols, halo, margin, warps)


def _tiling(plan: "Plan", back: bool) -> Tiling:
    ring = plan.rule.ring
    periods = [place.run * place.entries for place in plan.found if place.entries > 1]
    period = max(1, math.lcm(*periods, 1) // ring)
    tells = plan.rule.tells_membrane and plan.dtype == torch.float32 and not periods
    return tiling(plan.total // ring, period, ring, plan.time, launch.LANES, back, tells)


def forward(
    plan: "Plan",
    current: Tensor,
    at: Steps,
    state: Tensor | None,
    constants: Constants,
    out: Tensor | None,
    last: Tensor,
) -> Tensor | None:
    """Integrate, and return the membrane at the borders of spans, if there are several."""
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


def _forward_launch(plan: "Plan", has: int) -> tuple[Any, Tiling, tuple[int, ...], int]:
    found = plan.backwards.get(("forward", has))
    if found is None:
        tiles = _tiling(plan, back=False)
        pairs = zip(plan.found, plan.row, strict=True)
        where = tuple(n for place, row in pairs for n in (place.run, place.entries, row, 1))
        chunk = CHUNK_ALONE if tiles.alone else CHUNK
        choices = (plan.rule_code, has, tiles.spans > 1, *_choices(plan, tiles, chunk))
        kernel = triton_spatial.spatial_forward_kernel
        registers = 64 if tiles.warps > 8 else None  # as many as 1,024 threads can have
        run = launch.Launch(kernel, (tiles.programs,), choices, tiles.warps, registers)
        found = plan.backwards["forward", has] = run, tiles, where, tiles.spans
    return found


def _choices(plan: "Plan", tiles: Tiling, longest: int) -> tuple[int, ...]:
    chunk, even = launch.chunk_of(tiles.steps, longest)
    return (*tiles.choices(chunk, even and plan.time % tiles.steps % chunk == 0), launch.NATIVE)


def _way(plan: "Plan", i: int, tiles: Tiling) -> tuple[int, int]:
    """Return how a gradient is reduced, and how many programs share its entries; see `triton_constants`."""
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


def ways(plan: "Plan") -> list[int]:
    """Return how the gradient of each constant is reduced."""
    tiles = _tiling(plan, back=True)
    return [_way(plan, i, tiles)[0] for i in range(len(plan.found))]


def shape_of_rows(plan: "Plan") -> tuple[int, int]:
    """Return as `Plan.shape_of_rows`; no programs where rings are cut into parts."""
    tiles = _tiling(plan, back=True)
    return 0 if tiles.halo else tiles.programs, tiles.lanes // tiles.width * plan.rule.ring


def backward(
    plan: "Plan",
    given: tuple[Tensor | None, ...],
    at_grad: Steps,
    constants: Constants,
    learned: Sequence[bool],
    spikes: Tensor | None,
    borders: Tensor | None,
) -> list[Any]:
    """Differentiate, from the spikes where they tell the membrane; return the gradients of the constants."""
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
    grads, partials, counters, groups = reduction.begin(
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
    return reduction.end(plan, constants, grads, partials, learned, ways, tiles.size * rule.ring)


def _backward_launch(plan: "Plan", has: int, at_grad: Steps, learned: tuple[bool, ...]) -> tuple[Any, ...]:
    key = (has, at_grad, learned)
    found = plan.backwards.get(key)
    if found is None:
        tiles = _tiling(plan, back=True)
        pairs = [_way(plan, i, tiles) if wanted else (0, 1) for i, wanted in enumerate(learned)]
        where = tuple(
            n
            for p, row, (_, side) in zip(plan.found, plan.row, pairs, strict=True)
            for n in (p.run, p.entries, row, side)
        )
        ways = tuple(way for way, _ in pairs)
        number = sum(way << 2 * i for i, way in enumerate(ways))
        chunk, registers = (CHUNK_TOLD, REGISTERS_TOLD) if has // 16 else (CHUNK_BACK, REGISTERS)
        if tiles.alone:
            chunk, registers = BACK_ALONE, min(REGISTERS_ALONE, 65536 // (32 * tiles.warps))
        elif tiles.warps == 32 or (tiles.warps == 16 and has // 16):  # as many as 1,024 threads can have
            chunk, registers = 1, 64
        elif any(place.entries > 1 for place in plan.found):
            registers = REGISTERS
        is_set = tiles.cols == 4 or tiles.alone or tiles.warps == 32
        chosen = _choices(plan, tiles, chunk if is_set else FEW_BACK)
        choices = (plan.rule_code, has + 8 * (tiles.spans > 1), number, *chosen)
        kernel = triton_spatial_back.spatial_backward_kernel
        most = registers if is_set else None
        run = launch.Launch(kernel, (tiles.programs,), choices, tiles.warps, most)
        found = plan.backwards[key] = (run, tiles, ways, where, chosen[0])
    return found
