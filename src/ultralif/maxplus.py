"""Max-plus algebra and its soft form: log-sum-exp at temperature eps, soft and hard spikes."""

import torch
from torch import Tensor

from ultralif.errors import InputError

__all__ = ["hard_spike", "lse", "matmul", "soft_spike"]


def lse(x: Tensor, eps: float | Tensor = 1.0, dim: int = -1) -> Tensor:
    r"""Return the soft maximum along a dimension, :math:`\epsilon \log \sum_i e^{x_i/\epsilon}` (eq. 3).

    It lies between ``max(x)`` and ``max(x) + eps * log(n)``, and its gradient is ``softmax(x / eps)``.
    The maximum is taken out first, so nothing overflows, and the gradient for ``eps`` is the entropy of
    that softmax without cancellation. ``-inf``, the zero of the algebra, is absorbed.

    Args:
        x: any real tensor.
        eps: temperature > 0; broadcasts against ``x`` before the reduction.
        dim: the dimension that is reduced.

    Example:
        >>> lse(torch.tensor([1.0, 1.0]), eps=0.5)  # 1 + 0.5 * log(2)
        tensor(1.3466)
    """
    top = x.amax(dim, keepdim=True).detach()
    infinite = torch.isinf(top)
    # Below 1000 * eps a term is exp(-1000) = 0 in every precision. Held there, it stays finite, and so does
    # what the chain rule multiplies by it: -inf * 0 would be NaN.
    floor = -1000.0 * (eps.detach() if isinstance(eps, Tensor) else eps)
    gap = torch.where(infinite, 0.0, x - top).clamp(min=floor)
    soft = top + eps * torch.log(torch.exp(gap / eps).sum(dim, keepdim=True))
    return torch.where(infinite, top, soft).squeeze(dim)


def soft_spike(v: Tensor, threshold: float | Tensor, eps: float | Tensor) -> Tensor:
    r"""Return the soft spike :math:`\sigma((v - \theta) / \epsilon)` (eq. 17).

    Example:
        >>> soft_spike(torch.tensor([0.0, 0.5, 1.0]), threshold=0.5, eps=0.1)
        tensor([0.0067, 0.5000, 0.9933])
    """
    return torch.sigmoid((v - threshold) / eps)


def hard_spike(v: Tensor, threshold: float | Tensor) -> Tensor:
    r"""Return the hard spike :math:`H(v - \theta)`: 1 where ``v > threshold``, strictly, else 0.

    Example:
        >>> hard_spike(torch.tensor([0.0, 0.5, 1.0]), threshold=0.5)
        tensor([0., 0., 1.])
    """
    return (v > threshold).to(v.dtype)


def matmul(a: Tensor, b: Tensor) -> Tensor:
    r"""Return the max-plus matrix product :math:`(A \otimes B)_{ij} = \max_k (A_{ik} + B_{kj})`.

    Example:
        >>> matmul(torch.tensor([[0.0, 1.0]]), torch.tensor([[2.0], [3.0]]))
        tensor([[4.]])
    """
    if a.dim() < 2 or b.dim() < 2 or a.shape[-1] != b.shape[-2]:
        raise InputError(
            f"matmul needs matrices [..., n, k] and [..., k, m], got {tuple(a.shape)} and "
            f"{tuple(b.shape)}; unsqueeze vectors and match the inner size"
        )
    return (a.unsqueeze(-1) + b.unsqueeze(-3)).amax(-2)
