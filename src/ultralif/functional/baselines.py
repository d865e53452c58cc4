"""Additive neurons: the paper's surrogate-gradient baselines and the soft control (appendix D.4)."""

from typing import NamedTuple

from torch import Tensor

from ultralif.errors import check_choice
from ultralif.functional.reset import Reset, fire, saturate
from ultralif.functional.scan import Constant, over_time, rest
from ultralif.functional.spike import Mode, Surrogate, dspike_spike, surrogate_spike, tempered_spike

__all__ = [
    "AdaptiveState",
    "adalif",
    "adalif_step",
    "dspike",
    "dspike_step",
    "leaky_integrator",
    "leaky_integrator_step",
    "lif",
    "lif_step",
    "softlif",
    "softlif_step",
]

MODES: tuple[Mode, ...] = ("hard", "soft")


class AdaptiveState(NamedTuple):
    """The state of AdaLIF: membrane, adaptation and last spike.

    Example:
        >>> import torch
        >>> from ultralif.nn import AdaLIF
        >>> _, state = AdaLIF().run(torch.rand(5, 2, 3))
        >>> type(state).__name__
        'AdaptiveState'
    """

    v: Tensor
    b: Tensor
    spike: Tensor


def leaky_integrator_step(current: Tensor, v: Tensor, *, leak: Constant) -> tuple[Tensor, Tensor]:
    r"""Advance a leaky integrator, :math:`v \leftarrow \tau v + I`; return the membrane twice.

    The first copy is the step's output, the second the next state. The integrator never fires. A synaptic
    current is such an integrator; its output drives a neuron.

    Args:
        current: ``[B, *features]``.
        v: membrane, with the shape of ``current``.
        leak: decay factor tau in (0, 1).

    Example:
        >>> import torch
        >>> leaky_integrator_step(torch.ones(1), torch.ones(1), leak=0.5)[0]
        tensor([1.5000])
    """
    v = leak * v + current
    return v, v


def lif_step(
    current: Tensor,
    v: Tensor,
    *,
    leak: Constant,
    threshold: Constant,
    v_reset: Constant = 0.0,
    surrogate_slope: Constant = 2.0,
    surrogate: Surrogate = "atan",
    mode: Mode = "hard",
    reset: Reset = "zero",
    detach_reset: bool | None = None,
    delayed_reset: bool = False,
) -> tuple[Tensor, Tensor]:
    r"""Advance LIF by one step and return the spike and the membrane.

    .. math:: v \leftarrow \tau v + I, \quad s = H(v - \theta), \quad v \leftarrow v (1 - s) + v_{reset} s

    Args:
        current: ``[B, *features]``.
        v: membrane, with the shape of ``current``.
        leak: decay factor tau in (0, 1).
        threshold: spike threshold.
        v_reset: potential after a spike, for ``reset="zero"``.
        surrogate_slope: steepness beta of the surrogate gradient.
        surrogate: name of the surrogate, such as ``atan``: see `ultralif.functional.surrogate_spike`.
        mode: ``hard``, binary spikes with a surrogate gradient; ``soft``, the surrogate's antiderivative.
        reset: ``zero``, ``subtract`` (the threshold) or ``none``: see `ultralif.functional.fire`.
        detach_reset: do not differentiate the reset with respect to the spike. None: detach binary spikes.
        delayed_reset: reset by the previous step's spike, before firing.

    Example:
        >>> import torch
        >>> lif_step(torch.tensor([0.3, 0.8]), torch.zeros(2), leak=0.9, threshold=0.5, surrogate_slope=10.0)
        (tensor([0., 1.]), tensor([0.3000, 0.0000]))
    """
    check_choice("mode", mode, MODES)

    def spike(v: Tensor) -> Tensor:
        return surrogate_spike(v, threshold, surrogate_slope, surrogate, mode)

    earlier = spike(v) if delayed_reset else None
    return fire(leak * v + current, spike, earlier, threshold, v_reset, mode, reset, detach_reset)


def adalif_step(
    current: Tensor,
    state: AdaptiveState,
    *,
    leak: Constant,
    threshold: Constant,
    adapt_strength: Constant = 0.1,
    adapt_decay: Constant = 0.9,
    v_reset: Constant = 0.0,
    surrogate_slope: Constant = 2.0,
    surrogate: Surrogate = "atan",
    mode: Mode = "hard",
    reset: Reset = "zero",
    detach_reset: bool | None = None,
    delayed_reset: bool = False,
) -> tuple[Tensor, AdaptiveState]:
    r"""Advance AdaLIF by one step: LIF with a threshold that rises with each spike.

    .. math:: \theta = \theta_0 + \beta_a b, \quad b \leftarrow \tau_a b + (1 - \tau_a) s

    As the paper indexes it, a step's threshold uses the previous step's adaptation, so a spike raises the
    threshold two steps later. In Bellec et al. 2018 the threshold rises one step later.

    Args:
        current: ``[B, *features]``.
        state: membrane, adaptation and the previous spike, each like ``current``.
        leak: decay factor of the membrane.
        threshold: threshold theta_0 at rest.
        adapt_strength: beta_a, how far the threshold rises.
        adapt_decay: tau_a, the decay factor of the adaptation.
        v_reset: as in `lif_step`, like the arguments below.
        surrogate_slope: steepness of the surrogate gradient.
        surrogate: name of the surrogate.
        mode: ``hard`` or ``soft``.
        reset: ``zero``, ``subtract`` (the adapted threshold) or ``none``.
        detach_reset: do not differentiate the reset with respect to the spike.
        delayed_reset: reset by the previous step's spike.

    Example:
        >>> import torch
        >>> zero, ones = torch.zeros(1), torch.ones(1)
        >>> constants = {"leak": 0.9, "threshold": 0.5, "adapt_strength": 1.0, "adapt_decay": 0.9}
        >>> adalif_step(ones, AdaptiveState(zero, zero, zero), surrogate_slope=10.0, **constants)[0]
        tensor([1.])
    """
    check_choice("mode", mode, MODES)
    adapted = adapt_decay * state.b + (1 - adapt_decay) * state.spike
    limit = threshold + adapt_strength * state.b

    def spike(v: Tensor) -> Tensor:
        return surrogate_spike(v, limit, surrogate_slope, surrogate, mode)

    earlier = state.spike if delayed_reset else None
    fired, v = fire(leak * state.v + current, spike, earlier, limit, v_reset, mode, reset, detach_reset)
    return fired, AdaptiveState(v, adapted, fired)


def dspike_step(
    current: Tensor,
    v: Tensor,
    *,
    leak: Constant,
    threshold: Constant,
    sharpness: Constant = 4.0,
    v_reset: Constant = 0.0,
    mode: Mode = "hard",
    reset: Reset = "zero",
    detach_reset: bool | None = None,
    delayed_reset: bool = False,
) -> tuple[Tensor, Tensor]:
    r"""Advance DSpike by one step: LIF with the gradient of `dspike_curve`.

    Args:
        current: ``[B, *features]``.
        v: membrane, with the shape of ``current``.
        leak: decay factor in (0, 1).
        threshold: spike threshold > 0.
        sharpness: sharpness k > 0 of the curve.
        v_reset: potential after a spike.
        mode: ``hard``, binary spikes forward; ``soft``, the curve itself.
        reset: as in `lif_step`, like the arguments below.
        detach_reset: do not differentiate the reset with respect to the spike.
        delayed_reset: reset by the previous step's spike.

    Example:
        >>> import torch
        >>> dspike_step(torch.ones(1), torch.zeros(1), leak=0.9, threshold=0.5, sharpness=3.0)[0]
        tensor([1.])
    """
    check_choice("mode", mode, MODES)

    def spike(v: Tensor) -> Tensor:
        return dspike_spike(v, threshold, sharpness, mode)

    earlier = spike(v) if delayed_reset else None
    return fire(leak * v + current, spike, earlier, threshold, v_reset, mode, reset, detach_reset)


def softlif_step(
    current: Tensor,
    v: Tensor,
    *,
    eps: Constant,
    leak: Constant,
    threshold: Constant,
    v_reset: Constant = 0.0,
    mode: Mode = "soft",
    reset: Reset = "zero",
    detach_reset: bool | None = None,
    delayed_reset: bool = False,
    v_sat: Constant = 2.0,
) -> tuple[Tensor, Tensor]:
    r"""Advance SoftLIF by one step: an additive membrane with the soft spike of UltraLIF.

    .. math:: \tilde v = \tau v + I, \quad s = \sigma((\tilde v - \theta)/\epsilon)

    It serves as a control: comparing it with UltraLIF shows what the log-sum-exp adds to an exact gradient.

    Args:
        current: ``[B, *features]``.
        v: membrane, with the shape of ``current``.
        eps: temperature > 0.
        leak: decay factor in (0, 1).
        threshold: spike threshold.
        v_reset: potential after a spike.
        mode: ``soft``, or ``hard`` for binary spikes.
        reset: as in `ultralif_step`, like the arguments below.
        detach_reset: do not differentiate the reset with respect to the spike.
        delayed_reset: reset by the previous step's spike.
        v_sat: the ceiling of ``reset="saturate"``.

    Example:
        >>> import torch
        >>> softlif_step(torch.tensor([0.5]), torch.zeros(1), eps=0.2, leak=0.9, threshold=0.5)[0]
        tensor([0.5000])
    """
    check_choice("mode", mode, ("soft", "hard"))

    def spike(v: Tensor) -> Tensor:
        return tempered_spike(v, threshold, eps, mode)

    def ceiling(potential: Tensor) -> Tensor:
        return saturate(potential, v_sat, eps, mode)

    earlier = spike(v) if delayed_reset else None
    return fire(leak * v + current, spike, earlier, threshold, v_reset, mode, reset, detach_reset, ceiling)


def _adaptive_rest(current: Tensor) -> AdaptiveState:
    zero = rest(current)
    return AdaptiveState(zero, zero, zero)


leaky_integrator = over_time(rest)(leaky_integrator_step)
lif = over_time(rest)(lif_step)
adalif = over_time(_adaptive_rest)(adalif_step)
dspike = over_time(rest)(dspike_step)
softlif = over_time(rest)(softlif_step)
