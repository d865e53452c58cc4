"""A layer of neurons in integers: decays, tables and resets, each rounded in one stated way."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

__all__ = ["After", "Coupling", "Decay", "IntegerNeuron", "Multiply", "Offset", "Shifts", "Table"]

Coupling = Literal["add", "max", "ring"]
After = Literal["zero", "none", "saturate"]


@dataclass(frozen=True)
class Multiply:
    """A decay to ``v * factor / 2^15``, rounded to nearest."""

    factor: Tensor
    """int64, at most 2^15."""

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
    """int64, negative."""

    def __call__(self, v: Tensor) -> Tensor:
        """Return the decayed membrane."""
        return v + self.amount


Decay = Multiply | Shifts | Offset


@dataclass(frozen=True)
class Table:
    r"""Excess of log-sum-exp over the maximum, :math:`\epsilon \log(1 + e^{-d/\epsilon})`, by distance d."""

    entries: Tensor
    """int64, decreasing; 0 beyond the last entry."""
    shift: int
    """Distance d is looked up at ``d >> shift``."""

    def __call__(self, distance: Tensor) -> Tensor:
        """Return the amount to add to the greater of two numbers at this distance."""
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
    """int64, ``[n]``, ``[C, 1, 1]`` or ``[C, H, W]``, like all constants: a spike is v > threshold."""
    reset: Tensor
    """int64: the membrane after a spike, or for ``saturate`` the greatest that is kept."""
    decay: Decay | None
    table: Table | None
    """Makes each maximum a log-sum-exp; None in tropical mode."""
    axis: int = -1
    """The axis of a ring."""
    floor: int | None = None
    """The lowest membrane; None if it is proved never to fall that low."""
    after: After = "zero"
    """A spike sets the membrane to ``reset`` (``zero``) or not (``none``); ``saturate`` cuts off above it."""

    def membrane(self, current: Tensor, v: Tensor) -> Tensor:
        """Return the membrane before its reset."""
        decayed = v if self.decay is None else self.decay(v)
        if self.coupling == "add":
            membrane = decayed + current
        elif self.coupling == "max":
            membrane = self._top(decayed, current)
        else:
            pair = self._top(decayed.roll(1, self.axis), decayed)
            membrane = self._top(pair, decayed.roll(-1, self.axis)) + current
        return membrane if self.floor is None else membrane.clamp(min=self.floor)

    def step(self, current: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Return the spikes, True or False, and the membrane after reset."""
        membrane = self.membrane(current, v)
        spike = membrane > self.threshold
        return spike, self.kept(membrane, spike)

    def kept(self, membrane: Tensor, spike: Tensor) -> Tensor:
        """Return the membrane after the reset."""
        if self.after == "zero":
            return torch.where(spike, self.reset, membrane)
        return membrane if self.after == "none" else torch.minimum(membrane, self.reset)

    def _top(self, a: Tensor, b: Tensor) -> Tensor:
        top = torch.maximum(a, b)
        return top if self.table is None else top + self.table((a - b).abs())
