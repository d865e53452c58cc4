"""The operators as PyTorch knows them: registered, traceable, differentiable once.

The device picks the implementation: Triton on CUDA, C on the CPU; elsewhere the definition runs, which keeps
every intermediate result for its derivative, at least 32 bytes for each step and neuron. For a small layer,
calling a registered operator takes longer than integrating. So it is called only where an operator must be
visible: to compilers, to fake tensors and to other modes. A plain call goes through
`torch.autograd.Function`.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ultralif.functional import compute_dtype
from ultralif.ops import cpu, flat, parallel
from ultralif.ops.constants import Learned
from ultralif.ops.layout import axes_by_memory, dense_strides, has_gap
from ultralif.ops.recurrence import Constants, Curve, Membrane, Reset, Rule, decode, encode, spelled_out

__all__ = ["is_fused", "kernels_for", "repeat", "run"]

Grads = tuple[Tensor | None, ...]


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
    if _gpu(current) is None or not plain:
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
            return parallel.run(_gpu(current), count, current, state, constants, rule)
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
    gpu = _gpu(current)
    if gpu is None or parallel.chunks(current, rule) > 1:
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
    return _gpu(current)


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
        out, last, borders = _forward(current, state, constants, rule, plan)
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
        kept = ctx.borders if spikes is None else spikes
        derive: Callable[..., tuple[Any, ...]] = _derivative if torch.is_grad_enabled() else _backward
        # The constants one by one, so that autograd sees those that are tensors.
        seen = [c.raw if isinstance(c, Learned) else c for c in ctx.constants]
        g_current, g_state, *g_constants = derive(
            *grads, current, state, ctx.constants, ctx.rule, needed[2:6], kept, ctx.plan, *seen
        )
        return g_current, g_state if needed[1] else None, *g_constants, None, None, None


def _tells_all(rule: Rule, current: Tensor) -> bool:
    """Tell whether the backward pass can compute the membrane from the spike, as for UltraLIF's soft spikes.

    Where such a spike is rounded to 0 or 1, the membrane is lost; but then the past has no share in any
    gradient. In a sum, or on a ring, it would have one; on a CPU a ring is integrated again where that
    happens.
    """
    on_gpu = _gpu(current) is not None
    return (
        current.dtype in ((torch.float32,) if on_gpu else (torch.float32, torch.float64))
        and rule.membrane == Membrane.LSE
        and rule.soft
        and not (rule.ring and (on_gpu or rule.at_spike))
        and rule.reset == Reset.ZERO
        and rule.curve == Curve.SIGMOID
        and rule.unit
        and not rule.rate
    )


def _forward(
    current: Tensor, state: Tensor | None, constants: Constants, rule: Rule, plan: Any = None
) -> tuple[Tensor, Tensor, Tensor | None]:
    gpu = _gpu(current)
    if gpu is not None:
        found: tuple[Tensor, Tensor, Tensor | None] = gpu.forward(current, state, constants, rule, plan)
        return found
    return *flat.forward(cpu, cpu.stored(current), state, constants, rule), None


def _backward(
    grad_out: Tensor | None,
    grad_state: Tensor | None,
    current: Tensor,
    state: Tensor | None,
    constants: Constants,
    rule: Rule,
    learned: tuple[bool, ...],
    kept: Tensor | None = None,
    plan: Any = None,
    *_: Tensor | float,
) -> tuple[Tensor | None, ...]:
    gpu = _gpu(current)
    if gpu is not None:
        found: tuple[Any, ...] = gpu.backward(
            grad_out, grad_state, current, state, constants, rule, learned, kept, plan
        )
    else:
        grad_out, grad_state = (None if g is None else cpu.stored(g) for g in (grad_out, grad_state))
        given = (cpu.stored(current), state, constants, rule, learned)
        found = flat.backward(cpu, grad_out, grad_state, *given, kept)
    return found[0], found[1], *found[2]


def _gpu(current: Tensor) -> Any:
    """Return the implementation for a GPU, if that is where the current is."""
    if current.is_cuda:
        from ultralif.ops import gpu  # imports triton, which a machine without a GPU need not have

        return gpu
    return None


class _Derivative(torch.autograd.Function):
    """The derivative where autograd may differentiate it again, which is refused."""

    @staticmethod
    def forward(ctx: Any, *args: Any) -> tuple[Tensor | None, ...]:
        return _backward(*args)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> Grads:
        return _derive_twice(ctx, *grads)


_apply: Callable[..., tuple[Tensor, Tensor]] = _Integrate.apply
_derivative: Callable[..., tuple[Tensor | None, ...]] = _Derivative.apply


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
    """Return the spikes (or their mean over time) and the last state: see `recurrence` and `run`.

    A constant is a tensor or, where that is None, a number among ``constants``; the last three arguments are
    a rule as `encode` writes it.
    """
    found = _constants((eps, leak, threshold, amplitude), constants)
    out, last, _ = _forward(current, state, found, decode(choices, ring, numbers))
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
    grads = _backward(grad_out, grad_state, current, state, found, rule, tuple(learned))
    return [current.new_empty(0) if g is None else g for g in grads]


def is_fused(current: Tensor, rule: Rule) -> bool:
    """Tell whether a kernel computes a rule for a current on its device."""
    if torch.compiler.is_compiling():  # the answer counts as a constant, since a built kernel stays built
        return _is_fused_by_choices(current.device.type, current.dtype, encode(rule)[0], rule.ring > 0)
    return _is_taken(current.device.type, current.dtype, rule)


def _is_fused_by_choices(device: str, dtype: torch.dtype, choices: str, ring: bool) -> bool:
    return _is_taken(device, dtype, decode(choices, int(ring), (0.0, 0.0, 0.0)))


# The mark that torch.compiler.assume_constant_result sets. Calling that would import the compiler, which
# takes a second.
vars(_is_fused_by_choices)["_dynamo_marked_constant"] = True


def _is_taken(device: str, dtype: torch.dtype, rule: Rule) -> bool:
    if device == "cuda":
        return dtype != torch.float64
    return device == "cpu" and cpu.available() and cpu.takes(rule)


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


def _derive_twice(ctx: Any, *grads: Tensor | None) -> Grads:
    raise RuntimeError(
        "ultralif's fused operators can be differentiated once; for higher derivatives build the neuron "
        "with backend='reference', which runs the definition in ultralif.functional"
    )


integrate.register_autograd(_derive, setup_context=_setup)
integrate_backward.register_autograd(_derive_twice)
