"""Learned constants: a raw parameter, and the function that gives the constant."""

from collections.abc import Callable
from enum import IntEnum
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

__all__ = ["Form", "Learned", "bounded"]


class Form(IntEnum):
    """The function from a raw parameter to its constant."""

    VALUE = 1
    EXP = 2
    SIGMOID = 3
    SOFTPLUS = 4


_FUNCTIONS: dict[Form, Callable[[Tensor], Tensor]] = {
    Form.VALUE: lambda raw: raw,
    Form.EXP: torch.exp,
    Form.SIGMOID: torch.sigmoid,
    Form.SOFTPLUS: torch.nn.functional.softplus,
}


class Learned(NamedTuple):
    """A constant ``form(raw)``, clamped, and perhaps inverted; kernels compute it without another launch."""

    raw: Tensor
    form: Form
    low: float = -torch.inf
    high: float = torch.inf
    inward: bool = True
    """Outside of the bounds, pass the gradients whose descent step leads back inside; if false, pass none."""
    inverse: bool = False
    rows: Tensor | None = None
    """A row for each entry of ``raw``, as in `triton_constants`, which replaces all the fields above."""
    grad: Tensor | None = None
    """The tensor for its gradient; None, a new one."""

    def value(self) -> Tensor:
        """Return the constant by PyTorch's operators, which can be differentiated and traced."""
        value = _FUNCTIONS[self.form](self.raw)
        if self.low > -torch.inf or self.high < torch.inf:
            value = (bounded if self.inward else torch.clamp)(value, self.low, self.high)
        return 1 / value if self.inverse else value

    def pull(self, grad: Tensor) -> Tensor:
        """Return the gradient for the raw parameter from that for the constant."""
        with torch.enable_grad():
            raw = self.raw.detach().requires_grad_()
            (found,) = torch.autograd.grad(self._replace(raw=raw).value(), raw, grad.to(raw.dtype))
        return found


class _Clamp(torch.autograd.Function):
    """A clamp that, outside of its bounds, keeps each gradient whose descent step leads back inside."""

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
        # Few operators: on a GPU each is a launch, which takes longer than its computation.
        x, *tensors = ctx.saved_tensors
        low, high = (n if t is None else t for t, n in zip(tensors, ctx.numbers, strict=True))
        inward = torch.where(grads[0] > 0, x > low, x < high)
        return torch.where(inward, grads[0], 0.0), None, None


_clamp: Callable[[Tensor, float | Tensor, float | Tensor], Tensor] = _Clamp.apply


def bounded(x: Tensor, low: float | Tensor, high: float | Tensor) -> Tensor:
    """Clamp ``x``, but pass every gradient whose descent step would bring it back inside.

    An ordinary clamp has no gradient outside, and a temperature that once crossed its bound would stay
    there for good.
    """
    return _clamp(x, low, high)
