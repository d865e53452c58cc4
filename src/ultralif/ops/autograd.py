"""A layer as a single autograd node: which kernels run, what a call saves, and its derivative.

Triton kernels run on CUDA, C kernels on the CPU. On other devices the definition runs, which stores every
intermediate result for its derivative: at least 32 bytes per step and neuron.

For a small layer, calling a custom operator takes longer than integrating. So the operator is called only
where it must be visible: to compilers, fake tensors and other modes. A plain call goes through
`torch.autograd.Function`. Either can be differentiated once.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ultralif.functional import compute_dtype
from ultralif.ops.constants import Learned, Value, tensors_of, value_of
from ultralif.ops.cpu import build, chunks
from ultralif.ops.cpu import plan as cpu
from ultralif.ops.layout import axes_by_memory, dense_strides, has_gap, shape_of
from ultralif.ops.rule import Constants, Rule, decode, encode, spelled_out

if TYPE_CHECKING:
    from ultralif.ops.triton.plan import LaunchPlan

__all__ = ["Repeated", "find_plan", "has_kernel", "is_fused", "is_plain", "on_gpu", "run", "runs_triton"]

Grads = tuple[Tensor | None, ...]


def is_fused(current: Tensor, rule: Rule) -> bool:
    """Return whether there is a kernel for a rule on the current's device."""
    if torch.compiler.is_compiling():  # the answer never changes: a built kernel stays built
        return _is_fused_by_choices(current.device.type, current.dtype, encode(rule)[0], rule.ring > 0)
    return has_kernel(current.device.type, current.dtype, rule)


def _is_fused_by_choices(device: str, dtype: torch.dtype, choices: str, ring: bool) -> bool:
    return has_kernel(device, dtype, decode(choices, int(ring), (0.0, 0.0, 0.0)))


# Set the same mark as torch.compiler.assume_constant_result. Calling that would import the compiler, which
# takes a second.
vars(_is_fused_by_choices)["_dynamo_marked_constant"] = True


def has_kernel(device: str, dtype: torch.dtype, rule: Rule) -> bool:
    """Return whether a device has kernels for a rule."""
    if device == "cuda":
        return dtype != torch.float64
    return device == "cpu" and cpu.takes(rule) and build.library() is not None


def on_gpu(current: Tensor) -> bool:
    """Return whether Triton kernels integrate a current."""
    return current.is_cuda


def is_plain(current: Tensor) -> bool:
    """Return whether a call is plain: no compiler, transform or mode, and no fake tensor or subclass."""
    return not (
        torch.compiler.is_compiling()
        or type(current) is not Tensor
        or current.is_meta
        or torch._C._len_torch_dispatch_stack()
        or torch._C._are_functorch_transforms_active()
    )


def runs_triton(current: Tensor) -> bool:
    """Return whether a call launches Triton kernels directly, outside any custom operator."""
    return is_plain(current) and on_gpu(current)


def find_plan(
    current: Tensor, state: Tensor | None, constants: Constants, rule: Rule
) -> "cpu.CallPlan | LaunchPlan":
    """Return the plan for a call, an object with the methods ``forward`` and ``backward``."""
    if on_gpu(current):
        from ultralif.ops.triton import plan as triton_plan  # imports triton

        return triton_plan.find_plan(current, state, constants, rule)
    return cpu.find_plan(current, constants, rule)


def run(current: Tensor, state: Tensor | None, constants: Constants, rule: Rule) -> tuple[Tensor, Tensor]:
    """Return the spikes (or their mean over time) and the last state.

    Args:
        current: ``[T, B, *features]`` in any layout, which the spikes keep if it is dense.
        state: membrane, and for AdaLIF adaptation and last spike, ``[1 or 3, B, *features]``.
        constants: tensors and raw parameters broadcast against the features.
        rule: what to compute.
    """
    plain = is_plain(current)
    count = chunks.chunks(current, rule) if plain else 1
    if not plain or not on_gpu(current):
        dtype = compute_dtype(current.dtype)
        reads_raw = plain and count == 1 and not rule.sharp
        constants = Constants(
            *[
                c.value().to(dtype)
                if isinstance(c, Learned) and not (reads_raw and c.raw.dtype == dtype)
                else c
                for c in constants
            ]
        )
        constants, rule = spelled_out(constants, rule)
    if any(has_gap(shape_of(c)) for c in constants):
        constants = Constants(
            *[_filled(c, current.shape[2:]) if has_gap(shape_of(c)) else c for c in constants]
        )
    tensors = tensors_of(constants)
    if plain and count > 1:
        return chunks.run(count, current, state, *tensors, constants, rule)
    if plain:
        return _apply(current, state, *tensors, constants, rule, None)
    numbers = [1.0 if isinstance(c, Tensor | Learned) else c for c in constants]
    spikes, last = integrate(current, state, *tensors, numbers, *encode(rule))
    return spikes, last


class Repeated:
    """A call from rest that is repeated many times with the same constants, rule and plan."""

    def __init__(self, current: Tensor, constants: Constants, rule: Rule, names: dict[int, str]) -> None:
        self.constants, self.rule = constants, rule
        self.tensors = tensors_of(constants)
        self.raws = [(names[id(raw)], raw) for raw in self.tensors if raw is not None]
        self.plan = find_plan(current, None, constants, rule)

    def __call__(self, current: Tensor, parameters: Mapping[str, Tensor | None]) -> Tensor | None:
        """Return the spikes; None if a parameter was replaced."""
        for name, raw in self.raws:
            if parameters[name] is not raw:
                return None
        return _apply(current, None, *self.tensors, self.constants, self.rule, self.plan)[0]


def repeated(
    current: Tensor, constants: Constants, rule: Rule, parameters: Mapping[str, Tensor | None]
) -> Repeated | None:
    """Return a repeatable call, or None unless its constants are numbers or parameters that kernels read."""
    names = {id(parameter): name for name, parameter in parameters.items()}
    gpu, dtype = on_gpu(current), compute_dtype(current.dtype)
    if not gpu and (rule.sharp or chunks.chunks(current, rule) > 1):
        return None
    for constant in constants:
        if isinstance(constant, Tensor):
            return None
        if isinstance(constant, Learned) and (
            id(constant.raw) not in names
            or has_gap(tuple(constant.raw.shape))
            or not (gpu or constant.raw.dtype == dtype)
        ):
            return None
    return Repeated(current, constants, rule, names)


def _filled(constant: Value, features: torch.Size) -> Tensor:
    return torch.as_tensor(value_of(constant)).expand(features).contiguous()


class _Integrate(torch.autograd.Function):
    """The recurrence and its derivative, computed by calling the kernels directly."""

    @staticmethod
    def forward(ctx: Any, current: Tensor, state: Tensor | None, *rest: Any) -> tuple[Tensor, Tensor]:
        *tensors, constants, rule, plan = rest
        if plan is None:
            plan = find_plan(current, state, constants, rule)
        out, last, borders = plan.forward(current, state, constants)
        ctx.save_for_backward(current, state, *tensors)
        ctx.constants, ctx.plan, ctx.borders = constants, plan, borders
        # The spikes are not saved by `save_for_backward`: if they are changed in place, there is no error,
        # and the derivative starts from the current instead. Where a spike is rounded to 0 or 1, the membrane
        # is lost, but then the past contributes to no gradient. On a ring it would contribute, so a ring is
        # integrated again where that happens. The spikes are not kept under saved-tensor hooks either, such
        # as those of checkpointing, because the hooks would not see them.
        exact = current.dtype == torch.float32 or (current.dtype == torch.float64 and not on_gpu(current))
        hooked = torch._C._autograd._top_saved_tensors_default_hooks(True) is not None
        invertible = exact and rule.invertible and not out.is_inference() and not hooked
        ctx.spikes, ctx.version = (out.detach(), out._version) if invertible else (None, 0)
        ctx.set_materialize_grads(False)
        return out, last

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> Grads:
        current, state, *tensors = ctx.saved_tensors
        needed = ctx.needs_input_grad
        spikes = ctx.spikes if ctx.spikes is not None and ctx.spikes._version == ctx.version else None
        given = (*grads, current, state, ctx.constants, needed[2:6], (spikes, ctx.borders))
        if torch.is_grad_enabled():  # pass the tensors one by one, so that autograd sees them
            g_current, g_state, *g_constants = _derivative(ctx.plan, given, *grads, current, state, *tensors)
        else:
            g_current, g_state, g_constants = ctx.plan.backward(*given)
        return g_current, g_state if needed[1] else None, *g_constants, None, None, None


class _Derivative(torch.autograd.Function):
    """The derivative, which cannot be differentiated again."""

    @staticmethod
    def forward(ctx: Any, plan: Any, given: tuple[Any, ...], *seen: Tensor | None) -> Grads:
        g_current, g_state, g_constants = plan.backward(*given)
        return g_current, g_state, *g_constants

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> Grads:
        return derive_twice(ctx, *grads)


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
    """Return the spikes (or their mean over time) and the last state: see `rule` and `run`.

    A constant is a tensor or, where that is None, a number in ``constants``; the last three arguments are a
    rule as returned by `encode`.
    """
    found = _constants((eps, leak, threshold, amplitude), constants)
    rule = decode(choices, ring, numbers)
    out, last, _ = find_plan(current, state, found, rule).forward(current, state, found)
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
    """Return the gradients for the current, the state and each constant; an empty tensor means none."""
    found = _constants((eps, leak, threshold, amplitude), constants)
    plan = find_plan(current, state, found, decode(choices, ring, numbers))
    grads = plan.backward(grad_out, grad_state, current, state, found, tuple(learned))
    return [current.new_empty(0) if g is None else g for g in (*grads[:2], *grads[2])]


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
    """Raise an error for a second derivative."""
    raise RuntimeError(
        "ultralif's fused operators can be differentiated once; for higher derivatives build the neuron "
        "with backend='reference', which runs the definition in ultralif.functional"
    )


integrate.register_autograd(_derive, setup_context=_setup)
integrate_backward.register_autograd(derive_twice)
