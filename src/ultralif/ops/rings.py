"""Launches for neurons on a ring: tiles of whole rings, or parts of long ones over spans of time."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from triton import cdiv, next_power_of_2

from ultralif.ops import triton_spatial
from ultralif.ops.layout import Steps
from ultralif.ops.recurrence import Constants

if TYPE_CHECKING:
    from ultralif.ops.gpu import Plan

__all__ = ["WIDEST", "backward", "forward", "ways"]

WIDEST = 1024  # neurons of a ring that one program takes whole
SPAN = 30  # steps a launch where a ring is cut into parts


class Tiling(NamedTuple):
    """The layout of rings over programs."""

    grid: tuple[int, int]
    rounds: int
    size: int  # rows a round
    lanes: int
    width: int
    halo: int

    @property
    def all_lanes(self) -> int:
        """The lanes of all programs."""
        return self.grid[0] * self.grid[1] * self.lanes


def tiling(rows: int, period: int, ring: int, halo: int, most: int) -> Tiling:
    """Lay out rows of rings; rounds advance by a multiple of the period of the constants, in rows."""
    halo = cdiv(halo, 4) * 4
    width = next_power_of_2(ring) if halo == 0 else WIDEST
    tiles = 1 if halo == 0 else cdiv(ring, width - 2 * halo)
    lanes = max(width, 64)
    step = math.lcm(period, lanes // width)
    size = step * max(1, max(1, most // (width * tiles)) // step)
    rounds, size = (1, rows) if size >= rows else (cdiv(rows, size), size)
    return Tiling((cdiv(size, lanes // width), tiles), rounds, size, lanes, width, halo)


def _spans(time: int, ring: int) -> list[tuple[int, int]]:
    """Return first step and number of steps of each launch: all at once for rings that fit a program."""
    span = time if ring <= WIDEST else SPAN
    return [(first, min(span, time - first)) for first in range(0, time, span)]


def _tiling(plan: "Plan", halo: int) -> Tiling:
    from ultralif.ops import gpu

    ring = plan.rule.ring
    periods = [place.run * place.entries for place in plan.found if place.entries > 1]
    return tiling(plan.total // ring, max(1, math.lcm(*periods, 1) // ring), ring, halo, gpu.LANES)


def forward(
    plan: "Plan",
    current: Tensor,
    at: Steps,
    state: Tensor | None,
    constants: Constants,
    out: Tensor | None,
    last: Tensor,
    bounds: Tensor | None = None,
    time: int | None = None,
) -> None:
    """Integrate span after span; ``bounds`` takes the state after each span but the last."""
    rule, total_time = plan.rule, plan.time if time is None else time
    spans = _spans(total_time, rule.ring)
    if len(spans) > 1 and state is None:  # so that all spans run by one kernel
        state = torch.zeros_like(last)
    spare = torch.empty_like(last) if len(spans) > 1 and bounds is None else last
    for i, (first, steps) in enumerate(spans):
        if bounds is not None:
            target = bounds[i] if i < len(bounds) else last
        else:
            target = last if (len(spans) - i) % 2 else spare
        has = (state is not None) + 2 * (out is not None) + 4 * (rule.rate and i > 0)
        launch, tiles, where = _forward_launch(plan, steps, has)
        launch(
            _from(current, first),
            state,
            (out if rule.rate else _from(out, first)) if out is not None else last,
            target,
            (plan.raws(constants), plan.tables, where),
            steps,
            tiles.halo,
            plan.time,
            (rule.ring, plan.total // rule.ring, tiles.rounds, tiles.size),
            tuple(at),
            tuple(plan.at_mean if rule.rate else plan.at_out),
            plan.numbers[0],
        )
        state = target


def _from(x: Tensor, first: int) -> Tensor:
    """Return a sequence from a step on."""
    return x if first == 0 else x[first:]


def _choices(plan: "Plan", steps: int, tiles: Tiling) -> tuple[int, ...]:
    from ultralif.ops import gpu

    chunk = gpu.chunk_of(steps, gpu.CHUNK // 2)
    whole = 1 if tiles.halo == 0 else 2 if plan.rule.ring % 4 == 0 else 0
    return (*chunk, tiles.lanes, tiles.width, whole, gpu.NATIVE)


def _forward_launch(plan: "Plan", steps: int, has: int) -> tuple[Any, Tiling, tuple[int, ...]]:
    from ultralif.ops import gpu

    found = plan.backwards.get(("forward", steps, has))
    if found is None:
        tiles = _tiling(plan, 0 if plan.rule.ring <= WIDEST else steps)
        pairs = zip(plan.found, plan.row, strict=True)
        where = tuple(n for place, row in pairs for n in (place.run, place.entries, row, 1))
        choices = (plan.rule_code, has, *_choices(plan, steps, tiles))
        kernel = triton_spatial.spatial_forward_kernel
        found = gpu.Launch(kernel, tiles.grid, choices, tiles.lanes // 64), tiles, where
        plan.backwards["forward", steps, has] = found
    return found


def _way(plan: "Plan", i: int, tiles: Tiling, spans: int) -> tuple[int, int]:
    """Return how a gradient is reduced, and how many programs share its entries; see `triton_constants`."""
    from ultralif.ops.gpu import EACH, LEFT, SHARED

    place, ring, rows = plan.found[i], plan.rule.ring, tiles.lanes // tiles.width
    programs = tiles.grid[0] * tiles.grid[1]
    if spans > 1:
        return LEFT, 1
    if place.entries == 1:
        return SHARED, programs
    if tiles.halo or (plan.total // ring) % rows:
        return LEFT, 1
    if place.run % (ring * rows) == 0:
        return SHARED, place.run // (ring * rows)
    if place.run == 1 and tiles.lanes == ring and place.entries % ring == 0:
        return EACH, place.entries // ring
    return LEFT, 1


def ways(plan: "Plan") -> list[int]:
    """Return how the gradient of each constant is reduced."""
    spans = _spans(plan.time, plan.rule.ring)
    tiles = _tiling(plan, 0 if plan.rule.ring <= WIDEST else 2 * spans[-1][1])
    return [_way(plan, i, tiles, len(spans))[0] for i in range(len(plan.found))]


def backward(
    plan: "Plan",
    given: tuple[Tensor | None, ...],
    at_grad: Steps,
    constants: Constants,
    learned: Sequence[bool],
) -> list[Any]:
    """Differentiate span after span, from the last; return the gradients of the constants."""
    grad_out, grad_state, current, state, g_current, g_state = given
    assert current is not None and g_current is not None  # noqa: S101
    rule = plan.rule
    at = plan.at_current
    if at is None:
        current, at = plan.readable(current)
    spans = _spans(plan.time, rule.ring)
    wide: dict[str, Any] = {"dtype": torch.float32, "device": plan.device}
    starts = torch.empty((len(spans) - 1, *plan.state_shape), **wide) if len(spans) > 1 else None
    if starts is not None:  # integrate again for the state at the start of every span
        state = torch.zeros(plan.state_shape, **wide) if state is None else state
        grad_state = torch.zeros_like(state) if grad_state is None else grad_state
        forward(plan, current, at, state, constants, None, starts[-1], starts[:-1], spans[-1][0])
    targets = [torch.empty(plan.state_shape, **wide) if g_state is None else g_state]
    if len(spans) > 1:  # a part reads what the parts beside it wrote in the span before
        targets.append(torch.empty(plan.state_shape, **wide))
    reductions = None
    for i, (first, steps) in reversed(list(enumerate(spans))):
        has = (i > 0 or state is not None) + 2 * (grad_out is not None) + 4 * (grad_state is not None)
        launch, tiles, ways, where, chunk = _backward_launch(
            plan, steps, has, at_grad, tuple(learned), len(spans)
        )
        if reductions is None:
            region = max(tiles.size * rule.ring, tiles.all_lanes)
            reductions = plan.reduction(constants, learned, ways, where, region, len(spans))
        grads, partials, counters, groups = reductions
        notes = torch.empty((cdiv(steps, chunk) - 1) * tiles.all_lanes, **wide)
        launch(
            current if grad_out is None else grad_out if rule.rate else _from(grad_out, first),
            grad_state,
            _from(current, first),
            starts[i - 1] if starts is not None and i else state,
            _from(g_current, first),
            targets[i % 2],
            notes,
            (plan.raws(constants), plan.tables, where),
            tuple(grads),
            (partials[i], counters, groups, partials.shape[-1] // 4),
            steps,
            tiles.halo,
            plan.time,
            (rule.ring, plan.total // rule.ring, tiles.rounds, tiles.size),
            tuple(at),
            tuple(at_grad),
            tuple(plan.at_out),
            plan.numbers[0],
        )
        grad_state = targets[i % 2]
    assert reductions is not None  # noqa: S101
    size = _tiling(plan, 0 if rule.ring <= WIDEST else 2 * spans[-1][1]).size * rule.ring
    return plan.reduced(constants, reductions[0], reductions[1], learned, ways, size)


def _backward_launch(
    plan: "Plan", steps: int, has: int, at_grad: Steps, learned: tuple[bool, ...], spans: int
) -> tuple[Any, ...]:
    from ultralif.ops import gpu

    key = (steps, has, at_grad, learned)
    found = plan.backwards.get(key)
    if found is None:
        tiles = _tiling(plan, 0 if plan.rule.ring <= WIDEST else 2 * steps)
        pairs = [_way(plan, i, tiles, spans) if wanted else (0, 1) for i, wanted in enumerate(learned)]
        where = tuple(
            n
            for p, row, (_, side) in zip(plan.found, plan.row, pairs, strict=True)
            for n in (p.run, p.entries, row, side)
        )
        ways = tuple(way for way, _ in pairs)
        number = sum(way << 2 * i for i, way in enumerate(ways))
        chosen = _choices(plan, steps, tiles)
        choices = (plan.rule_code, has, number, *chosen)
        kernel = triton_spatial.spatial_backward_kernel
        launch = gpu.Launch(kernel, tiles.grid, choices, tiles.lanes // 64)
        found = plan.backwards[key] = (launch, tiles, ways, where, chosen[0])
    return found
