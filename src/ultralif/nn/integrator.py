"""`LeakyIntegrator`: a readout layer whose membrane is the output."""

from collections.abc import Sequence

import torch
from torch import Tensor

from ultralif.functional import Constant, leaky_integrator
from ultralif.nn.checks import check_constants, check_current, check_shape, check_state, check_steps
from ultralif.nn.parameters import Attribute, Parametrized
from ultralif.nn.state import State
from ultralif.ops.constants import LOGIT

__all__ = ["LeakyIntegrator"]


class LeakyIntegrator(Parametrized):
    """A membrane without a threshold over ``[T, B, *features]``: `ultralif.functional.leaky_integrator_step`.

    Use it as the last layer for regression and for membrane readouts. Its gradient is exact. It never
    spikes, so it is left out of spike rates and penalties, and modes have no effect on it.

    Args:
        leak: decay factor in (0, 1).
        learn_leak: learn the leak, as a sigmoid.
        parameter_shape: the shape of a learned leak, such as ``(10,)`` for one value per output. None: one
            number for the whole layer.
        batch_first: accept and return ``[B, T, *features]``.

    Example:
        >>> readout = LeakyIntegrator(leak=0.5)
        >>> readout(torch.ones(3, 1, 1)).flatten()
        tensor([1.0000, 1.5000, 1.7500])
    """

    leak = Attribute()
    """The current decay factor."""

    def __init__(
        self,
        *,
        leak: Constant = 0.9,
        learn_leak: bool = False,
        parameter_shape: Sequence[int] | None = None,
        batch_first: bool = False,
    ) -> None:
        super().__init__()
        check_shape("parameter_shape", parameter_shape)
        self.batch_first = batch_first
        self.declare("leak", leak, LOGIT, learn=learn_leak, upper=1.0, shape=parameter_shape)

    def forward(self, current: Tensor) -> Tensor:
        """Return the membrane at every step for a current ``[T, B, *features]``, from rest."""
        return self.run(current)[0]

    def run(self, current: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """Return the membrane at every step of ``[T, B, *features]`` and the state to continue from."""
        check_current(current, ("T", "B"))
        current = current.transpose(0, 1) if self.batch_first else current
        check_steps(current)
        self._check_step(state, current.shape[1:])
        membrane, v = leaky_integrator(
            current, None if state is None else state.v, leak=self.constant("leak")
        )
        return (membrane.transpose(0, 1) if self.batch_first else membrane), State(v)

    def step(self, x: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """Return the membrane after one time step ``[B, *features]`` and the state to continue from."""
        check_current(x, ("B",))
        self._check_step(state, x.shape)
        membrane, v = leaky_integrator(
            x.unsqueeze(0), None if state is None else state.v, leak=self.constant("leak")
        )
        return membrane[0], State(v)

    def _check_step(self, state: State | None, shape: torch.Size) -> None:
        check_constants(self.shapes(), shape[1:])
        if state is not None:
            check_state(state, State, shape)

    def extra_repr(self) -> str:
        """Show the leak."""
        return self.shown("leak")
