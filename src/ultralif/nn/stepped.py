"""`Stepped`: base class for user-defined neurons, built from one step function."""

import inspect
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar, cast

from torch import Tensor

from ultralif import ops
from ultralif.functional import over_time, rest
from ultralif.nn.neuron import Neuron
from ultralif.nn.state import State

__all__ = ["Stepped"]

S = TypeVar("S", bound=tuple[Tensor, ...])

_CHOICES = ("mode", "v_reset", "reset", "detach_reset", "delayed_reset")


class Stepped(Neuron[S]):
    """Base class for user-defined neurons: a subclass provides one step, which is repeated over time.

    The subclass declares its constants in ``__init__``. The step is passed whichever constants its signature
    names; it may also accept ``mode``, ``v_reset``, ``reset``, ``detach_reset`` and ``delayed_reset``. List
    any other attributes that it needs in ``choices``.

    Example:
        >>> import torch
        >>> from ultralif.functional import straight_through
        >>> from ultralif.maxplus import hard_spike, soft_spike
        >>> def step(current, v, *, threshold, mode):
        ...     v = 0.9 * v + current
        ...     spike = soft_spike(v, threshold, 0.2)
        ...     if mode == "hard":
        ...         spike = straight_through(hard_spike(v, threshold), spike)
        ...     return spike, v * (1 - spike)
        >>> class Mine(Stepped):
        ...     formula = staticmethod(step)
        ...     modes = ("soft", "hard")
        >>> Mine()(torch.rand(10, 2, 64)).shape
        torch.Size([10, 2, 64])
    """

    state_type: type[S] = cast(Any, State)  # for a formula whose state is a membrane
    formula: ClassVar[Callable[..., tuple[Tensor, Any]]]
    """``formula(current, state, **constants)`` returns the spike and the next state."""

    at_rest: ClassVar[Callable[[Tensor], Any]] = staticmethod(rest)
    """Returns the state before the first step, given the currents ``[T, B, *features]``."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Build the operator from the formula."""
        super().__init_subclass__(**kwargs)
        if "formula" in vars(cls):
            run = over_time(cls.at_rest)(cls.formula)
            taken = inspect.signature(cls.formula).parameters
            some = all(each.kind is not each.VAR_KEYWORD for each in taken.values())
            if some and "choices" not in vars(cls):
                known = dict.fromkeys((*_CHOICES, *cls.choices))
                cls.choices = tuple(name for name in known if name in taken)

            def operator(
                current: Tensor, v0: Any, rate: bool, backend: ops.Backend, **constants: Any
            ) -> tuple[Tensor, Any]:
                if some:
                    constants = {name: value for name, value in constants.items() if name in taken}
                spikes, last = run(current, v0, **constants)
                return (spikes.mean(0) if rate else spikes), last

            cls.operator = staticmethod(operator)
