"""Run several kinds of neurons side by side in one tensor, each with its own kernel and without copies.

Each kernel reads its part of the current. It writes its part of the spikes, of the current's gradient, and of
the gradient of the vector that holds all learned constants. In a CUDA graph they run in parallel.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ultralif.ops.autograd import is_fused, runs_triton
from ultralif.ops.constants import Learned
from ultralif.ops.rule import Constants
from ultralif.stack.streams import side_by_side

if TYPE_CHECKING:
    from ultralif.ops.triton.plan import LaunchPlan

__all__ = ["KindGroup", "Prepared", "prepare_groups", "run_groups"]


class KindGroup(NamedTuple):
    """The neurons of one kind, in all members that use it."""

    operator: Callable[..., tuple[Tensor, Tensor]]
    members: int
    arguments: dict[str, object]
    """Constants and choices; a learned constant is a `Learned` view into the vector of all constants."""


class _Part(NamedTuple):
    """A group, its position among the members, and its kernels."""

    place: slice
    constants: Constants
    plan: "LaunchPlan"
    wanted: tuple[bool, ...]


class Prepared(NamedTuple):
    """The kernels for all groups, and the vector of their constants."""

    parts: Sequence[_Part]
    vector: Tensor
    """The raw parameters, or the decoded rows of `stack.constants`."""


def prepare_groups(
    current: Tensor, raw: Tensor, table: Tensor, groups: Sequence[KindGroup], rate: bool
) -> Prepared | None:
    """Choose kernels for all groups and decode their constants; None if any group has no kernel.

    The values of the current are not read, so this can run in parallel with the kernel that computes them.

    Args:
        current: ``[T, B, M, N]``; the members of a group are adjacent.
        raw: the vector of all constants.
        table: how to decode each constant; see `triton.common`.
        groups: the groups, in the order of their members.
        rate: return the mean over time.
    """
    if not runs_triton(current):
        return None
    from ultralif.ops.triton.plan import find_plan
    from ultralif.stack import constants as stack_constants

    found, first = [], 0
    for group in groups:
        place = slice(first, first := first + group.members)
        view = current[:, :, place]
        recipe = getattr(group.operator, "recipe", None)
        made = None if recipe is None else recipe(view, group.arguments)
        if made is None or not is_fused(view, made.rule):
            return None
        constants, rule = made.constants, made.rule._replace(rate=rate)
        plan = find_plan(view, None, constants, rule, inside=True)
        wanted = tuple(isinstance(c, Learned) and c.raw.requires_grad for c in constants)
        if plan.tile is not None or plan.leaves(wanted):
            return None
        found.append((_Part(place, constants, plan, wanted), view, rule))
    parts = [part for part, _, _ in found]
    if not all(part.plan.can_be_ready() for part in parts):
        return Prepared(parts, raw)
    plans = [find_plan(v, None, p.constants, r, inside=True, ready=True) for p, v, r in found]
    described = [(plan, p.constants, p.wanted) for plan, p in zip(plans, parts, strict=True)]
    table_of_rows = stack_constants.make_row_table(described, raw)
    if table_of_rows is None:
        return Prepared(parts, raw)
    rows = stack_constants.write_rows(raw, table, table_of_rows)
    ready = zip(parts, plans, stack_constants.rows_of(rows, plans), strict=True)
    return Prepared([p._replace(plan=plan, constants=own) for p, plan, own in ready], rows)


def run_groups(current: Tensor, prepared: Prepared, rate: bool) -> Tensor:
    """Return the spikes ``[T, B, M, N]`` of all groups, or their mean over time."""
    return _apply(current, prepared.vector, prepared.parts, rate)


class _Groups(torch.autograd.Function):
    """Compute the spikes of all groups, and their derivative."""

    @staticmethod
    def forward(ctx: Any, current: Tensor, vector: Tensor, parts: Sequence[_Part], rate: bool) -> Tensor:
        ctx.save_for_backward(current, vector)
        ctx.parts, ctx.rate = parts, rate
        out = torch.empty_like(current[0] if rate else current)
        with side_by_side(current.device) as branch:
            for part in parts:
                with branch():
                    target = _of(out, part, rate)
                    part.plan.forward(current[:, :, part.place], None, part.constants, target)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Tensor, Tensor, None, None]:
        current, vector = ctx.saved_tensors
        grad_out = grad_out.contiguous()
        # No kernel writes the gradient of a raw parameter that is not learned.
        is_ready = all(part.plan.is_ready for part in ctx.parts)
        g_vector = torch.empty_like(vector) if is_ready else torch.zeros_like(vector)
        g_current = torch.empty_like(current)
        with side_by_side(current.device) as branch:
            for part in ctx.parts:
                constants = Constants(*[_with_grad(c, vector, g_vector) for c in part.constants])
                view, target = current[:, :, part.place], g_current[:, :, part.place]
                grad = _of(grad_out, part, ctx.rate)
                with branch():
                    part.plan.backward(grad, None, view, None, constants, part.wanted, g_current=target)
        return g_current, g_vector, None, None


_apply: Callable[..., Tensor] = _Groups.apply


def _of(x: Tensor, part: _Part, rate: bool) -> Tensor:
    """Return a group's part of spikes or their gradients."""
    return x[:, part.place] if rate else x[:, :, part.place]


def _with_grad(constant: Any, vector: Tensor, g_vector: Tensor) -> Any:
    """Assign a constant its position in the gradient of the vector of all constants."""
    if not isinstance(constant, Learned):
        return constant
    own = constant.raw
    first = own.storage_offset() - vector.storage_offset()
    return constant._replace(raw=own.detach(), grad=g_vector[first : first + own.numel()].view(own.shape))
