"""`Stepped`: base class of user-defined neurons, made from one step function."""

from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

from torch import Tensor

from ultralif import ops
from ultralif.functional import over_time, rest
from ultralif.nn.neuron import Neuron

__all__ = ["Stepped"]

S = TypeVar("S", bound=tuple[Tensor, ...])


class Stepped(Neuron[S]):
    """Base class of user-defined neurons: a subclass names its step, which is repeated over time.

    The subclass declares its constants in ``__init__``, and lists the other attributes that its step takes in
    ``choices``.

    Example:
        >>> import torch
        >>> from ultralif.functional import rest, straight_through
        >>> from ultralif.maxplus import hard_spike, soft_spike
        >>> from ultralif.nn import State
        >>> def step(current, state, *, threshold, mode):
        ...     v = 0.9 * state.v + current
        ...     spike = soft_spike(v, threshold, 0.2)
        ...     if mode == "hard":
        ...         spike = straight_through(hard_spike(v, threshold), spike)
        ...     return spike, State(v * (1 - spike))
        >>> class Mine(Stepped):
        ...     formula = staticmethod(step)
        ...     at_rest = staticmethod(lambda current: State(rest(current)))
        ...     choices = ("mode",)
        ...     modes = ("soft", "hard")
        >>> Mine()(torch.rand(10, 2, 64)).shape
        torch.Size([10, 2, 64])
    """

    formula: ClassVar[Callable[..., tuple[Tensor, Any]]]
    """``formula(current, state, **constants)`` returns the spike and the next state."""

    at_rest: ClassVar[Callable[[Tensor], Any]] = staticmethod(rest)
    """Returns the state before the first step, given the currents ``[T, B, *features]``."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Make the operator."""
        super().__init_subclass__(**kwargs)
        if "formula" in vars(cls):
            run = over_time(cls.at_rest)(cls.formula)

            def operator(
                current: Tensor, v0: Any, rate: bool, backend: ops.Backend, **constants: Any
            ) -> tuple[Tensor, Any]:
                spikes, last = run(current, v0, **constants)
                return (spikes.mean(0) if rate else spikes), last

            cls.operator = staticmethod(operator)
