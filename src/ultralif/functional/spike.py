"""Spikes as functions of the membrane: soft, or binary with the derivative of a soft spike."""

import math
from collections.abc import Callable
from typing import Literal, get_args

import torch
from torch import Tensor

from ultralif.errors import InputError, check_choice
from ultralif.maxplus import hard_spike, soft_spike
from ultralif.names import Mode

__all__ = [
    "Mode",
    "Surrogate",
    "SurrogateName",
    "dspike_curve",
    "dspike_spike",
    "straight_through",
    "surrogate_spike",
    "tempered_spike",
]

SurrogateName = Literal["sigmoid", "atan", "triangle", "superspike"]
Surrogate = SurrogateName | Callable[[Tensor], Tensor]
"""The name of a curve, or a function that returns the spike of ``v - threshold`` and has its own gradient."""


def straight_through(hard: Tensor, soft: Tensor) -> Tensor:
    """Return exactly the value of ``hard``, with all derivatives of ``soft``.

    ``soft - soft.detach()`` is zero in floating point, so binary spikes stay binary; where ``soft`` is NaN
    the result is NaN.

    Example:
        >>> soft = torch.tensor([0.3], requires_grad=True)
        >>> straight_through(torch.tensor([0.0]), 2 * soft).backward()
        >>> soft.grad
        tensor([2.])
    """
    return hard + (soft - soft.detach())


def tempered_spike(v: Tensor, threshold: float | Tensor, eps: float | Tensor, mode: Mode) -> Tensor:
    """Return the spike of a neuron with a temperature: `soft_spike` in soft mode, else a binary one."""
    soft = soft_spike(v, threshold, eps)
    return soft if mode == "soft" else straight_through(hard_spike(v, threshold), soft)


def _atan(z: Tensor) -> Tensor:
    return 0.5 + torch.atan(math.pi / 2 * z) / math.pi


def _triangle(z: Tensor) -> Tensor:
    z = z.clamp(-1.0, 1.0)
    return 0.5 + z - z * z.abs() / 2


def _superspike(z: Tensor) -> Tensor:
    # Equal to z / (1 + |z|), but its derivative has no rounding error. At 0, only clamp has a derivative.
    return 1 / (1 + torch.relu(-z)) - 1 / (1 + z.clamp(min=0))


_PRIMITIVES: dict[SurrogateName, Callable[[Tensor], Tensor]] = {
    "sigmoid": torch.sigmoid,
    "atan": _atan,
    "triangle": _triangle,
    "superspike": _superspike,
}


def surrogate_spike(
    v: Tensor,
    threshold: float | Tensor,
    slope: float | Tensor,
    surrogate: Surrogate = "atan",
    mode: Mode = "hard",
) -> Tensor:
    r"""Return ``v > threshold`` with a surrogate gradient, or in soft mode the surrogate's antiderivative.

    With :math:`z = \beta (v - \theta)`, the first three antiderivatives F rise from 0 to 1, so their
    derivatives have area 1:

    - ``sigmoid``: :math:`\sigma(z)`, whose derivative is :math:`\sigma(z) (1 - \sigma(z))`;
    - ``atan``: :math:`\frac12 + \frac1\pi \arctan \frac{\pi z}{2}`, :math:`\frac12 / (1 + (\pi z / 2)^2)`;
    - ``triangle``: :math:`\frac12 + z - \frac12 z |z|` for :math:`|z| \le 1`, :math:`\max(0, 1 - |z|)`;
    - ``superspike``: binary spikes only, with the gradient :math:`1 / (1 + |z|)^2` for v at every slope
      (Zenke and Ganguli 2018; norse's default, and snnTorch's ``fast_sigmoid``).

    Args:
        v: membrane potential.
        threshold: spike threshold.
        slope: steepness beta > 0; its inverse is the surrogate's width.
        surrogate: ``atan``, ``sigmoid``, ``triangle`` or ``superspike``; or a function that returns the
            spike of ``v - threshold`` and has its own gradient, such as those in snnTorch and SpikingJelly.
            A function cannot be combined with a slope or soft mode, and has no kernel.
        mode: ``hard``, binary spikes with the gradient of F(z), which is :math:`\beta F'(z)` for v;
            ``soft``, F(z) itself.

    Example:
        >>> surrogate_spike(torch.tensor([0.4, 0.6]), 0.5, 10.0, surrogate="sigmoid")
        tensor([0., 1.])
    """
    if callable(surrogate):
        if mode == "soft":
            raise InputError(
                f"surrogate={surrogate} is a function, which has no soft mode; choose mode='hard'"
            )
        return surrogate(v - threshold)
    check_choice("surrogate", surrogate, get_args(SurrogateName))
    soft = _PRIMITIVES[surrogate](slope * (v - threshold))
    if surrogate == "superspike":
        if mode == "soft":
            raise InputError("surrogate='superspike' has no soft mode; choose mode='hard'")
        soft = soft / (slope.detach() if isinstance(slope, Tensor) else slope)
    return soft if mode == "soft" else straight_through(hard_spike(v, threshold), soft)


def dspike_curve(v: Tensor, threshold: float | Tensor, sharpness: float | Tensor) -> Tensor:
    r"""Return the DSpike curve (appendix D.4, Li et al. 2021), clipped to [0, 1].

    .. math:: \frac{\tanh(k (v/2\theta - 1/2)) + \tanh(k/2)}{2 \tanh(k/2)}

    The paper does not clip the curve, which leaves [0, 1] unless ``0 <= v <= 2 * threshold``. Without
    clipping, a learned k falls, because a smaller k raises the gradient.

    Args:
        v: membrane potential.
        threshold: spike threshold > 0, where the curve is 1/2.
        sharpness: k > 0.

    Example:
        >>> dspike_curve(torch.tensor([0.0, 0.5, 1.0]), 0.5, 3.0)
        tensor([0.0000, 0.5000, 1.0000])
    """
    half = sharpness / 2
    edge = torch.tanh(half) if isinstance(half, Tensor) else math.tanh(half)
    curve = (torch.tanh(sharpness * (v / (2 * threshold) - 0.5)) + edge) / (2 * edge)
    return curve.clamp(0.0, 1.0)


def dspike_spike(v: Tensor, threshold: float | Tensor, sharpness: float | Tensor, mode: Mode) -> Tensor:
    """Return DSpike's spike: the curve in soft mode, a binary spike with its gradient in hard mode."""
    curve = dspike_curve(v, threshold, sharpness)
    return curve if mode == "soft" else straight_through(hard_spike(v, threshold), curve)
