"""Max-plus algebra and its soft form: log-sum-exp at temperature eps, spikes, matrices."""

import torch
from torch import Tensor

from ultralif.errors import InputError

__all__ = [
    "eigenvalue",
    "eigenvector",
    "exponentiate",
    "hard_spike",
    "identity",
    "lse",
    "matmul",
    "power",
    "soft_spike",
    "star",
    "ultradiscretize",
]

MAX_TERMS = 2**25
"""A product with more sums than this is computed a few rows at a time."""


def lse(x: Tensor, eps: float | Tensor = 1.0, dim: int = -1) -> Tensor:
    r"""Return the soft maximum along a dimension, :math:`\epsilon \log \sum_i e^{x_i/\epsilon}` (eq. 3).

    It lies between ``max(x)`` and ``max(x) + eps * log(n)``, and its gradient is ``softmax(x / eps)``.
    The maximum is factored out first, so nothing overflows, and the gradient with respect to ``eps``, the
    entropy of that softmax, is free of cancellation. ``-inf``, the zero of the algebra, is absorbed.

    Args:
        x: any real tensor.
        eps: temperature > 0; broadcasts against ``x`` before the reduction.
        dim: the dimension to reduce.

    Example:
        >>> lse(torch.tensor([1.0, 1.0]), eps=0.5)  # 1 + 0.5 * log(2)
        tensor(1.3466)
    """
    top = x.amax(dim, keepdim=True).detach()
    infinite = torch.isinf(top)
    # A term more than 1000 * eps below the maximum is exp(-1000) = 0 in every precision. Clamping keeps it
    # finite, along with its factors in the chain rule: -inf * 0 would be NaN.
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
    r"""Return the hard spike :math:`H(v - \theta)`: 1 where ``v > threshold`` (strictly), else 0.

    Example:
        >>> hard_spike(torch.tensor([0.0, 0.5, 1.0]), threshold=0.5)
        tensor([0., 0., 1.])
    """
    return (v > threshold).to(v.dtype)


def ultradiscretize(x: Tensor, eps: float | Tensor = 1.0) -> Tensor:
    r"""Map positive numbers into the algebra, :math:`D_\epsilon(x) = \epsilon \log x` (theorem 5.7).

    It turns sums into `lse` and products into sums, exactly, for every ``eps > 0``. 0 becomes ``-inf``.

    Example:
        >>> x = torch.tensor([1.0, 2.0])
        >>> torch.allclose(ultradiscretize(x.sum(), 0.5), lse(ultradiscretize(x, 0.5), 0.5))
        True
    """
    return eps * torch.log(x)


def exponentiate(x: Tensor, eps: float | Tensor = 1.0) -> Tensor:
    r"""Return :math:`e^{x/\epsilon}`, the inverse of `ultradiscretize`.

    Example:
        >>> exponentiate(torch.tensor([0.0]), 1.0)
        tensor([1.])
    """
    return torch.exp(x / eps)


def matmul(a: Tensor, b: Tensor, eps: float = 0.0) -> Tensor:
    r"""Return the max-plus matrix product :math:`(A \otimes B)_{ij} = \max_k (A_{ik} + B_{kj})`.

    Args:
        a: ``[..., n, k]``.
        b: ``[..., k, m]``.
        eps: a temperature > 0 replaces the maximum by `lse`, which gives the image of the ordinary product
            under `ultradiscretize`.

    Example:
        >>> matmul(torch.tensor([[0.0, 1.0]]), torch.tensor([[2.0], [3.0]]))
        tensor([[4.]])
    """
    if a.dim() < 2 or b.dim() < 2 or a.shape[-1] != b.shape[-2]:
        raise InputError(
            f"matmul needs matrices [..., n, k] and [..., k, m], got {tuple(a.shape)} and "
            f"{tuple(b.shape)}; unsqueeze vectors and match the inner size"
        )
    rows = max(1, MAX_TERMS * a.shape[-2] // max(a.numel() * b.shape[-1], 1))
    if rows < a.shape[-2]:
        return torch.cat([matmul(part, b, eps) for part in torch.split(a, rows, -2)], -2)
    terms = a.unsqueeze(-1) + b.unsqueeze(-3)
    return lse(terms, eps, dim=-2) if eps > 0 else terms.amax(-2)


def identity(n: int, dtype: torch.dtype | None = None, device: torch.device | None = None) -> Tensor:
    """Return the identity matrix of the algebra: 0 on the diagonal, ``-inf`` elsewhere.

    Example:
        >>> identity(2)
        tensor([[0., -inf],
                [-inf, 0.]])
    """
    return torch.full((n, n), -torch.inf, dtype=dtype, device=device).fill_diagonal_(0.0)


def power(a: Tensor, exponent: int, eps: float = 0.0) -> Tensor:
    r"""Return :math:`A^{\otimes k}`: entry ij is the largest weight of a walk with k edges from i to j.

    Args:
        a: ``[n, n]``.
        exponent: k >= 0.
        eps: see `matmul`.

    Example:
        >>> power(torch.tensor([[0.0, 2.0], [1.0, 0.0]]), 4)
        tensor([[6., 5.],
                [4., 6.]])
    """
    _check_square(a)
    if exponent < 0:
        raise InputError(f"exponent must be >= 0, got {exponent}: max-plus matrices have no inverse")
    result = identity(len(a), a.dtype, a.device)
    while exponent:
        if exponent & 1:
            result = matmul(result, a, eps)
        exponent >>= 1
        if exponent:
            a = matmul(a, a, eps)
    return result


def eigenvalue(a: Tensor) -> Tensor:
    r"""Return the eigenvalue, :math:`A \otimes x = \lambda + x`: the largest mean weight of a circuit.

    It is computed by Karp's algorithm. It is the growth per step of :math:`A^{\otimes k} \otimes x`, and
    ``-inf`` if there is no circuit.

    Example:
        >>> eigenvalue(torch.tensor([[0.0, 2.0], [1.0, 0.0]]))
        tensor(1.5000)
    """
    _check_square(a)
    n = len(a)
    walks = [a.new_zeros(n)]  # the largest weight of a walk with k edges from each node
    for _ in range(n):
        walks.append((a + walks[-1]).amax(-1))
    longest = walks.pop()
    on = torch.isfinite(longest)
    if not bool(on.any()):
        return a.new_tensor(-torch.inf)
    edges = torch.arange(n, 0, -1, dtype=a.dtype, device=a.device).unsqueeze(1)
    means = (longest[on] - torch.stack(walks)[:, on]) / edges
    return means.amin(0).amax()


def eigenvector(a: Tensor) -> Tensor:
    r"""Return an eigenvector, :math:`A \otimes x = \lambda + x`, with largest entry 0.

    Example:
        >>> eigenvector(torch.tensor([[0.0, 2.0], [1.0, 0.0]]))
        tensor([ 0.0000, -0.5000])
    """
    rate = eigenvalue(a)
    if not bool(torch.isfinite(rate)):
        raise InputError("a has no circuit, so its eigenvalue is -inf and it has no eigenvector; add an edge")
    walks = _closure(a - rate)
    critical = walks.diagonal().argmax()
    return walks[:, critical] - walks[:, critical].max()


def star(a: Tensor) -> Tensor:
    r"""Return the Kleene star :math:`A^* = I \oplus A \oplus A^{\otimes 2} \oplus \dots`.

    Entry ij is the largest weight of any walk from i to j.

    Raise an InputError if it diverges, that is, if there is a circuit of positive weight.

    Example:
        >>> star(torch.tensor([[-1.0, 2.0], [-3.0, -1.0]]))
        tensor([[ 0.,  2.],
                [-3.,  0.]])
    """
    rate = eigenvalue(a)
    finite = a[torch.isfinite(a)]
    rounding = len(a) * torch.finfo(a.dtype).eps * float(finite.abs().max()) if finite.numel() else 0.0
    if float(rate) > rounding:
        raise InputError(
            f"a has a circuit of mean weight {float(rate):g} > 0, so its Kleene star diverges; "
            "subtract eigenvalue(a) from it first"
        )
    return torch.maximum(_closure(a), identity(len(a), a.dtype, a.device))


def _closure(a: Tensor) -> Tensor:
    """Return the largest weight of a walk with at least one edge, if all circuits have weight <= 0."""
    for k in range(len(a)):
        a = torch.maximum(a, a[:, k : k + 1] + a[k : k + 1])
    return a


def _check_square(a: Tensor) -> None:
    if a.dim() != 2 or a.shape[0] != a.shape[1] or not a.numel() or not a.is_floating_point():
        raise InputError(
            f"a must be a square matrix of floating-point numbers, got {a.dtype} of shape {tuple(a.shape)}"
        )
    if not bool((a < torch.inf).all()):
        raise InputError("a contains NaN or +inf, which do not exist in max-plus algebra; -inf means no edge")
