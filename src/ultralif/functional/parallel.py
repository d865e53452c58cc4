r"""UltraLIF in parallel over time: its membrane is a product of 2x2 matrices in the soft max-plus algebra.

Unless a spike resets the membrane, a time step acts on it like a matrix on the vector (V, 0):

.. math::

    M_t = \begin{pmatrix} \log\tau & I_t \\ \log\tau - V_{sat} & 0 \oplus (I_t - V_{sat}) \end{pmatrix},
    \qquad
    \tilde V_t = (V_{t-1} + \log\tau) \oplus I_t, \quad V_t = \tilde V_t - (0 \oplus (\tilde V_t - V_{sat}))

where :math:`\oplus` is log-sum-exp at temperature eps, or the maximum in tropical mode, and the second entry
of the product is subtracted from the first. In terms of :math:`u = e^{V/\epsilon}`, the step is the linear
map :math:`\tilde u = \lambda u + c` with :math:`\lambda = \tau^{1/\epsilon}`, followed by the saturating
reset :math:`\tilde u / (1 + \tilde u/U)`. :math:`V_{sat} = \infty` means no reset.

Matrix products are associative, so all of :math:`M_t \otimes \dots \otimes M_1` can be computed in 2 log2(T)
rounds of products. Adding a number to all entries of a matrix does not change its map, so each product is
shifted so that its largest entry is 0, and nothing overflows.
"""

import math

import torch
from torch import Tensor

from ultralif.functional.scan import Constant
from ultralif.maxplus import lse

__all__ = ["follow", "membranes", "prefix_products", "product", "step_matrices"]


def membranes(
    current: Tensor,
    v0: Tensor,
    *,
    eps: Constant,
    leak: Constant,
    v_sat: Constant = math.inf,
    tropical: bool = False,
) -> Tensor:
    """Return the membrane before the first step and after every step, ``[T + 1, B, *features]``.

    Args:
        current: ``[T, B, *features]``.
        v0: the membrane before the first step, ``[B, *features]``.
        eps: temperature > 0.
        leak: decay factor in (0, 1).
        v_sat: ceiling of the saturating reset; infinity means no reset.
        tropical: use the maximum instead of the log-sum-exp.

    Example:
        >>> current = torch.zeros(3, 1, 1)
        >>> membranes(current, torch.zeros(1, 1), eps=1.0, leak=0.5).exp().flatten()  # u = u / 2 + 1
        tensor([1.0000, 1.5000, 1.7500, 1.8750])
    """
    matrices = step_matrices(current, eps=eps, leak=leak, v_sat=v_sat, tropical=tropical)
    return follow(prefix_products(matrices, eps, tropical), v0, eps, tropical)


def follow(products: Tensor, v0: Tensor, eps: Constant, tropical: bool = False) -> Tensor:
    """Return a membrane ``[B, *features]``, followed by the result of applying each of the products to it."""
    start = torch.stack((v0, torch.zeros_like(v0))).unsqueeze(1)
    after, scale = product(products, start.unsqueeze(1), eps, tropical)[:, 0]
    return torch.cat((v0.unsqueeze(0), after - scale))


def step_matrices(
    current: Tensor, *, eps: Constant, leak: Constant, v_sat: Constant, tropical: bool = False
) -> Tensor:
    """Return the matrix of every time step, ``[2, 2, T, B, *features]``."""
    decay = torch.log(torch.as_tensor(leak, dtype=current.dtype, device=current.device)).expand_as(current)
    unit = _add(torch.stack((torch.zeros_like(current), current - v_sat)), 0, eps, tropical)
    return torch.stack((torch.stack((decay, current)), torch.stack((decay - v_sat, unit))))


def prefix_products(matrices: Tensor, eps: Constant, tropical: bool = False) -> Tensor:
    r"""Return :math:`M_t \otimes \dots \otimes M_1` for every t, ``[2, 2, T, ...]`` like the matrices.

    Multiply neighbours, scan the half-length sequence, and fill in the steps between: 2 T products in
    2 log2(T) rounds.
    """
    time = matrices.shape[2]
    if time == 1:
        return matrices
    pairs = product(matrices[:, :, 1::2], matrices[:, :, : time - 1 : 2], eps, tropical)
    odd = prefix_products(pairs, eps, tropical)
    between = product(matrices[:, :, 2::2], odd[:, :, : (time - 1) // 2], eps, tropical)
    even = torch.cat((matrices[:, :, :1], between), 2)
    whole = torch.stack((even[:, :, : odd.shape[2]], odd), 3).flatten(2, 3)
    return whole if time % 2 == 0 else torch.cat((whole, even[:, :, -1:]), 2)


def product(a: Tensor, b: Tensor, eps: Constant, tropical: bool = False) -> Tensor:
    """Return the soft max-plus product of ``[n, k, ...]`` and ``[k, m, ...]``, shifted to a maximum of 0."""
    terms = a.unsqueeze(2) + b.unsqueeze(0)
    entries = _add(terms, 1, eps, tropical)
    return entries - entries.amax((0, 1), keepdim=True).detach()


def _add(terms: Tensor, dim: int, eps: Constant, tropical: bool) -> Tensor:
    return terms.amax(dim) if tropical else lse(terms, eps, dim=dim)
