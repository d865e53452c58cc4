"""Launches for neurons without neighbours: each lane of a program integrates one neuron of one sample."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from triton import cdiv

from ultralif.ops import launch, reduction, triton_spikes, triton_temporal, triton_temporal_back
from ultralif.ops.layout import Steps
from ultralif.ops.recurrence import Constants

if TYPE_CHECKING:
    from ultralif.ops.plan import Plan

__all__ = ["backward", "forward"]


def forward(
    plan: "Plan",
    current: Tensor,
    at: Steps,
    state: Tensor | None,
    constants: Constants,
    out: Tensor,
    last: Tensor,
) -> None:
    """Integrate."""
    if plan.launch is None:
        chunk = launch.chunk_of(plan.time, launch.CHUNK)
        choices = (plan.rule_code, state is not None, *chunk, plan.block, launch.NATIVE)
        kernel = triton_temporal.temporal_forward_kernel
        plan.launch = launch.Launch(kernel, (plan.programs,), choices, plan.warps)
    plan.launch(
        current,
        state,
        out,
        last,
        (plan.raws(constants), plan.tables, plan.where),
        plan.time,
        plan.span,
        tuple(at),
        tuple(plan.at_mean if plan.rule.rate else plan.at_out),
        plan.numbers,
    )


def backward(
    plan: "Plan",
    given: tuple[Tensor | None, ...],
    at_grad: Steps,
    constants: Constants,
    learned: Sequence[bool],
    spikes: Tensor | None,
) -> list[Any]:
    """Differentiate; return the gradients of the constants."""
    grad_out, grad_state, current, state, g_current, g_state = given
    assert current is not None and g_current is not None  # noqa: S101
    from_spikes = spikes is not None and grad_state is None and grad_out is not None
    has = (state is not None) + 2 * (grad_out is not None) + 4 * (grad_state is not None)
    key = (from_spikes, has, tuple(learned), at_grad, _aligned(grad_out))
    found = plan.backwards.get(key)
    if found is None:
        chunk, even = launch.chunk_of(plan.time, launch.CHUNK)
        ways = tuple(
            (reduction.READY if plan.is_ready else reduction.way_of(p, plan.block)) if wanted else 0
            for p, wanted in zip(plan.found, learned, strict=True)
        )
        kernel: Any = triton_temporal_back.temporal_backward_kernel
        if from_spikes:
            kernel, has = triton_spikes.temporal_spikes_backward_kernel, has % 2
        number = sum(way << 2 * i for i, way in enumerate(ways))
        choices = (plan.rule_code, has, number, chunk, even, plan.block, launch.NATIVE)
        run = launch.Launch(kernel, (plan.programs,), choices, plan.warps)
        found = plan.backwards[key] = run, ways, chunk
    run, ways, chunk = found
    region = plan.programs * plan.block
    grads, partials, counters, groups = reduction.begin(plan, constants, learned, ways, plan.where, region)
    scratch = (partials, counters, groups, region)
    known = (plan.raws(constants), plan.tables, plan.where)
    common = (known, tuple(grads), scratch, plan.time, plan.span)
    if from_spikes:
        arguments: tuple[Any, ...] = (grad_out, spikes, state, g_current, g_state)
        run(*arguments, *common, tuple(plan.at_out), tuple(at_grad), tuple(plan.at_out), plan.numbers)
        return reduction.end(plan, constants, grads, partials, learned, ways, plan.size)
    at = plan.at_current
    if at is None:
        current, at = plan.readable(current)
    notes = torch.empty(
        (cdiv(plan.time, chunk) - 1) * plan.rule.states * plan.total,
        dtype=torch.float32,
        device=plan.device,
    )
    grad = grad_out if grad_out is not None else current
    arguments = (grad, grad_state, current, state, g_current, g_state, notes)
    run(*arguments, *common, tuple(at), tuple(at_grad), tuple(plan.at_out), plan.numbers)
    return reduction.end(plan, constants, grads, partials, learned, ways, plan.size)


def _aligned(x: Tensor | None) -> int:
    return 0 if x is None else x.data_ptr() % 16
