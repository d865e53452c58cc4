"""An UltraDLIF layer without input, described by powers of one max-plus matrix."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from research.claims.convergence import wright_omega
from ultralif import maxplus
from ultralif.errors import InputError

__all__ = ["SteadyState", "escape_current", "ring_matrix", "steady_state", "undriven_ring"]


MAX_RING = 4096


def ring_matrix(n: int, leak: float = 1.0, centered_eps: float = 0.0) -> Tensor:
    r"""Return the matrix A of a ring of UltraDLIF neurons without input, :math:`V \leftarrow A \otimes V`.

    A neuron and its neighbours have weight ``log(leak)``; all other entries are ``-inf``.

    Args:
        n: number of neurons on the ring, at least 3.
        leak: decay factor; membranes decay to ``V + log(leak)``, and 1 means no decay.
        centered_eps: the temperature of a centred layer, whose weights are lower by ``eps * log(3)``.
    """
    if not 3 <= n <= MAX_RING:
        raise InputError(f"a ring must have 3 to {MAX_RING} neurons, got {n}")
    distance = (torch.arange(n)[:, None] - torch.arange(n)) % n
    near = (distance <= 1) | (distance == n - 1)
    weight = math.log(leak) - centered_eps * math.log(3)
    return torch.full((n, n), -torch.inf, dtype=torch.float64).masked_fill_(near, weight)


def undriven_ring(
    v0: Tensor, steps: int, *, eps: float = 0.0, leak: float = 1.0, centered: bool = False
) -> Tensor:
    r"""Return the membranes ``[steps + 1, n]`` of a ring without input that does not fire.

    Step t is :math:`A^{\otimes t} \otimes V(0)`, a dilation of radius t if ``eps = 0``, and its counterpart
    in log-sum-exp algebra if ``eps > 0``. In the long run the layer rises by the eigenvalue of A at every
    step: ``log(leak)`` for ``eps = 0`` and ``log(leak) + eps * log(3)``, the drift of an uncentred layer,
    for ``eps > 0``.
    """
    a = ring_matrix(len(v0), leak, eps if centered else 0.0)
    rows = [v0.double().unsqueeze(1)]
    for _ in range(steps):
        rows.append(maxplus.matmul(a, rows[-1], eps))
    return torch.cat(rows, 1).T


class SteadyState(NamedTuple):
    """Steady state of a uniform ring without input."""

    v: float
    s: float


def steady_state(eps: float, threshold: float = 0.5, *, centered: bool = False) -> SteadyState:
    """Return the membrane and the soft spike of a uniform UltraDLIF ring without input.

    Example:
        >>> quiet = steady_state(1.0)
        >>> round(quiet.v, 3), round(quiet.s, 3)
        (0.403, 0.731)
    """
    drift = 0.0 if centered else eps * math.log(3)
    v = torch.zeros((), dtype=torch.float64)
    for _ in range(10_000):
        p = v + drift
        s = maxplus.soft_spike(p, threshold, eps)
        v = p * (1 - s)
    return SteadyState(float(v), float(s))


def escape_current(eps: float, threshold: float = 0.5, *, centered: bool = False) -> float:
    r"""Return the constant current below which a uniform UltraDLIF layer falls indefinitely.

    UltraDLIF has no leak, so only the soft reset pushes up, by at most
    :math:`\epsilon W(e^{-1-\theta/\epsilon})`.

    Example:
        >>> round(escape_current(1.0), 3)
        -1.284
    """
    push = eps * float(wright_omega(torch.tensor(-1 - threshold / eps, dtype=torch.float64)))
    return -push - (0.0 if centered else eps * math.log(3))
