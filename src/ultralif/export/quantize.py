"""Turn a trained network into integers, with a proof that no number can overflow."""

import math
from collections.abc import Iterator, Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from ultralif.errors import InputError
from ultralif.export import bounds
from ultralif.export.graph import Flatten, Input, Node, Pool, Spikes, Sum, Synapses
from ultralif.export.integer import IntegerNetwork, IntegerNode, IntegerOp, IntegerSynapses
from ultralif.export.integer_neuron import IntegerNeuron
from ultralif.export.quantize_neuron import (
    TABLE_REACH,
    LeakBy,
    Wanted,
    each,
    has_table,
    integer_neuron,
    whole,
)
from ultralif.export.trace import describe
from ultralif.export.units import Group, groups
from ultralif.functional import Mode
from ultralif.nn import UltraDLIF
from ultralif.nn.network import AnyNeuron

__all__ = ["quantize"]

WEIGHT_MAX = 127
FLOOR = 16  # a membrane that saturates should do so no nearer to rest than this many thresholds
FINEST = 8  # a membrane's unit is at most 2^8 times finer than a weight's, or than a table's step


def quantize(
    net: nn.Module,
    *,
    mode: Mode = "hard",
    timesteps: int = 100,
    shape: Sequence[int] | None = None,
    input_max: int = 1,
    max_events: int | None = None,
    bits: Literal[16, 32] = 32,
    saturate: bool = False,
    leak: LeakBy = "multiply",
    table_bits: int = 8,
) -> IntegerNetwork:
    """Return a network of int8 weights and int16 or int32 membranes that spikes like ``net``.

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
        bits: of a membrane.
        saturate: let a membrane stop at its lowest number, where the worst case would fall below.
        leak: how a leak factor acts: ``multiply`` by a 15-bit fraction, or ``shift``, up to three halvings.
        table_bits: the table of a log-sum-exp has 2^table_bits entries.
    """
    request = Wanted(mode, timesteps, bits, saturate, leak, table_bits)
    graph = describe(net, shape)
    together = groups(graph)
    events = math.prod(graph.nodes[0].shape) * input_max if max_events is None else max_events
    if not 1 <= events < 1 << 31:
        raise InputError(
            f"input_max={input_max} and max_events={max_events} allow {events} events in a time step; allow "
            "1 to 2^31 - 1"
        )
    most = bounds.counts(graph, events)
    made: dict[int, IntegerSynapses | IntegerNeuron] = {}
    for group in together:
        made |= _finest(group, request, most)
    synapses = {i: op for i, op in made.items() if isinstance(op, IntegerSynapses)}
    totals, _ = bounds.currents(graph, synapses, most)
    nodes = []
    for place, node in enumerate(graph.nodes):
        sum_bits = 16 if place in totals and totals[place].fits(16) else 32
        nodes.append(
            IntegerNode(node.name, _operation(node, made.get(place)), node.inputs, node.shape, sum_bits)
        )
    return IntegerNetwork(tuple(nodes), graph.is_count, timesteps, events, bits)


def _operation(node: Node, made: IntegerSynapses | IntegerNeuron | None) -> IntegerOp:
    if isinstance(node.op, Input | Pool | Flatten | Sum):
        return node.op
    if made is None:
        raise TypeError(f"{node.name!r} was not quantized")
    return made


def _finest(
    group: Group, request: Wanted, most: dict[int, bounds.Counts]
) -> dict[int, IntegerSynapses | IntegerNeuron]:
    """Return synapses and neurons in the finest unit that fits."""
    problem = ""
    for unit, scales in _units(group, request):
        made = _in_units(group, request, unit, scales)
        problem = _overflow(group, request, made, most)
        if not problem:
            return made
    raise InputError(f"{group.name} {problem}")


def _units(group: Group, request: Wanted) -> Iterator[tuple[Tensor, dict[int, Tensor]]]:
    """Yield units for the channels of the sinks, the finest first, with the scales of all synapses.

    Neurons that are compared with each other, or share a table, need one unit, so weight scales are that
    unit times powers of two. A channel whose weights are all tiny is counted at 1/256 of the largest scale.
    """
    scales = {}
    for source, factor in group.sources.items():
        weight, _ = group.affine(source)
        scales[source] = weight.abs().flatten(1).amax(1) / WEIGHT_MAX / factor
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
        yield coarsest / 2**fraction, scales


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


def _in_units(
    group: Group, request: Wanted, unit: Tensor, scales: dict[int, Tensor]
) -> dict[int, IntegerSynapses | IntegerNeuron]:
    """Return synapses and neurons counted in a unit of the sinks."""
    made: dict[int, IntegerSynapses | IntegerNeuron] = {}
    offset = _centering(group, request)
    for number, (source, factor) in enumerate(group.sources.items()):
        weight, bias = group.affine(source)
        mine = (unit * factor).expand(len(weight))
        shift = (scales[source] / unit).log2().ceil().clamp(min=0).long()
        grid = (mine * 2.0**shift).view(-1, *[1] * (weight.dim() - 1))
        bias = bias - (offset if number == 0 else 0.0)
        op = group.graph.nodes[source].op
        made[source] = IntegerSynapses(
            whole(weight / grid).to(torch.int8),
            shift,
            whole(bias / mine),
            mine,
            op.geometry if isinstance(op, Synapses) else None,
        )
    for sink in group.sinks:
        op = group.graph.nodes[sink].op
        if isinstance(op, Spikes):
            made[sink] = integer_neuron(group.graph.nodes[sink], op.neuron, request, unit)
    return made


def _centering(group: Group, request: Wanted) -> Tensor | float:
    """Return what centered neurons take off their currents: an undriven membrane then does not drift."""
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
    """Say what does not fit, or nothing."""
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
