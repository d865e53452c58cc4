"""The operators as PyTorch knows them: registered, traceable, differentiable once.

PyTorch's dispatcher picks the implementation: Triton on CUDA, C on the CPU, `analytic` elsewhere.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ultralif.functional import compute_dtype
from ultralif.ops import analytic, cpu
from ultralif.ops.contract import Constants, Implementation, decode

__all__ = ["integrate"]


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
    """Return the spikes (or their mean over time) and the last state: see `contract`.

    A constant is a tensor or, where that is None, a number among ``constants``; the rest is what `encode`
    makes of a rule.
    """
    found = _constants((eps, leak, threshold, amplitude), constants)
    return _implementation(current).forward(current, state, found, decode(choices, ring, numbers))


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
    learn: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients for the current, the state and, if they learn, the constants ``[4, L]``.

    L is the length of the longest constant.
    """
    found = _constants((eps, leak, threshold, amplitude), constants)
    return _implementation(current).backward(
        grad_out, grad_state, current, state, found, decode(choices, ring, numbers), learn
    )


def _implementation(current: Tensor) -> Implementation:
    if current.is_cuda and current.dtype != torch.float64:
        from ultralif.ops import gpu  # imports triton, which a machine without a GPU need not have

        return gpu
    return cpu if current.device.type == "cpu" and cpu.available() else analytic


def _constants(tensors: Sequence[Tensor | None], numbers: Sequence[float]) -> Constants:
    return Constants(*(n if t is None else t for t, n in zip(tensors, numbers, strict=True)))


@integrate.register_fake
def _(current: Tensor, state: Tensor | None, *rest: Any) -> tuple[Tensor, Tensor]:
    rule = decode(*rest[-3:])
    dtype = compute_dtype(current.dtype)
    out = torch.empty_like(current[0] if rule.rate else current, memory_format=torch.contiguous_format)
    return out, current.new_empty((rule.states, *current.shape[1:]), dtype=dtype)


@integrate_backward.register_fake
def _(
    grad_out: Tensor | None, grad_state: Tensor | None, current: Tensor, state: Tensor | None, *rest: Any
) -> tuple[Tensor, Tensor, Tensor]:
    dtype = compute_dtype(current.dtype)
    g_current = torch.empty_like(current, memory_format=torch.contiguous_format)
    g_state = current.new_empty(0, dtype=dtype) if state is None else torch.empty_like(state)
    size = (4, _constants(rest[:4], rest[4]).longest()) if rest[-1] else 0
    return g_current, g_state, current.new_empty(size, dtype=dtype)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(*inputs[:6])
    ctx.rest = inputs[6:]
    ctx.set_materialize_grads(False)


def _derive(ctx: Any, grad_out: Tensor | None, grad_state: Tensor | None) -> tuple[Tensor | None, ...]:
    saved, needed = ctx.saved_tensors, ctx.needs_input_grad
    learned = needed[2:6]
    g_current, g_state, g_constants = integrate_backward(
        grad_out, grad_state, *saved, *ctx.rest, any(learned)
    )
    shared = (
        [
            (g if g.shape == c.shape else g.view(c.numel(), -1).sum(1)) if learns else None
            for g, c, learns in zip(g_constants, saved[2:], learned, strict=True)
        ]
        if any(learned)
        else [None] * 4
    )
    return g_current, g_state if needed[1] else None, *shared, None, None, None, None


def _derive_twice(ctx: Any, *grads: Tensor | None) -> None:
    raise RuntimeError(
        "ultralif's fused operators can be differentiated once; for higher derivatives build the neuron "
        "with backend='reference', which runs the definition in ultralif.functional"
    )


integrate.register_autograd(_derive, setup_context=_setup)
integrate_backward.register_autograd(_derive_twice)
