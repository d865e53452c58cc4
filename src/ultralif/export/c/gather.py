"""The parts of the C program for gathered layers: constants, state and functions."""

import math
from collections.abc import Iterator
from textwrap import indent

import torch
from torch import Tensor
from torch.nn.functional import pad

from ultralif.export.bounds import Range
from ultralif.export.c.plan import GROUP, Gathered, LayerPlan, reach
from ultralif.export.c.text import Array, Field, fill, lines
from ultralif.export.graph import Geometry, Pooling
from ultralif.export.integer import IntegerNetwork, IntegerSynapses

__all__ = [
    "constants",
    "functions",
    "has_levels",
    "holds",
    "is_held",
    "is_pushed",
    "kept_rows",
    "list_append",
    "lists",
    "offset",
    "reset_rows",
    "runs_alone",
    "shared",
    "stored",
    "weight_type",
]

TOP = 1 << 15


def has_levels(plan: LayerPlan) -> bool:
    """Return whether a gathered layer reads the input itself."""
    return any(layer.kernel == "levels" for layer in plan.gathered.values())


def is_held(net: IntegerNetwork, layer: Gathered) -> bool:
    """Return whether input currents are kept because they stay the same for several time steps."""
    return layer.kernel == "levels" and layer.threshold is None and net.timesteps > 1


def holds(net: IntegerNetwork, plan: LayerPlan) -> bool:
    """Return whether any layer keeps its currents."""
    return any(is_held(net, layer) for layer in plan.gathered.values())


def kept_rows(net: IntegerNetwork, plan: LayerPlan, source: int) -> int:
    """Return the number of spike rows to keep: one window's rows if a single gathered layer reads them."""
    height = net.nodes[source].shape[1]
    readers = [i for node in net.nodes for i in node.inputs].count(source)
    if source not in plan.gathered or readers > 1 or source == len(net.nodes) - 1:
        return height
    span = _span(net, plan.listed[source][0])
    return min(height, 1 << (span - 1).bit_length())


def _pool(net: IntegerNetwork, layer: Gathered) -> Pooling:
    op = net.nodes[layer.pool].op if layer.pool is not None else None
    return op if isinstance(op, Pooling) else Pooling("max", (1, 1), (1, 1))


def _synapses(net: IntegerNetwork, layer: Gathered) -> IntegerSynapses:
    op = net.nodes[layer.synapses].op
    if not isinstance(op, IntegerSynapses):
        raise TypeError(f"node {layer.synapses} has no weights")
    return op


def _span(net: IntegerNetwork, layer: Gathered) -> int:
    """Return the number of input rows that one row of a layer reads."""
    op, pool = _synapses(net, layer), _pool(net, layer)
    g = _geometry(op)
    return (pool.size[0] - 1) * g.stride[0] + (op.weight.shape[2] - 1) * g.dilation[0] + 1


def _geometry(op: IntegerSynapses) -> Geometry:
    if op.geometry is None:
        raise TypeError("only convolutions are gathered")
    return op.geometry


def constants(net: IntegerNetwork, layer: Gathered) -> Iterator[Array]:
    """Yield the constants of synapses, and the thresholds that replace membranes."""
    op, place = _synapses(net, layer), layer.synapses
    rows = op.weight.long().permute(2, 3, 1, 0).flatten(0, 2)  # [taps * inputs, outputs]
    if layer.kernel == "packed":
        yield Array(f"weight_{place}", "uint32_t", _words(rows, op.weight_bits))
    elif layer.kernel == "wide":
        yield Array(f"weight_{place}", weight_type(op), stored(op, rows))
    else:
        flat = op.weight.long().flatten(1)
        yield Array(f"weight_{place}", "int16_t", pad(flat, (0, flat.shape[1] % 2)))
    if layer.threshold is not None:
        if layer.kernel == "packed":
            yield Array(f"start_{layer.neuron}", "uint32_t", _start(layer.threshold, op.weight_bits))
        else:
            yield Array(f"level_{layer.neuron}", "int32_t", layer.threshold)
        if layer.kernel == "levels":
            fires = (_grouped(layer.threshold, 1) <= 0).long()
            yield Array(f"blank_{layer.neuron}", "uint32_t", (fires << (31 - torch.arange(GROUP))).sum(1))


def offset(net: IntegerNetwork, layer: Gathered) -> Tensor | None:
    """Return the rounding and bias added to a scaled sum before its shift; None if 32 bits are too few."""
    op = _synapses(net, layer)
    if layer.kernel != "packed" or op.factor is None:
        return None
    if int(op.shift.min()) < -30 or int(op.shift.max()) >= 0:
        return None
    found = (op.bias << -op.shift) + (1 << (-op.shift - 1))
    return found if int((TOP * op.factor + found.abs()).max()) < 1 << 31 else None


def _grouped(values: Tensor, fill: int) -> Tensor:
    """Return channel values as ``[..., groups, GROUP]``."""
    padded = pad(values, (0, -values.shape[-1] % GROUP), value=fill)
    return padded.reshape(*padded.shape[:-1], -1, GROUP)


def weight_type(op: IntegerSynapses) -> str:
    """Return the type of weights in C; a byte holds two weights of 4 bits."""
    return "uint8_t" if op.weight_bits == 4 else f"int{op.weight_bits}_t"


def stored(op: IntegerSynapses, rows: Tensor) -> Tensor:
    """Return weight rows as the program stores them: two 4-bit weights in a byte, each plus 8."""
    if op.weight_bits > 4:
        return rows
    nibble = pad(rows.long(), (0, rows.shape[-1] % 2)) + 8
    return nibble[..., ::2] + (nibble[..., 1::2] << 4)


def _words(rows: Tensor, bits: int) -> Tensor:
    """Pack weights ``[rows, channels]`` into words as `gather_8.c` and `gather_4.c` describe."""
    if bits == 4:
        packed = _grouped(rows, 0) + 8
        nibble = packed.reshape(*packed.shape[:-1], 2, 4, 2)  # half of a word, word of bytes, odd byte
        bytes_of = [nibble[..., half, :, odd] for half in (1, 0) for odd in (0, 1)]
        lanes = (torch.stack(bytes_of, -1) << (8 * torch.arange(4))).sum(
            -1
        )  # for four words of sums in bytes
        word = lanes[..., ::2] + (lanes[..., 1::2] << 4)
    else:
        byte = _grouped(rows, 0) + 128
        word = byte[..., 8:12] + (byte[..., 12:] << 8) + (byte[..., :4] << 16) + (byte[..., 4:8] << 24)
    return word.transpose(0, 1)


def _start(threshold: Tensor, bits: int) -> Tensor:
    """Return start values for sums, chosen so that a half-word's top bit is set at its threshold."""
    lane = TOP - _grouped(threshold, 1)
    word = (lane[:, :8] << 16) + lane[:, 8:]
    if bits == 8:
        word[:, 4:] += lane[:, :4] << 8  # byte 2 is also added to odd bytes, and subtracted again
    return word & 0xFFFFFFFF


def lists(net: IntegerNetwork, plan: LayerPlan) -> Iterator[Field]:
    """Yield the state of gathered layers: lists of spikes, and the progress of each layer."""
    for place in plan.listed:
        channels, _, width = net.nodes[place].shape
        cells = kept_rows(net, plan, place) * width
        yield Field(f"spikes_{place}", "uint8_t" if channels < 256 else "uint16_t", cells)
        yield Field(f"list_{place}", _index(plan, net), cells * channels)
    for place, layer in plan.gathered.items():
        if is_held(net, layer):
            yield Field(f"now_{place}", _kind_of_currents(net, layer), math.prod(net.nodes[place].shape))
    if holds(net, plan):
        yield Field("known", "uint32_t", 1)


def _kind_of_currents(net: IntegerNetwork, layer: Gathered) -> str:
    """Return the smallest type that holds every current."""
    op = _synapses(net, layer)
    return (
        "int16_t"
        if Range(*(op.currents(end) for end in reach(net, layer.source, op))).fits(16)
        else "int32_t"
    )


def _index(plan: LayerPlan, net: IntegerNetwork) -> str:
    """Return the type of a channel index in lists."""
    return "uint8_t" if max(net.nodes[place].shape[0] for place in plan.listed) <= 256 else "uint16_t"


def list_append(net: IntegerNetwork, plan: LayerPlan, place: int) -> list[str]:
    """Return the statements that record spike ``i`` of a spread layer."""
    channels, height, width = net.nodes[place].shape
    at = f"s->list_{place}[i % {height * width} * {channels} + s->spikes_{place}[i % {height * width}]++]"
    return [f"{at} = ({_index(plan, net)})(i / {height * width});"]


def is_pushed(net: IntegerNetwork, plan: LayerPlan, place: int) -> bool:
    """Return whether events of a node are passed to spread layers or counted as scores."""
    if place == 0 and has_levels(plan):
        return any(place in node.inputs for i, node in enumerate(net.nodes) if i not in plan.internal)
    if place not in plan.gathered or place == len(net.nodes) - 1:
        return True
    return any(place in node.inputs for i, node in enumerate(net.nodes) if i not in plan.internal)


def runs_alone(net: IntegerNetwork, plan: LayerPlan, place: int) -> bool:
    """Return whether a time step runs all rows of a layer; otherwise its reader requests them."""
    return place not in plan.listed or kept_rows(net, plan, place) == net.nodes[place].shape[1]


def reset_rows(net: IntegerNetwork, plan: LayerPlan) -> Iterator[str]:
    """Yield the statements that begin a time step."""
    for place in plan.gathered:
        yield f"s->rows_{place} = 0;"
    for place in plan.listed:
        if place not in plan.gathered:
            yield f"for (i = 0; i < {math.prod(net.nodes[place].shape[1:])}; i++)"
            yield f"    s->spikes_{place}[i] = 0;"


def shared(net: IntegerNetwork, plan: LayerPlan) -> str:
    """Return the functions that gathered layers share."""
    kinds = {layer.kernel for layer in plan.gathered.values()}
    text = fill("alone.c") if kinds & {"packed", "levels"} else ""
    most = max(-(-net.nodes[place].shape[0] // GROUP) for place in plan.gathered) if plan.gathered else 0
    if "packed" in kinds:
        bits, index = net.synapses[0].weight_bits, _index(plan, net)
        rows = [math.prod(_synapses(net, layer).weight.shape[1:]) for layer in plan.gathered.values()]
        text += fill(
            "tap.c",
            index=index,
            bits=bits,
            words=bits // 2,
            row="uint16_t" if max(rows) < 1 << 16 else "uint32_t",
        )
        text += fill(f"gather_{bits}.c", index=index, most=most)
    if any(layer.kernel == "packed" and layer.threshold is not None for layer in plan.gathered.values()):
        text += fill("bits.c", most=most)
    if any(layer.kernel != "wide" and layer.threshold is not None for layer in plan.gathered.values()):
        text += fill("first_bit.c")
    return text + (fill("dot.c") if "levels" in kinds else "")


def functions(
    net: IntegerNetwork,
    plan: LayerPlan,
    layer: Gathered,
    pushes: bool,
    exact: list[str],
    current: str | None,
) -> str:
    """Return the functions of a layer.

    Args:
        net: the network.
        plan: how every layer is computed.
        layer: the layer.
        pushes: whether spread layers read the spikes of this layer.
        exact: the statements that update the membrane of channel ``c`` for the sum ``best[c]``; the line
            ``SPIKE`` is replaced by the effect of a spike.
        current: the current of ``best[c]``, where it is kept as ``now[c]``.
    """
    facts = _facts(net, plan, layer)
    listed = layer.neuron in plan.listed
    channels, height, width = net.nodes[layer.neuron].shape
    emit = ["COUNT(spikes, 1);"]
    if listed:
        emit.append(f"*spike++ = ({_index(plan, net)})c;")
    if pushes:
        emit.append(f"push_{layer.neuron}(s, c * {height * width} + y * {width} + x);")
    count = next((field.kind for field in lists(net, plan) if field.name == f"spikes_{layer.neuron}"), "")
    first = f"s->list_{layer.neuron} + at * {channels}"
    facts["end"] = f"        s->spikes_{layer.neuron}[at] = ({count})(spike - ({first}));\n" if listed else ""
    if layer.threshold is not None and layer.kernel != "wide":
        facts["spikes"] = fill("spikes.c", **facts, emit=lines(16, emit))
        body = fill("reach_levels.c", **facts) if layer.kernel == "levels" else ""
        body += fill(f"row_{layer.kernel}.c", **facts)
    else:
        statements = exact
        if layer.threshold is not None:
            statements = [f"if (best[c] >= level_{layer.neuron}[c]) {{", "    SPIKE", "}"]
        fire = [
            line.replace("SPIKE", part) for line in statements for part in (emit if "SPIKE" in line else [""])
        ]
        body = fill(f"sums_{layer.kernel}.c", **facts)
        single = f"        sums_{layer.neuron}(s, {facts['first']}, best);\n"
        largest = single if layer.pool is None else fill("largest.c", **facts)
        currents = f"        int32_t best[{facts['padded_out']}];\n{largest}"
        if current is not None:
            kind = _kind_of_currents(net, layer)
            currents = fill(
                "currents_held.c", **facts, kind=kind, current=current, largest=indent(largest, "    ")
            )
        body += fill("row_sums.c", **facts, currents=currents, fire=lines(12, fire))
    keep = kept_rows(net, plan, layer.neuron) if listed else 0
    slot = "y" if keep == height else f"(y & {keep - 1})"
    body = body.replace(
        "        /* list */\n",
        f"        const uint32_t at = {slot} * {width} + x;\n        {_index(plan, net)} *spike = {first};\n"
        if listed
        else "",
    )
    before = {"packed": ["taps.c"], "wide": [], "levels": ["look.c"]}[layer.kernel]
    return "".join(fill(name, **facts) for name in before) + body + fill("rows.c", **facts)


def _facts(net: IntegerNetwork, plan: LayerPlan, layer: Gathered) -> dict[str, object]:
    """Return the numbers for the templates."""
    op, pool = _synapses(net, layer), _pool(net, layer)
    g, source = _geometry(op), net.nodes[layer.source].shape
    channels, (rows, columns) = len(op.weight), op.weight.shape[2:]
    groups, values = -(-channels // GROUP), source[0] * rows * columns
    facts: dict[str, object] = {
        "l": layer.neuron, "synapses": layer.synapses, "source": layer.source, "why": layer.why,
        "channels": source[0], "height": source[1], "width": source[2],
        "out_width": net.nodes[layer.neuron].shape[2], "channels_out": channels,
        "rows": rows, "columns": columns, "taps": rows * columns, "groups": groups,
        "padded_out": groups * GROUP, "odd": values % 2, "padded": values + values % 2,
        "next": source[0] * rows * columns * op.weight_bits // 2,
        "pool_rows": pool.size[0], "pool_columns": pool.size[1],
        "at": _at(pool),
        "first": _at(pool).replace(" + py", "").replace(" + px", ""),
        "zeros": ", ".join(["0x80008000u"] * 4 + [f"0x80{'80' if op.weight_bits == 8 else '00'}8000u"] * 4),
    }  # fmt: skip
    for name, pair in (("stride", g.stride), ("pad", g.padding), ("dilation", g.dilation)):
        facts |= {f"{name}_y": pair[0], f"{name}_x": pair[1]}
    facts |= _dot(values + values % 2)
    facts["pull"], facts["slot"] = "", "row"
    if layer.kernel != "levels":
        keep = kept_rows(net, plan, layer.source)
        facts["slot"] = "row" if keep == source[1] else f"(row & {keep - 1})"
    if layer.source in plan.gathered:
        ahead = (pool.size[0] - 1) * g.stride[0] - g.padding[0] + (rows - 1) * g.dilation[0] + 1
        last = f"(int32_t)y * {pool.stride[0] * g.stride[0]} + {ahead}"
        guard = f"    if ({last} > 0)\n    " if ahead < 0 else ""  # the first rows read only padding
        call = f"    rows_{layer.source}(s, {last} < {source[1]} ? (uint32_t)({last}) : {source[1]});\n"
        facts["pull"] = guard + call
    return facts


def _at(pool: Pooling) -> str:
    """Return the position in a map before pooling."""
    rows, columns = (f" * {n}" if n > 1 else "" for n in pool.stride)
    return f"(int32_t)y{rows} + py, (int32_t)x{columns} + px"


def _dot(values: int) -> dict[str, object]:
    """Return the statements for a product of this many levels and weights; a few levels stay in registers."""
    if values <= 10:
        pairs = range(0, values, 2)
        return {
            "takes": ", ".join(f"pair v{i}" for i in pairs),
            "given": ", ".join(f"v{i}" for i in pairs),
            "load": lines(4, (f"const pair v{i} = take(v + {i});" for i in pairs)) + "\n",
            "dot": lines(4, (f"sum = dot(v{i}, w + {i}, sum);" for i in pairs)),
        }
    loop = ["uint32_t i;", f"for (i = 0; i < {values}; i += 2)", "    sum = dot(take(v + i), w + i, sum);"]
    return {"takes": "const int16_t *v", "given": "v", "load": "", "dot": lines(4, loop)}
