"""Convergence of soft neurons to their max-plus limit: trajectories and bounds."""

import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ultralif.functional import ultralif_step

__all__ = [
    "Convergence",
    "MarginBounds",
    "Trajectory",
    "before_reset",
    "compare_with_limit",
    "margin_theorem",
    "state_ceiling",
    "trajectory",
    "wright_omega",
]

Step = Callable[..., tuple[Tensor, Tensor]]


class Trajectory(NamedTuple):
    """A neuron's spikes and its membrane before and after reset, each ``[T, ...]``."""

    p: Tensor
    s: Tensor
    v: Tensor


def before_reset(step: Step, current: Tensor, v: Tensor, **constants: Any) -> Tensor:
    """Return the membrane before reset, computed by a step with an unreachable threshold."""
    return step(current, v, **(constants | {"threshold": math.inf}))[1]


def trajectory(step: Step, current: Tensor, v0: Tensor | float = 0.0, **constants: Any) -> Trajectory:
    """Run a step function from `ultralif.functional` over currents ``[T, ...]`` and keep every membrane."""
    v = torch.as_tensor(v0, dtype=current.dtype).expand(current.shape[1:])
    rows = []
    for x in current:
        p = before_reset(step, x, v, **constants)
        s, v = step(x, v, **constants)
        rows.append(Trajectory(p, s, v))
    return Trajectory(*(torch.stack(column) for column in zip(*rows, strict=True)))


def wright_omega(y: Tensor) -> Tensor:
    """Solve ``w + log(w) = y`` for w > 0 by Newton's method; w is Lambert's W of ``exp(y)``.

    Example:
        >>> wright_omega(torch.tensor([1.0, 1000.0]))
        tensor([  1.0000, 993.0992])
    """
    w = torch.nn.functional.softplus(y)
    for _ in range(20):
        w = w * (1 + y - torch.log(w)) / (1 + w)
    return w


def state_ceiling(eps: float | Tensor, threshold: float | Tensor) -> Tensor:
    r"""Return :math:`\epsilon W(e^{\theta/\epsilon - 1})`, the upper bound after a soft reset to 0.

    It is the maximum of :math:`x (1 - \sigma((x - \theta) / \epsilon))`; W is Lambert's.
    """
    scale = torch.as_tensor(eps, dtype=torch.float64)
    return scale * wright_omega(torch.as_tensor(threshold) / scale - 1)


class MarginBounds(NamedTuple):
    """Bounds under a margin for steps 1..T: the corrected version of the paper's proposition 5.2."""

    margin: Tensor
    """``[T]``: the distance from the threshold that each limit membrane must keep."""
    p: Tensor
    """``[T]``: if the margin is kept, the largest error of the membrane before reset."""
    v: Tensor
    """``[T]``: the largest error after reset."""
    log_s: Tensor
    """``[T]``: this minus ``|p - threshold| / eps`` bounds the logarithm of the spike's error."""


def margin_theorem(
    eps: float, steps: int, ceiling: float, *, kappa: float = 1.0, terms: int = 2
) -> MarginBounds:
    r"""Return the margins that guarantee convergence, and the resulting error bounds.

    If the limit keeps :math:`\delta_k \ge \epsilon [g_k + \kappa + \log(B T / \kappa\epsilon)]` from the
    threshold at every step k, then :math:`|P_\epsilon - p| \le \epsilon (g_t + \kappa)` and
    :math:`|s_\epsilon - s| \le e^{g_t + \kappa - \delta_t/\epsilon}`. For UltraLIF (two terms)
    :math:`g_k = \log(k + 1)`, for UltraDLIF (three) :math:`g_k = k \log 3`.

    Args:
        eps: temperature.
        steps: T.
        ceiling: B, an upper bound on the absolute value of every membrane. For UltraLIF with
            ``|I| <= I_max``, reset to 0 and ``eps <= e * threshold`` it is
            ``max(threshold, I_max) + eps * log(2)``.
        kappa: a positive number that trades margin against error.
        terms: 2 for UltraLIF, 3 for UltraDLIF.
    """
    k = torch.arange(1, steps + 1, dtype=torch.float64)
    gain = torch.log(k + 1) if terms == 2 else k * math.log(terms)
    margin = eps * (gain + kappa + math.log(ceiling * steps / (kappa * eps)))
    return MarginBounds(margin, eps * (gain + kappa), eps * (gain + kappa + kappa / steps), gain + kappa)


class Convergence(NamedTuple):
    """A neuron at several temperatures and in the limit."""

    eps: list[float]
    soft: list[Trajectory]
    limit: Trajectory
    bounds: list[MarginBounds]
    proved: list[bool]
    """For each temperature, whether the limit keeps the margin, so that the bounds hold."""


def compare_with_limit(
    current: Tensor, eps: Iterable[float], *, leak: float = 0.9, threshold: float = 0.5, kappa: float = 1.0
) -> Convergence:
    """Compare UltraLIF at several temperatures with its max-plus limit, for a current ``[T]``."""
    current, values = current.double(), list(eps)
    limit = trajectory(ultralif_step, current, eps=1.0, leak=leak, threshold=threshold, mode="tropical")
    peak = max(threshold, float(current.abs().max()))
    soft, bounds, proved = [], [], []
    for e in values:
        soft.append(trajectory(ultralif_step, current, eps=e, leak=leak, threshold=threshold))
        bounds.append(margin_theorem(e, len(current), peak + e * math.log(2), kappa=kappa))
        kept = bool(((limit.p - threshold).abs() >= bounds[-1].margin).all())
        proved.append(kept and e <= math.e * threshold)
    return Convergence(values, soft, limit, bounds, proved)
