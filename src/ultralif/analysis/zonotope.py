"""Volumes of a layer: the zonotope of its weights, and the log-volume that a loss can use.

The paper's volume (appendix C.3.3) is that of the zonotope in input space. It vanishes for every layer with
fewer neurons than inputs, the paper's own included; `log_volume` takes its place there.
"""

from math import comb, inf, lgamma

import torch
from torch import Tensor, nn

from ultralif.analysis.limits import largest, refuse_beyond
from ultralif.analysis.position import subset_batches
from ultralif.errors import InputError

__all__ = ["log_volume", "log_volume_gap", "orthogonal_", "volume_regularizer", "zonotope_volume"]

JITTER = 1e-6
"""What `volume_regularizer` adds to the diagonal of the Gram matrix, in units of its mean."""


def zonotope_volume(weight: Tensor, *, limit: int = 5_000_000) -> Tensor:
    r"""Return the exact n-volume of the zonotope, :math:`\sum_{|S| = n} |\det W_S|`; 0 for h < n.

    Args:
        weight: generators ``[h, n]``.
        limit: refuse if there are more determinants than this.

    Example:
        >>> zonotope_volume(torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]))
        tensor(3.)
    """
    h, n = _shape(weight)
    work = comb(h, n)
    refuse_beyond(
        limit,
        work,
        1e-6 * n,
        f"the volume of {h} generators in {n} dimensions is a sum of {work:.3g} determinants",
        f"up to {largest(lambda k: comb(k, n), limit, h)} generators finish; log_volume works at any size",
    )
    volume = weight.new_zeros(())
    for batch in subset_batches(h, n, 100_000):
        volume = volume + torch.linalg.det(weight[batch]).abs().sum()
    return volume


def log_volume(weight: Tensor) -> Tensor:
    r"""Return :math:`\frac12 \log\det(W W^T)` for h <= n, :math:`\frac12 \log\det(W^T W)` for h >= n.

    For h <= n it is the log of the zonotope's h-volume, exactly. For h >= n it is a lower bound of the log
    of its n-volume, at most `log_volume_gap` below. It is ``-inf`` where the rank is deficient.

    Example:
        >>> log_volume(torch.tensor([[2.0, 0.0, 0.0], [1.0, 3.0, 0.0]])).exp()
        tensor(6.)
    """
    h, n = _shape(weight)
    values: Tensor = torch.linalg.svdvals(weight.double())
    ends = values.detach()[[0, -1]].tolist() if min(h, n) else [0.0, 0.0]
    if ends[1] <= max(h, n) * torch.finfo(weight.dtype).eps * ends[0]:
        return weight.new_tensor(-inf)
    return values.log().sum().to(weight.dtype)


def log_volume_gap(h: int, n: int) -> float:
    r"""Return how far at most `log_volume` lies below the log of the exact volume, for h >= n.

    By Cauchy-Binet :math:`\det W^T W = \sum_S \det(W_S)^2`, so
    :math:`\sqrt{\det} \le \mathrm{vol} \le \sqrt{\binom hn \det}`.

    Example:
        >>> log_volume_gap(5, 5), round(log_volume_gap(10, 5), 4)
        (0.0, 2.7647)
    """
    if h < n:
        return 0.0
    return 0.5 * (lgamma(h + 1) - lgamma(n + 1) - lgamma(h - n + 1))


def volume_regularizer(weight: Tensor) -> Tensor:
    r"""Return minus the log-volume of a layer, to be added to a loss with a small factor.

    .. math:: -\tfrac12 \log\det(G + \delta I), \quad G = W W^T \text{ or } W^T W,
        \quad \delta = 10^{-6} \, \mathrm{tr}(G) / m

    G is the smaller Gram matrix, ``[m, m]``; delta keeps the value and its gradient finite where the rank
    is deficient. Scaling W by c > 0 subtracts ``m * log(c)``, so the norm of the weights is drawn
    upwards too: combine it with weight decay if that matters. The gradient lies in the span of the rows:
    it widens every singular value that training, or noise, has left above zero.

    Args:
        weight: ``[h, n]``, such as ``linear.weight``.

    Example:
        >>> weight = torch.eye(3, 5, requires_grad=True)
        >>> volume_regularizer(weight).backward()
        >>> torch.allclose(weight.grad, -weight, atol=1e-5)
        True
    """
    h, n = _shape(weight)
    wide = weight.double()  # in float32 the rounding of G would drown the jitter
    gram = wide @ wide.T if h <= n else wide.T @ wide
    size = len(gram)
    scale = gram.diagonal().sum() / size
    jitter = (JITTER * scale).clamp_min(1e-30)
    # factoring out the scale keeps the determinant in range for tiny and for large weights
    eye = torch.eye(size, dtype=torch.float64, device=weight.device)
    scaled = (gram + jitter * eye) / (scale + jitter)
    log_det: Tensor = torch.linalg.slogdet(scaled).logabsdet + size * torch.log(scale + jitter)
    return (-0.5 * log_det).to(weight.dtype)


@torch.no_grad()
def orthogonal_(linear: nn.Linear, generator: torch.Generator | None = None) -> nn.Linear:
    """Make a layer's weights orthogonal in place, by QR, at the Frobenius norm they have; return the layer.

    Rows become orthogonal and equally long for h <= n, columns for h >= n. At that norm no weights have a
    greater `log_volume`.

    Example:
        >>> layer = orthogonal_(nn.Linear(5, 3))
        >>> gram = layer.weight @ layer.weight.T
        >>> torch.allclose(gram, gram[0, 0] * torch.eye(3), atol=1e-5)
        True
    """
    norm = linear.weight.norm()
    nn.init.orthogonal_(linear.weight, generator=generator)
    linear.weight.mul_(norm / linear.weight.norm())
    return linear


def _shape(weight: Tensor) -> tuple[int, int]:
    if weight.dim() != 2 or not weight.is_floating_point():
        raise InputError(
            f"weight must be a floating-point matrix [h, n], got {weight.dtype} of shape "
            f"{tuple(weight.shape)}"
        )
    return weight.shape[0], weight.shape[1]
