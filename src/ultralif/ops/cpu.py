"""The recurrence in C, by the kernels that `native` builds and loads."""

import ctypes

import torch
from torch import Tensor

from ultralif.functional import compute_dtype
from ultralif.ops import native
from ultralif.ops.constants import Learned
from ultralif.ops.recurrence import Constants, Curve, Membrane, Reset, Rule

__all__ = ["available", "backward", "forward", "stored", "takes"]

_TYPES = {torch.float32: 0, torch.float64: 0, torch.bfloat16: 1, torch.float16: 2}
"""The types of a current, by their number in kernels.c: the type of the membrane, or a 16-bit one."""
_Strides = ctypes.c_int64 * 3
_CHOICES = (
    "membrane",
    "soft",
    "reset",
    "detach",
    "curve",
    "clipped",
    "rate",
    "centered",
    "leak_form",
    "at_spike",
    "adapt",
    "adapt_late",
)


class _Constant(ctypes.Structure):
    """The structure `Constant` of constants.h."""

    _fields_ = (
        ("low", ctypes.c_double),
        ("high", ctypes.c_double),
        ("length", ctypes.c_int64),
        ("number", ctypes.c_double),
        *((name, ctypes.c_int32) for name in ("form", "inward", "inverse", "padding")),
    )


class _Rule(ctypes.Structure):
    """The structure `Rule` of kernels.c."""

    _fields_ = (
        ("parallel", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("time", "batch", "features", "ring")),
        ("current", _Strides),
        ("grad", _Strides),
        ("constants", _Constant * 4),
        *((name, ctypes.c_double) for name in ("v_reset", "adapt_strength", "adapt_decay")),
        *((name, ctypes.c_int32) for name in (*_CHOICES, "type", "threads")),
    )


def available() -> bool:
    """Tell whether the kernels could be built; the first call builds them."""
    return native.library() is not None


def takes(rule: Rule) -> bool:
    """Tell whether the kernels compute a rule: that of any neuron, except for soft spikes of a maximum."""
    plain = rule.curve == Curve.SIGMOID and rule.unit and not (rule.clipped or rule.adapt)
    if rule.membrane == Membrane.ADD:
        return not rule.ring and (plain or rule.reset != Reset.SATURATE)
    return (
        plain
        and not (rule.ring and rule.reset == Reset.SATURATE)
        and not (rule.membrane == Membrane.MAX and rule.soft)
    )


def forward(current: Tensor, state: Tensor | None, constants: Constants, rule: Rule) -> tuple[Tensor, Tensor]:
    """Return the spikes and the last state, as `Flat` describes them."""
    x = stored(current)
    out = torch.empty(x.shape[1:] if rule.rate else x.shape, dtype=x.dtype)
    last = torch.empty((rule.states, *x.shape[1:]), dtype=compute_dtype(x.dtype))
    _call(rule, x, state, constants, None, out, last, None, None, None, None, None)
    return out, last


def backward(
    grad_out: Tensor | None,
    grad_state: Tensor | None,
    current: Tensor,
    state: Tensor | None,
    constants: Constants,
    rule: Rule,
    learn: bool,
    spikes: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients for current, state and constants, as `Flat` describes them."""
    x = stored(current)
    dtype = compute_dtype(x.dtype)
    g_current = torch.empty(x.shape, dtype=x.dtype)
    g_state = torch.empty(0 if state is None else state.shape, dtype=dtype)
    g_constants = torch.empty((4, constants.longest()) if learn else 0, dtype=dtype)
    g_out = None if grad_out is None else stored(grad_out.to(x.dtype))
    told = spikes if spikes is not None and spikes.is_contiguous() and grad_state is None else None
    _call(rule, x, state, constants, g_out, None, None, grad_state, told, g_current, g_state, g_constants)
    return g_current, g_state, g_constants


def stored(x: Tensor) -> Tensor:
    """Return a tensor whose memory holds its numbers, or refuse one that the kernels can't read."""
    if x.dtype not in _TYPES or x.layout is not torch.strided:
        known = ", ".join(str(dtype).removeprefix("torch.") for dtype in _TYPES)
        raise TypeError(
            f"neurons integrate dense tensors of {known}, got {x.dtype} ({x.layout}); "
            "convert with .to_dense() or .float()"
        )
    if x._is_zerotensor():  # zeros that PyTorch has not stored
        return torch.zeros(x.shape, dtype=x.dtype)
    return x.resolve_neg()


def _constant(constant: Tensor | Learned | float) -> tuple[float, ...]:
    if isinstance(constant, Learned):
        _, form, low, high, inward, inverse, *_ = constant
        return low, high, constant.raw.numel(), 0.0, form, inward, inverse
    if isinstance(constant, Tensor):
        return 0.0, 0.0, constant.numel()
    return 0.0, 0.0, 1, constant


def _call(
    rule: Rule,
    current: Tensor,
    state: Tensor | None,
    constants: Constants,
    grad_out: Tensor | None,
    out: Tensor | None,
    last: Tensor | None,
    grad_state: Tensor | None,
    *grads: Tensor | None,
) -> None:
    c_rule = _Rule(
        native.parallel(),
        *current.shape,
        rule.ring,
        current.stride(),
        (0, 0, 0) if grad_out is None else (0, *grad_out.stride())[-3:],
        tuple([_constant(c) for c in constants]),
        rule.v_reset,
        rule.adapt_strength,
        rule.adapt_decay,
        *(getattr(rule, name) for name in _CHOICES),
        _TYPES[current.dtype],
        torch.get_num_threads(),
    )
    raws = [c.raw if isinstance(c, Learned) else c for c in constants]
    state, grad_state, *rest = (
        stored(t).contiguous() if isinstance(t, Tensor) else None for t in (state, grad_state, *raws)
    )
    tensors = (current, state, *rest, out, last, grad_out, grad_state, *grads)
    pointers = (ctypes.c_void_p * 14)(
        *(t.data_ptr() if t is not None and t.numel() else None for t in tensors)
    )
    library = native.library()
    assert library is not None  # noqa: S101 - the caller asked available()
    function = library.integrate_double if current.dtype == torch.float64 else library.integrate_float
    if function(ctypes.byref(c_rule), pointers):
        raise MemoryError(f"no memory to integrate a layer of {c_rule.features} neurons; use a smaller batch")
