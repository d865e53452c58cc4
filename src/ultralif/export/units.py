"""Groups of layers that share a unit of membranes, and the units that may fit, the finest first."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ultralif.errors import InputError
from ultralif.export.graph import Graph, Input, Node, Pool, Spikes, Synapses
from ultralif.export.integer import Levels
from ultralif.export.quantize_neuron import TABLE_REACH, Wanted, each, has_table
from ultralif.nn import UltraDLIF
from ultralif.nn.network import AnyNeuron

__all__ = ["Group", "groups", "per_one", "units"]

FLOOR = 16  # a membrane saturates at least this many thresholds away from rest
FINEST = 8  # a membrane's unit is at most 2^8 times finer than a weight's, or than a table's step


def per_one(graph: Graph, place: int, levels: Levels | None) -> float:
    """Return how many events, or levels of the input, make 1 in a node that gives counts."""
    node = graph.nodes[place]
    if isinstance(node.op, Spikes):
        return 1
    if isinstance(node.op, Input):
        return 1 if levels is None else 1 / levels.step
    inner = per_one(graph, node.inputs[0], levels)
    return inner * node.op.count if isinstance(node.op, Pool) and node.op.kind == "mean" else inner


@dataclass(frozen=True)
class Group:
    """Neurons, or the readout, that share a unit because they share synapses."""

    graph: Graph
    sinks: tuple[int, ...]
    """Spiking nodes; the last node where it is a linear readout."""
    sources: dict[int, int]
    """Synapses, each with the values that are averaged on the way to a sink."""
    levels: Levels | None = None
    """Of the network's input."""

    @property
    def name(self) -> str:
        """The names of its sinks."""
        return " and ".join(f"layer {self.graph.nodes[sink].name!r}" for sink in self.sinks)

    @property
    def by_channel(self) -> bool:
        """True if every channel of the only sink may have its own unit."""
        channels = {self.graph.nodes[i].shape[0] for i in (*self.sinks, *self.sources)}
        return len(self.sinks) == 1 and len(channels) == 1

    def neurons(self) -> Iterator[tuple[Node, AnyNeuron]]:
        """Yield the sinks that spike, with their neurons."""
        for sink in self.sinks:
            op = self.graph.nodes[sink].op
            if isinstance(op, Spikes):
                yield self.graph.nodes[sink], op.neuron

    def affine(self, source: int) -> tuple[Tensor, Tensor]:
        """Return weight and bias in float64, known to be finite, for inputs counted as events or levels."""
        node = self.graph.nodes[source]
        if not isinstance(node.op, Synapses):
            raise TypeError(f"{node.name!r} is not Synapses")
        weight, bias = node.op.folded()
        if not bool(torch.isfinite(weight).all() and torch.isfinite(bias).all()):
            raise InputError(
                f"layer {node.name!r} has weights that are not finite, so they fit no integer range"
            )
        return weight / per_one(self.graph, node.inputs[0], self.levels), bias

    def largest(self, source: int) -> int:
        """Return the largest level that synapses read; spikes are 1."""
        return self.levels.high if self.levels is not None and source in self.graph.near_input else 1


def groups(graph: Graph, levels: Levels | None) -> list[Group]:
    """Return the groups of a network, in order."""
    sinks = graph.spiking if graph.is_count[-1] else [*graph.spiking, len(graph.nodes) - 1]
    found: list[Group] = []
    for sink in sinks:
        node = graph.nodes[sink]
        sources = graph.sources(node.inputs[0] if isinstance(node.op, Spikes) else sink)
        group = Group(graph, (sink,), sources, levels)
        for other in [other for other in found if other.sources.keys() & group.sources.keys()]:
            found.remove(other)
            if any(group.sources.get(i, factor) != factor for i, factor in other.sources.items()):
                raise InputError(
                    f"{group.name} averages synapses that {other.name} does not; it has no integer form"
                )
            group = replace(group, sinks=other.sinks + group.sinks, sources=other.sources | group.sources)
        found.append(group)
    return found


def units(group: Group, request: Wanted) -> Iterator[tuple[Tensor, dict[int, Tensor]]]:
    """Yield units for the channels of the sinks, the finest first, with the scales of all synapses.

    Neurons that are compared with each other, or share a table, need one unit, so weight scales are that
    unit times powers of two. Weights of levels are counted for the largest level. A channel whose weights
    are all tiny is counted at 1/256 of the largest scale.
    """
    scales, most = {}, 2 ** (request.weight_bits - 1) - 1
    for source, factor in group.sources.items():
        weight, _ = group.affine(source)
        scales[source] = weight.abs().flatten(1).amax(1) / most / factor * group.largest(source)
    largest = max(float(scale.max()) for scale in scales.values()) or 1.0
    scales = {source: scale.clamp(min=largest / 256) for source, scale in scales.items()}
    coupled = any(isinstance(neuron, UltraDLIF) for _, neuron in group.neurons())
    compared = coupled or not group.by_channel or len(group.graph.nodes) - 1 in group.sinks
    scale = (
        torch.stack(list(scales.values())).amax(0) if group.by_channel else torch.full((1,), largest).double()
    )
    coarsest = torch.full_like(scale, largest) if compared else scale
    tables = [_table_unit(node, neuron, compared, request) for node, neuron in group.neurons()]
    needed = [unit for unit in tables if unit is not None]
    if needed:
        coarsest = torch.stack(needed).amin(0)
    finest = FINEST
    if request.saturate:
        for node, neuron in group.neurons():
            limit = each(neuron.threshold, node.shape).abs().amax().clamp(min=1e-9)
            room = 2 ** (request.bits - 1) / FLOOR * float(coarsest.min() / limit)
            finest = max(0, min(finest, math.floor(math.log2(room))))
    for fraction in range(finest, -1, -1):
        yield (
            coarsest / 2**fraction,
            {source: scale / group.largest(source) for source, scale in scales.items()},
        )


def _table_unit(node: Node, neuron: AnyNeuron, compared: bool, request: Wanted) -> Tensor | None:
    """Return the coarsest unit for a log-sum-exp's table, for each channel or for all."""
    if not has_table(neuron, request.mode):
        return None
    unit = each(neuron.eps, node.shape) / (2**request.table_bits // TABLE_REACH)
    within = unit.flatten(1) if unit.dim() > 1 else unit[:, None]
    if bool((within != within[:, :1]).any()) or (compared and bool((unit != unit.flatten()[0]).any())):
        raise InputError(
            f"layer {node.name!r} couples neurons of different eps, which no one table serves; train one eps "
            "a layer, or choose mode='tropical'"
        )
    channels: Tensor = within[:, 0]
    return torch.as_tensor(channels[:1]) if compared else channels
