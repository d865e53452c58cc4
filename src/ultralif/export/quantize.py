"""Turn a trained network into integers, with a proof that no number can overflow."""

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from ultralif.errors import InputError
from ultralif.export import bounds
from ultralif.export.graph import Flatten, Graph, Input, Node, Norm, Pool, Spikes, Sum, Synapses
from ultralif.export.integer import IntegerNetwork, IntegerNode, IntegerOp, IntegerSynapses, Levels
from ultralif.export.integer_neuron import IntegerNeuron
from ultralif.export.quantize_neuron import LeakBy, Wanted, each, has_table, integer_neuron, whole
from ultralif.export.trace import describe
from ultralif.export.units import Group, groups, per_one, units
from ultralif.functional import Mode

__all__ = ["quantize"]


def quantize(
    net: nn.Module,
    *,
    mode: Mode = "hard",
    timesteps: int = 100,
    shape: Sequence[int] | None = None,
    input_max: int = 1,
    max_events: int | None = None,
    input_range: tuple[float, float] | None = None,
    bits: Literal[16, 32] = 32,
    saturate: bool = False,
    leak: LeakBy = "multiply",
    table_bits: int = 8,
    weight_bits: Literal[8, 16] = 8,
) -> IntegerNetwork:
    """Return a network of integer weights and membranes that spikes like ``net``.

    Every output channel has its own weight scale. Batch normalization is folded into the weights, pooling
    by mean is a sum in a smaller unit. Membranes are counted in the finest unit for which the worst case
    that weights and input range allow still fits; if none does, an `InputError` says by how much.

    Args:
        net: a trained network; see `describe` for the layers that it may have.
        mode: ``hard``, log-sum-exp membranes by table, or ``tropical``, maxima.
        timesteps: the longest sequence between two resets.
        shape: the features of one time step, such as ``(1, 28, 28)``; not needed if it begins with Linear.
        input_max: the largest event count of an input in one time step; 1 for binary spikes.
        max_events: the most events of all inputs together in one time step; None: each at its largest.
        input_range: the least and the greatest value of inputs that are real numbers, such as (0, 1) for
            pixels. They are counted in 8 bits, levels of 1/255 of the greatest, or of 1/127 if there are
            negative ones, and the first layer multiplies. None: inputs are event counts.
        bits: of a membrane.
        saturate: let a membrane stop at its lowest number if the worst case would fall below it.
        leak: ``multiply`` by a 15-bit fraction, or ``shift``: up to three halvings are added or subtracted.
        weight_bits: 8, which is what most of the difference from floats comes from, or 16.
        table_bits: the table of a log-sum-exp has 2^table_bits entries.
    """
    request = Wanted(mode, timesteps, bits, saturate, leak, table_bits, weight_bits)
    graph = describe(net, shape)
    levels = None if input_range is None else Levels.of(*input_range)
    _refuse(graph, levels)
    most = bounds.counts(graph, _given(graph, levels, input_max, max_events))
    made: dict[int, IntegerSynapses | IntegerNeuron] = {}
    for group in groups(graph, levels):
        made |= _finest(group, request, most)
    synapses = {i: op for i, op in made.items() if isinstance(op, IntegerSynapses)}
    totals, _ = bounds.currents(graph, synapses, most)
    nodes = tuple(
        IntegerNode(
            node.name,
            _operation(node, made.get(place)),
            node.inputs,
            node.shape,
            16 if place in totals and totals[place].fits(16) else 32,
            levels is not None and place in graph.near_input,
        )
        for place, node in enumerate(graph.nodes)
    )
    return IntegerNetwork(nodes, graph.is_count, timesteps, most[0].total, bits, levels)


def _given(graph: Graph, levels: Levels | None, input_max: int, max_events: int | None) -> bounds.Counts:
    """Return the most that comes in at one time step."""
    size = math.prod(graph.nodes[0].shape)
    if levels is not None:
        if input_max != 1 or max_events is not None:
            raise InputError("input_range is for real numbers, input_max and max_events are for events")
        return bounds.Counts(levels.high, levels.high * size, levels.signed)
    events = size * input_max if max_events is None else max_events
    if not 1 <= events < 1 << 31:
        raise InputError(
            f"input_max={input_max} and max_events={max_events} allow {events} events in a time step; allow "
            "1 to 2^31 - 1"
        )
    return bounds.Counts(events, events)


def _operation(node: Node, made: IntegerSynapses | IntegerNeuron | None) -> IntegerOp:
    if isinstance(node.op, Input | Pool | Flatten | Sum):
        return node.op
    if made is None:
        raise TypeError(f"{node.name!r} was not quantized")
    return made


def _refuse(graph: Graph, levels: Levels | None) -> None:
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
            and per_one(graph, node.inputs[0], levels) != per_one(graph, node.inputs[1], levels)
        ):
            reason = "adds spikes to means of spikes or to the input; pool both branches alike"
        if reason is not None:
            raise InputError(f"layer {node.name!r} {reason}; it has no integer form")


def _finest(
    group: Group, request: Wanted, most: dict[int, bounds.Counts]
) -> dict[int, IntegerSynapses | IntegerNeuron]:
    """Return synapses and neurons in the finest unit that fits."""
    problem = ""
    for unit, scales in units(group, request):
        made = _in_units(group, request, unit, scales)
        problem = _overflow(group, request, made, most)
        if not problem:
            return made
    raise InputError(f"{group.name} {problem}")


def _in_units(
    group: Group, request: Wanted, unit: Tensor, scales: dict[int, Tensor]
) -> dict[int, IntegerSynapses | IntegerNeuron]:
    """Return synapses and neurons counted in a unit of the sinks."""
    made: dict[int, IntegerSynapses | IntegerNeuron] = {}
    offset = _centering(group, request)
    for number, (source, averaged) in enumerate(group.sources.items()):
        weight, bias = group.affine(source)
        mine = (unit * averaged).expand(len(weight))
        factor, shift = _ratio(scales[source] / unit, request.mode)
        grid = mine * 2.0**shift * (1 if factor is None else factor)
        bias = bias - (offset if number == 0 else 0.0)
        op = group.graph.nodes[source].op
        made[source] = IntegerSynapses(
            whole(weight / grid.view(-1, *[1] * (weight.dim() - 1))).to(
                torch.int8 if request.weight_bits == 8 else torch.int16
            ),
            shift.expand(len(weight)),
            whole(bias / mine),
            mine,
            op.geometry if isinstance(op, Synapses) else None,
            None if factor is None else factor.expand(len(weight)),
        )
    for sink in group.sinks:
        op = group.graph.nodes[sink].op
        if isinstance(op, Spikes):
            made[sink] = integer_neuron(group.graph.nodes[sink], op.neuron, request, unit)
    return made


def _ratio(ratio: Tensor, mode: Mode) -> tuple[Tensor | None, Tensor]:
    """Return a factor of 15 bits, or None for 1, and a shift, whose product is a ratio or a little more.

    Tropical networks add and compare only, and have no factor; weights are then coarser by up to one bit.
    """
    shift = ratio.log2().ceil().clamp(min=-16).long()
    factor = whole((ratio / 2.0**shift * 2**15).ceil().clamp(max=2**15))
    if mode == "tropical" or bool((factor == 2**15).all()):
        return None, shift
    return factor, shift - 15


def _centering(group: Group, request: Wanted) -> Tensor | float:
    """Return the constant that centered neurons subtract from their currents, which prevents a drift."""
    for node, neuron in group.neurons():
        if getattr(neuron, "centered", False) and has_table(neuron, request.mode):
            if not group.by_channel:
                raise InputError(
                    f"layer {node.name!r} has centered=True and shares its synapses; it has no integer form"
                )
            eps = each(neuron.eps, node.shape)
            return (eps.flatten(1)[:, 0] if eps.dim() > 1 else eps) * math.log(3)
    return 0.0


def _overflow(
    group: Group,
    request: Wanted,
    made: dict[int, IntegerSynapses | IntegerNeuron],
    most: dict[int, bounds.Counts],
) -> str:
    """Return a message about numbers that do not fit; an empty one if all fit."""
    graph = group.graph
    synapses = {i: op for i, op in made.items() if isinstance(op, IntegerSynapses)}
    totals, currents = bounds.currents(graph, synapses, most)
    wide = [*totals.values(), *currents.values()]
    for sink in group.sinks:
        neuron = made.get(sink)
        if not isinstance(neuron, IntegerNeuron):
            wide.append(currents[sink].times(request.timesteps))
            continue
        current = currents[graph.nodes[sink].inputs[0]]
        before, after = bounds.membranes(neuron, current, request.timesteps)
        wide.append(before)
        if neuron.table is not None and int(neuron.table.entries[0]) >= 1 << 16:
            return "needs a table of more than 16 bits; choose mode='tropical', or train temperatures alike"
        constants = bounds.Range(
            torch.minimum(neuron.threshold, neuron.reset), torch.maximum(neuron.threshold, neuron.reset)
        )
        if not after.union(constants).fits(request.bits):
            low, high = int(after.low.min()), int(after.union(constants).high.max())
            return (
                f"can store membranes from {low} to {high} within {request.timesteps} time steps, which "
                f"int{request.bits} cannot hold; allow fewer timesteps or max_events"
                + (", choose bits=32" if request.bits == 16 else "")
                + ("" if request.saturate else ", or saturate=True")
            )
    if not all(reach.fits(32) for reach in wide):
        low = min(int(reach.low.min()) for reach in wide)
        high = max(int(reach.high.max()) for reach in wide)
        return (
            f"can reach sums from {low} to {high} within {request.timesteps} time steps, which int32 cannot "
            "hold; allow fewer timesteps or max_events"
        )
    return ""
