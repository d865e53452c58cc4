"""Neurons for other readings of the paper, built with `ultralif.Stepped`; slower than the library's own.

Names that begin with ``Released`` are neurons in the author's released code. There a learned constant is
clamped to its range, so its gradient is zero outside. UltraDLIF's spikes depend on a log-sum-exp over
neighbours that the membrane does not include. Each of the other neurons changes one point of the text.
"""

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor

import ultralif as ul
from ultralif.functional import (
    AdaptiveState,
    Constant,
    Mode,
    fire,
    lif_step,
    rest,
    softlif_step,
    straight_through,
    surrogate_spike,
    ultradlif_step,
    ultralif_step,
)
from ultralif.maxplus import hard_spike, lse, soft_spike
from ultralif.nn import LOG, LOGIT, SOFTPLUS, State

__all__ = [
    "READING_NEURONS",
    "ClampedUltraDLIF",
    "ClampedUltraDPLIF",
    "EarlyAdaLIF",
    "LateAdaLIF",
    "ReleasedDSpike",
    "ReleasedDSpikePlus",
    "ReleasedSoftLIF",
    "ReleasedUltraDLIF",
    "ReleasedUltraDPLIF",
    "ReleasedUltraLIF",
    "ReleasedUltraPLIF",
    "ShiftedUltraDPLIF",
    "SpikeCoupledUltraDLIF",
    "UnclippedDSpike",
    "UnclippedDSpikePlus",
    "UnscaledAdaLIF",
    "UnscaledFullPLIF",
    "UnscaledLIF",
    "UnscaledPLIF",
    "register_neurons",
]

_FIRING = ("v_reset", "mode", "reset", "detach_reset", "delayed_reset")


class _Clamped(ul.Stepped[Any]):
    """A neuron whose learned constants are clamped to their ranges, with zero gradient outside."""

    choices = _FIRING
    state_type = State

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.ranges: dict[str, tuple[float, float]] = {}

    def constant(self, name: str) -> Constant:
        """Return the current value of a constant, clamped to its range if it is learned."""
        value = super().constant(name)
        if name in self.ranges and isinstance(value, Tensor):
            return torch.clamp(value, *self.ranges[name])
        return value


class _ReleasedTempered(_Clamped):
    """A clamped neuron with a temperature."""

    modes: ClassVar[tuple[Mode, ...]] = ("soft", "hard", "tropical")
    learns = frozenset({"eps"})

    def __init__(
        self,
        *,
        threshold: Constant = 0.0,
        eps: Constant = 1.0,
        learn_eps: bool | None = None,
        eps_range: tuple[float, float] = (0.1, 20.0),
        **options: Any,
    ) -> None:
        super().__init__(threshold=threshold, **options)
        self.learnable("eps", eps, LOG, learn_eps)
        self.ranges["eps"] = eps_range


class _ReleasedLeaky(_ReleasedTempered):
    """A clamped neuron with a temperature and a leak."""

    leak_form = LOGIT

    def __init__(self, *, leak: Constant = 0.9, learn_leak: bool | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.learnable("leak", leak, self.leak_form, learn_leak, upper=1.0)


class ReleasedUltraLIF(_ReleasedLeaky):
    """UltraLIF without a threshold, with a clamped temperature."""

    formula = staticmethod(ultralif_step)
    leak_form = LOG  # without a bound


class ReleasedUltraPLIF(ReleasedUltraLIF):
    """`ReleasedUltraLIF` with a learned leak, which may exceed 1."""

    learns = frozenset({"eps", "leak"})


class ReleasedSoftLIF(_ReleasedLeaky):
    """The author's control, SigmaLIF: a leaky membrane and a soft spike."""

    modes = ("soft", "hard")
    formula = staticmethod(softlif_step)


def spike_coupled_step(
    current: Tensor,
    v: Tensor,
    *,
    eps: Constant,
    leak: Constant,
    threshold: Constant,
    v_reset: Constant,
    mode: Mode,
    reset: Any,
    detach_reset: bool | None,
    delayed_reset: bool,
) -> tuple[Tensor, Tensor]:
    """Advance UltraDLIF as in the author's code: a leaky membrane, with neighbours coupled at the spike."""

    def spike(v: Tensor) -> Tensor:
        around = torch.stack((v.roll(1, -1), v, v.roll(-1, -1)))
        coupled = around.amax(0) if mode == "tropical" else lse(around, eps, dim=0)
        soft = soft_spike(coupled, threshold, eps)
        return soft if mode == "soft" else straight_through(hard_spike(coupled, threshold), soft)

    earlier = spike(v) if delayed_reset else None
    return fire(leak * v + current, spike, earlier, threshold, v_reset, mode, reset, detach_reset)


class ReleasedUltraDLIF(_ReleasedLeaky):
    """UltraDLIF coupled at the spike, without a threshold, with a clamped temperature."""

    formula = staticmethod(spike_coupled_step)


class ReleasedUltraDPLIF(ReleasedUltraDLIF):
    """`ReleasedUltraDLIF` with a learned leak; it starts at sigmoid(0.9)."""

    learns = frozenset({"eps", "leak"})

    def __init__(self, *, leak: Constant = 0.7109495026250039, **options: Any) -> None:
        super().__init__(leak=leak, **options)


class _BoundedEps(_Clamped):
    """A neuron with the text's constants; at a bound, gradients pass only if they lead back inside."""

    modes: ClassVar[tuple[Mode, ...]] = ("soft", "hard", "tropical")
    learns = frozenset({"eps"})

    def __init__(
        self,
        *,
        threshold: Constant = 0.5,
        eps: Constant = 1.0,
        learn_eps: bool | None = None,
        eps_range: tuple[float, float] = (0.1, 20.0),
        leak: Constant = 0.9,
        learn_leak: bool | None = None,
        **options: Any,
    ) -> None:
        super().__init__(threshold=threshold, **options)
        self.learnable("eps", eps, LOG, learn_eps, bounds=eps_range)
        self.learnable("leak", leak, LOGIT, learn_leak, upper=1.0)


class SpikeCoupledUltraDLIF(_BoundedEps):
    """The text's UltraDLIF, but coupled at the spike."""

    formula = staticmethod(spike_coupled_step)


class ClampedUltraDLIF(_ReleasedTempered):
    """The text's UltraDLIF with a clamped temperature, as in the author's temperature study."""

    formula = staticmethod(ultradlif_step)


class ClampedUltraDPLIF(_ReleasedLeaky):
    """`ClampedUltraDLIF` with a learned leak."""

    learns = frozenset({"eps", "leak"})
    formula = staticmethod(ultradlif_step)

    def __init__(self, *, leak: Constant = 0.7109495026250039, **options: Any) -> None:
        super().__init__(leak=leak, **options)


def shifted_step(current: Tensor, v: Tensor, *, leak: Constant, **constants: Any) -> tuple[Tensor, Tensor]:
    """Advance UltraDPLIF with the leak natural to log-sum-exp: V decays to V + log(leak), not leak * V."""
    return ultradlif_step(current, v + torch.log(torch.as_tensor(leak, device=v.device)), **constants)


class ShiftedUltraDPLIF(_BoundedEps):
    """The text's UltraDPLIF, but with a membrane that decays to V + log(leak)."""

    learns = frozenset({"eps", "leak"})
    formula = staticmethod(shifted_step)


def _curve(v: Tensor, threshold: Constant, sharpness: Constant) -> Tensor:
    """Return DSpike's unclipped curve (appendix D.4)."""
    edge = torch.tanh(torch.as_tensor(sharpness, dtype=v.dtype, device=v.device) / 2)
    return (torch.tanh(sharpness * (v / (2 * threshold) - 0.5)) + edge) / (2 * edge)


def unclipped_step(
    current: Tensor,
    v: Tensor,
    *,
    leak: Constant,
    sharpness: Constant,
    threshold: Constant,
    v_reset: Constant,
    mode: Mode,
    reset: Any,
    detach_reset: bool | None,
    delayed_reset: bool,
    clipped: bool = False,
) -> tuple[Tensor, Tensor]:
    """Advance DSpike by one step, with the curve as written in the text."""

    def spike(v: Tensor) -> Tensor:
        curve = _curve(v, threshold, sharpness)
        curve = curve.clamp(0.0, 1.0) if clipped else curve
        return curve if mode == "soft" else straight_through(hard_spike(v, threshold), curve)

    earlier = spike(v) if delayed_reset else None
    return fire(leak * v + current, spike, earlier, threshold, v_reset, mode, reset, detach_reset)


class UnclippedDSpike(_Clamped):
    """DSpike with a curve that leaves [0, 1], as written in the text."""

    modes = ("hard", "soft")
    learns = frozenset({"sharpness"})
    lowest_threshold = 0.0
    formula = staticmethod(unclipped_step)

    def __init__(
        self,
        *,
        leak: Constant = 0.9,
        learn_leak: bool | None = None,
        sharpness: Constant = 4.0,
        learn_sharpness: bool | None = None,
        sharpness_range: tuple[float, float] = (0.1, 100.0),
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.learnable("leak", leak, LOGIT, learn_leak, upper=1.0)
        self.learnable("sharpness", sharpness, LOG, learn_sharpness, bounds=sharpness_range)


class UnclippedDSpikePlus(UnclippedDSpike):
    """`UnclippedDSpike` with a learned leak."""

    learns = frozenset({"sharpness", "leak"})


def _clipped_step(current: Tensor, v: Tensor, **constants: Any) -> tuple[Tensor, Tensor]:
    return unclipped_step(current, v, **constants, clipped=True)


class ReleasedDSpike(_Clamped):
    """DSpike with a clipped curve; the sharpness is the softplus of its parameter, clamped."""

    modes = ("soft", "hard")
    learns = frozenset({"sharpness"})
    lowest_threshold = 0.0
    formula = staticmethod(_clipped_step)

    def __init__(
        self,
        *,
        leak: Constant = 0.9,
        learn_leak: bool | None = None,
        sharpness: Constant = 4.0181499279178094,  # softplus(4)
        learn_sharpness: bool | None = None,
        sharpness_range: tuple[float, float] = (0.5, 50.0),
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.learnable("leak", leak, LOGIT, learn_leak, upper=1.0)
        self.learnable("sharpness", sharpness, SOFTPLUS, learn_sharpness)
        self.ranges["sharpness"] = sharpness_range


class ReleasedDSpikePlus(ReleasedDSpike):
    """`ReleasedDSpike` with a learned leak; it starts at sigmoid(0.9)."""

    learns = frozenset({"sharpness", "leak"})

    def __init__(self, *, leak: Constant = 0.7109495026250039, **options: Any) -> None:
        super().__init__(leak=leak, **options)


def unscaled_step(
    current: Tensor,
    v: Tensor,
    *,
    leak: Constant,
    threshold: Constant,
    v_reset: Constant,
    surrogate: Any,
    surrogate_slope: Constant,
    mode: Mode,
    reset: Any,
    detach_reset: bool | None,
    delayed_reset: bool,
) -> tuple[Tensor, Tensor]:
    """Advance LIF by one step with the text's surrogate gradient, which is not multiplied by its slope."""

    def spike(v: Tensor) -> Tensor:
        soft = surrogate_spike(v, threshold, surrogate_slope, surrogate, mode="soft")
        return soft if mode == "soft" else straight_through(hard_spike(v, threshold), soft / surrogate_slope)

    earlier = spike(v) if delayed_reset else None
    return fire(leak * v + current, spike, earlier, threshold, v_reset, mode, reset, detach_reset)


def _adapting(
    step: Callable[..., tuple[Tensor, Tensor]], *, late: bool = False
) -> Callable[..., tuple[Tensor, AdaptiveState]]:
    """Return an AdaLIF step that adapts to the previous spike or, if ``late``, to the one before."""

    def advance(
        current: Tensor,
        state: AdaptiveState,
        *,
        threshold: Constant,
        adapt_strength: Constant,
        adapt_decay: Constant,
        **constants: Any,
    ) -> tuple[Tensor, AdaptiveState]:
        adapted = adapt_decay * state.b + (1 - adapt_decay) * state.spike
        limit = threshold + adapt_strength * (state.b if late else adapted)
        fired, v = step(current, state.v, threshold=limit, **constants)
        return fired, AdaptiveState(v, adapted, fired)

    return advance


class _UnscaledSurrogate(ul.Stepped[Any]):
    """A neuron with the text's surrogate gradient, whose slope is fixed."""

    modes = ("hard", "soft")
    choices = (*_FIRING, "surrogate")

    def __init__(
        self,
        *,
        leak: Constant = 0.9,
        learn_leak: bool | None = None,
        surrogate: str = "sigmoid",
        surrogate_slope: Constant = 10.0,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.surrogate = surrogate
        self.learnable("leak", leak, LOGIT, learn_leak, upper=1.0)
        self.learnable("surrogate_slope", surrogate_slope, LOG, learn=False)


class UnscaledLIF(_UnscaledSurrogate):
    """LIF with a surrogate gradient that is not multiplied by its slope."""

    state_type = State
    formula = staticmethod(unscaled_step)


class UnscaledPLIF(UnscaledLIF):
    """`UnscaledLIF` with a learned leak."""

    learns = frozenset({"leak"})


class UnscaledFullPLIF(UnscaledLIF):
    """`UnscaledLIF` with a learned leak and a learned threshold."""

    learns = frozenset({"leak", "threshold"})


def _adaptive_rest(current: Tensor) -> AdaptiveState:
    zero = rest(current)
    return AdaptiveState(zero, zero, zero)


class UnscaledAdaLIF(_UnscaledSurrogate):
    """AdaLIF that adapts early, with a surrogate gradient that is not multiplied by its slope."""

    state_type = AdaptiveState
    at_rest: ClassVar[Any] = staticmethod(_adaptive_rest)
    formula: ClassVar[Any] = staticmethod(_adapting(unscaled_step))

    def __init__(self, *, adapt_strength: float = 0.1, adapt_decay: float = 0.9, **options: Any) -> None:
        super().__init__(**options)
        self.learnable("adapt_strength", adapt_strength, LOG, learn=False)
        self.learnable("adapt_decay", adapt_decay, LOGIT, learn=False, upper=1.0)


class LateAdaLIF(UnscaledAdaLIF):
    """AdaLIF whose threshold follows the spike before the previous one, as indexed in the text."""

    formula: ClassVar[Any] = staticmethod(_adapting(unscaled_step, late=True))


class EarlyAdaLIF(UnscaledAdaLIF):
    """AdaLIF that adapts early, with the library's surrogate gradient."""

    formula: ClassVar[Any] = staticmethod(_adapting(lif_step))


READING_NEURONS: tuple[type[ul.nn.Neuron[Any]], ...] = (
    ReleasedDSpike,
    ReleasedDSpikePlus,
    ReleasedSoftLIF,
    ReleasedUltraDLIF,
    ReleasedUltraDPLIF,
    ReleasedUltraLIF,
    ReleasedUltraPLIF,
    ClampedUltraDLIF,
    ClampedUltraDPLIF,
    SpikeCoupledUltraDLIF,
    ShiftedUltraDPLIF,
    LateAdaLIF,
    UnclippedDSpike,
    UnclippedDSpikePlus,
    UnscaledLIF,
    UnscaledPLIF,
    UnscaledFullPLIF,
    UnscaledAdaLIF,
    EarlyAdaLIF,
)


def register_neurons() -> None:
    """Register these neurons, so that configs can refer to them by name."""
    for neuron in READING_NEURONS:
        ul.register(neuron)
