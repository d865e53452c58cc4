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
from ultralif.ops.reduction import EACH, LEFT, SHARED

if TYPE_CHECKING:
    from ultralif.ops.plan import Plan

__all__ = ["Tiling", "backward", "forward", "ways"]

WIDE = 1024  # neurons of the longest ring that one program takes whole
WIDER, WIDEST = 2048, 4096  # the same if there are many rings; and if their spikes tell the membrane
MANY = 96  # rings that fill a large GPU with one program each
PART = 1024  # lanes of a part of a longer ring, its halo included
SPAN = 50  # steps that parts integrate in a launch
CHUNK = 3  # steps that are loaded at once
CHUNK_BACK, FEW_BACK = 3, 5  # steps whose trace a lane keeps in registers; the same for a small layer
REGISTERS = 128  # of a thread of the backward pass: with more, fewer programs run at once
CHUNK_TOLD, REGISTERS_TOLD = 2, 80  # the same where spikes tell the membrane
LANES = 1 << 19  # as in `launch`, for programs of 4,096 lanes
FEW = 1 << 15  # lanes of a small layer, which are spread over all multiprocessors


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
    warps: int

    @property
    def programs(self) -> int:
        """Number of programs of one span."""
        return -(-self.size // (self.lanes // self.width)) * self.tiles

    @property
    def work(self) -> int:
        """Number of programs of all spans."""
        return self.programs * self.spans

    def times(self, time: int) -> tuple[int, ...]:
        """Return the tuple ``times`` of the kernels."""
        return time, self.steps, self.programs, self.tiles, self.halo // self.cols

    def shape(self, rows: int, ring: int) -> tuple[int, ...]:
        """Return the tuple ``shape`` of the kernels."""
        return ring // self.cols, rows, self.rounds, self.size

    def at(self, steps: Steps) -> tuple[int, ...]:
        """Return the strides of a tensor, with the inner size in groups of lanes."""
        return steps.time, steps.outer, steps.inner, max(1, steps.size // self.cols)

    def choices(self, chunk: int, even: int) -> tuple[int, ...]:
        """Return the last choices of a kernel, without NATIVE."""
        return chunk, even, self.lanes, self.width, self.cols, self.halo == 0


def tiling(
    rows: int, period: int, ring: int, time: int, most: int, back: bool, tells: bool = False
) -> Tiling:
    """Lay out rows of rings; a round has a multiple of the rows after which the constants repeat."""
    width = next_power_of_2(ring)
    # Where constants differ between rows, a program has lanes of one row, so that it reduces their gradients.
    cols = math.gcd(ring, 2 if rows * ring < FEW or (period > 1 and width < 128) else 4)
    if ring <= (WIDE if rows < MANY else WIDEST if tells else WIDER):
        spans, steps, halo, tiles = 1, time, 0, 1
        lanes = max(width, 32 * max(cols, 2))
    else:
        most_steps = min(time, SPAN)
        steps = next((n for n in range(most_steps, SPAN // 2, -1) if time % n == 0), most_steps)
        spans = cdiv(time, steps)
        halo = cdiv(steps * (1 + back), cols) * cols
        lanes = width = max(PART, next_power_of_2(4 * halo))
        tiles = cdiv(ring, width - 2 * halo)
    warps = max(1, lanes // (32 * max(2, cols)))
    step = math.lcm(period, lanes // width)
    most = LANES if lanes > WIDER else most
    rounds = cdiv(rows, step * max(1, most // (width * tiles) // step))
    size = step * cdiv(cdiv(rows, rounds), step) if rounds > 1 else rows
    return Tiling(cdiv(rows, size), size, tiles, spans, steps, lanes, width, cols, halo, warps)


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
    borders = counter = None
    target = last if out is None else out
    if spans > 1:
        borders = torch.empty((spans - 1, plan.total), dtype=torch.float32, device=device)
        counter = torch.zeros(1, dtype=torch.int32, device=device)
        if rule.rate and out is not None and out.dtype != torch.float32:  # every span adds to it
            target = torch.empty_strided(out.shape, out.stride(), dtype=torch.float32, device=device)
    given = (
        current,
        state,
        borders,
        target,
        last,
        counter,
        (plan.raws(constants), plan.tables, where),
        tiles.times(plan.time),
        tiles.shape(plan.total // rule.ring, rule.ring),
        tiles.at(at),
        tiles.at(plan.at_mean if rule.rate else plan.at_out),
        plan.numbers[0],
    )
    for _ in range(spans):
        run(*given)
    if out is not None and target is not out:
        out.copy_(target)
    return borders


def _forward_launch(plan: "Plan", has: int) -> tuple[Any, Tiling, tuple[int, ...], int]:
    found = plan.backwards.get(("forward", has))
    if found is None:
        tiles = _tiling(plan, back=False)
        pairs = zip(plan.found, plan.row, strict=True)
        where = tuple(n for place, row in pairs for n in (place.run, place.entries, row, 1))
        choices = (plan.rule_code, has, tiles.spans > 1, *_choices(plan, tiles, CHUNK))
        kernel = triton_spatial.spatial_forward_kernel
        registers = 64 if tiles.warps > 8 else None  # as many as 1,024 threads can have
        run = launch.Launch(kernel, (tiles.programs,), choices, tiles.warps, registers)
        found = plan.backwards["forward", has] = run, tiles, where, tiles.spans
    return found


def _choices(plan: "Plan", tiles: Tiling, longest: int) -> tuple[int, ...]:
    chunk, even = launch.chunk_of(tiles.steps, longest)
    return (*tiles.choices(chunk, even and plan.time % tiles.steps == 0), launch.NATIVE)


def _way(plan: "Plan", i: int, tiles: Tiling) -> tuple[int, int]:
    """Return how a gradient is reduced, and how many programs share its entries; see `triton_constants`."""
    place, ring, rows = plan.found[i], plan.rule.ring, tiles.lanes // tiles.width
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
    flows = counter = None
    if tiles.spans > 1:
        if borders is None:  # integrate again
            borders = forward(plan, current, at, state, constants, None, torch.empty(plan.total, **wide))
        flows = torch.empty((tiles.spans - 1, plan.total), **wide)
        counter = torch.zeros(1, dtype=torch.int32, device=plan.device)
    region = max(tiles.size * rule.ring, tiles.work * (tiles.lanes if tiles.spans == 1 else 1))
    grads, partials, counters, groups = reduction.begin(
        plan, constants, learned, ways, where, region, tiles.spans
    )
    notes = torch.empty((cdiv(tiles.steps, chunk) - 1) * tiles.programs * tiles.lanes, **wide)
    arguments = (
        current if grad_out is None else grad_out,
        grad_state,
        current,
        spikes if told else current,
        state,
        borders,
        g_current,
        g_state,
        (notes, notes if flows is None else flows, counters if counter is None else counter),
        (plan.raws(constants), plan.tables, where),
        tuple(grads),
        (partials, counters, groups, region),
        tiles.times(plan.time),
        tiles.shape(plan.total // rule.ring, rule.ring),
        (tiles.at(at), tiles.at(at_grad), tiles.at(plan.at_out)),
        plan.numbers[0],
    )
    for _ in range(tiles.spans):
        run(*arguments)
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
        if tiles.warps == 32 or (tiles.warps == 16 and has // 16):  # as many as 1,024 threads can have
            chunk, registers = 1, 64
        elif any(place.entries > 1 for place in plan.found):
            registers = REGISTERS
        chosen = _choices(plan, tiles, chunk if tiles.cols == 4 else FEW_BACK)
        choices = (plan.rule_code, has + 8 * (tiles.spans > 1), number, *chosen)
        kernel = triton_spatial_back.spatial_backward_kernel
        most = registers if tiles.cols == 4 else None
        run = launch.Launch(kernel, (tiles.programs,), choices, tiles.warps, most)
        found = plan.backwards[key] = (run, tiles, ways, where, chosen[0])
    return found
