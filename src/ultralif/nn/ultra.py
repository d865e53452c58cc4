"""The paper's exact-gradient neurons, and their soft control, as modules."""

import math
from collections.abc import Iterator, Sequence
from typing import ClassVar, Unpack

import torch
from torch import Tensor, nn

from ultralif import ops
from ultralif.errors import InputError
from ultralif.functional import Constant, Mode, log_decay
from ultralif.names import MODES
from ultralif.nn.neuron import FIRING, Neuron, NeuronOptions
from ultralif.nn.parameters import are_limits
from ultralif.nn.state import State
from ultralif.ops.constants import LOG, LOGIT

__all__ = ["SoftLIF", "UltraDLIF", "UltraDPLIF", "UltraLIF", "UltraPLIF"]


class TemperedOptions(NeuronOptions, total=False):
    """The keyword arguments of every neuron with a temperature."""

    eps: Constant
    learn_eps: bool | None
    eps_range: tuple[float, float]


class _Tempered(Neuron[State]):
    """A neuron with a temperature ``eps``, which is learned by default.

    By default ``eps`` is 0.4 times the default threshold. Between rest and twice the threshold a soft spike
    rises by tanh(threshold / (2 eps)), so L layers transmit the L-th power of that. The factor is 0.85
    at the default and 0.24 at the paper's eps of 1.0. At 1.0 an UltraLIF without input also rests above its
    threshold (at log 1.9 = 0.64).

    Args:
        eps: the temperature, above 0.
        learn_eps: learn the temperature. None: yes.
        eps_range: bounds for a learned temperature.
        options: the arguments of every `Neuron`.
    """

    modes: ClassVar[tuple[Mode, ...]] = MODES
    learns = frozenset({"eps"})
    state_type = State

    def __init__(
        self,
        *,
        eps: Constant = 0.2,
        learn_eps: bool | None = None,
        eps_range: tuple[float, float] = (0.1, 20.0),
        **options: Unpack[NeuronOptions],
    ) -> None:
        super().__init__(**options)
        self.learnable("eps", eps, LOG, learn_eps, bounds=eps_range)


class _Leaky(_Tempered):
    """A neuron whose membrane decays by a leak, given directly or as time constants in steps."""

    choices = (*FIRING, "v_sat")
    v_sat: Constant

    def __init__(
        self,
        *,
        leak: Constant = 0.9,
        learn_leak: bool | None = None,
        time_constants: tuple[float, float] | None = None,
        v_sat: Constant = 2.0,
        **options: Unpack[TemperedOptions],
    ) -> None:
        super().__init__(**options)
        self.keep("v_sat", v_sat)
        self.time_constants = time_constants
        if time_constants is None:
            self.learnable("leak", leak, LOGIT, learn_leak, upper=1.0)
            return
        if isinstance(leak, Tensor) or leak != 0.9:
            raise InputError(f"leak={leak} cannot be combined with time_constants; leave it out")
        raw = torch.log(_spread(time_constants, self._shape))
        if "leak" in self.learns if learn_leak is None else learn_leak:
            self.log_time_constant = nn.Parameter(raw)
        else:
            self.register_buffer("log_time_constant", raw)
        self._declared["leak"] = (0.0, 1.0)

    def constant(self, name: str) -> Constant:
        """Return the current value of a constant; a leak may be computed from the time constants."""
        if name != "leak" or self.time_constants is None:
            return super().constant(name)
        return torch.exp(self.eps_per_decay() * -torch.exp(-self.log_time_constant))

    def eps_per_decay(self) -> Constant:
        """Return c, where leak = exp(-c / time constant); c is 1 if the membrane itself decays."""
        return 1.0

    def shapes(self) -> Iterator[tuple[str, torch.Size]]:
        """Yield the name and the shape of every constant that is a tensor."""
        for name, size in super().shapes():
            if name != "log_time_constant":
                yield name, size
        if self.time_constants is not None:
            yield "leak", self.log_time_constant.shape

    @torch.no_grad()
    def assign(self, name: str, value: Constant) -> None:
        """Change the value of a constant; setting a leak changes its time constant."""
        if name != "leak" or self.time_constants is None:
            super().assign(name, value)
            return
        raw = self.log_time_constant
        decay = torch.log(torch.as_tensor(value, dtype=raw.dtype)) / self.eps_per_decay()
        if not bool((decay < 0).all() and decay.isfinite().all()):
            raise InputError(f"leak must be in (0, 1), got {value}; pass a value inside that range")
        raw.copy_(torch.log(-1 / decay))


def _spread(time_constants: tuple[float, float], shape: Sequence[int] | None) -> Tensor:
    """Return time constants for all neurons of a layer, evenly spaced on a logarithmic scale."""
    if not are_limits(time_constants):
        raise InputError(
            f"time_constants must be two positive numbers of steps, got {time_constants}; pass "
            "(shortest, longest)"
        )
    if shape is None:
        raise InputError("time_constants needs parameter_shape, such as (64,) for a layer of 64 neurons")
    low, high = (math.log(tau) for tau in time_constants)
    return torch.linspace(low, high, math.prod(shape)).exp().reshape(tuple(shape))


class UltraLIF(_Leaky):
    """A neuron whose membrane is the soft maximum of its past and its current (definition 4.1).

    Soft spikes are fractions between 0 and 1, and their gradient is exact, even with respect to the
    temperature. In hard mode spikes are binary, and the derivative of the soft spike serves as a surrogate.
    Tropical mode also replaces the soft maximum with an ordinary one. Switch a neuron with
    ``neuron.mode = "hard"``, and a whole network with `ultralif.set_mode`.

    With the default reset a spike erases the past. For long memory use ``reset="none"`` with
    ``time_constants``. The formula is `ultralif.functional.ultralif_step`.

    Args:
        eps: the temperature, above 0. The default suits deep networks; the paper uses 1.0.
        learn_eps: learn the temperature, as ``exp(log_eps)``.
        eps_range: bounds for a learned temperature.
        leak: decay factor tau_0 in (0, 1).
        learn_leak: learn the leak. None: only in UltraPLIF.
        time_constants: the shortest and the longest time constant of a layer in steps, instead of ``leak``.
            They are spaced logarithmically over ``parameter_shape``, which is then required. A neuron with
            time constant c has lambda = leak^(1/eps) = exp(-1/c), the factor by which u = exp(V/eps) decays.
            The constant c itself is stored or learned, so the memory does not depend on eps.
        v_sat: the ceiling of the membrane for ``reset="saturate"``.
        options: the arguments of every `Neuron`, such as ``threshold``, ``mode``, ``reset`` and ``synapse``.

    Example:
        >>> import torch
        >>> neuron = UltraLIF()
        >>> neuron
        UltraLIF(eps=0.2 learned, leak=0.9, threshold=0.5, mode=soft)
        >>> current = torch.rand(10, 2, 64)  # [T, B, features]
        >>> spikes = neuron(current)  # the whole sequence, from rest
        >>> spikes.shape
        torch.Size([10, 2, 64])
        >>> spikes.mean().backward()  # exact, also for neuron.log_eps
        >>> neuron.mode = "hard"
        >>> neuron(current).unique().tolist()  # binary spikes, with the same constants
        [0.0, 1.0]
        >>> spike, state = neuron.step(current[0])  # one time step; pass state to the next call
    """

    operator = staticmethod(ops.ultralif)

    @property
    def log_decay(self) -> Constant:
        """The logarithm of the factor by which u = exp(V/eps) decays in a step: log(leak) / eps."""
        return log_decay(self.leak, self.eps)

    def eps_per_decay(self) -> Constant:
        """Return the temperature as c, because lambda is leak^(1/eps)."""
        return self.eps


class UltraPLIF(UltraLIF):
    """`UltraLIF` with a learned leak.

    Example:
        >>> UltraPLIF(reset="none", time_constants=(5, 50), parameter_shape=(64,)).leak.shape
        torch.Size([64])
    """

    learns = frozenset({"eps", "leak"})


class SpatialOptions(TemperedOptions, total=False):
    """The keyword arguments of `UltraDLIF`."""

    coupled_axis: int
    centered: bool


class UltraDLIF(_Tempered):
    """A neuron whose membrane is the soft maximum of its neighbours, plus its current (definition 4.2).

    In soft mode the gradient is exact. Without input, the membrane rises by up to ``eps * log(3)`` per step,
    unless ``centered=True``. The formula is `ultralif.functional.ultradlif_step`.

    Args:
        coupled_axis: the feature axis along which neurons are coupled, as a negative index: -1 is the last.
        centered: preserve the mean, so that a membrane without input does not drift.
        options: ``eps``, ``learn_eps`` and ``eps_range`` as in `UltraLIF`, and the arguments of every
            `Neuron`.

    Example:
        >>> import torch
        >>> UltraDLIF(centered=True)(torch.zeros(10, 2, 64)).shape
        torch.Size([10, 2, 64])
    """

    operator = staticmethod(ops.ultradlif)
    choices = (*FIRING, "coupled_axis", "centered")

    def __init__(
        self,
        *,
        coupled_axis: int = -1,
        centered: bool = False,
        **options: Unpack[TemperedOptions],
    ) -> None:
        super().__init__(**options)
        if coupled_axis >= 0:
            raise InputError(
                f"coupled_axis must be negative, got {coupled_axis}; it is counted from the last axis, -1"
            )
        self.coupled_axis = coupled_axis
        self.centered = centered

    def _check_current(self, current: Tensor, leading: tuple[str, ...]) -> None:
        super()._check_current(current, leading)
        if current.dim() < len(leading) - self.coupled_axis:
            raise InputError(
                f"coupled_axis={self.coupled_axis} needs that many feature axes, but a current of shape "
                f"{tuple(current.shape)} has {current.dim() - len(leading)}; count from the last, -1"
            )


class UltraDPLIF(UltraDLIF):
    """`UltraDLIF` whose membrane also leaks.

    Args:
        leak: decay factor in (0, 1).
        learn_leak: learn the leak. None: yes.
        options: the arguments of `UltraDLIF`.

    Example:
        >>> UltraDPLIF(leak=0.8).constants()["leak"]
        0.800000011920929
    """

    learns = frozenset({"eps", "leak"})

    def __init__(
        self, *, leak: Constant = 0.9, learn_leak: bool | None = None, **options: Unpack[SpatialOptions]
    ) -> None:
        super().__init__(**options)
        self.learnable("leak", leak, LOGIT, learn_leak, upper=1.0)


class SoftLIF(_Leaky):
    """A leaky membrane with soft spikes and an exact gradient: the control without log-sum-exp.

    The formula is `ultralif.functional.softlif_step`.

    Args:
        leak: decay factor in (0, 1).
        learn_leak: learn the leak. None: no.
        time_constants: as in `UltraLIF`, but the membrane itself decays by exp(-1/c).
        v_sat: the ceiling of the membrane for ``reset="saturate"``.
        options: ``eps``, ``learn_eps`` and ``eps_range`` as in `UltraLIF`, and the arguments of every
            `Neuron`.

    Example:
        >>> import torch
        >>> SoftLIF(eps=0.1)(torch.zeros(2, 1, 3)).shape
        torch.Size([2, 1, 3])
    """

    modes = ("soft", "hard")

    operator = staticmethod(ops.softlif)
