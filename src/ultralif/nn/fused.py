"""How a neuron is integrated over time: by an operator of `ultralif.ops`, or by a step of your own."""

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, TypeVar, cast

from torch import Tensor

from ultralif import ops
from ultralif.functional import over_time, rest
from ultralif.nn.neuron import Neuron

__all__ = ["Fused", "State", "Stepped"]

S = TypeVar("S", bound=tuple[Tensor, ...])


class State(NamedTuple):
    """What most neurons remember between steps: the membrane after reset."""

    v: Tensor


class Fused(Neuron[S]):
    """A neuron that `ultralif.ops` integrates: an operator, its constants, and its choices."""

    operator: ClassVar[Callable[..., tuple[Tensor, Any]]]
    """The function of `ultralif.ops`; it takes the declared constants and the choices by name."""

    choices: ClassVar[tuple[str, ...]] = ("v_reset",)
    """The attributes that the operator takes besides the constants."""

    def _scan(self, current: Tensor, state: S | None) -> tuple[Tensor, S]:
        return self._integrate(current, state, rate=False)

    def _scan_rate(self, current: Tensor) -> Tensor:
        return self._integrate(current, None, rate=True)[0]

    def _integrate(self, current: Tensor, state: S | None, rate: bool) -> tuple[Tensor, S]:
        constants = {name: self.constant(name) for name in self.declared()}
        choices = {name: getattr(self, name) for name in self.choices}
        v0 = state.v if isinstance(state, State) else state
        spikes, last = type(self).operator(current, v0, rate, self.backend, **constants, **choices)
        return spikes, cast(S, last if isinstance(last, tuple) else State(last))


class Stepped(Fused[S]):
    """A neuron of your own: a subclass names its step, and its operator is that step over time.

    It declares constants in ``__init__`` and lists in ``choices`` the attributes that the step takes besides.
    """

    formula: ClassVar[Callable[..., tuple[Tensor, Any]]]
    """``formula(current, state, **constants)`` returns the spike and the next state."""

    at_rest: ClassVar[Callable[[Tensor], Any]] = staticmethod(rest)
    """Gives the state before the first step from the currents ``[T, B, *features]``."""

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
