"""A layer as one node of autograd: which way a call takes, what it keeps, and its derivative.

For a small layer, calling a registered operator takes longer than integrating. So it is called only where an
operator must be visible: to compilers, to fake tensors and to other modes. A plain call goes through
`torch.autograd.Function`. Either can be differentiated once.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ultralif.functional import compute_dtype
from ultralif.ops import dispatch, parallel
from ultralif.ops.constants import Learned
from ultralif.ops.layout import has_gap
from ultralif.ops.recurrence import Constants, Rule, encode, spelled_out
from ultralif.ops.registered import Grads, derive_twice, integrate

__all__ = ["kernels_for", "repeat", "run"]


def run(current: Tensor, state: Tensor | None, constants: Constants, rule: Rule) -> tuple[Tensor, Tensor]:
    """Return the spikes (or their mean over time) and the last state.

    Args:
        current: ``[T, B, *features]`` in any layout, which the spikes keep if it is dense.
        state: membrane, and for AdaLIF adaptation and last spike, ``[1 or 3, B, *features]``.
        constants: tensors and raw parameters broadcast against the features.
        rule: what to compute.
    """
    plain = _is_plain(current)
    count = parallel.chunks(current, rule) if plain else 1
    if dispatch.gpu_for(current) is None or not plain:
        dtype = compute_dtype(current.dtype)
        read = plain and count == 1 and not rule.sharp  # by the kernels, if it is one of theirs
        constants = Constants(
            *[
                c.value().to(dtype) if isinstance(c, Learned) and not (read and c.raw.dtype == dtype) else c
                for c in constants
            ]
        )
        constants, rule = spelled_out(constants, rule)
    if any(has_gap(shape_of(c)) for c in constants):
        constants = Constants(
            *[_filled(c, current.shape[2:]) if has_gap(shape_of(c)) else c for c in constants]
        )
    tensors = _tensors(constants)
    if plain:
        if count > 1:
            return parallel.run(count, current, state, constants, rule)
        return _apply(current, state, *tensors, constants, rule, None)
    numbers = [1.0 if isinstance(c, Tensor | Learned) else c for c in constants]
    spikes, last = integrate(current, state, *tensors, numbers, *encode(rule))
    return spikes, last


def repeat(
    current: Tensor, tensors: Sequence[Tensor | None], constants: Constants, rule: Rule, plans: dict[Any, Any]
) -> Tensor | None:
    """Return the spikes of a repeated call, from rest; None if the call is not a plain one."""
    if not _is_plain(current) or torch._C._are_functorch_transforms_active():
        return None
    gpu = dispatch.gpu_for(current)
    if gpu is None:
        return run(current, None, constants, rule)[0]
    key = current.stride(), current.data_ptr() % 16
    plan = plans.get(key)
    if plan is None:
        plan = plans[key] = gpu.find_plan(current, None, constants, rule)
    return _apply(current, None, *tensors, constants, rule, plan)[0]


def kernels_for(current: Tensor) -> Any:
    """Return the implementation for a GPU, if that is where the current is and the call is a plain one."""
    if not _is_plain(current) or torch._C._are_functorch_transforms_active():
        return None
    return dispatch.gpu_for(current)


def shape_of(constant: Tensor | Learned | float) -> tuple[int, ...]:
    """Return the shape of a constant."""
    if isinstance(constant, Learned):
        return tuple(constant.raw.shape)
    return tuple(constant.shape) if isinstance(constant, Tensor) else ()


def _tensors(constants: Constants) -> list[Tensor | None]:
    return [c.raw if isinstance(c, Learned) else c if isinstance(c, Tensor) else None for c in constants]


def _filled(constant: Tensor | Learned, features: torch.Size) -> Tensor:
    value = constant.value() if isinstance(constant, Learned) else constant
    return value.expand(features).contiguous()


def _is_plain(current: Tensor) -> bool:
    """Tell whether the call is a plain one: no compiler, no dispatch mode, no fake tensor or subclass."""
    return not (
        torch.compiler.is_compiling()
        or type(current) is not Tensor
        or current.is_meta
        or torch._C._len_torch_dispatch_stack()
    )


class _Integrate(torch.autograd.Function):
    """The recurrence and its derivative, by a direct call of an implementation."""

    @staticmethod
    def forward(ctx: Any, current: Tensor, state: Tensor | None, *rest: Any) -> tuple[Tensor, Tensor]:
        constants, rule, plan = rest[4:]
        out, last, borders = dispatch.forward(current, state, constants, rule, plan)
        ctx.save_for_backward(current, state, *rest[:4])
        ctx.constants, ctx.rule, ctx.plan = constants, rule, plan
        # The spikes are not saved by `save_for_backward`: if they are changed in place, there is no error,
        # and the derivative starts from the current instead.
        tells = _tells_all(rule, current) and not out.is_inference()
        ctx.spikes, ctx.version = (out.detach(), out._version) if tells else (None, 0)
        ctx.borders = borders
        ctx.set_materialize_grads(False)
        return out, last

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> Grads:
        current, state, *_ = ctx.saved_tensors
        needed = ctx.needs_input_grad
        spikes = ctx.spikes if ctx.spikes is not None and ctx.spikes._version == ctx.version else None
        kept = spikes, ctx.borders
        derive: Callable[..., tuple[Any, ...]] = _derivative if torch.is_grad_enabled() else dispatch.backward
        # The constants one by one, so that autograd sees those that are tensors.
        seen = [c.raw if isinstance(c, Learned) else c for c in ctx.constants]
        g_current, g_state, *g_constants = derive(
            *grads, current, state, ctx.constants, ctx.rule, needed[2:6], kept, ctx.plan, *seen
        )
        return g_current, g_state if needed[1] else None, *g_constants, None, None, None


def _tells_all(rule: Rule, current: Tensor) -> bool:
    """Tell whether the backward pass can compute the membrane from the spike, as for UltraLIF's soft spikes.

    Where such a spike is rounded to 0 or 1, the membrane is lost; but then the past has no share in any
    gradient. In a sum, or on a ring, it would have one; a ring is integrated again where that happens.
    """
    on_gpu = dispatch.gpu_for(current) is not None
    return rule.tells_membrane and (
        current.dtype == torch.float32 or (current.dtype == torch.float64 and not on_gpu)
    )


class _Derivative(torch.autograd.Function):
    """The derivative where autograd may differentiate it again, which is refused."""

    @staticmethod
    def forward(ctx: Any, *args: Any) -> tuple[Tensor | None, ...]:
        return dispatch.backward(*args)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> Grads:
        return derive_twice(ctx, *grads)


_apply: Callable[..., tuple[Tensor, Tensor]] = _Integrate.apply
_derivative: Callable[..., tuple[Tensor | None, ...]] = _Derivative.apply
