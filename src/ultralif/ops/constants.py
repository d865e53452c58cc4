"""Learned constants: a raw parameter, and the function that decodes it.

`decode` is the definition, and PyTorch derives its gradient. Kernels have a function of the same name in
cpu/constants.h and triton/common.py, which also returns the slope; tests compare both with the definition for
every form.
"""

import math
from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

__all__ = [
    "LOG",
    "LOGIT",
    "SOFTPLUS",
    "Form",
    "Learned",
    "Value",
    "bounded",
    "decode",
    "tensors_of",
    "value_of",
]


class Form(IntEnum):
    """The function from a raw parameter to its constant; kernels identify it by its number."""

    VALUE = 1
    EXP = 2
    LOGISTIC = 3
    SOFTPLUS = 4

    @property
    def prefix(self) -> str:
        """The first word of the parameter's name."""
        return _TABLE[self][0]

    @property
    def upper(self) -> float:
        """Upper limit of the value; the lower limit is 0 unless the value is the parameter itself."""
        return _TABLE[self][3]

    def to_value(self, raw: Tensor) -> Tensor:
        """Return the constant for a raw parameter."""
        return _TABLE[self][1](raw)

    def to_raw(self, value: Tensor) -> Tensor:
        """Return the raw parameter for a constant."""
        return _TABLE[self][2](value)


def _inverse_softplus(x: Tensor) -> Tensor:
    return x + torch.log(-torch.expm1(-x))


_Function = Callable[[Tensor], Tensor]
_TABLE: dict[Form, tuple[str, _Function, _Function, float]] = {
    Form.VALUE: ("raw", lambda raw: raw, lambda value: value, math.inf),
    Form.EXP: ("log", torch.exp, torch.log, math.inf),
    Form.LOGISTIC: ("logit", torch.sigmoid, torch.logit, 1.0),
    Form.SOFTPLUS: ("softplus", torch.nn.functional.softplus, _inverse_softplus, math.inf),
}
LOG = Form.EXP
"""Learned as its logarithm, so it stays positive."""
LOGIT = Form.LOGISTIC
"""Learned as its logit, so it stays between 0 and 1."""
SOFTPLUS = Form.SOFTPLUS
"""Learned as its inverse softplus, so it stays positive; large values change at the parameter's rate."""


class Learned(NamedTuple):
    """A constant ``form(raw)``, clamped and optionally inverted; kernels decode it without another launch."""

    raw: Tensor
    form: Form
    low: float = -torch.inf
    high: float = torch.inf
    inverse: bool = False
    rows: Tensor | None = None
    """A row for each entry of ``raw``, as in `triton.common`, which replaces all the fields above."""
    grad: Tensor | None = None
    """The tensor that receives its gradient; None allocates one."""

    def value(self) -> Tensor:
        """Return the constant, computed by PyTorch operators, so it can be differentiated and traced."""
        value = decode(self.raw, self.form, self.low, self.high)
        return 1 / value if self.inverse else value

    def pull(self, grad: Tensor) -> Tensor:
        """Return the gradient for the raw parameter, given that for the constant."""
        with torch.enable_grad():
            raw = self.raw.detach().requires_grad_()
            (found,) = torch.autograd.grad(self._replace(raw=raw).value(), raw, grad.to(raw.dtype))
        return found


Value = float | Tensor | Learned
"""A constant in any form that operators accept."""


def value_of(constant: Value) -> float | Tensor:
    """Return the value of a constant, decoded by PyTorch operators if it is learned."""
    return constant.value() if isinstance(constant, Learned) else constant


def tensors_of(constants: Iterable[Value]) -> list[Tensor | None]:
    """Return the tensor that a kernel reads for each constant: raw if it is learned, None for a number."""
    return [c.raw if isinstance(c, Learned) else c if isinstance(c, Tensor) else None for c in constants]


def decode(
    raw: Tensor,
    form: Form | Tensor,
    low: float | Tensor,
    high: float | Tensor,
    forms: Iterable[Form] = Form,
) -> Tensor:
    """Decode constants from their raw parameters, and clamp them.

    Args:
        raw: the raw parameters.
        form: the function, or a tensor with the number of each entry's function.
        low: the lower bound, or a tensor with one per entry.
        high: the upper bound, or a tensor with one per entry.
        forms: the functions that occur in ``form``, if it is a tensor.
    """
    if not isinstance(form, Form):
        value = raw
        for one in forms:
            chosen = form == one
            value = torch.where(chosen, one.to_value(raw * chosen), value)  # the others may overflow
        return bounded(value, low, high)
    value = form.to_value(raw)
    return value if (low, high) == (-math.inf, math.inf) else bounded(value, low, high)


class _Clamp(torch.autograd.Function):
    """A clamp that, outside its bounds, passes gradients whose descent step leads back inside."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, low: float | Tensor, high: float | Tensor) -> Tensor:
        return torch.clamp(x, cast(Any, low), cast(Any, high))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Any, Any], output: Tensor) -> None:
        x, low, high = inputs
        tensors = (bound if isinstance(bound, Tensor) else None for bound in (low, high))
        ctx.save_for_backward(x, *tensors)
        ctx.numbers = low, high

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        # Use few operators: on a GPU, launching one takes longer than its computation.
        x, *tensors = ctx.saved_tensors
        low, high = (n if t is None else t for t, n in zip(tensors, ctx.numbers, strict=True))
        inward = torch.where(grads[0] > 0, x > low, x < high)
        return torch.where(inward, grads[0], 0.0), None, None


_clamp: Callable[[Tensor, float | Tensor, float | Tensor], Tensor] = _Clamp.apply


def bounded(x: Tensor, low: float | Tensor, high: float | Tensor) -> Tensor:
    """Clamp ``x``, but pass every gradient whose descent step leads back inside.

    An ordinary clamp has zero gradient outside, so a temperature that crossed its bound would stay there
    forever.
    """
    return _clamp(x, low, high)
