"""The operators as PyTorch's dispatcher knows them, for compilers, fake tensors and other modes."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ultralif.functional import compute_dtype
from ultralif.ops import dispatch
from ultralif.ops.layout import axes_by_memory, dense_strides
from ultralif.ops.recurrence import Constants, decode

__all__ = ["Grads", "derive_twice", "integrate", "integrate_backward"]

Grads = tuple[Tensor | None, ...]


@torch.library.custom_op("ultralif::integrate", mutates_args=())
def integrate(
    current: Tensor,
    state: Tensor | None,
    eps: Tensor | None,
    leak: Tensor | None,
    threshold: Tensor | None,
    amplitude: Tensor | None,
    constants: Sequence[float],
    choices: str,
    ring: int,
    numbers: Sequence[float],
) -> tuple[Tensor, Tensor]:
    """Return the spikes (or their mean over time) and the last state: see `recurrence` and `autograd.run`.

    A constant is a tensor or, where that is None, a number among ``constants``; the last three arguments are
    a rule as `encode` writes it.
    """
    found = _constants((eps, leak, threshold, amplitude), constants)
    out, last, _ = dispatch.forward(current, state, found, decode(choices, ring, numbers))
    return out, last


@torch.library.custom_op("ultralif::integrate_backward", mutates_args=())
def integrate_backward(
    grad_out: Tensor | None,
    grad_state: Tensor | None,
    current: Tensor,
    state: Tensor | None,
    eps: Tensor | None,
    leak: Tensor | None,
    threshold: Tensor | None,
    amplitude: Tensor | None,
    constants: Sequence[float],
    choices: str,
    ring: int,
    numbers: Sequence[float],
    learned: Sequence[bool],
) -> list[Tensor]:
    """Return the gradients for the current, the state and each constant; empty where there is none."""
    found = _constants((eps, leak, threshold, amplitude), constants)
    rule = decode(choices, ring, numbers)
    grads = dispatch.backward(grad_out, grad_state, current, state, found, rule, tuple(learned))
    return [current.new_empty(0) if g is None else g for g in grads]


def _constants(tensors: Sequence[Tensor | None], numbers: Sequence[float]) -> Constants:
    return Constants(*(n if t is None else t for t, n in zip(tensors, numbers, strict=True)))


@integrate.register_fake
def _(current: Tensor, state: Tensor | None, *rest: Any) -> tuple[Tensor, Tensor]:
    rule = decode(*rest[-3:])
    out = torch.empty_like(current)
    order = axes_by_memory(out.shape, out.stride())
    step = dense_strides(out.shape, order)
    size = out[0].numel()
    last = current.new_empty_strided(
        (rule.states, *out.shape[1:]), (size, *step), dtype=compute_dtype(current.dtype)
    )
    return (current.new_empty_strided(out.shape[1:], step) if rule.rate else out), last


@integrate_backward.register_fake
def _(
    grad_out: Tensor | None, grad_state: Tensor | None, current: Tensor, state: Tensor | None, *rest: Any
) -> list[Tensor]:
    grads = [torch.empty_like(current), current.new_empty(0) if state is None else torch.empty_like(state)]
    for tensor, learned in zip(rest[:4], rest[-1], strict=True):
        grads.append(torch.empty_like(tensor) if learned and tensor is not None else current.new_empty(0))
    return grads


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(*inputs[:6])
    ctx.rest = inputs[6:]
    ctx.set_materialize_grads(False)


def _derive(ctx: Any, grad_out: Tensor | None, grad_state: Tensor | None) -> Grads:
    saved, needed = ctx.saved_tensors, ctx.needs_input_grad
    learned = [bool(x) for x in needed[2:6]]
    g_current, g_state, *grads = integrate_backward(grad_out, grad_state, *saved, *ctx.rest, learned)
    shared = [g if wanted else None for g, wanted in zip(grads, learned, strict=True)]
    return g_current, g_state if needed[1] else None, *shared, None, None, None, None


def derive_twice(ctx: Any, *grads: Tensor | None) -> Grads:
    """Refuse a second derivative."""
    raise RuntimeError(
        "ultralif's fused operators can be differentiated once; for higher derivatives build the neuron "
        "with backend='reference', which runs the definition in ultralif.functional"
    )


integrate.register_autograd(_derive, setup_context=_setup)
integrate_backward.register_autograd(derive_twice)
