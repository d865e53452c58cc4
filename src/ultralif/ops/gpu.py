"""The recurrence on a GPU, by Triton's kernels: forward, backward, and the walk over chunks of time."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from triton import cdiv

from ultralif.ops import launch, triton_parallel
from ultralif.ops.plan import Plan, find_plan, forget
from ultralif.ops.recurrence import Constants, Reset, Rule

__all__ = ["backward", "find_plan", "forget", "forward", "takes", "walk", "walk_back"]


def takes(rule: Rule) -> bool:
    """Tell whether the kernels compute a rule."""
    return True


def forward(
    current: Tensor, state: Tensor | None, constants: Constants, rule: Rule, plan: Plan | None = None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return the spikes, the last state and, for long rings, some membranes that `backward` may need."""
    return (plan or find_plan(current, state, constants, rule)).forward(current, state, constants)


def backward(
    grad_out: Tensor | None,
    grad_state: Tensor | None,
    current: Tensor,
    state: Tensor | None,
    constants: Constants,
    rule: Rule,
    learned: Sequence[bool],
    kept: tuple[Tensor | None, Tensor | None] = (None, None),
    plan: Plan | None = None,
) -> tuple[Tensor, Tensor | None, list[Tensor | None]]:
    """Return the gradients for current, state and constants.

    ``kept`` has the spikes, if the membrane follows from them, and the membranes that `forward` returned.
    """
    plan = plan or find_plan(current, state, constants, rule)
    return plan.backward(grad_out, grad_state, current, state, constants, learned, kept)


def walk(
    view: Tensor, current: Tensor, state: Tensor | None, constants: Constants, rule: Rule
) -> tuple[Tensor, Tensor]:
    """Return the ends of chunks, which define their maps, and the membrane before each and after the last.

    Args:
        view: the current in chunks, ``[T / K, K, B, *features]``.
        current: the same, ``[T, B, *features]``.
        state: the membrane before the first step.
        constants: as in `forward`.
        rule: as in `forward`.
    """
    chunked, whole = find_plan(view, current, constants, rule), find_plan(current, state, constants, rule)
    time, count = view.shape[:2]
    kinds = 3 if rule.reset == Reset.SATURATE else 1
    ends = torch.empty((kinds, chunked.total), dtype=torch.float32, device=current.device)
    starts = whole.steps_of(count + 1)
    at = chunked.at_current
    if at is None:
        view, at = chunked.readable(view)
    known = (chunked.raws(constants), chunked.tables, chunked.where)
    chunk, even = launch.chunk_of(time, launch.CHUNK)
    run = chunked.walks.get("ends")
    if run is None:
        choices = (chunked.rule_code, chunk if even else 1, chunked.block, launch.NATIVE)
        kernel: Any = triton_parallel.ends_kernel
        run = chunked.walks["ends"] = launch.Launch(kernel, (chunked.programs,), choices, chunked.warps)
    run(view, ends, known, time, chunked.span, tuple(at), chunked.numbers)
    run = whole.walks.get("walk")
    if run is None:
        choices = (whole.rule_code, state is not None, 32, launch.NATIVE)
        grid = (cdiv(whole.total, 32),)
        run = whole.walks["walk"] = launch.Launch(triton_parallel.walk_kernel, grid, choices, 1)
    before = None if state is None else whole.dense_state(state)
    known = (whole.raws(constants), whole.tables, whole.where)
    run(ends, before, starts, known, count, time, whole.total)
    return ends, starts


def walk_back(
    ends: Tensor,
    starts: Tensor,
    grad_last: Tensor | None,
    own: Tensor | None,
    view: Tensor,
    current: Tensor,
    constants: Constants,
    rule: Rule,
) -> tuple[Tensor, Tensor]:
    """Return the gradient at the end of every chunk, ``[1, K, ...]``, and that of the first membrane.

    Args:
        ends: as `walk` returned them.
        starts: the membrane before each chunk and after the last.
        grad_last: the gradient of the last membrane.
        own: for each chunk the gradient of its own spikes for its start, ``[1, K, ...]``.
        view: the current in chunks.
        current: the same as one sequence.
        constants: as in `forward`.
        rule: as in `forward`.
    """
    whole = find_plan(current, starts, constants, rule)
    time, count = view.shape[:2]
    at_ends, g_state = whole.steps_of(count), whole.steps_of(1)
    has = (own is not None) + 2 * (grad_last is not None)
    run = whole.walks.get(has)
    if run is None:
        choices = (whole.rule_code, has, 32, launch.NATIVE)
        grid = (cdiv(whole.total, 32),)
        run = whole.walks[has] = launch.Launch(triton_parallel.walk_back_kernel, grid, choices, 1)
    last = None if grad_last is None else whole.dense_state(grad_last)
    known = (whole.raws(constants), whole.tables, whole.where)
    run(ends, starts, last, own, at_ends, g_state, known, count, time, whole.total)
    return at_ends.unsqueeze(0), g_state
