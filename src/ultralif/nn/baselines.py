"""The paper's surrogate-gradient baselines, as modules."""

from typing import ClassVar, TypeVar, Unpack, get_args

from torch import Tensor

from ultralif import ops
from ultralif.errors import check_choice
from ultralif.functional import AdaptiveState, Constant, Surrogate, SurrogateName
from ultralif.nn.neuron import FIRING, Neuron, NeuronOptions
from ultralif.nn.parameters import Attribute
from ultralif.nn.state import State
from ultralif.ops.constants import LOG, LOGIT

__all__ = ["LIF", "PLIF", "AdaLIF", "DSpike", "DSpikePlus", "FullPLIF"]

S = TypeVar("S", bound=tuple[Tensor, ...])


class DSpike(Neuron[State]):
    """LIF with the DSpike gradient (Li et al. 2021): `ultralif.functional.dspike_step`.

    Args:
        leak: decay factor in (0, 1]; 1 integrates without leak.
        sharpness: sharpness k > 0 of the curve.
        learn_leak: learn the leak. None: only in DSpikePlus.
        learn_sharpness: learn the sharpness. None: yes.
        sharpness_range: bounds of a learned sharpness, which would otherwise drift to 0.
        options: the arguments of every `Neuron`; the threshold must be positive.

    Example:
        >>> DSpike(sharpness=3.0).constants()["sharpness"]
        3.0
    """

    modes = ("hard", "soft")
    learns = frozenset({"sharpness"})
    lowest_threshold = 0.0
    state_type = State

    operator = staticmethod(ops.dspike)
    choices = FIRING

    def __init__(
        self,
        *,
        leak: Constant = 0.9,
        sharpness: Constant = 4.0,
        learn_leak: bool | None = None,
        learn_sharpness: bool | None = None,
        sharpness_range: tuple[float, float] = (0.1, 100.0),
        **options: Unpack[NeuronOptions],
    ) -> None:
        super().__init__(**options)
        self.learnable("leak", leak, LOGIT, learn_leak, upper=1.0)
        self.learnable("sharpness", sharpness, LOG, learn_sharpness, bounds=sharpness_range)

    sharpness = Attribute()
    """The current sharpness of the curve."""


class DSpikePlus(DSpike):
    """`DSpike` with a learned leak.

    Example:
        >>> sorted(DSpikePlus().learns)
        ['leak', 'sharpness']
    """

    learns = frozenset({"sharpness", "leak"})


class SurrogateOptions(NeuronOptions, total=False):
    """The keyword arguments of `LIF`."""

    leak: Constant
    surrogate: Surrogate
    surrogate_slope: Constant
    learn_leak: bool | None
    learn_slope: bool


class _Surrogate(Neuron[S]):
    """A neuron whose binary spikes have the gradient of a smooth function.

    Args:
        leak: decay factor in (0, 1]; 1 integrates without leak.
        surrogate: ``atan``, ``sigmoid``, ``triangle``, ``superspike`` or a function of ``v - threshold``:
            see `ultralif.functional.surrogate_spike`. The last two have no soft mode.
        surrogate_slope: steepness beta of the surrogate.
        learn_leak: learn the leak. None: the class's default.
        learn_slope: learn the surrogate's slope, between 0.05 and 100. Spikes stay binary; the gradients for
            membrane and slope are those of the surrogate at ``slope * (v - threshold)``.
        options: the arguments of every `Neuron`.
    """

    modes = ("hard", "soft")
    choices: ClassVar[tuple[str, ...]] = (*FIRING, "surrogate")

    def __init__(
        self,
        *,
        leak: Constant = 0.9,
        surrogate: Surrogate = "atan",
        surrogate_slope: Constant = 2.0,
        learn_leak: bool | None = None,
        learn_slope: bool = False,
        **options: Unpack[NeuronOptions],
    ) -> None:
        super().__init__(**options)
        if not callable(surrogate):
            check_choice("surrogate", surrogate, get_args(SurrogateName))
        if callable(surrogate) or surrogate == "superspike":
            vars(self)["modes"] = ("hard",)  # no antiderivative in (0, 1) to use as the soft spike
            self.mode = self.mode  # refuses soft mode
        self.surrogate: Surrogate = surrogate
        self.learnable("leak", leak, LOGIT, learn_leak, upper=1.0)
        self.learnable("surrogate_slope", surrogate_slope, LOG, learn_slope, bounds=(0.05, 100.0))

    surrogate_slope = Attribute()
    """The current steepness of the surrogate gradient."""


class LIF(_Surrogate[State]):
    """Leaky integrate-and-fire with binary spikes and a surrogate gradient.

    Its default surrogate is an arctangent with slope 2, as in snnTorch. In soft mode, the spike is the
    surrogate's antiderivative, and the gradient is exact. The formula is `ultralif.functional.lif_step`. The
    arguments are ``leak``, ``surrogate``, ``surrogate_slope``, ``learn_leak`` and ``learn_slope``, and those
    of every `Neuron`.

    Example:
        >>> import torch
        >>> LIF(leak=0.8)(torch.ones(4, 1, 1)).flatten()
        tensor([1., 1., 1., 1.])
    """

    operator = staticmethod(ops.lif)
    state_type = State


class PLIF(LIF):
    """`LIF` with a learned leak (Fang et al. 2021).

    Example:
        >>> import torch
        >>> neuron = PLIF(leak=0.8)
        >>> neuron(torch.rand(10, 2, 64)).mean().backward()
        >>> neuron.logit_leak.grad is not None
        True
    """

    learns = frozenset({"leak"})


class FullPLIF(LIF):
    """`LIF` with a learned leak and a learned threshold.

    Example:
        >>> sorted(name for name, _ in FullPLIF().named_parameters())
        ['logit_leak', 'logit_threshold']
    """

    learns = frozenset({"leak", "threshold"})


class AdaLIF(_Surrogate[AdaptiveState]):
    """LIF with an adaptive threshold (Bellec et al. 2018): `ultralif.functional.adalif_step`.

    Args:
        adapt_strength: how far the threshold rises with the adaptation.
        adapt_decay: decay factor of the adaptation, in (0, 1).
        options: the arguments of `LIF`.

    Example:
        >>> import torch
        >>> AdaLIF(adapt_strength=1.0)(torch.ones(6, 1, 1)).flatten()
        tensor([1., 1., 1., 1., 1., 1.])
    """

    state_type = AdaptiveState

    operator = staticmethod(ops.adalif)

    def __init__(
        self,
        *,
        adapt_strength: float = 0.1,
        adapt_decay: float = 0.9,
        **options: Unpack[SurrogateOptions],
    ) -> None:
        super().__init__(**options)
        self.learnable("adapt_strength", adapt_strength, LOG, learn=False)
        self.learnable("adapt_decay", adapt_decay, LOGIT, learn=False, upper=1.0)
