"""Additive neurons: the paper's surrogate-gradient baselines and the soft control (appendix D.4)."""

from typing import NamedTuple

from torch import Tensor

from ultralif.errors import check_choice
from ultralif.functional.scan import Constant, over_time, rest
from ultralif.functional.surrogate import dspike_curve, sigmoid_surrogate, straight_through
from ultralif.functional.ultra import Mode, fire
from ultralif.maxplus import hard_spike

__all__ = [
    "AdaptiveState",
    "adalif",
    "adalif_step",
    "dspike",
    "dspike_step",
    "lif",
    "lif_step",
    "softlif",
    "softlif_step",
]


class AdaptiveState(NamedTuple):
    """What AdaLIF remembers: membrane, adaptation and its last spike."""

    v: Tensor
    b: Tensor
    spike: Tensor


def lif_step(
    current: Tensor,
    v: Tensor,
    *,
    leak: Constant,
    threshold: Constant,
    v_reset: Constant = 0.0,
    surrogate_slope: Constant = 10.0,
    scaled_surrogate: bool = False,
) -> tuple[Tensor, Tensor]:
    r"""Advance LIF by one step and return the spike and the membrane.

    .. math:: v \leftarrow \tau v + I, \quad s = H(v - \theta), \quad v \leftarrow v (1 - s) + v_{reset} s

    Args:
        current: ``[B, *features]``.
        v: membrane, like ``current``.
        leak: decay factor tau in (0, 1).
        threshold: spike threshold.
        v_reset: potential after a spike.
        surrogate_slope: steepness beta of the surrogate gradient.
        scaled_surrogate: see `ultralif.functional.sigmoid_surrogate`.
    """
    membrane = leak * v + current
    spike = sigmoid_surrogate(membrane, threshold, surrogate_slope, scaled=scaled_surrogate)
    return spike, membrane * (1 - spike) + v_reset * spike


def adalif_step(
    current: Tensor,
    state: AdaptiveState,
    *,
    leak: Constant,
    threshold: Constant,
    adapt_strength: Constant = 0.1,
    adapt_decay: Constant = 0.9,
    adapt_late: bool = False,
    v_reset: Constant = 0.0,
    surrogate_slope: Constant = 10.0,
    scaled_surrogate: bool = False,
) -> tuple[Tensor, AdaptiveState]:
    r"""Advance AdaLIF by one step: LIF with a threshold that rises with each spike.

    .. math:: b \leftarrow \tau_a b + (1 - \tau_a) s, \quad \theta = \theta_0 + \beta_a b

    Args:
        current: ``[B, *features]``.
        state: membrane, adaptation and the previous spike, each like ``current``.
        leak: decay factor of the membrane.
        threshold: threshold theta_0 at rest.
        adapt_strength: beta_a, how far the threshold rises.
        adapt_decay: tau_a, the decay factor of the adaptation.
        adapt_late: the threshold sees only the spike before the previous one, as the paper's indices
            have it; by default it sees the previous one, as in Bellec et al. 2018.
        v_reset: potential after a spike.
        surrogate_slope: steepness of the surrogate gradient.
        scaled_surrogate: see `ultralif.functional.sigmoid_surrogate`.
    """
    adapted = adapt_decay * state.b + (1 - adapt_decay) * state.spike
    spike, v = lif_step(
        current,
        state.v,
        leak=leak,
        threshold=threshold + adapt_strength * (state.b if adapt_late else adapted),
        v_reset=v_reset,
        surrogate_slope=surrogate_slope,
        scaled_surrogate=scaled_surrogate,
    )
    return spike, AdaptiveState(v, adapted, spike)


def dspike_step(
    current: Tensor,
    v: Tensor,
    *,
    leak: Constant,
    threshold: Constant,
    sharpness: Constant = 4.0,
    v_reset: Constant = 0.0,
    mode: Mode = "hard",
) -> tuple[Tensor, Tensor]:
    r"""Advance DSpike by one step: LIF with the gradient of `dspike_curve`.

    Args:
        current: ``[B, *features]``.
        v: membrane, like ``current``.
        leak: decay factor in (0, 1).
        threshold: spike threshold.
        sharpness: k > 0 of the curve.
        v_reset: potential after a spike.
        mode: ``hard``, binary spikes forward; ``soft``, the curve itself.
    """
    check_choice("mode", mode, ("hard", "soft"))
    membrane = leak * v + current
    spike = dspike_curve(membrane, threshold, sharpness)
    if mode != "soft":
        spike = straight_through(hard_spike(membrane, threshold), spike)
    return spike, membrane * (1 - spike) + v_reset * spike


def softlif_step(
    current: Tensor,
    v: Tensor,
    *,
    eps: Constant,
    leak: Constant,
    threshold: Constant,
    v_reset: Constant = 0.0,
    mode: Mode = "soft",
) -> tuple[Tensor, Tensor]:
    r"""Advance SoftLIF by one step: an additive membrane with the soft spike of UltraLIF.

    .. math:: \tilde v = \tau v + I, \quad s = \sigma((\tilde v - \theta)/\epsilon)

    The control that tells what an exact gradient gives from what the log-sum-exp adds.
    """
    check_choice("mode", mode, ("soft", "hard"))
    return fire(leak * v + current, threshold, eps, v_reset, mode)


def _adaptive_rest(current: Tensor) -> AdaptiveState:
    zero = rest(current)
    return AdaptiveState(zero, zero, zero)


lif = over_time(rest)(lif_step)
adalif = over_time(_adaptive_rest)(adalif_step)
dspike = over_time(rest)(dspike_step)
softlif = over_time(rest)(softlif_step)
