"""Bound every number in an integer network for any input, by interval arithmetic."""

from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from ultralif.errors import InputError
from ultralif.export.graph import Flatten, Graph, Input, Last, Pooling, Spikes, Sum, Synapses
from ultralif.export.integer import Decay, IntegerLeaky, IntegerNeuron, IntegerSynapses, Shifts

__all__ = ["Counts", "Range", "counts", "currents", "membranes", "scaled", "sums"]


LIMIT = 1 << 40


class Range(NamedTuple):
    """The least and the greatest value, as int64 tensors that broadcast to the features."""

    low: Tensor
    high: Tensor

    def fits(self, bits: int) -> bool:
        """Return whether signed integers with this many bits can hold both ends."""
        limit = 1 << (bits - 1)  # excludes the lowest number, which C cannot negate
        return -limit < int(self.low.min()) and int(self.high.max()) < limit

    def union(self, other: "Range") -> "Range":
        """Return the smallest range that contains both."""
        return Range(torch.minimum(self.low, other.low), torch.maximum(self.high, other.high))

    def plus(self, other: "Range") -> "Range":
        """Return the range of the sum."""
        return Range(self.low + other.low, self.high + other.high)

    def times(self, count: int) -> "Range":
        """Return the range of a sum of up to that many values."""
        return Range(self.low.clamp(max=0) * count, self.high.clamp(min=0) * count)


class Counts(NamedTuple):
    """The most events in one time step, or the highest level."""

    each: int
    """At one position."""
    total: int
    """At all positions together."""
    signed: bool = False
    """True if values may also be negative, within the same bounds."""


def counts(graph: Graph, given: Counts) -> dict[int, Counts]:
    """Return the bounds of every node that produces spikes or sums of spikes; ``given`` bounds the input."""
    found: dict[int, Counts] = {}
    for place, node in enumerate(graph.nodes):
        size = int(torch.Size(node.shape).numel())
        taken = [found[i] for i in node.inputs if i in found]
        if isinstance(node.op, Input):
            found[place] = given
        elif isinstance(node.op, Spikes | Last):
            found[place] = Counts(1, size)
        elif not graph.is_count[place]:
            continue
        elif isinstance(node.op, Pooling) and node.op.kind == "mean":
            total = taken[0].total * node.op.overlap
            found[place] = Counts(min(taken[0].each * node.op.count, total), total, taken[0].signed)
        elif isinstance(node.op, Pooling):
            if taken[0].each > 1:
                raise InputError(
                    f"layer {node.name!r} takes the maximum of inputs or counts, but integer networks "
                    "only support the maximum of binary spikes or currents"
                )
            found[place] = Counts(1, size)
        elif isinstance(node.op, Sum):
            a, b = taken
            found[place] = Counts(a.each + b.each, a.total + b.total, a.signed or b.signed)
        elif isinstance(node.op, Flatten):
            found[place] = taken[0]
    return found


def sums(weight: Tensor, most: Counts, slots: int = 1) -> Range:
    """Return the range of each output's sum of weights, ``[outputs, ...]``, over events of `slots` steps."""
    weight, most = weight.long().flatten(1), most._replace(total=most.total * slots)
    if most.signed:
        reach = weight.abs().sum(1) * most.each
        return Range(-reach, reach)
    low, high = weight.clamp(max=0), weight.clamp(min=0)
    return Range(
        torch.maximum(low.sum(1) * most.each, low.amin(1) * most.total),
        torch.minimum(high.sum(1) * most.each, high.amax(1) * most.total),
    )


def scaled(op: IntegerSynapses, most: Counts) -> float:
    """Return how far from 0 a sum of weights, scaled to units, can get before its bias is added.

    The result is infinite if a shift is too large for 32 bits. It is computed in floating point, so it
    cannot wrap around.
    """
    ends = torch.maximum(*(end.abs() for end in sums(op.weight, most, op.slots))).double()
    factor = 1.0 if op.factor is None else op.factor.double()
    shift = op.shift.double()
    reach = torch.where(shift > 31, torch.inf, ends * factor * 2.0**shift)
    return max(float(ends.max()), float(reach.max()))


def currents(
    graph: Graph, made: dict[int, IntegerSynapses | IntegerLeaky], most: dict[int, Counts], timesteps: int
) -> tuple[dict[int, Range], dict[int, Range]]:
    """Return the ranges of the weight sums, and of everything computed from them before the neurons.

    Args:
        graph: the network.
        made: the known synapses; nodes that depend on unknown ones are left out.
        most: the result of `counts`.
        timesteps: the longest sequence.
    """
    totals: dict[int, Range] = {}
    found: dict[int, Range] = {}
    for place, node in enumerate(graph.nodes):
        if graph.is_count[place] or (isinstance(node.op, Synapses) and place not in made):
            continue
        op = made.get(place)
        if isinstance(op, IntegerSynapses):
            totals[place] = sums(op.weight, most[node.inputs[0]], op.slots)
            ends = (op.currents(end) for end in totals[place])
            found[place] = Range(*(end.view(-1, *[1] * (len(node.shape) - 1)) for end in ends))
        elif all(i in found for i in node.inputs):
            taken = [found[i] for i in node.inputs]
            if isinstance(node.op, Sum):
                found[place] = taken[0].plus(taken[1])
            elif isinstance(op, IntegerLeaky):
                found[place] = _settled(op.decay, taken[0], timesteps)
            elif isinstance(node.op, Flatten):
                before = graph.nodes[node.inputs[0]].shape
                found[place] = Range(*(end.expand(before).flatten() for end in taken[0]))
            elif isinstance(node.op, Pooling):
                found[place] = taken[0].times(node.op.count) if node.op.kind == "mean" else taken[0]
    return totals, found


def _settled(decay: Decay, given: Range, timesteps: int) -> Range:
    """Return the range of a value that decays and receives numbers within a range at each time step."""
    slack = len(decay.terms) if isinstance(decay, Shifts) else 0
    zero = torch.zeros_like(given.low)
    reach = Range(zero, zero)
    for _ in range(timesteps):
        before = reach
        low, high = (decay(end) + one for end, one in zip(before, given, strict=True))
        reach = before.union(Range((low - slack).clamp(-LIMIT, LIMIT), (high + slack).clamp(-LIMIT, LIMIT)))
        if torch.equal(before.low, reach.low) and torch.equal(before.high, reach.high):
            break
    return reach


def membranes(neuron: IntegerNeuron, current: Range, timesteps: int) -> tuple[Range, Range]:
    """Return the ranges of everything computed before the reset, and of what is stored after it.

    A membrane increases with its current and its previous value, so the ends of the ranges follow the
    tropical recurrence. A log-sum-exp adds between 0 and its table's first entry at each maximum. Each right
    shift may be off by up to one unit.
    """
    tropical = replace(neuron, table=None, floor=None)
    maxima = {"add": 0, "max": 1, "ring": 2}[neuron.coupling]
    lift = 0 if neuron.table is None else maxima * int(neuron.table.entries[0])
    slack = len(neuron.decay.terms) if isinstance(neuron.decay, Shifts) else 0
    zero = torch.zeros_like(current.low)
    stored = reached = after = rise = Range(zero, zero)
    if neuron.adapt is not None and neuron.jump is not None:
        given = Range(neuron.jump.clamp(max=0), neuron.jump.clamp(min=0))
        rise = _settled(neuron.adapt, given, timesteps)
        limit = Range(neuron.threshold + rise.low, neuron.threshold + rise.high)
        reached = reached.union(limit).union(rise)
    for _ in range(timesteps):
        before = Range(
            tropical.membrane(current.low, stored.low) - slack,
            tropical.membrane(current.high, stored.high) + slack + lift,
        )
        decayed = Range(*(end if neuron.decay is None else neuron.decay(end) for end in stored))
        decayed = Range(decayed.low - slack, decayed.high + slack + lift)
        reached = reached.union(before).union(decayed)
        if neuron.delayed:
            reached = reached.union(_delayed(replace(neuron, floor=None), before))
        kept = _delayed(neuron, before) if neuron.delayed else _reset(neuron, before, rise)
        reached = reached.union(kept)
        # Values beyond 2^40 stay beyond every range; without a limit int64 could wrap around.
        previous, stored = stored, Range(*(end.clamp(-LIMIT, LIMIT) for end in kept))
        after = after.union(stored)
        if torch.equal(previous.low, stored.low) and torch.equal(previous.high, stored.high):
            break  # the ranges have converged
    return reached, after


def _reset(neuron: IntegerNeuron, before: Range, rise: Range) -> Range:
    """Return the range after resetting membranes above threshold and clipping the lowest ones."""
    if neuron.after in ("none", "saturate"):
        never = torch.zeros_like(neuron.threshold, dtype=torch.bool)
        low, high = (neuron.kept(end, never) for end in before)
        return Range(low, high) if neuron.floor is None else Range(low.clamp(min=neuron.floor), high)
    fires = before.high > neuron.threshold + rise.low
    low, high = before.low, torch.minimum(before.high, neuron.threshold + rise.high)
    least = most = neuron.reset
    if neuron.after == "subtract":
        least, most = neuron.threshold + 1 - neuron.reset, before.high - neuron.reset - rise.low
    low = torch.where(fires, torch.minimum(low, least), low)
    high = torch.where(fires, torch.maximum(high, most), high)
    return Range(low, high) if neuron.floor is None else Range(low.clamp(min=neuron.floor), high)


def _delayed(neuron: IntegerNeuron, before: Range) -> Range:
    """Return the range after the last spike has reset any subset of the membranes."""
    ends = [neuron.kept(end, torch.ones_like(neuron.threshold, dtype=torch.bool)) for end in before]
    found = before.union(Range(*ends))
    return found if neuron.floor is None else Range(found.low.clamp(min=neuron.floor), found.high)
