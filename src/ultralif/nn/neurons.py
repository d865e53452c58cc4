"""The neurons of the paper as modules: they hold constants; the formulas stand in `functional`."""

from typing import Any, ClassVar, TypeVar, Unpack, get_args

from torch import Tensor

from ultralif import ops
from ultralif.errors import InputError, check_choice
from ultralif.functional import AdaptiveState, Constant, LeakForm, Mode, Neighborhood
from ultralif.nn.fused import Fused, State
from ultralif.nn.neuron import NeuronOptions
from ultralif.nn.parameters import LOG, LOGIT

__all__ = [
    "LIF",
    "PLIF",
    "AdaLIF",
    "DSpike",
    "DSpikePlus",
    "FullPLIF",
    "SoftLIF",
    "UltraDLIF",
    "UltraDPLIF",
    "UltraLIF",
    "UltraPLIF",
]

S = TypeVar("S", bound=tuple[Tensor, ...])


class _Soft(Fused[State]):
    """A neuron with a temperature: ``eps``, ``learn_eps`` (None: yes) and ``eps_range``."""

    modes: ClassVar[tuple[Mode, ...]] = ("soft", "hard", "tropical")
    learns = frozenset({"eps"})
    state_type = State

    def __init__(
        self,
        *,
        eps: Constant = 1.0,
        learn_eps: bool | None = None,
        eps_range: tuple[float, float] = (0.1, 20.0),
        **options: Unpack[NeuronOptions],
    ) -> None:
        super().__init__(**options)
        self.learnable("eps", eps, LOG, learn_eps, bounds=eps_range)


class UltraLIF(_Soft):
    """The temporal neuron (definition 4.1): `ultralif.functional.ultralif_step`.

    Args:
        leak: decay factor tau_0 in (0, 1).
        learn_leak: learn the leak, as a sigmoid. None: only in UltraPLIF.
        delayed_reset: reset by the previous step's spike.
        options: ``eps``, the temperature > 0; ``learn_eps``, learn it as ``exp(log_eps)`` (the default);
            ``eps_range``, where it is kept; and the arguments of every `Neuron`.

    Example:
        >>> import torch
        >>> neuron = UltraLIF(eps=0.5)
        >>> neuron(torch.zeros(10, 2, 64)).shape
        torch.Size([10, 2, 64])
    """

    operator = staticmethod(ops.ultralif)
    choices = ("v_reset", "mode", "delayed_reset")

    def __init__(
        self,
        *,
        leak: Constant = 0.9,
        learn_leak: bool | None = None,
        delayed_reset: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.delayed_reset = delayed_reset
        self.learnable("leak", leak, LOGIT, learn_leak, upper=1.0)


class UltraPLIF(UltraLIF):
    """`UltraLIF` with a learned leak."""

    learns = frozenset({"eps", "leak"})


class UltraDLIF(_Soft):
    """The spatial neuron (definition 4.2): `ultralif.functional.ultradlif_step`.

    Args:
        neighborhood: ``ring`` couples along the last axis, ``grid`` over the last two.
        centered: preserve the mean, so that an undriven membrane does not drift.
        delayed_reset: reset by the previous step's spike.
        options: ``eps``, ``learn_eps`` and ``eps_range`` as in `UltraLIF`, and the arguments of every
            `Neuron`.
    """

    leak_form: LeakForm = "factor"

    operator = staticmethod(ops.ultradlif)
    choices = ("v_reset", "mode", "neighborhood", "centered", "leak_form", "delayed_reset")

    def __init__(
        self,
        *,
        neighborhood: Neighborhood = "ring",
        centered: bool = False,
        delayed_reset: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        check_choice("neighborhood", neighborhood, get_args(Neighborhood))
        self.neighborhood: Neighborhood = neighborhood
        self.centered = centered
        self.delayed_reset = delayed_reset

    def _check_current(self, current: Tensor, leading: tuple[str, ...]) -> None:
        super()._check_current(current, leading)
        if self.neighborhood == "grid" and current.dim() < len(leading) + 2:
            raise InputError(
                f"neighborhood='grid' needs a current [{', '.join(leading)}, ..., H, W], got one of shape "
                f"{tuple(current.shape)}; use neighborhood='ring' for vectors"
            )


class UltraDPLIF(UltraDLIF):
    """`UltraDLIF` with a learned leak.

    Args:
        leak: decay factor in (0, 1).
        learn_leak: learn the leak, as a sigmoid. None: yes.
        leak_form: ``factor`` decays to ``V * leak``, ``shift`` to ``V + log(leak)``.
        options: the arguments of `UltraDLIF`.
    """

    learns = frozenset({"eps", "leak"})

    def __init__(
        self,
        *,
        leak: Constant = 0.9,
        learn_leak: bool | None = None,
        leak_form: LeakForm = "factor",
        **options: Any,
    ) -> None:
        super().__init__(**options)
        check_choice("leak_form", leak_form, get_args(LeakForm))
        self.leak_form = leak_form
        self.learnable("leak", leak, LOGIT, learn_leak, upper=1.0)


class SoftLIF(_Soft):
    """The control, an additive membrane with soft spikes: `ultralif.functional.softlif_step`.

    Args:
        leak: decay factor in (0, 1).
        learn_leak: learn the leak, as a sigmoid. None: no.
        options: ``eps``, ``learn_eps`` and ``eps_range`` as in `UltraLIF`, and the arguments of every
            `Neuron`.
    """

    modes = ("soft", "hard")

    operator = staticmethod(ops.softlif)
    choices = ("v_reset", "mode")

    def __init__(self, *, leak: Constant = 0.9, learn_leak: bool | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.learnable("leak", leak, LOGIT, learn_leak, upper=1.0)


class DSpike(Fused[State]):
    """LIF with the DSpike gradient (Li et al. 2021): `ultralif.functional.dspike_step`.

    Args:
        leak: decay factor in (0, 1).
        sharpness: k > 0 of the curve.
        learn_leak: learn the leak, as a sigmoid. None: only in DSpikePlus.
        learn_sharpness: learn the sharpness, as an exponential. None: yes.
        sharpness_range: where a learned sharpness is kept; it would drift to 0 without.
        clipped: clip the curve to [0, 1].
        options: the arguments of every `Neuron`.
    """

    modes = ("hard", "soft")
    learns = frozenset({"sharpness"})
    state_type = State

    operator = staticmethod(ops.dspike)
    choices = ("v_reset", "mode", "clipped")

    def __init__(
        self,
        *,
        leak: Constant = 0.9,
        sharpness: Constant = 4.0,
        learn_leak: bool | None = None,
        learn_sharpness: bool | None = None,
        sharpness_range: tuple[float, float] = (0.1, 100.0),
        clipped: bool = True,
        **options: Unpack[NeuronOptions],
    ) -> None:
        super().__init__(**options)
        self.clipped = clipped
        self.learnable("leak", leak, LOGIT, learn_leak, upper=1.0)
        self.learnable("sharpness", sharpness, LOG, learn_sharpness, bounds=sharpness_range)

    @property
    def sharpness(self) -> Constant:
        """The sharpness of the curve now."""
        return self.constant("sharpness")


class DSpikePlus(DSpike):
    """`DSpike` with a learned leak."""

    learns = frozenset({"sharpness", "leak"})


class _Surrogate(Fused[S]):
    """A neuron with hard spikes and the gradient of a sigmoid.

    Args:
        leak: decay factor in (0, 1).
        surrogate_slope: steepness beta of the sigmoid.
        learn_leak: learn the leak, as a sigmoid. None: as the class does.
        learn_slope: learn the surrogate's width: spikes stay hard, and the backward pass is that of
            ``sigmoid(slope * (v - threshold))``, for the slope too.
        scaled_surrogate: scale the gradient by the slope, see `ultralif.functional.sigmoid_surrogate`.
            None: where the slope is learned.
        slope_range: where a learned slope is kept.
        options: the arguments of every `Neuron`.
    """

    def __init__(
        self,
        *,
        leak: Constant = 0.9,
        surrogate_slope: Constant = 10.0,
        learn_leak: bool | None = None,
        learn_slope: bool = False,
        scaled_surrogate: bool | None = None,
        slope_range: tuple[float, float] = (0.05, 100.0),
        **options: Unpack[NeuronOptions],
    ) -> None:
        super().__init__(**options)
        self.scaled_surrogate = learn_slope if scaled_surrogate is None else scaled_surrogate
        if learn_slope and not self.scaled_surrogate:
            raise InputError(
                "scaled_surrogate=False has no gradient for the slope, but learn_slope=True; drop one"
            )
        self.learnable("leak", leak, LOGIT, learn_leak, upper=1.0)
        self.learnable("surrogate_slope", surrogate_slope, LOG, learn_slope, bounds=slope_range)

    @property
    def surrogate_slope(self) -> Constant:
        """The steepness of the surrogate gradient now."""
        return self.constant("surrogate_slope")


class LIF(_Surrogate[State]):
    """Leaky integrate-and-fire with a surrogate gradient: `ultralif.functional.lif_step`.

    The arguments are ``leak``, ``surrogate_slope``, ``learn_leak``, ``learn_slope``,
    ``scaled_surrogate`` and ``slope_range``, and those of every `Neuron`.
    """

    operator = staticmethod(ops.lif)
    choices = ("v_reset", "scaled_surrogate")
    state_type = State


class PLIF(LIF):
    """`LIF` with a learned leak (Fang et al. 2021)."""

    learns = frozenset({"leak"})


class FullPLIF(LIF):
    """`LIF` with a learned leak and a learned threshold."""

    learns = frozenset({"leak", "threshold"})


class AdaLIF(_Surrogate[AdaptiveState]):
    """LIF with an adaptive threshold (Bellec et al. 2018): `ultralif.functional.adalif_step`.

    Args:
        adapt_strength: how far the threshold rises with the adaptation.
        adapt_decay: decay factor of the adaptation, in (0, 1).
        adapt_late: adapt to the spike before the previous one, as the paper's indices have it.
        options: the arguments of `LIF`.
    """

    state_type = AdaptiveState

    operator = staticmethod(ops.adalif)
    choices = ("v_reset", "scaled_surrogate", "adapt_late")

    def __init__(
        self,
        *,
        adapt_strength: float = 0.1,
        adapt_decay: float = 0.9,
        adapt_late: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.adapt_late = adapt_late
        self.learnable("adapt_strength", adapt_strength, LOG, learn=False)
        self.learnable("adapt_decay", adapt_decay, LOGIT, learn=False, upper=1.0)
