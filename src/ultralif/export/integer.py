"""The integer machine: what a quantized network computes, step by step, in integers alone.

It is the definition that exported C is compared with, bit for bit. Shifts to the right round down.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from ultralif.errors import InputError

__all__ = [
    "Decay",
    "IntegerLayer",
    "IntegerNetwork",
    "IntegerNeuron",
    "IntegerOutput",
    "Multiply",
    "Offset",
    "Shifts",
    "Table",
]

Coupling = Literal["add", "max", "ring"]


@dataclass(frozen=True)
class Multiply:
    """A decay to ``v * factor / 2^15``, rounded to nearest."""

    factor: Tensor
    """int64 ``[n]``, at most 2^15."""

    def __call__(self, v: Tensor) -> Tensor:
        """Return the decayed membrane."""
        return (v * self.factor + (1 << 14)) >> 15


@dataclass(frozen=True)
class Shifts:
    """A decay to a sum of signed halvings, ``v - (v >> 3) + (v >> 5)``: no multiplication."""

    terms: tuple[tuple[int, int], ...]
    """Signs and distances: ``((-1, 3), (1, 5))``."""

    def __call__(self, v: Tensor) -> Tensor:
        """Return the decayed membrane."""
        return v + sum(sign * (v >> distance) for sign, distance in self.terms)


@dataclass(frozen=True)
class Offset:
    """A decay to ``v + amount``: the leak of max-plus algebra."""

    amount: Tensor
    """int64 ``[n]``, negative."""

    def __call__(self, v: Tensor) -> Tensor:
        """Return the decayed membrane."""
        return v + self.amount


Decay = Multiply | Shifts | Offset


@dataclass(frozen=True)
class Table:
    r"""What a log-sum-exp adds to a maximum, :math:`\epsilon \log(1 + e^{-d/\epsilon})`, by distance d."""

    entries: Tensor
    """int64, falling; beyond the last the answer is 0."""
    shift: int
    """Distance d is looked up at ``d >> shift``."""

    def __call__(self, distance: Tensor) -> Tensor:
        """Return what to add to the greater of two numbers that far apart."""
        index = distance >> self.shift
        last = len(self.entries) - 1
        return torch.where(index > last, 0, self.entries[index.clamp(max=last)])


@dataclass(frozen=True)
class IntegerNeuron:
    """A layer of neurons; their constants are counted in the units of their membranes."""

    coupling: Coupling
    """``add``: decay(v) + I (LIF). ``max``: max(decay(v), I) (UltraLIF). ``ring``: the maximum of
    decay(v) over three neighbours, + I (UltraDLIF)."""
    threshold: Tensor
    """int64 ``[n]``: a spike is v > threshold."""
    reset: Tensor
    """int64 ``[n]``: the membrane after a spike."""
    decay: Decay | None
    table: Table | None
    """Makes each maximum a log-sum-exp; None in tropical mode."""
    floor: int | None = None
    """Where a membrane saturates; None if it was shown never to fall that far."""

    def membrane(self, current: Tensor, v: Tensor) -> Tensor:
        """Return the membrane before its reset."""
        decayed = v if self.decay is None else self.decay(v)
        if self.coupling == "add":
            membrane = decayed + current
        elif self.coupling == "max":
            membrane = self._top(decayed, current)
        else:
            pair = self._top(decayed.roll(1, -1), decayed)
            membrane = self._top(pair, decayed.roll(-1, -1)) + current
        return membrane if self.floor is None else membrane.clamp(min=self.floor)

    def step(self, current: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Return the spikes, True or False, and the membrane after reset."""
        membrane = self.membrane(current, v)
        spike = membrane > self.threshold
        return spike, torch.where(spike, self.reset, membrane)

    def _top(self, a: Tensor, b: Tensor) -> Tensor:
        top = torch.maximum(a, b)
        return top if self.table is None else top + self.table((a - b).abs())


@dataclass(frozen=True)
class IntegerLayer:
    """Synapses in int8, and the neurons they drive; the readout has none."""

    weight: Tensor
    """int8 ``[n, inputs]``"""
    shift: Tensor
    """int64 ``[n]``: a sum of weights, times 2^shift, is counted in membrane units."""
    bias: Tensor
    """int64 ``[n]``, in membrane units."""
    unit: Tensor
    """float64 ``[n]``: what 1 stands for."""
    neuron: IntegerNeuron | None

    def current(self, x: Tensor) -> Tensor:
        """Return the current for counts ``[..., inputs]``.

        The sums stay far below 2^53, so float64 holds them exactly, and multiplies faster.
        """
        total = x.double() @ self.weight.double().mT
        return (total.long() << self.shift) + self.bias


class IntegerOutput(NamedTuple):
    """What an integer network did with a batch."""

    scores: Tensor
    """int64 ``[B, classes]``: sums over time, or spike counts if the readout spikes."""
    spikes: tuple[Tensor, ...]
    """For each spiking layer bool ``[T, B, n]``."""
    membranes: tuple[Tensor, ...]
    """For each spiking layer int64 ``[T, B, n]``, after reset."""


@dataclass(frozen=True)
class IntegerNetwork:
    """A network of integers, made by `ultralif.export.quantize`; see there for its arguments."""

    layers: tuple[IntegerLayer, ...]
    timesteps: int
    """The longest sequence for which no number can overflow."""
    max_events: int
    """The most input spikes in one time step for which no number can overflow."""
    bits: int
    """Bits of a membrane."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """Inputs, neurons of each layer, classes."""
        return (self.layers[0].weight.shape[1], *(len(layer.weight) for layer in self.layers))

    def run(self, x: Tensor) -> IntegerOutput:
        """Run event counts ``[T, B, *input]``, of any integer or whole-numbered dtype, from rest."""
        signal = self._check(x)
        spikes: list[Tensor] = []
        membranes: list[Tensor] = []
        for layer in self.layers:
            current = layer.current(signal)
            if layer.neuron is None:
                return IntegerOutput(current.sum(0), tuple(spikes), tuple(membranes))
            signal, membrane = _over_time(layer.neuron, current)
            spikes.append(signal)
            membranes.append(membrane)
        return IntegerOutput(signal.sum(0), tuple(spikes), tuple(membranes))

    def additions(self, x: Tensor, output: IntegerOutput) -> int:
        """Count the additions of a weight: every event and every spike costs one for each target."""
        sources = (int(self._check(x).sum()), *(int(spikes.sum()) for spikes in output.spikes))
        return sum(count * len(layer.weight) for count, layer in zip(sources, self.layers, strict=False))

    def _check(self, x: Tensor) -> Tensor:
        counts = x.flatten(2).long() if x.dim() > 2 else x.long()
        if x.dim() < 3 or counts.shape[-1] != self.sizes[0]:
            raise InputError(
                f"x must be [T, B, *input] with {self.sizes[0]} values a sample, got shape {tuple(x.shape)}"
            )
        if counts.numel() == 0 or bool((counts.view_as(x) != x).any()) or bool((counts < 0).any()):
            raise InputError("x must hold event counts, whole numbers from 0 on; encode it as spikes first")
        if len(x) > self.timesteps:
            raise InputError(
                f"x has {len(x)} time steps, but the network was quantized for {self.timesteps}; "
                f"quantize it again with timesteps={len(x)}"
            )
        events = int(counts.sum(-1).max())
        if events > self.max_events:
            raise InputError(
                f"x has {events} events in a time step, but the network was quantized for at most "
                f"{self.max_events}; quantize it again with max_events={events}"
            )
        return counts


def _over_time(neuron: IntegerNeuron, current: Tensor) -> tuple[Tensor, Tensor]:
    v = torch.zeros_like(current[0])
    spikes, membranes = [], []
    for x in current:
        spike, v = neuron.step(x, v)
        spikes.append(spike)
        membranes.append(v)
    return torch.stack(spikes), torch.stack(membranes)
