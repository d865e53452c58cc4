"""The operators as PyTorch knows them: registered, traceable, differentiable once.

The device picks the implementation: Triton on CUDA, C on the CPU; elsewhere the definition runs, which keeps
every intermediate result for its derivative, 32 bytes and more a step and neuron. A registered
operator costs a small layer more time than its integration does, so it serves only those who need to see one:
compilers, fake tensors and other modes. A plain call goes through `torch.autograd.Function`.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ultralif.functional import Constant, compute_dtype
from ultralif.ops import cpu
from ultralif.ops.recurrence import Constants, Implementation, Rule, decode, encode

__all__ = ["is_fused", "run"]

Grads = tuple[Tensor | None, ...]


def run(current: Tensor, state: Tensor | None, constants: Constants, rule: Rule) -> tuple[Tensor, Tensor]:
    """Return the spikes (or their mean over time) and the last state, as `Implementation` says."""
    if _is_plain(current):
        return _apply(current, state, *constants, rule)
    tensors = [c if isinstance(c, Tensor) else None for c in constants]
    numbers = [1.0 if isinstance(c, Tensor) else c for c in constants]
    spikes, last = integrate(current, state, *tensors, numbers, *encode(rule))
    return spikes, last


def _is_plain(current: Tensor) -> bool:
    """Tell whether nobody looks on: no compiler, no mode, no tensor that is more than its numbers."""
    return not (
        torch.compiler.is_compiling()
        or type(current) is not Tensor
        or current.is_meta
        or torch._C._len_torch_dispatch_stack()
    )


class _Integrate(torch.autograd.Function):
    """The recurrence and its derivative by an implementation, without a detour."""

    @staticmethod
    def forward(ctx: Any, current: Tensor, state: Tensor | None, *rest: Any) -> tuple[Tensor, Tensor]:
        constants = Constants(*rest[:4])
        ctx.save_for_backward(current, state, *(c if isinstance(c, Tensor) else None for c in constants))
        ctx.numbers, ctx.rule = rest[:4], rest[4]
        ctx.set_materialize_grads(False)
        return _chosen(current).forward(current, state, constants, rest[4])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> Grads:
        current, state, *tensors = ctx.saved_tensors
        needed = ctx.needs_input_grad
        constants = Constants(*(n if t is None else t for t, n in zip(tensors, ctx.numbers, strict=True)))
        derive = _derivative if torch.is_grad_enabled() else _run_backward
        # The constants one by one, so that autograd sees those that are tensors.
        args = (*grads, current, state, ctx.rule, any(needed[2:6]), *constants)
        g_current, g_state, g_constants = derive(*args)
        return g_current, g_state if needed[1] else None, *_share(g_constants, tensors, needed[2:6]), None


def _run_backward(
    grad_out: Tensor | None,
    grad_state: Tensor | None,
    current: Tensor,
    state: Tensor | None,
    rule: Rule,
    learn: bool,
    *constants: Constant,
) -> tuple[Tensor, Tensor, Tensor]:
    given = Constants(*constants)
    return _chosen(current).backward(grad_out, grad_state, current, state, given, rule, learn)


class _Derivative(torch.autograd.Function):
    """The derivative where a second one is asked for, which is refused."""

    @staticmethod
    def forward(ctx: Any, *args: Any) -> tuple[Tensor, Tensor, Tensor]:
        return _run_backward(*args)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> Grads:
        return _derive_twice(ctx, *grads)


_apply: Callable[..., tuple[Tensor, Tensor]] = _Integrate.apply
_derivative: Callable[..., tuple[Tensor, Tensor, Tensor]] = _Derivative.apply


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
    """Return the spikes (or their mean over time) and the last state: see `recurrence`.

    A constant is a tensor or, where that is None, a number among ``constants``; the rest is what `encode`
    makes of a rule.
    """
    found = _constants((eps, leak, threshold, amplitude), constants)
    return _chosen(current).forward(current, state, found, decode(choices, ring, numbers))


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
    return _chosen(current).backward(
        grad_out, grad_state, current, state, found, decode(choices, ring, numbers), learn
    )


def is_fused(current: Tensor, rule: Rule) -> bool:
    """Tell whether a kernel computes a rule for a current on its device."""
    if torch.compiler.is_compiling():  # as if it were a constant: what is built does not change
        return _is_fused_while_compiling(current.device.type, current.dtype, encode(rule)[0], rule.ring > 0)
    found = _implementation(current)
    return found is not None and found.takes(rule)


def _is_fused_by_choices(device: str, dtype: torch.dtype, choices: str, ring: bool) -> bool:
    found = _available(device, dtype)
    return found is not None and found.takes(decode(choices, int(ring), (0.0, 0.0, 0.0)))


_constant_result: Callable[[Any], Any] = torch.compiler.assume_constant_result
_is_fused_while_compiling: Callable[..., bool] = _constant_result(_is_fused_by_choices)


def _implementation(current: Tensor) -> Implementation | None:
    return _available(current.device.type, current.dtype)


def _available(device: str, dtype: torch.dtype) -> Implementation | None:
    if device == "cuda" and dtype != torch.float64:
        from ultralif.ops import gpu  # imports triton, which a machine without a GPU need not have

        return gpu
    return cpu if device == "cpu" and cpu.available() else None


def _chosen(current: Tensor) -> Implementation:
    found = _implementation(current)
    assert found is not None, "is_fused is asked before"  # noqa: S101
    return found


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


def _derive(ctx: Any, grad_out: Tensor | None, grad_state: Tensor | None) -> Grads:
    saved, needed = ctx.saved_tensors, ctx.needs_input_grad
    learned = needed[2:6]
    g_current, g_state, g_constants = integrate_backward(
        grad_out, grad_state, *saved, *ctx.rest, any(learned)
    )
    shared = _share(g_constants, saved[2:], learned)
    return g_current, g_state if needed[1] else None, *shared, None, None, None, None


def _share(grads: Tensor, constants: Sequence[Tensor | None], learned: Sequence[bool]) -> Grads:
    """Return the gradient of each constant, from those of the longest ``[4, L]``."""
    if not any(learned):
        return (None,) * 4
    return tuple(
        (g if g.shape == c.shape else g.view(c.numel(), -1).sum(1)) if learns and c is not None else None
        for g, c, learns in zip(grads, constants, learned, strict=True)
    )


def _derive_twice(ctx: Any, *grads: Tensor | None) -> Grads:
    raise RuntimeError(
        "ultralif's fused operators can be differentiated once; for higher derivatives build the neuron "
        "with backend='reference', which runs the definition in ultralif.functional"
    )


integrate.register_autograd(_derive, setup_context=_setup)
integrate_backward.register_autograd(_derive_twice)
