"""Neurons from other libraries, step by step in the original arithmetic.

A rounding error near the threshold can flip a spike, so each formula keeps its library's order of operations.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar, cast, get_args

import torch
from torch import Tensor, nn

from ultralif.errors import InputError
from ultralif.functional import Constant, Reset, SurrogateName, compute_dtype, straight_through
from ultralif.nn import LIF, State, Stepped, SynapticState, TimeDistributed

__all__ = [
    "ConvertedNeuron",
    "Fire",
    "Foreign",
    "Integrator",
    "NorseBox",
    "NorseLIF",
    "Replacement",
    "SnnTorchNeuron",
    "SpikingJellyNeuron",
    "States",
    "Surrogate",
    "TimeDropout",
    "plain",
]

S = TypeVar("S", bound=tuple[Tensor, ...])
Foreign = Any
"""A layer or other object from another library; those libraries are untyped."""
Fire = Callable[[Tensor], Tensor]
"""Maps a membrane minus its threshold to a spike, with a surrogate gradient."""

_CURVES: dict[str, Callable[[Tensor], Tensor]] = {
    "sigmoid": torch.sigmoid,
    "atan": lambda z: torch.atan(torch.pi / 2 * z) / torch.pi,
    "superspike": lambda z: z / (1 + z.abs()),
    "triangle": lambda z: z.clamp(-1, 1) - z.clamp(-1, 1) * z.clamp(-1, 1).abs() / 2,
    "tanh": torch.tanh,
}


class Replacement(NamedTuple):
    """Our replacement for another library's module."""

    module: nn.Module
    """The module takes and returns sequences ``[T, B, *features]``."""
    states: tuple[str, ...] = ()
    """Our names for the states that the other module returns after its output."""
    packed: bool = False
    """Whether the other module returns its states as one object."""
    alone: bool = False
    """Whether the other module returns only its output, not a tuple with states."""
    sequence: bool = False
    """Whether the other module takes a sequence instead of one time step."""
    observed: nn.Module | None = None
    """Used instead of ``module`` if the network reads the states, which differ in ``module``."""

    @property
    def takes_step(self) -> bool:
        """Whether the other module takes one time step and has a state."""
        return not self.sequence and not isinstance(self.module, TimeDistributed | nn.Linear)


def plain(module: nn.Module, base: type[nn.Module]) -> nn.Module:
    """Return an instance of PyTorch's own class with the parameters and settings of a derived layer."""
    made = base.__new__(base)
    made.__dict__.update({name: value for name, value in vars(module).items() if name != "_step_mode"})
    return made


@dataclass(frozen=True)
class Surrogate:
    """A binary spike whose gradient is ``height`` times a curve's derivative at ``slope * x``."""

    curve: Literal["sigmoid", "atan", "superspike", "triangle", "tanh"]
    """The derivatives: s(1 - s), 1 / (2 + (pi z)^2 / 2), 1 / (1 + |z|)^2, max(0, 1 - |z|), 1 - tanh(z)^2."""
    slope: float = 1.0
    height: float = 1.0
    at_threshold: bool = False
    """Also spike where the membrane equals the threshold, as SpikingJelly does."""

    def is_of_lif(self, unit: Tensor) -> bool:
        """Return whether LIF offers the same surrogate for a membrane in this unit."""
        if self.curve == "superspike":
            return bool((self.height * unit == 1).all())
        return self.curve in get_args(SurrogateName) and self.height == self.slope

    def __call__(self, x: Tensor) -> Tensor:
        """Return the spike for a membrane minus its threshold."""
        spike = (x >= 0 if self.at_threshold else x > 0).to(x.dtype)
        if not (torch.is_grad_enabled() and x.requires_grad):
            return spike
        return straight_through(spike, _CURVES[self.curve](self.slope * x) * (self.height / self.slope))


class InUnits:
    """A spike function for membranes in another unit.

    Args:
        fire: maps a membrane minus its threshold to a spike.
        unit: one of the neuron's units, in the units of ``fire``.
    """

    def __init__(self, fire: Fire, unit: Tensor) -> None:
        self.fire, self.unit = fire, unit.detach()

    def __call__(self, x: Tensor) -> Tensor:
        """Return the spike for a membrane minus its threshold, both in the neuron's unit."""
        return self.fire(self.unit.to(x) * x)


class LIFForm(NamedTuple):
    """A neuron expressed as a LIF: ``v = leak (v - rest) + rest + gain * current``."""

    leak: Tensor
    gain: Constant = 1.0
    rest: Constant = 0.0
    v_reset: Constant = 0.0
    reset: Reset = "zero"
    delayed: bool = False
    detach: bool = True
    synapse: Tensor | None = None


def _number(value: Constant) -> Constant:
    """Return the number in a tensor with one element; return other constants unchanged."""
    value = value.detach() if isinstance(value, Tensor) else value
    return float(value) if isinstance(value, Tensor) and value.numel() == 1 else value


class ConvertedNeuron(Stepped[S]):
    """A neuron from another library that keeps its constants; learned ones remain the same parameters.

    Args:
        fire: maps a membrane minus its threshold to a spike, with a surrogate gradient.
        start: the membrane before the first step.
        given: the other arguments of the class's formula. Tensors become buffers, parameters stay parameters.
    """

    choices: ClassVar[tuple[str, ...]] = ()
    start: Constant
    limit: Constant

    def __init__(self, *, fire: Fire, start: Constant = 0.0, **given: object) -> None:
        super().__init__()
        self._declared.clear()
        self._numbers.clear()
        self.names = tuple(given)
        if isinstance(fire, nn.Module):  # a surrogate that is a module is not a layer of the network
            self.__dict__["fire"] = fire
        else:
            self.fire = fire
        for name, value in {"start": start, **given}.items():
            self.__dict__.pop(name, None)
            if isinstance(value, nn.Parameter):
                self.register_parameter(name, value)
            elif isinstance(value, Tensor):
                self.register_buffer(name, value.detach().clone())
            else:
                setattr(self, name, value)

    @property
    def threshold(self) -> Constant:  # type: ignore[override]
        """The current spike threshold."""
        return self.limit

    def constants(self) -> dict[str, float]:
        """Return every number among the formula's arguments; a tensor is represented by its mean."""
        values = {name: getattr(self, name) for name in self.names}
        return {
            name: float(value.detach().double().mean()) if isinstance(value, Tensor) else float(value)
            for name, value in values.items()
            if isinstance(value, Tensor | float | int) and not isinstance(value, bool)
        }

    def as_lif(self, gain: Constant = 1.0, synapse: Tensor | None = None) -> LIF:
        """Return a LIF that spikes the same up to rounding, has kernels and can be exported.

        Its membrane is this neuron's in other units, ``(v - rest) / gain``, so that no weight changes.

        Args:
            gain: a factor for the current.
            synapse: the decay factor of a synaptic current before this neuron.
        """
        form = self.form()
        fire, unit = self.fire, torch.as_tensor(form.gain * gain)
        rest = torch.as_tensor(form.rest)
        threshold = ((torch.as_tensor(self.threshold) - rest) / unit).detach().float()
        if getattr(fire, "at_threshold", False):
            threshold = torch.nextafter(threshold, threshold.new_tensor(-torch.inf))
        if form.reset == "subtract" and bool((rest != 0).any()):
            raise InputError(
                f"{type(self).__name__} subtracts its threshold but rests at {_number(rest)}; LIF rests at 0"
            )
        shape: dict[str, Any] = {"surrogate": InUnits(fire, unit)}
        if isinstance(fire, Surrogate) and fire.is_of_lif(unit):
            shape = {"surrogate": fire.curve, "surrogate_slope": _number(fire.slope * unit)}
        synapse = form.synapse if synapse is None else synapse
        return LIF(
            leak=_number(form.leak.clamp(min=1e-30)),
            threshold=_number(threshold),
            v_reset=_number((form.v_reset - rest) / unit),
            synapse=None if synapse is None else _number(synapse.clamp(min=1e-30)),
            reset=form.reset,
            delayed_reset=form.delayed,
            detach_reset=form.detach,
            **shape,
        )

    def form(self) -> LIFForm:
        """Return this neuron expressed as a LIF, or raise an InputError with the reason."""
        raise NotImplementedError

    def or_lif(self) -> "LIF | ConvertedNeuron[S]":
        """Return the LIF if it has the same gradients and nothing is learned; otherwise this neuron."""
        if any(True for _ in self.parameters()):
            return self
        try:
            lif = self.as_lif()
        except InputError:
            return self
        return self if callable(lif.surrogate) else lif

    def shapes(self) -> Iterator[tuple[str, torch.Size]]:
        """Yield the name and shape of every constant that broadcasts against the features."""
        yield from (pair for pair in super().shapes() if pair[0] != "factors")

    def _given(self) -> tuple[dict[str, object], dict[str, object]]:
        return {}, {name: getattr(self, name) for name in ("fire", *self.names)}

    def _integrate(self, current: Tensor, state: S | None, rate: bool) -> tuple[Tensor, S]:
        if state is None:
            zero = torch.zeros_like(current[0], dtype=compute_dtype(current.dtype))
            v = zero + self.start
            state = self.state_type(*(v, zero)[: 1 + (self.state_type is SynapticState)])
        return super()._integrate(current, state, rate)

    def extra_repr(self) -> str:
        """Show the formula's arguments."""
        shown = []
        for name in self.names:
            value = getattr(self, name)
            if isinstance(value, Tensor):
                value = (
                    f"{float(value):.6g}" if value.numel() == 1 else f"[{', '.join(map(str, value.shape))}]"
                )
            shown.append(f"{name}={value}")
        return ", ".join([*shown, f"fire={self.fire}"])


class _SnnTorch(ConvertedNeuron[S]):
    """An snnTorch neuron; with a delayed reset, a spike resets the membrane one step later."""

    beta: Tensor
    limit: Tensor
    reset: Reset
    delayed: bool

    @staticmethod
    def formula(
        current: Tensor,
        state: Tensor | SynapticState,
        *,
        beta: Tensor,
        limit: Tensor,
        fire: Fire,
        reset: Reset,
        delayed: bool,
        alpha: Tensor | None = None,
        factors: Tensor | None = None,
        reset_first: bool = False,
    ) -> tuple[Tensor, Tensor | SynapticState]:
        """Take one step.

        Args:
            current: ``[B, *features]``.
            state: the membrane, or membrane and synaptic current.
            beta: decay factor of the membrane.
            limit: the threshold.
            fire: maps a membrane minus its threshold to a spike.
            reset: ``subtract``, ``zero`` or ``none``, applied for the spike of the membrane before this step.
            delayed: if False, also reset by the difference between this spike and the previous one.
            alpha: decay factor of the synaptic current; None if there is none.
            factors: for Lapicque, the factors by which the current is multiplied in turn; beta may then be
                negative. None for other neurons.
            reset_first: reset to zero before the leak, as Leaky does, instead of after it.
        """
        v = state.v if isinstance(state, SynapticState) else state
        before = fire(v - limit).detach()
        drive = current
        if factors is None:
            beta = beta.clamp(0, 1)
        else:
            for factor in factors.unbind():
                drive = drive * factor
        if alpha is not None and isinstance(state, SynapticState):
            drive = alpha.clamp(0, 1) * state.i + drive
        if reset == "zero" and reset_first:
            v = (1 - before) * v
        v = beta * v + drive
        if reset == "subtract":
            v = v - before * limit
        elif reset == "zero" and not reset_first:
            v = v - v * before
        spike = fire(v - limit)
        if not delayed and reset != "none":
            v = v - (spike - before) * (limit if reset == "subtract" else v)
        return spike, v if alpha is None else SynapticState(v, drive)

    def form(self) -> LIFForm:
        """Return this neuron expressed as a LIF."""
        if self.reset == "subtract" and not self.delayed:
            raise InputError(
                "without reset_delay snnTorch resets a neuron above twice its threshold again in the next "
                "step, which LIF cannot do; train with reset_delay=True"
            )
        factors = getattr(self, "factors", None)
        gain: Constant = 1.0 if factors is None else factors.prod(0)
        leak = self.beta.clamp(0, 1) if factors is None else self.beta
        if bool((leak < 0).any()):
            raise InputError("a Lapicque whose time step exceeds R C oscillates, which LIF cannot do")
        first = getattr(self, "reset_first", False)
        late = self.delayed and self.reset != "none" and not (self.reset == "zero" and first)
        return LIFForm(leak, gain, reset=self.reset, delayed=late, detach=self.delayed)


class SnnTorchNeuron(_SnnTorch[State]):
    """snnTorch's Leaky and Lapicque, with all reset modes."""

    state_type = State


class SnnTorchSynaptic(_SnnTorch[SynapticState]):
    """snnTorch's Synaptic, with all reset modes."""

    state_type = SynapticState
    alpha: Tensor

    def form(self) -> LIFForm:
        """Return this neuron expressed as a LIF."""
        return super().form()._replace(synapse=self.alpha.clamp(0, 1))


class SpikingJellyNeuron(ConvertedNeuron[State]):
    """SpikingJelly's IFNode, LIFNode with its time constant ``tau``, and ParametricLIFNode.

    ``w`` is learned; its sigmoid is the inverse time constant. ``decay_input`` also divides the current by
    the time constant. The membrane rests at ``v_reset``; if that is None, it rests at 0 and a spike subtracts
    the threshold.
    """

    state_type = State
    v_reset: float | None  # type: ignore[assignment]
    detach: bool
    tau: float | None
    w: Tensor | None
    decay_input: bool

    @staticmethod
    def formula(
        current: Tensor,
        v: Tensor,
        *,
        limit: float,
        v_reset: float | None,
        fire: Fire,
        detach: bool,
        tau: float | None,
        w: Tensor | None,
        decay_input: bool,
    ) -> tuple[Tensor, Tensor]:
        """Take one step."""
        rest = 0.0 if v_reset is None else v_reset
        if tau is not None:
            v = v + (current - (v - rest)) / tau if decay_input else v - (v - rest) / tau + current
        elif w is not None:
            rate = w.sigmoid()
            v = v + (current - (v - rest)) * rate if decay_input else v - (v - rest) * rate + current
        else:
            v = v + current
        spike = fire(v - limit)
        fired = spike.detach() if detach else spike
        return spike, v - fired * limit if v_reset is None else fired * v_reset + (1.0 - fired) * v

    def form(self) -> LIFForm:
        """Return this neuron expressed as a LIF."""
        rest = self.v_reset or 0.0
        rate = torch.zeros(()) if self.tau is None else torch.tensor(1 / self.tau)
        rate = rate if self.w is None else self.w.detach().sigmoid()
        gain = rate if self.decay_input and bool(rate > 0) else 1.0
        reset: Reset = "subtract" if self.v_reset is None else "zero"
        return LIFForm(1 - rate, gain, rest, rest, reset, detach=self.detach)


class NorseLIF(ConvertedNeuron[SynapticState]):
    """norse's LIF and LIFRecurrent: the current jumps, drives the membrane, and then decays.

    At each step the synaptic current loses the fraction ``synapse_rate``, and the membrane moves by the
    fraction ``membrane_rate`` of its distance from rest plus current.
    """

    state_type = SynapticState
    synapse_rate: Tensor
    membrane_rate: Tensor
    v_leak: Tensor
    detach: bool

    @staticmethod
    def formula(
        current: Tensor,
        state: SynapticState,
        *,
        synapse_rate: Tensor,
        membrane_rate: Tensor,
        v_leak: Tensor,
        limit: Tensor,
        v_reset: Tensor,
        fire: Fire,
        detach: bool,
    ) -> tuple[Tensor, SynapticState]:
        """Take one step."""
        i = state.i + current
        v = state.v + membrane_rate * (v_leak - state.v + i)
        after = i + -synapse_rate * i
        spike = fire(v - limit)
        fired = spike.detach() if detach else spike
        return spike, SynapticState((1 - fired) * v + fired * v_reset, after)

    def form(self) -> LIFForm:
        """Return this neuron expressed as a LIF."""
        rate, synapse = self.membrane_rate, 1 - self.synapse_rate
        return LIFForm(1 - rate, rate, self.v_leak, self.v_reset, detach=self.detach, synapse=synapse)


class NorseBox(ConvertedNeuron[State]):
    """norse's LIFBox, which is NIR's LIF; without a ``membrane_rate``, norse's IAF, which is NIR's IF.

    ``membrane_rate`` is dt / tau. A spike sets the membrane to ``v_reset`` or subtracts the threshold.
    """

    state_type = State
    membrane_rate: Tensor | None
    subtract: bool

    @staticmethod
    def formula(
        current: Tensor,
        v: Tensor,
        *,
        membrane_rate: Tensor | None,
        v_leak: Tensor,
        limit: Tensor,
        v_reset: Tensor,
        fire: Fire,
        subtract: bool,
    ) -> tuple[Tensor, Tensor]:
        """Take one step."""
        v = v + (current if membrane_rate is None else membrane_rate * (current + v_leak - v))
        spike = fire(v - limit)
        return spike, (1 - spike) * v + spike * (v - limit if subtract else v_reset)

    def form(self) -> LIFForm:
        """Return this neuron expressed as a LIF."""
        rate, reset = self.membrane_rate, "subtract" if self.subtract else "zero"
        leak, gain = (torch.ones(()), 1.0) if rate is None else (1 - rate, rate)
        return LIFForm(leak, gain, self.start, self.v_reset, cast(Reset, reset), detach=False)


class Integrator(nn.Module):
    """A membrane without a threshold, in norse's arithmetic: norse's LI and LIBox, NIR's LI and I.

    Args:
        rate: the fraction of its distance from rest plus current that the membrane moves per step. None: the
            membrane sums its current.
        v_leak: the membrane at rest.
        synapse_rate: the fraction of the synaptic current that decays per step; None if there is none.
    """

    def __init__(
        self, rate: Tensor | None, v_leak: Tensor | None = None, synapse_rate: Tensor | None = None
    ) -> None:
        super().__init__()
        self.register_buffer("rate", rate)
        self.register_buffer("v_leak", torch.zeros(()) if v_leak is None else v_leak.detach().clone())
        self.register_buffer("synapse_rate", synapse_rate)

    keeps_state = True
    rate: Tensor | None
    v_leak: Tensor
    synapse_rate: Tensor | None

    def forward(self, current: Tensor) -> Tensor:
        """Return the membrane at every step for ``[T, B, *features]``, starting from rest."""
        return self.run(current)[0]

    def run(self, current: Tensor, state: SynapticState | None = None) -> tuple[Tensor, SynapticState]:
        """Return the membrane at every step and the state to continue from."""
        found = []
        for x in current:
            v, state = self.step(x, state)
            found.append(v)
        if state is None:
            raise ValueError("current has no time steps; pass at least one")
        return torch.stack(found), state

    def step(self, x: Tensor, state: SynapticState | None = None) -> tuple[Tensor, SynapticState]:
        """Return the membrane after one time step ``[B, *features]`` and the state to continue from."""
        if state is None:
            state = SynapticState(torch.zeros_like(x) + self.v_leak, torch.zeros_like(x))
        i = x if self.synapse_rate is None else state.i + x
        v = state.v + (i if self.rate is None else self.rate * (self.v_leak - state.v + i))
        after = state.i if self.synapse_rate is None else i + -self.synapse_rate * i
        return v, SynapticState(v, after)


class States(nn.Module):
    """Call a neuron step by step and return its spikes and states at every step, with gradients.

    Args:
        neuron: any neuron, or `ultralif.Recurrent`.
        order: the names of the states to return, ``v`` and ``i``.
    """

    def __init__(self, neuron: nn.Module, order: tuple[str, ...]) -> None:
        super().__init__()
        self.neuron, self.order = neuron, order

    def forward(self, current: Tensor) -> tuple[Tensor, ...]:
        """Return spikes and states, each ``[T, B, *features]``."""
        state: Any = None
        found: list[tuple[Tensor, ...]] = []
        neuron: Any = self.neuron
        if isinstance(neuron, nn.Sequential):  # linear layers before a recurrent one
            current, neuron = neuron[:-1](current), neuron[-1]
        for x in current:
            spike, state = neuron.step(x, state)
            inner = getattr(state, "neuron", state)
            found.append((spike, *(getattr(inner, name) for name in self.order)))
        return tuple(torch.stack(each) for each in zip(*found, strict=True))


class TimeDropout(nn.Module):
    """Dropout for ``[T, B, *features]`` with one mask for all time steps, as in SpikingJelly.

    Args:
        p: the probability of a zero.
        channels: drop whole channels, which are the first feature axis.
    """

    def __init__(self, p: float, channels: bool = False) -> None:
        super().__init__()
        self.p, self.channels = p, channels

    def forward(self, x: Tensor) -> Tensor:
        """Return ``x`` in evaluation mode, and otherwise ``x`` times one mask for all steps."""
        if not self.training:
            return x
        drop = nn.functional.dropout2d if self.channels else nn.functional.dropout
        return x * drop(torch.ones_like(x[0]), self.p, True)
