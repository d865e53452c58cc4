"""Decide how the C program computes each layer of neurons, and give the reason.

A layer is *gathered* where a convolution reads lists of spikes, or levels of the input. Its sums stay in
registers, and rows are computed when the next layer requests them. All other layers are *spread*: each spike
adds its weights to sums in memory. A threshold replaces a membrane only if this was checked for every
possible sum. Sums share a word only if they are proved to fit.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ultralif.export.bounds import Counts, Range, sums
from ultralif.export.graph import Input, Pooling
from ultralif.export.integer import IntegerLeaky, IntegerNetwork, IntegerNeuron, IntegerSynapses

__all__ = ["GROUP", "Gathered", "LayerPlan", "make_plan", "reach", "threshold_of"]

GROUP = 16
"""The number of channels whose packed sums fit the registers of a Cortex-M."""
MOST_SUMS = 1 << 26
"""The maximum number of sums for which a threshold is checked, across all channels."""

Kernel = Literal["packed", "wide", "levels"]


@dataclass(frozen=True)
class Gathered:
    """A layer of neurons whose sums are gathered. Integers are positions in the network."""

    neuron: int
    synapses: int
    pool: int | None
    source: int
    kernel: Kernel
    threshold: Tensor | None
    """int64 ``[channels]``: the least sum that fires; None if membranes are computed."""
    membranes: str
    """Why thresholds do or do not replace membranes."""
    sums: str
    """Why the kernel was chosen."""

    @property
    def why(self) -> str:
        """Return one line for a report."""
        return f"gathered; {self.sums}; {self.membranes}"


@dataclass(frozen=True)
class LayerPlan:
    """How each layer of neurons is computed."""

    gathered: dict[int, Gathered]
    """Indexed by the position of its neurons."""
    spread: dict[int, str]
    """Why the other layers are spread."""

    @property
    def listed(self) -> dict[int, list[Gathered]]:
        """Return the layers whose spikes are kept in lists, with their readers."""
        found: dict[int, list[Gathered]] = {}
        for layer in self.gathered.values():
            if layer.kernel != "levels":
                found.setdefault(layer.source, []).append(layer)
        return found

    @property
    def internal(self) -> frozenset[int]:
        """Return the synapses and pools that are computed inside a gathered layer."""
        inner = ((layer.synapses, layer.pool) for layer in self.gathered.values())
        return frozenset(place for pair in inner for place in pair if place is not None)

    @property
    def without_membranes(self) -> frozenset[int]:
        """Return the layers whose membranes are replaced by thresholds."""
        return frozenset(place for place, layer in self.gathered.items() if layer.threshold is not None)

    def why(self, place: int) -> str:
        """Return how a layer of neurons is computed, and why."""
        return self.gathered[place].why if place in self.gathered else f"spread; {self.spread[place]}"


def make_plan(net: IntegerNetwork) -> LayerPlan:
    """Return the fastest provably exact computation for each layer."""
    gathered: dict[int, Gathered] = {}
    spread: dict[int, str] = {}
    for place, node in enumerate(net.nodes):
        if isinstance(node.op, IntegerNeuron):
            found = _gathered(net, place)
            if isinstance(found, str):
                spread[place] = found
            else:
                gathered[place] = found
    return LayerPlan(gathered, spread)


def _gathered(net: IntegerNetwork, place: int) -> Gathered | str:
    """Return how a layer is gathered, or why it cannot be."""
    node = net.nodes[place]
    neuron, pool, below = node.op, None, node.inputs[0]
    readers = [i for other in net.nodes for i in other.inputs]
    before = net.nodes[below].op
    if isinstance(before, Pooling):
        if before.kind != "max" or before.flipped:
            return "currents are averaged" if before.kind == "mean" else "some channels pool their minimum"
        if any(size > stride for size, stride in zip(before.size, before.stride, strict=True)):
            return "pooling windows overlap"
        pool, below = below, net.nodes[below].inputs[0]
    op, source = net.nodes[below].op, net.nodes[below].inputs[:1]
    if not isinstance(op, IntegerSynapses) or not isinstance(neuron, IntegerNeuron):
        return "currents decay" if isinstance(op, IntegerLeaky) else "currents of several layers are added"
    if op.geometry is None:
        return "a linear layer adds whole rows of weights"
    if op.geometry.groups > 1:
        return "the convolution has groups"
    if readers.count(below) > 1 or (pool is not None and readers.count(pool) > 1):
        return "its currents are read twice"
    origin = net.nodes[source[0]]
    if isinstance(origin.op, Input) and net.levels is None:
        return "input events are added as they arrive"
    if not isinstance(origin.op, Input | IntegerNeuron):
        return "it reads spikes that were pooled or added"
    levels = isinstance(origin.op, Input) and net.levels is not None
    within = reach(net, source[0], op)
    threshold = threshold_of(op, neuron, within) if net.timesteps == 1 else "several time steps"
    if isinstance(threshold, str) and (why := _not_by_channel(neuron, node.shape[0])):
        return f"{why}, and membranes are needed: {threshold}"
    kernel, reason = _kernel(op, within, threshold)
    if levels:
        kernel, reason = "levels", "levels are multiplied"
    membranes, known = f"membranes: {threshold}", None
    if not isinstance(threshold, str):
        membranes, known = "a threshold for each channel replaces membranes", threshold
    return Gathered(place, below, pool, source[0], kernel, known, membranes, reason)


def reach(net: IntegerNetwork, source: int, op: IntegerSynapses) -> Range:
    """Return the range of each channel's sum."""
    size = math.prod(net.nodes[source].shape)
    if isinstance(net.nodes[source].op, Input) and net.levels is not None:
        return sums(op.weight, Counts(net.levels.high, net.levels.high * size, net.levels.signed))
    return sums(op.weight, Counts(1, size))


def _not_by_channel(neuron: IntegerNeuron, channels: int) -> str:
    """Return why a layer's membranes cannot be computed position by position."""
    if neuron.coupling == "ring":
        return "neurons are coupled across the map"
    if neuron.adapt is not None:
        return "thresholds adapt"
    constants = [neuron.threshold, neuron.reset]
    constants += (
        [value for value in vars(neuron.decay).values() if isinstance(value, Tensor)] if neuron.decay else []
    )
    return (
        ""
        if all(value.numel() == channels for value in constants)
        else "constants differ from place to place"
    )


def _kernel(op: IntegerSynapses, reach: Range, threshold: Tensor | str) -> tuple[Kernel, str]:
    """Return whether two sums of 16 bits share a word."""
    channels = len(op.weight)
    padded = -(-channels // GROUP) * GROUP
    if op.weight.dtype != torch.int8:
        return "wide", "32-bit sums, as weights have 16 bits"
    if 3 * channels < 2 * padded:
        return "wide", f"32-bit sums, as {channels} channels do not fill a group of {GROUP}"
    least = torch.zeros_like(reach.low) if isinstance(threshold, str) else threshold
    if int((reach.low - least).min()) < -(1 << 15) or int((reach.high - least).max()) >= 1 << 15:
        return "wide", f"32-bit sums, as they range from {int(reach.low.min())} to {int(reach.high.max())}"
    return (
        "packed",
        f"two 16-bit sums a word, as they stay within {int(reach.low.min())} to {int(reach.high.max())}",
    )


def threshold_of(op: IntegerSynapses, neuron: IntegerNeuron, reach: Range) -> Tensor | str:
    """Return for each channel the least sum that makes a neuron at rest fire, or why there is none.

    Every sum within ``reach`` is tried. A channel that never fires gets the number after its greatest sum.
    """
    channels = len(op.weight)
    least, most = int(reach.low.min()), int(reach.high.max())
    if neuron.threshold.numel() != channels:
        return "constants differ from place to place"
    if (most - least + 1) * channels > MOST_SUMS:
        return f"sums from {least} to {most} are too many to be checked"
    total = torch.arange(least, most + 1)[:, None].expand(-1, channels)
    current = op.currents(total).view(len(total), *neuron.threshold.shape)
    fires, _ = neuron.step(current, torch.zeros_like(current))
    fires = fires.flatten(1) & (total <= reach.high)
    inside = (total >= reach.low) & (total <= reach.high)
    first = torch.where(fires & inside, total, most + 1).amin(0)
    first = torch.minimum(first, reach.high + 1)
    if bool((inside & ((total >= first) != fires)).any()):
        return "the table of the log-sum-exp lets a neuron fire at one sum but not at a larger one"
    return first
