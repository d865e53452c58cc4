"""Launches for long sequences of few neurons: each thread of a program integrates a chunk of one neuron."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ultralif.ops import launch, parallel, reduction, triton_parallel, triton_parallel_back
from ultralif.ops.layout import Steps
from ultralif.ops.recurrence import Constants

if TYPE_CHECKING:
    from ultralif.ops.plan import Plan

__all__ = ["backward", "forward"]


def forward(
    plan: "Plan",
    tile: parallel.Tile,
    current: Tensor,
    at: Steps,
    state: Tensor | None,
    constants: Constants,
    out: Tensor,
    last: Tensor,
) -> Tensor:
    """Integrate; return the membrane at the start of every chunk."""
    starts = torch.empty((tile.chunks, plan.total), dtype=torch.float32, device=plan.device)
    if plan.launch is None:
        choices = (plan.rule_code, state is not None, *_sizes(plan, tile))
        kernel = triton_parallel.chunked_forward_kernel
        plan.launch = launch.Launch(kernel, (plan.programs,), choices, plan.warps)
    known = (plan.raws(constants), plan.tables, plan.where)
    at_out = plan.at_mean if plan.rule.rate else plan.at_out
    sizes = (plan.time, tile.length, plan.total)
    plan.launch(current, state, out, last, starts, known, *sizes, tuple(at), tuple(at_out), plan.numbers)
    return starts


def backward(
    plan: "Plan",
    tile: parallel.Tile,
    given: tuple[Tensor | None, ...],
    at_grad: Steps,
    starts: Tensor | None,
    constants: Constants,
    learned: Sequence[bool],
) -> list[Any]:
    """Differentiate; return the gradients of the constants."""
    grad_out, grad_state, current, state, g_current, g_state = given
    assert current is not None and starts is not None  # noqa: S101
    has = (state is not None) + 2 * (grad_out is not None) + 4 * (grad_state is not None)
    key = (has, tuple(learned), at_grad, 0 if grad_out is None else grad_out.data_ptr() % 16)
    found = plan.backwards.get(key)
    if found is None:
        ways = tuple(
            reduction.way_of(p, plan.block) if wanted else 0
            for p, wanted in zip(plan.found, learned, strict=True)
        )
        number = sum(way << 2 * i for i, way in enumerate(ways))
        choices = (plan.rule_code, has, number, *_sizes(plan, tile))
        kernel = triton_parallel_back.chunked_backward_kernel
        found = plan.backwards[key] = launch.Launch(kernel, (plan.programs,), choices, plan.warps), ways
    run, ways = found
    region = plan.programs * plan.block
    grads, partials, counters, groups = reduction.begin(plan, constants, learned, ways, plan.where, region)
    at = plan.at_current
    if at is None:
        current, at = plan.readable(current)
    rows = tile.chunks * tile.length // parallel.STEPS
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
    return reduction.end(plan, constants, grads, partials, learned, ways, plan.size)


def _sizes(plan: "Plan", tile: parallel.Tile) -> tuple[int, ...]:
    """Return the choices of both kernels: chunks, steps at once, whether all chunks are full, neurons."""
    even = tile.chunks * tile.length == plan.time
    return tile.chunks, parallel.STEPS, int(even), tile.neurons, launch.NATIVE
