"""A layer's volumes: the volume of its weights' zonotope, and the log-volume.

The paper measures the zonotope's volume in input space (appendix C.3.3). It is zero for every layer with
fewer neurons than inputs, including the paper's own layers; use `log_volume` for these.
"""

from math import comb, inf, lgamma

import torch
from torch import Tensor

from ultralif.analysis.limits import largest, refuse_beyond
from ultralif.analysis.position import subset_batches
from ultralif.nn.volume import matrix_shape

__all__ = ["log_volume", "log_volume_gap", "zonotope_volume"]


def zonotope_volume(weight: Tensor, *, limit: int = 5_000_000) -> Tensor:
    r"""Return the exact n-volume of the zonotope, :math:`\sum_{|S| = n} |\det W_S|`; 0 for h < n.

    Args:
        weight: generators ``[h, n]``.
        limit: largest allowed number of determinants.

    Example:
        >>> zonotope_volume(torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]))
        tensor(3.)
    """
    h, n = matrix_shape(weight)
    work = comb(h, n)
    refuse_beyond(
        limit,
        work,
        1e-6 * n,
        f"the volume of {h} generators in {n} dimensions is a sum of {work:.3g} determinants",
        f"up to {largest(lambda k: comb(k, n), limit, h)} generators are feasible; log_volume has no limit",
    )
    volume = weight.new_zeros(())
    for batch in subset_batches(h, n, 100_000):
        volume = volume + torch.linalg.det(weight[batch]).abs().sum()
    return volume


def log_volume(weight: Tensor) -> Tensor:
    r"""Return :math:`\frac12 \log\det(W W^T)` for h <= n, :math:`\frac12 \log\det(W^T W)` for h >= n.

    For h <= n, it is exactly the log of the zonotope's h-volume. For h >= n, it is a lower bound on the log
    of its n-volume, and at most `log_volume_gap` below it. It is ``-inf`` if the weight is rank-deficient.

    Example:
        >>> log_volume(torch.tensor([[2.0, 0.0, 0.0], [1.0, 3.0, 0.0]])).exp()
        tensor(6.)
    """
    h, n = matrix_shape(weight)
    values: Tensor = torch.linalg.svdvals(weight.double())
    ends = values.detach()[[0, -1]].tolist() if min(h, n) else [0.0, 0.0]
    if ends[1] <= max(h, n) * torch.finfo(weight.dtype).eps * ends[0]:
        return weight.new_tensor(-inf)
    return values.log().sum().to(weight.dtype)


def log_volume_gap(h: int, n: int) -> float:
    r"""Return an upper bound on how far `log_volume` is below the log of the exact volume, for h >= n.

    By Cauchy-Binet :math:`\det W^T W = \sum_S \det(W_S)^2`, so
    :math:`\sqrt{\det} \le \mathrm{vol} \le \sqrt{\binom hn \det}`.

    Example:
        >>> log_volume_gap(5, 5), round(log_volume_gap(10, 5), 4)
        (0.0, 2.7647)
    """
    if h < n:
        return 0.0
    return 0.5 * (lgamma(h + 1) - lgamma(n + 1) - lgamma(h - n + 1))
