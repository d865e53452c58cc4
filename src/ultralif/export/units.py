"""Groups of layers that count in one unit, because they share synapses."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ultralif.errors import InputError
from ultralif.export.graph import Graph, Input, Node, Norm, Pool, Spikes, Sum, Synapses
from ultralif.nn.network import AnyNeuron

__all__ = ["Group", "groups"]


def _refuse(graph: Graph) -> None:
    """Refuse what has no integer form."""
    for place, node in enumerate(graph.nodes):
        counted = [graph.is_count[i] for i in node.inputs]
        reason = None
        if isinstance(node.op, Norm):
            reason = "follows no Linear or Conv2d that it could be folded into"
        elif isinstance(node.op, Synapses) and not counted[0]:
            reason = "takes real numbers from another layer; put neurons before it"
        elif isinstance(node.op, Spikes) and counted[0]:
            reason = "takes spikes without weights; put Linear or Conv2d before it"
        elif isinstance(node.op, Sum) and len(set(counted)) > 1:
            reason = "adds spikes to currents; add spikes to spikes, or currents to currents"
        elif (
            isinstance(node.op, Sum)
            and graph.is_count[place]
            and _scale(graph, node.inputs[0]) != _scale(graph, node.inputs[1])
        ):
            reason = "adds spikes to means of spikes; pool both branches alike"
        if reason is not None:
            raise InputError(f"layer {node.name!r} {reason}; it has no integer form")


def _scale(graph: Graph, place: int) -> int:
    """Return how many events make 1 in a node that gives counts."""
    node = graph.nodes[place]
    if isinstance(node.op, Input | Spikes):
        return 1
    inner = _scale(graph, node.inputs[0])
    return inner * node.op.count if isinstance(node.op, Pool) and node.op.kind == "mean" else inner


@dataclass(frozen=True)
class Group:
    """Neurons, or the readout, that share a unit because they share synapses."""

    graph: Graph
    sinks: tuple[int, ...]
    """Spiking nodes; the last node where it is a linear readout."""
    sources: dict[int, int]
    """Synapses, each with the values that are averaged on the way to a sink."""

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
        """Return weight and bias in float64, known to be finite, for inputs counted as events."""
        node = self.graph.nodes[source]
        if not isinstance(node.op, Synapses):
            raise TypeError(f"{node.name!r} is not Synapses")
        weight, bias = node.op.folded()
        if not bool(torch.isfinite(weight).all() and torch.isfinite(bias).all()):
            raise InputError(
                f"layer {node.name!r} has weights that are not finite, so they fit no integer range"
            )
        return weight / _scale(self.graph, node.inputs[0]), bias


def groups(graph: Graph) -> list[Group]:
    """Return the groups of a network, or refuse what has no integer form."""
    _refuse(graph)
    sinks = graph.spiking if graph.is_count[-1] else [*graph.spiking, len(graph.nodes) - 1]
    found: list[Group] = []
    for sink in sinks:
        node = graph.nodes[sink]
        group = Group(graph, (sink,), graph.sources(node.inputs[0] if isinstance(node.op, Spikes) else sink))
        for other in [other for other in found if other.sources.keys() & group.sources.keys()]:
            found.remove(other)
            if any(group.sources.get(i, factor) != factor for i, factor in other.sources.items()):
                raise InputError(
                    f"{group.name} averages synapses that {other.name} does not; it has no integer form"
                )
            group = replace(group, sinks=other.sinks + group.sinks, sources=other.sources | group.sources)
        found.append(group)
    return found
