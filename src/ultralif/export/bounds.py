"""How far the numbers of an integer layer can go, whatever comes in: interval arithmetic."""

from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from ultralif.export.integer import IntegerLayer, IntegerNeuron, Shifts

__all__ = ["Range", "currents", "membranes", "sums"]


class Range(NamedTuple):
    """The least and the greatest value, int64 ``[n]`` each."""

    low: Tensor
    high: Tensor

    def fits(self, bits: int) -> bool:
        """Tell whether signed integers of that many bits hold both ends."""
        limit = 1 << (bits - 1)  # the lowest number is left out: C cannot negate it
        return -limit < int(self.low.min()) and int(self.high.max()) < limit

    def union(self, other: "Range") -> "Range":
        """Return the smallest range that holds both."""
        return Range(torch.minimum(self.low, other.low), torch.maximum(self.high, other.high))

    def times(self, count: int) -> "Range":
        """Return the range of a sum of up to that many values."""
        return Range(self.low.clamp(max=0) * count, self.high.clamp(min=0) * count)


def sums(weight: Tensor, events: int | None) -> Range:
    """Return the range of a neuron's sum of weights, ``weight`` being int8 ``[n, inputs]``.

    Args:
        weight: the weights.
        events: the most events in all; None: each input fires at most once.
    """
    low, high = weight.long().clamp(max=0), weight.long().clamp(min=0)
    if events is None:
        return Range(low.sum(1), high.sum(1))
    return Range(low.amin(1) * events, high.amax(1) * events)


def currents(layer: IntegerLayer, total: Range) -> Range:
    """Return the range of the current for a range of sums."""
    low, high = ((end << layer.shift) + layer.bias for end in total)
    return Range(low, high)


def membranes(neuron: IntegerNeuron, current: Range, timesteps: int) -> tuple[Range, Range]:
    """Return the ranges of all that is computed before the reset, and of what is stored after it.

    A membrane rises with its current and its past, so the ends of the ranges follow the tropical
    recurrence. A log-sum-exp adds at most its table's first entry at each maximum, and never less
    than nothing; halvings add up to one unit a term out of order.
    """
    tropical = replace(neuron, table=None, floor=None)
    maxima = {"add": 0, "max": 1, "ring": 2}[neuron.coupling]
    lift = 0 if neuron.table is None else maxima * int(neuron.table.entries[0])
    slack = len(neuron.decay.terms) if isinstance(neuron.decay, Shifts) else 0
    zero = torch.zeros_like(current.low)
    stored = reached = after = Range(zero, zero)
    for _ in range(timesteps):
        before = Range(
            tropical.membrane(current.low, stored.low) - slack,
            tropical.membrane(current.high, stored.high) + slack + lift,
        )
        decayed = Range(*(end if neuron.decay is None else neuron.decay(end) for end in stored))
        decayed = Range(decayed.low - slack, decayed.high + slack + lift)
        reached = reached.union(before).union(decayed)
        previous, stored = stored, _reset(neuron, before)
        after = after.union(stored)
        if torch.equal(previous.low, stored.low) and torch.equal(previous.high, stored.high):
            break  # nothing will change any more
    return reached, after


def _reset(neuron: IntegerNeuron, before: Range) -> Range:
    """Return the range after the membranes above threshold were reset, and the lowest floored."""
    fires = before.high > neuron.threshold
    low, high = before.low, torch.minimum(before.high, neuron.threshold)
    low = torch.where(fires, torch.minimum(low, neuron.reset), low)
    high = torch.where(fires, torch.maximum(high, neuron.reset), high)
    return Range(low, high) if neuron.floor is None else Range(low.clamp(min=neuron.floor), high)
