"""The recurrence in C, by the kernels that `native` builds and loads."""

import ctypes

import torch
from torch import Tensor

from ultralif.functional import compute_dtype
from ultralif.ops import native
from ultralif.ops.recurrence import Constants, Rule

__all__ = ["available", "backward", "forward", "takes"]


_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


class _Rule(ctypes.Structure):
    """`Rule` as kernels.c has it."""

    _fields_ = (
        ("parallel", ctypes.c_void_p),
        *(
            (name, ctypes.c_int64)
            for name in ("time", "batch", "features", "ring", "current_step", "grad_step")
        ),
        ("lengths", ctypes.c_int64 * 4),
        ("numbers", ctypes.c_double * 4),
        *((name, ctypes.c_double) for name in ("v_reset", "adapt_strength", "adapt_decay")),
        *(
            (name, ctypes.c_int32)
            for name in (
                "membrane",
                "leak_form",
                "soft",
                "through_reset",
                "rate",
                "centered",
                "adapt",
                "adapt_late",
                "learn",
                "threads",
            )
        ),
    )


def available() -> bool:
    """Tell whether the kernels could be built; the first call builds them."""
    return native.library() is not None


def takes(rule: Rule) -> bool:
    """Tell whether the kernels compute a rule."""
    return rule.is_classic


def forward(current: Tensor, state: Tensor | None, constants: Constants, rule: Rule) -> tuple[Tensor, Tensor]:
    """Return the spikes and the last state, as `Implementation` says."""
    x = _steps(current)
    out = torch.empty(x.shape[1:] if rule.rate else x.shape, dtype=x.dtype)
    last = torch.empty((rule.states, *x.shape[1:]), dtype=x.dtype)
    _call(rule, False, x, state, constants, out, last, None, None, None, None, None)
    return out.to(current.dtype), last


def backward(
    grad_out: Tensor | None,
    grad_state: Tensor | None,
    current: Tensor,
    state: Tensor | None,
    constants: Constants,
    rule: Rule,
    learn: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients for current, state and constants, as `Implementation` says."""
    x = _steps(current)
    g_current = torch.empty(x.shape, dtype=x.dtype)
    g_state = x.new_empty(0) if state is None else torch.empty(state.shape, dtype=x.dtype)
    g_constants = torch.empty((4, constants.longest()) if learn else 0, dtype=x.dtype)
    g_out = None if grad_out is None else _steps(grad_out.unsqueeze(0) if rule.rate else grad_out)
    _call(rule, learn, x, state, constants, None, None, g_out, grad_state, g_current, g_state, g_constants)
    return g_current.to(current.dtype), g_state, g_constants


def _steps(x: Tensor) -> Tensor:
    """Make every time step contiguous; from one to the next any distance will do."""
    x = _stored(x)
    x = x.to(compute_dtype(x.dtype))
    return x if x[0].is_contiguous() else x.contiguous()


def _stored(x: Tensor) -> Tensor:
    """Return a tensor whose memory holds its numbers, or refuse one that the kernels can't read."""
    if x.dtype not in _DTYPES or x.layout is not torch.strided:
        known = ", ".join(str(dtype).removeprefix("torch.") for dtype in _DTYPES)
        raise TypeError(
            f"neurons integrate dense tensors of {known}, got {x.dtype} ({x.layout}); "
            "convert with .to_dense() or .float()"
        )
    if x._is_zerotensor():  # zeros that nobody has stored
        return torch.zeros(x.shape, dtype=x.dtype)
    return x.resolve_neg()


def _call(
    rule: Rule,
    learn: bool,
    current: Tensor,
    state: Tensor | None,
    constants: Constants,
    *rest: Tensor | None,
) -> None:
    grad_out = rest[2]
    c_rule = _Rule(
        native.parallel(),
        *current.shape,
        rule.ring,
        current.stride(0),
        grad_out.stride(0) if grad_out is not None else 0,
        tuple(c.numel() if isinstance(c, Tensor) else 1 for c in constants),
        tuple(0.0 if isinstance(c, Tensor) else c for c in constants),
        rule.v_reset,
        rule.adapt_strength,
        rule.adapt_decay,
        rule.membrane,
        rule.leak_form,
        rule.soft,
        not rule.detach,
        rule.rate,
        rule.centered,
        rule.adapt,
        rule.adapt_late,
        learn,
        torch.get_num_threads(),
    )
    tensors = [
        _stored(t).contiguous() if isinstance(t, Tensor) and t is not current and t is not grad_out else t
        for t in (current, state, *constants, *rest)
    ]
    pointers = (ctypes.c_void_p * 13)(
        *(t.data_ptr() if isinstance(t, Tensor) and t.numel() else None for t in tensors)
    )
    library = native.library()
    assert library is not None  # noqa: S101 - the caller asked available()
    function = library.integrate_double if current.dtype == torch.float64 else library.integrate_float
    if function(ctypes.byref(c_rule), pointers):
        raise MemoryError(f"no memory to integrate a layer of {c_rule.features} neurons; use a smaller batch")
