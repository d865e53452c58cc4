"""The log-volume of a layer as a penalty, and the orthogonal initialisation that maximises it."""

import torch
from torch import Tensor, nn

from ultralif.errors import InputError

__all__ = ["matrix_shape", "orthogonal_", "volume_regularizer"]

JITTER = 1e-6
"""Constant that `volume_regularizer` adds to the Gram matrix's diagonal, relative to the diagonal's mean."""


def volume_regularizer(weight: Tensor) -> Tensor:
    r"""Return a layer's negative log-volume, to be added to a loss with a small factor.

    .. math:: -\tfrac12 \log\det(G + \delta I), \quad G = W W^T \text{ or } W^T W,
        \quad \delta = 10^{-6} \, \mathrm{tr}(G) / m

    G is the smaller Gram matrix, ``[m, m]``; delta keeps the value and its gradient finite if W is
    rank-deficient. Scaling W by c > 0 subtracts ``m * log(c)``, so the penalty also increases the norm of the
    weights: combine it with weight decay if that matters. The gradient lies in the span of the rows, so it
    increases every nonzero singular value.

    Args:
        weight: ``[h, n]``, such as ``linear.weight``.

    Example:
        >>> weight = torch.eye(3, 5, requires_grad=True)
        >>> volume_regularizer(weight).backward()
        >>> torch.allclose(weight.grad, -weight, atol=1e-5)
        True
    """
    h, n = matrix_shape(weight)
    wide = weight.double()  # in float32, rounding errors in G would exceed the jitter
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
    """Make a layer's weights orthogonal in place by QR, with an unchanged Frobenius norm; return the layer.

    For h <= n the rows become orthogonal and equal in length, for h >= n the columns. No weights of that
    norm have a greater log-volume.

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


def matrix_shape(weight: Tensor) -> tuple[int, int]:
    """Return the sizes ``[h, n]`` of a weight matrix, or raise an error if it is not a matrix."""
    if weight.dim() != 2 or not weight.is_floating_point():
        raise InputError(
            f"weight must be a floating-point matrix [h, n], got {weight.dtype} of shape "
            f"{tuple(weight.shape)}"
        )
    return weight.shape[0], weight.shape[1]
