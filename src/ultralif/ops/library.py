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
    eps: Tensor,
    leak: Tensor,
    threshold: Tensor,
    amplitude: Tensor,
    rule: str,
) -> tuple[Tensor, Tensor]:
    """Return the spikes (or their mean over time) and the last state: see `contract`."""
    constants = Constants(eps, leak, threshold, amplitude)
    return _implementation(current).forward(current, state, constants, decode(rule))


@torch.library.custom_op("ultralif::integrate_backward", mutates_args=())
def integrate_backward(
    grad_out: Tensor | None,
    grad_state: Tensor | None,
    current: Tensor,
    state: Tensor | None,
    eps: Tensor,
    leak: Tensor,
    threshold: Tensor,
    amplitude: Tensor,
    rule: str,
    learn: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients for the current, the state and, if they learn, the constants ``[4, L]``.

    L is the length of the longest constant.
    """
    constants = Constants(eps, leak, threshold, amplitude)
    g_current, g_state, partial = _implementation(current).backward(
        grad_out, grad_state, current, state, constants, decode(rule), learn
    )
    if learn:
        longest = _longest(constants)
        partial = partial.view(4, -1, longest, current.shape[2] // longest).sum((1, 3))
    return g_current, g_state, partial


def _implementation(current: Tensor) -> Implementation:
    if current.is_cuda and current.dtype != torch.float64:
        from ultralif.ops import gpu  # imports triton, which a machine without a GPU need not have

        return gpu
    return cpu if current.device.type == "cpu" and cpu.available() else analytic


def _longest(constants: Sequence[Tensor]) -> int:
    return max(constant.numel() for constant in constants)


@integrate.register_fake
def _(current: Tensor, state: Tensor | None, *constants_and_rule: Any) -> tuple[Tensor, Tensor]:
    rule = decode(constants_and_rule[-1])
    dtype = compute_dtype(current.dtype)
    out = torch.empty_like(current[0] if rule.rate else current, memory_format=torch.contiguous_format)
    return out, current.new_empty((rule.states, *current.shape[1:]), dtype=dtype)


@integrate_backward.register_fake
def _(
    grad_out: Tensor | None, grad_state: Tensor | None, current: Tensor, state: Tensor | None, *rest: Any
) -> tuple[Tensor, Tensor, Tensor]:
    *constants, _, learn = rest
    dtype = compute_dtype(current.dtype)
    g_current = torch.empty_like(current, memory_format=torch.contiguous_format)
    g_state = current.new_empty(0, dtype=dtype) if state is None else torch.empty_like(state)
    size = (len(constants), _longest(constants)) if learn else 0
    return g_current, g_state, current.new_empty(size, dtype=dtype)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(*inputs[:-1])
    ctx.rule = inputs[-1]
    ctx.set_materialize_grads(False)


def _derive(ctx: Any, grad_out: Tensor | None, grad_state: Tensor | None) -> tuple[Tensor | None, ...]:
    learned = ctx.needs_input_grad[2:6]
    g_current, g_state, g_constants = integrate_backward(
        grad_out, grad_state, *ctx.saved_tensors, ctx.rule, any(learned)
    )
    constants = ctx.saved_tensors[2:6]
    shared = (
        None if not learns else g if g.shape == c.shape else g.view(c.numel(), -1).sum(1)
        for g, c, learns in zip(g_constants, constants, learned, strict=True)
    )
    g_state = g_state if ctx.needs_input_grad[1] else None
    return g_current, g_state, *(shared if any(learned) else [None] * 4), None


def _derive_twice(ctx: Any, *grads: Tensor | None) -> None:
    raise RuntimeError(
        "ultralif's fused operators can be differentiated once; for higher derivatives build the neuron "
        "with backend='reference', which runs the definition in ultralif.functional"
    )


integrate.register_autograd(_derive, setup_context=_setup)
integrate_backward.register_autograd(_derive_twice)
