"""Hard spikes that are differentiated like soft ones: the surrogate gradient."""

import math

import torch
from torch import Tensor

from ultralif.maxplus import hard_spike, soft_spike

__all__ = ["dspike_curve", "sigmoid_surrogate", "straight_through"]


def straight_through(hard: Tensor, soft: Tensor) -> Tensor:
    """Return the value of ``hard``, exactly, with every derivative of ``soft``.

    ``soft - soft.detach()`` is zero in floating point, so binary spikes stay binary.
    """
    return hard + (soft - soft.detach())


def sigmoid_surrogate(v: Tensor, threshold: float | Tensor, slope: float | Tensor, *, scaled: bool) -> Tensor:
    r"""Return ``v > threshold``, with the gradient of a sigmoid (baselines, appendix D.4).

    The paper's backward pass is :math:`\partial s/\partial v = \sigma'(\beta (v - \theta))`.

    Args:
        v: membrane potential.
        threshold: spike threshold.
        slope: steepness beta > 0.
        scaled: multiply by beta, which makes it the true derivative of
            :math:`\sigma(\beta (v - \theta))`, for beta as well.
    """
    soft = soft_spike(v, threshold, 1.0 / slope)
    if not scaled:
        soft = soft / (slope.detach() if isinstance(slope, Tensor) else slope)
    return straight_through(hard_spike(v, threshold), soft)


def dspike_curve(v: Tensor, threshold: float | Tensor, sharpness: float | Tensor) -> Tensor:
    r"""Return the DSpike curve (appendix D.4, Li et al. 2021), as the paper writes it.

    .. math:: \frac{\tanh(k (v/2\theta - 1/2)) + \tanh(k/2)}{2 \tanh(k/2)}

    It is 1/2 at the threshold and leaves [0, 1] outside of ``0 <= v <= 2 * threshold``.
    """
    half = sharpness / 2
    edge = torch.tanh(half) if isinstance(half, Tensor) else math.tanh(half)
    return (torch.tanh(sharpness * (v / (2 * threshold) - 0.5)) + edge) / (2 * edge)
