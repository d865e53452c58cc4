"""Several kinds of neurons side by side in one tensor: each kind has its own kernel, and nothing is copied.

The kernels read their part of the current and write their part of the spikes, of the current's gradient and
of the gradient of one vector with all learned constants. In a CUDA graph they run side by side.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ultralif.ops import autograd, dispatch
from ultralif.ops.branches import side_by_side
from ultralif.ops.constants import Learned
from ultralif.ops.recurrence import Constants

__all__ = ["Group", "run_groups"]


class Group(NamedTuple):
    """The neurons of one kind, in all members that have this kind."""

    operator: Callable[..., Any]
    members: int
    arguments: dict[str, Any]
    """Constants and choices; a learned constant is `Learned`, a part of the vector of all constants."""


class _Part(NamedTuple):
    """A group, its place among the members, and its kernels."""

    place: slice
    constants: Constants
    plan: Any
    wanted: tuple[bool, ...]


def run_groups(current: Tensor, raw: Tensor, groups: Sequence[Group], rate: bool) -> Tensor | None:
    """Return the spikes ``[T, B, M, N]`` of all groups, or their mean over time; None without kernels for it.

    Args:
        current: ``[T, B, M, N]``; the members of a group are neighbours.
        raw: the vector of all constants.
        groups: the groups, in the order of their members.
        rate: return the mean over time.
    """
    gpu = autograd.kernels_for(current)
    if gpu is None:
        return None
    parts, first = [], 0
    for group in groups:
        place = slice(first, first := first + group.members)
        view = current[:, :, place]
        recipe = getattr(group.operator, "recipe", None)
        found = None if recipe is None else recipe(view, **group.arguments)
        if found is None or not dispatch.is_fused(view, found.rule):
            return None
        constants = Constants(*found[:4])
        plan = gpu.find_plan(view, None, constants, found.rule._replace(rate=rate), inside=True)
        wanted = tuple(isinstance(c, Learned) and c.raw.requires_grad for c in constants)
        if plan.tile is not None or plan.leaves(wanted):
            return None
        parts.append(_Part(place, constants, plan, wanted))
    return _apply(current, raw, parts, rate)


class _Groups(torch.autograd.Function):
    """The spikes of all groups, and their derivative."""

    @staticmethod
    def forward(ctx: Any, current: Tensor, raw: Tensor, parts: Sequence[_Part], rate: bool) -> Tensor:
        ctx.save_for_backward(current, raw)
        ctx.parts, ctx.rate = parts, rate
        out = torch.empty_like(current[0] if rate else current)
        ctx.g_raw = torch.empty_like(raw) if ctx.needs_input_grad[1] else None
        with side_by_side(current.device) as branch:
            for part in parts:
                with branch():
                    target = _of(out, part, rate)
                    part.plan.forward(current[:, :, part.place], None, part.constants, target)
            if ctx.g_raw is not None:
                with branch():  # no kernel writes the gradient of a constant that is not learned
                    ctx.g_raw.zero_()
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Tensor, Tensor, None, None]:
        current, raw = ctx.saved_tensors
        grad_out = grad_out.contiguous()
        g_raw, ctx.g_raw = torch.zeros_like(raw) if ctx.g_raw is None else ctx.g_raw, None
        g_current = torch.empty_like(current)
        with side_by_side(current.device) as branch:
            for part in ctx.parts:
                constants = Constants(*[_with_grad(c, raw, g_raw) for c in part.constants])
                view, target = current[:, :, part.place], g_current[:, :, part.place]
                grad = _of(grad_out, part, ctx.rate)
                with branch():
                    part.plan.backward(grad, None, view, None, constants, part.wanted, g_current=target)
        return g_current, g_raw, None, None


_apply: Callable[..., Tensor] = _Groups.apply


def _of(x: Tensor, part: _Part, rate: bool) -> Tensor:
    """Return a group's part of spikes or their gradients."""
    return x[:, part.place] if rate else x[:, :, part.place]


def _with_grad(constant: Any, raw: Tensor, g_raw: Tensor) -> Any:
    """Give a learned constant its place in the gradient of the vector of all."""
    if not isinstance(constant, Learned):
        return constant
    own = constant.raw
    first = own.storage_offset() - raw.storage_offset()
    return constant._replace(raw=own.detach(), grad=g_raw[first : first + own.numel()].view(own.shape))
