"""Quantize a trained network to integers, with a proof that no number can overflow.

Layers that share synapses share a membrane unit. `quantize` tries the units of each such group
from fine to coarse, and keeps the first with which no number overflows.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor, nn

from ultralif.errors import InputError
from ultralif.export import bounds
from ultralif.export.compare import check_own_neurons, compare_integers, compared
from ultralif.export.graph import (
    Flatten,
    Graph,
    Input,
    Last,
    Leaky,
    Node,
    Norm,
    Pooling,
    Spikes,
    Sum,
    Synapses,
)
from ultralif.export.integer import (
    Coupling,
    Decay,
    IntegerLeaky,
    IntegerNetwork,
    IntegerNeuron,
    IntegerNode,
    IntegerOp,
    IntegerSynapses,
    Levels,
    LogSumExpTable,
    Multiply,
    Offset,
    Shifts,
)
from ultralif.functional import Constant, Mode
from ultralif.nn import LIF, AdaLIF, DSpike, SoftLIF, UltraDLIF, UltraDPLIF, UltraLIF
from ultralif.nn.network import AnyNeuron

__all__ = [
    "Request",
    "each",
    "halvings",
    "in_integers",
    "quantize",
    "table",
    "table_error",
    "with_synaptic_currents",
]

LeakBy = Literal["multiply", "shift"]
Made = IntegerSynapses | IntegerLeaky | IntegerNeuron
TABLE_REACH = 8  # tables end at this many eps, where log(1 + e^-8) is below 0.0004 eps
FLOOR = 16  # a membrane saturates at least this many thresholds away from rest
FINEST = 8  # a membrane's unit is at most 2^8 times finer than a weight's, or than a table's step


@dataclass(frozen=True, kw_only=True)
class Request:
    """The options of `ultralif.export.quantize`, described in its docstring."""

    mode: Mode = "hard"
    timesteps: int = 100
    input_max: int = 1
    max_events: int | None = None
    input_range: tuple[float, float] | None = None
    bits: Literal[16, 32] = 32
    clip_membrane: bool = False
    leak: LeakBy = "multiply"
    table_bits: int = 8
    weight_bits: Literal[4, 8, 16] = 8

    def __post_init__(self) -> None:
        """Check the options."""
        if self.mode not in ("hard", "tropical"):
            raise InputError(f"mode must be hard or tropical for integer execution, got {self.mode!r}")
        if not 1 <= self.timesteps <= 1_000_000:
            raise InputError(f"timesteps must be in 1..1000000, got {self.timesteps}")
        if self.bits not in (16, 32):
            raise InputError(f"bits must be 16 or 32, got {self.bits}")
        if self.weight_bits not in (4, 8, 16):
            raise InputError(f"weight_bits must be 4, 8 or 16, got {self.weight_bits}")
        if self.leak not in ("multiply", "shift"):
            raise InputError(f"leak must be multiply or shift, got {self.leak!r}")
        if not 3 <= self.table_bits <= 10:
            raise InputError(f"table_bits must be in 3..10, got {self.table_bits}")


@dataclass(frozen=True)
class UnitGroup:
    """Neurons, or the readout, that share a unit because they share synapses."""

    graph: Graph
    sinks: tuple[int, ...]
    """Spiking nodes, or the last node if it is a linear readout."""
    sources: dict[int, int]
    """Synapses, each with the number of values that are averaged on the way to a sink."""
    levels: Levels | None = None
    """The levels of the network's input."""

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
        """Return weight and bias in float64, checked to be finite, for inputs in events or levels."""
        node = self.graph.nodes[source]
        if not isinstance(node.op, Synapses):
            raise TypeError(f"{node.name!r} is not Synapses")
        weight, bias = node.op.folded()
        if not bool(torch.isfinite(weight).all() and torch.isfinite(bias).all()):
            raise InputError(
                f"layer {node.name!r} has weights that are not finite, so they do not fit any integer range"
            )
        return weight / events_per_unit(self.graph, node.inputs[0], self.levels), bias

    def largest(self, source: int) -> int:
        """Return the largest level that synapses read; it is 1 for spikes."""
        return self.levels.high if self.levels is not None and source in self.graph.near_input else 1


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
    clip_membrane: bool = False,
    leak: LeakBy = "multiply",
    table_bits: int = 8,
    weight_bits: Literal[4, 8, 16] = 8,
    inputs: Tensor | None = None,
) -> IntegerNetwork:
    """Return a network with integer weights and membranes that spikes like ``net``.

    Every output channel has its own weight scale. Batch normalization is folded into the weights, and average
    pooling becomes a sum in a smaller unit. Membranes use the finest unit in which the worst case for
    these weights and this input range still fits. If none fits, an `InputError` reports the range.

    Args:
        net: a trained network; `describe` lists the supported layers.
        mode: ``hard``, with log-sum-exp membranes from a table, or ``tropical``, with maxima.
        timesteps: the longest sequence between two resets.
        shape: the feature shape of one time step, such as ``(1, 28, 28)``; not needed if the network
            begins with Linear.
        input_max: the largest event count of an input in one time step; 1 for binary spikes.
        max_events: the most events in one time step, over all inputs; None assumes ``input_max`` for each
            input.
        input_range: the smallest and the largest value of real-valued inputs, such as (0, 1) for pixels.
            They are rounded to 8-bit levels of 1/255 of the largest value, or 1/127 if the range includes
            negative values, and the first layer multiplies by them. None: inputs are event counts.
        bits: bits per membrane.
        clip_membrane: clip membranes at the lowest number that fits if the worst case would fall below it.
        leak: ``multiply`` by a 15-bit fraction, or ``shift``: add or subtract up to three shifted values.
        weight_bits: bits per weight: 8, which causes most of the difference from floating point, 16, or 4,
            for which the network should be trained with `finetune`. Two 4-bit weights share a byte.
        table_bits: each log-sum-exp table has 2^table_bits entries.
        inputs: ``[T, B, *input]``. The integer network is compared with ``net`` on random inputs and on
            these, and refused if they differ by more than rounding.

    Example:
        >>> import torch
        >>> from ultralif.nn import Network
        >>> integer = quantize(Network((4, 8, 2)), timesteps=5)
        >>> integer.run((torch.rand(5, 3, 4) < 0.3).long()).scores.shape
        torch.Size([3, 2])
    """
    request = Request(
        mode=mode,
        timesteps=timesteps,
        input_max=input_max,
        max_events=max_events,
        input_range=input_range,
        bits=bits,
        clip_membrane=clip_membrane,
        leak=leak,
        table_bits=table_bits,
        weight_bits=weight_bits,
    )
    graph = with_synaptic_currents(compared(net, shape, mode, inputs))
    integer = in_integers(graph, request)
    compare_integers(net, graph, integer, mode, inputs)
    return integer


def in_integers(graph: Graph, request: Request) -> IntegerNetwork:
    """Quantize a described network without comparing the two."""
    check_own_neurons(graph)
    levels = None if request.input_range is None else Levels.of(*request.input_range)
    _refuse(graph, levels)
    most = bounds.counts(graph, _given(graph, levels, request.input_max, request.max_events))
    made: dict[int, Made] = {
        place: IntegerLeaky(_factor(node, node.op.leak, request))
        for place, node in enumerate(graph.nodes)
        if isinstance(node.op, Leaky)
    }
    for group in groups(graph, levels):
        made |= _finest(group, request, most, made)
    totals, _ = bounds.currents(graph, _before_neurons(made), most, request.timesteps)
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
    return IntegerNetwork(nodes, graph.is_count, request.timesteps, most[0].total, request.bits, levels)


def with_synaptic_currents(graph: Graph) -> Graph:
    """Return a graph in which separate nodes compute the synaptic currents."""
    nodes: list[Node] = []
    moved: list[int] = []
    for node in graph.nodes:
        taken = tuple(moved[i] for i in node.inputs)
        if isinstance(node.op, Spikes) and "synapse" in node.op.neuron.declared():
            leaky = Leaky(torch.as_tensor(node.op.neuron.constant("synapse")))
            nodes.append(Node(f"{node.name}.synapse", leaky, taken, node.shape))
            taken = (len(nodes) - 1,)
        moved.append(len(nodes))
        nodes.append(replace(node, inputs=taken))
    return Graph(
        tuple(
            replace(node, op=Last(moved[node.op.of])) if isinstance(node.op, Last) else node for node in nodes
        )
    )


def _before_neurons(made: dict[int, Made]) -> dict[int, IntegerSynapses | IntegerLeaky]:
    return {place: op for place, op in made.items() if not isinstance(op, IntegerNeuron)}


def _given(graph: Graph, levels: Levels | None, input_max: int, max_events: int | None) -> bounds.Counts:
    """Return the maximum input that can arrive in one time step."""
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


def _operation(node: Node, made: Made | None) -> IntegerOp:
    if isinstance(node.op, Input | Pooling | Flatten | Sum | Last):
        return node.op
    if made is None:
        raise TypeError(f"{node.name!r} was not quantized")
    return made


def _refuse(graph: Graph, levels: Levels | None) -> None:
    """Refuse layers that cannot be quantized."""
    for place, node in enumerate(graph.nodes):
        counted = [graph.is_count[i] for i in node.inputs]
        reason = None
        if isinstance(node.op, Norm):
            reason = "follows no Linear or Conv2d that it could be folded into; put it directly after one"
        elif isinstance(node.op, Synapses) and node.op.geometry is None and len(node.shape) > 1:
            reason = "is a Linear on the last of several axes; flatten its input first"
        elif isinstance(node.op, Synapses) and not counted[0]:
            reason = "receives real numbers from another layer; put neurons before it"
        elif isinstance(node.op, Spikes | Leaky) and counted[0]:
            reason = "receives spikes without weights; put Linear or Conv2d before it"
        elif isinstance(node.op, Synapses) and (delay := node.op.delay) is not None:
            module = f"{node.name}." if node.name else ""
            if bool((delay != delay.round()).any()):
                reason = f"has delays between two steps; round them: {module}delay.data.round_()"
            elif not 0 <= int(delay.min()) <= int(delay.max()) <= 255:
                reason = f"has delays of up to {int(delay.max())} steps; allow 0 to 255"
            elif levels is not None and place in graph.near_input:
                reason = "delays real numbers; put neurons before it, or encode the input as events"
        elif isinstance(node.op, Sum) and len(set(counted)) > 1:
            reason = "adds spikes to currents; add spikes to spikes, or currents to currents"
        elif (
            isinstance(node.op, Sum)
            and graph.is_count[place]
            and events_per_unit(graph, node.inputs[0], levels)
            != events_per_unit(graph, node.inputs[1], levels)
        ):
            reason = "adds spikes to means of spikes or to the input; pool both branches alike"
        if reason is not None:
            raise InputError(f"layer {node.name!r} {reason}; it cannot be quantized")


def _finest(
    group: UnitGroup, request: Request, most: dict[int, bounds.Counts], known: dict[int, Made]
) -> dict[int, Made]:
    """Return synapses and neurons in the finest unit that fits."""
    problem = ""
    for unit, scales in units(group, request):
        made = _in_units(group, request, unit, scales)
        problem = _overflow(group, request, known | made, most)
        if not problem:
            return made | _without_floors(group, request, known | made, most)
    raise InputError(f"{group.name} {problem}")


def _without_floors(
    group: UnitGroup, request: Request, made: dict[int, Made], most: dict[int, bounds.Counts]
) -> dict[int, Made]:
    """Return the neurons that need no clipping from below, with their floors removed."""
    _, currents = bounds.currents(group.graph, _before_neurons(made), most, request.timesteps)
    found: dict[int, Made] = {}
    for sink in group.sinks:
        neuron = made.get(sink)
        if isinstance(neuron, IntegerNeuron) and neuron.floor is not None:
            current = currents[group.graph.nodes[sink].inputs[0]]
            before, _ = bounds.membranes(replace(neuron, floor=None), current, request.timesteps)
            if int(before.low.min()) >= neuron.floor:
                found[sink] = replace(neuron, floor=None)
    return found


def _in_units(group: UnitGroup, request: Request, unit: Tensor, scales: dict[int, Tensor]) -> dict[int, Made]:
    """Return synapses and neurons in the given unit."""
    made: dict[int, Made] = {}
    offset = _centering(group, request)
    for number, (source, averaged) in enumerate(group.sources.items()):
        weight, bias = group.affine(source)
        mine = (unit * averaged).expand(len(weight))
        factor, shift = _ratio(scales[source] / unit, request.mode)
        grid = mine * 2.0**shift * (1 if factor is None else factor)
        bias = bias - (offset if number == 0 else 0.0)
        op = group.graph.nodes[source].op
        steps = weight / grid.view(-1, *[1] * (weight.dim() - 1))
        most = 2 ** (request.weight_bits - 1) - 1
        lost = (steps.abs() - most - 0.5).ceil().clamp(min=0).long()
        made[source] = IntegerSynapses(
            whole(steps).clamp(-most, most).to(torch.int16 if request.weight_bits == 16 else torch.int8),
            shift.expand(len(weight)),
            whole(bias / mine),
            mine,
            op.geometry if isinstance(op, Synapses) else None,
            None if factor is None else factor.expand(len(weight)),
            op.delay.long() if isinstance(op, Synapses) and op.delay is not None else None,
            request.weight_bits,
            lost if bool(lost.any()) else None,
        )
    for sink in group.sinks:
        op = group.graph.nodes[sink].op
        if isinstance(op, Spikes):
            made[sink] = integer_neuron(group.graph.nodes[sink], op.neuron, request, unit)
    return made


def _ratio(ratio: Tensor, mode: Mode) -> tuple[Tensor | None, Tensor]:
    """Return a 15-bit factor, or None for 1, and a shift; their product is the ratio or slightly more.

    Tropical networks only add and compare, so they have no factor; their weights are coarser by up to one
    bit.
    """
    shift = ratio.log2().ceil().clamp(min=-16).long()
    factor = whole((ratio / 2.0**shift * 2**15).ceil().clamp(max=2**15))
    if mode == "tropical" or bool((factor == 2**15).all()):
        return None, shift
    return factor, shift - 15


def _centering(group: UnitGroup, request: Request) -> Tensor | float:
    """Return the constant that centred neurons subtract from their currents to prevent drift."""
    for node, neuron in group.neurons():
        if getattr(neuron, "centered", False) and has_table(neuron, request.mode):
            if not group.by_channel:
                raise InputError(
                    f"layer {node.name!r} has centered=True and shares its synapses; it cannot be quantized"
                )
            eps = each(neuron.eps, node.shape)
            return (eps.flatten(1)[:, 0] if eps.dim() > 1 else eps) * math.log(3)
    return 0.0


def _overflow(
    group: UnitGroup,
    request: Request,
    made: dict[int, Made],
    most: dict[int, bounds.Counts],
) -> str:
    """Return a message that names the numbers that do not fit, or an empty string."""
    graph = group.graph
    for place in group.sources:
        op = made[place]
        if not isinstance(op, IntegerSynapses):
            raise TypeError(f"{graph.nodes[place].name!r} has no synapses")
        reach = bounds.scaled(op, most[graph.nodes[place].inputs[0]])
        if not reach < 1 << 31:  # also NaN
            return (
                f"has weights whose sums can reach {reach:.3g} in one time step, which int32 cannot hold; "
                "scale its weights down, or allow fewer max_events"
            )
    totals, currents = bounds.currents(graph, _before_neurons(made), most, request.timesteps)
    wide = [*totals.values(), *currents.values()]
    if not all(reach.fits(32) for reach in wide):
        return _too_wide(wide, "one time step")
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
                + ("" if request.clip_membrane else ", or clip_membrane=True")
            )
    return "" if all(reach.fits(32) for reach in wide) else _too_wide(wide, f"{request.timesteps} time steps")


def _too_wide(wide: Sequence[bounds.Range], within: str) -> str:
    low = min(int(reach.low.min()) for reach in wide)
    high = max(int(reach.high.max()) for reach in wide)
    return (
        f"can reach sums from {low} to {high} within {within}, which int32 cannot hold; allow fewer "
        "timesteps or max_events"
    )


def events_per_unit(graph: Graph, place: int, levels: Levels | None) -> float:
    """Return how many events or input levels correspond to a floating-point value of 1 in a node."""
    node = graph.nodes[place]
    if isinstance(node.op, Spikes | Last):
        return 1
    if isinstance(node.op, Input):
        return 1 if levels is None else 1 / levels.step
    inner = events_per_unit(graph, node.inputs[0], levels)
    return inner * node.op.count if isinstance(node.op, Pooling) and node.op.kind == "mean" else inner


def groups(graph: Graph, levels: Levels | None) -> list[UnitGroup]:
    """Return a network's unit groups, in order."""
    sinks = graph.spiking if graph.is_count[-1] else [*graph.spiking, len(graph.nodes) - 1]
    found: list[UnitGroup] = []
    for sink in sinks:
        node = graph.nodes[sink]
        sources = graph.sources(node.inputs[0] if isinstance(node.op, Spikes) else sink)
        group = UnitGroup(graph, (sink,), sources, levels)
        for other in [other for other in found if other.sources.keys() & group.sources.keys()]:
            found.remove(other)
            if any(group.sources.get(i, factor) != factor for i, factor in other.sources.items()):
                raise InputError(
                    f"{group.name} averages synapses that {other.name} does not; it cannot be quantized"
                )
            group = replace(group, sinks=other.sinks + group.sinks, sources=other.sources | group.sources)
        found.append(group)
    return found


def units(group: UnitGroup, request: Request) -> Iterator[tuple[Tensor, dict[int, Tensor]]]:
    """Yield units for the sinks' channels, finest first, with the scales of all synapses.

    Neurons that are compared with each other, or share a table, need one unit, so weight scales are that
    unit times powers of two. Weights that multiply levels are scaled for the largest level. A channel
    whose weights are all tiny uses 1/256 of the largest scale.
    """
    scales = {}
    for source, factor in group.sources.items():
        weight, _ = group.affine(source)
        scales[source] = weight_scale(weight, request.weight_bits) / factor * group.largest(source)
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
    if request.clip_membrane:
        for node, neuron in group.neurons():
            limit = each(neuron.threshold, node.shape).abs().amax().clamp(min=1e-9)
            room = 2 ** (request.bits - 1) / FLOOR * float(coarsest.min() / limit)
            finest = min(finest, math.floor(math.log2(min(max(room, 1.0), 2.0**FINEST))))
    for fraction in range(finest, -1, -1):
        yield (
            coarsest / 2**fraction,
            {source: scale / group.largest(source) for source, scale in scales.items()},
        )


def weight_scale(weight: Tensor, bits: int) -> Tensor:
    """Return the value of the integer 1 for each output channel.

    The largest weight becomes the largest integer. With 4 bits the scale minimizes the squared error instead,
    which clips the largest weights.
    """
    most = 2 ** (bits - 1) - 1
    rows = weight.flatten(1)
    full = torch.as_tensor(rows.abs().amax(1) / most)
    if bits > 4:
        return full
    tried = full.clamp(min=1e-30) * torch.linspace(0.3, 1, 36, dtype=full.dtype)[:, None]
    rounded = (rows / tried[..., None]).round().clamp(-most, most) * tried[..., None]
    best = (rounded - rows).square().sum(-1).argmin(0)
    return torch.as_tensor(tried.gather(0, best[None])[0])


def _table_unit(node: Node, neuron: AnyNeuron, compared: bool, request: Request) -> Tensor | None:
    """Return the coarsest unit for a log-sum-exp's table, for each channel or for all."""
    if not has_table(neuron, request.mode):
        return None
    unit = each(neuron.eps, node.shape) / (2**request.table_bits // TABLE_REACH)
    within = unit.flatten(1) if unit.dim() > 1 else unit[:, None]
    if bool((within != within[:, :1]).any()) or (compared and bool((unit != unit.flatten()[0]).any())):
        raise InputError(
            f"layer {node.name!r} couples neurons with different eps, which cannot share a table; train one "
            "eps per layer, or choose mode='tropical'"
        )
    channels: Tensor = within[:, 0]
    return torch.as_tensor(channels[:1]) if compared else channels


def has_table(neuron: AnyNeuron, mode: Mode) -> bool:
    """Return whether a neuron's membrane is a log-sum-exp."""
    return mode == "hard" and isinstance(neuron, UltraLIF | UltraDLIF)


def each(constant: Constant, shape: tuple[int, ...]) -> Tensor:
    """Return a constant in float64 for features of a shape: ``[n]``, ``[C, 1, 1]`` or ``[C, H, W]``."""
    value = torch.as_tensor(constant).detach().double().cpu()
    if len(shape) == 1:
        return value.expand(shape).contiguous()
    channels = (shape[0], *[1] * (len(shape) - 1))
    inner = tuple(value.shape[-len(shape) + 1 :])
    return value.expand(channels if all(size == 1 for size in inner) else shape).contiguous()


def whole(x: Tensor) -> Tensor:
    """Round to int64. Numbers beyond every range stay beyond it and are found when ranges are checked."""
    return x.round().clamp(-(2.0**40), 2.0**40).long()


def integer_neuron(node: Node, neuron: AnyNeuron, request: Request, unit: Tensor) -> IntegerNeuron:
    """Return a quantized layer of neurons.

    Args:
        node: their node in the graph.
        neuron: the neurons.
        request: the options of `quantize`.
        unit: unit of the membranes, ``[channels]`` or ``[1]``.
    """
    unit = unit.view(-1, *[1] * (len(node.shape) - 1))
    coupling, decay = _form(node, neuron, request, unit)
    made = None
    if has_table(neuron, request.mode):
        made = table(
            max(1, round(float((each(neuron.eps, node.shape) / unit).flatten()[0]))), request.table_bits
        )
    adapts = isinstance(neuron, AdaLIF)
    jump = (
        each(neuron.constant("adapt_strength"), node.shape)
        * (1 - each(neuron.constant("adapt_decay"), node.shape))
        if adapts
        else None
    )
    return IntegerNeuron(
        coupling,
        # A whole number exceeds theta / unit exactly when it exceeds its floor.
        threshold=whole((each(neuron.threshold, node.shape) / unit).floor()),
        reset=whole(each(_level(neuron), node.shape) / unit),
        decay=decay,
        table=made,
        axis=getattr(neuron, "coupled_axis", -1),
        floor=1 - (1 << (request.bits - 1)) if request.clip_membrane else None,
        after=neuron.reset,
        delayed=neuron.delayed_reset,
        adapt=_factor(node, neuron.constant("adapt_decay"), request) if adapts else None,
        jump=None if jump is None else whole(jump / unit),
    )


def _level(neuron: AnyNeuron) -> Constant:
    """Return the membrane after a spike, the amount that a spike subtracts, or the greatest membrane."""
    if neuron.reset == "subtract":
        return neuron.threshold
    return neuron.v_sat if isinstance(neuron, UltraLIF) and neuron.reset == "saturate" else neuron.v_reset


def _form(node: Node, neuron: AnyNeuron, request: Request, unit: Tensor) -> tuple[Coupling, Decay | None]:
    """Return the coupling and the decay of a membrane, or raise an error that gives the reason."""
    name = f"layer {node.name!r}"
    if neuron.reset == "saturate" and request.mode != "tropical":
        raise InputError(
            f"{name} has reset='saturate', a soft minimum that cannot be quantized in mode {request.mode!r}; "
            "choose mode='tropical', or train with reset='zero'"
        )
    if isinstance(neuron, UltraDLIF):
        return "ring", _factor(node, neuron.leak, request) if isinstance(neuron, UltraDPLIF) else None
    if isinstance(neuron, UltraLIF):
        leaks = "leak" in neuron.declared()
        return "max", Offset(whole(each(neuron.leak, node.shape).log() / unit)) if leaks else None
    if isinstance(neuron, AdaLIF) and neuron.delayed_reset:
        raise InputError(
            f"{name} has an adaptive threshold and delayed_reset=True, which cannot be quantized together; "
            "train with delayed_reset=False"
        )
    if isinstance(neuron, LIF | AdaLIF | DSpike | SoftLIF):
        return "add", _factor(node, neuron.leak, request)
    raise InputError(
        f"{name} has {type(neuron).__name__} neurons, which cannot be quantized; choose "
        "UltraLIF, UltraDLIF, LIF, PLIF, FullPLIF or AdaLIF"
    )


def _factor(node: Node, constant: Constant, request: Request) -> Decay:
    """Return the decay for a leak factor."""
    leak = each(constant, node.shape)
    if request.leak == "multiply":
        return Multiply(whole(leak * (1 << 15)))
    if bool((leak != leak.flatten()[0]).any()):
        raise InputError(f"layer {node.name!r} has a leak for each neuron; choose leak='multiply' for it")
    return halvings(float(leak.flatten()[0]))


def table(resolution: int, bits: int) -> LogSumExpTable:
    r"""Tabulate :math:`\epsilon \log(1 + e^{-d/\epsilon})` for distances d of up to 8 eps.

    Args:
        resolution: membrane units per eps.
        bits: the table has 2^bits entries or up to twice as many; each holds the value at the middle of its
            distances.
    """
    exact = resolution * TABLE_REACH / 2**bits
    width = 1 << max(0, math.floor(math.log2(exact)))  # distances that share an entry
    middle = torch.arange(math.ceil(resolution * TABLE_REACH / width), dtype=torch.float64) * width
    entries = whole(resolution * torch.log1p(torch.exp(-(middle + (width - 1) / 2) / resolution)))
    return LogSumExpTable(entries, shift=width.bit_length() - 1)


def table_error(table: LogSumExpTable, resolution: int) -> float:
    """Return the largest error of a table, in eps, over every distance.

    Example:
        >>> round(table_error(table(512, bits=8), 512), 4)  # 512 bytes: a quarter of an entry's width
        0.0079
    """
    distance = torch.arange((len(table.entries) << table.shift) + 1)
    exact = torch.log1p(torch.exp(-distance.double() / resolution))
    return float((table(distance) / resolution - exact).abs().max())


def halvings(leak: float) -> Shifts:
    """Write a leak as 1 plus at most three signed powers of two.

    Example:
        >>> halvings(0.9).terms  # 1 - 1/8 + 1/32 - 1/128 = 0.8984
        ((-1, 3), (1, 5), (-1, 7))
    """
    terms: list[tuple[int, int]] = []
    rest = leak - 1
    while abs(rest) >= 2.0**-12 and len(terms) < 3:
        sign, distance = int(math.copysign(1, rest)), max(0, round(-math.log2(abs(rest))))
        terms.append((sign, distance))
        rest -= sign * 2.0**-distance
    return Shifts(tuple(terms))
