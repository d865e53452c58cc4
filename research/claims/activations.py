"""The activation family: log-sum-exp and the soft spike as functions of a single input."""

import torch
from torch import Tensor

from ultralif.maxplus import lse, soft_spike

__all__ = ["dilation", "large_eps_form", "soft_step", "softplus"]


def softplus(x: Tensor, eps: float) -> Tensor:
    r"""Return :math:`L_\epsilon(0, x) = \epsilon \log(1 + e^{x/\epsilon})`; ReLU at ``eps = 0``."""
    terms = torch.stack((torch.zeros_like(x), x))
    return lse(terms, eps, dim=0) if eps > 0 else terms.amax(0)


def soft_step(x: Tensor, eps: float) -> Tensor:
    r"""Return :math:`\sigma(x / \epsilon)`: the slope of `softplus`; a step at ``eps = 0``."""
    return soft_spike(x, 0.0, eps) if eps > 0 else (x > 0).to(x.dtype)


def dilation(v: Tensor, eps: float, radius: int = 1) -> Tensor:
    """Return the soft maximum over a periodic neighbourhood; a morphological dilation at ``eps = 0``."""
    terms = torch.stack([v.roll(shift, -1) for shift in range(-radius, radius + 1)])
    return lse(terms, eps, dim=0) if eps > 0 else terms.amax(0)


def large_eps_form(x: Tensor, eps: float) -> Tensor:
    r"""Return :math:`\epsilon \log n + \bar x + \mathrm{Var}(x) / 2\epsilon`: log-sum-exp for large eps."""
    n = x.new_tensor(float(x.shape[-1]))
    return eps * n.log() + x.mean(-1) + x.var(-1, correction=0) / (2 * eps)
