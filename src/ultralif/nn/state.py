"""The states that neurons pass between time steps."""

from typing import Any, NamedTuple

from torch import Tensor

from ultralif.errors import InputError
from ultralif.functional import AdaptiveState

__all__ = ["AdaptiveSynapticState", "State", "SynapticState", "with_current"]


class State(NamedTuple):
    """The state of most neurons between steps: the membrane after reset.

    Example:
        >>> import torch
        >>> from ultralif.nn import LIF
        >>> _, state = LIF().run(torch.rand(5, 2, 3))
        >>> state.v.shape
        torch.Size([2, 3])
    """

    v: Tensor


class SynapticState(NamedTuple):
    """The state of a neuron with a synaptic current: the membrane and that current.

    Example:
        >>> import torch
        >>> from ultralif.nn import LIF
        >>> _, state = LIF(synapse=0.8).run(torch.rand(5, 2, 3))
        >>> type(state).__name__
        'SynapticState'
    """

    v: Tensor
    i: Tensor


class AdaptiveSynapticState(NamedTuple):
    """The state of AdaLIF with a synaptic current.

    Example:
        >>> import torch
        >>> from ultralif.nn import AdaLIF
        >>> _, state = AdaLIF(synapse=0.8).run(torch.rand(5, 2, 3))
        >>> state.i.shape
        torch.Size([2, 3])
    """

    v: Tensor
    b: Tensor
    spike: Tensor
    i: Tensor


_WITH_CURRENT: dict[Any, Any] = {State: SynapticState, AdaptiveState: AdaptiveSynapticState}


def with_current(state_type: Any) -> Any:
    """Return the state type that also holds a synaptic current."""
    if state_type not in _WITH_CURRENT:
        raise InputError(
            f"synapse cannot be combined with a custom state, here {state_type.__name__}; add the "
            "synaptic current to the formula"
        )
    return _WITH_CURRENT[state_type]
