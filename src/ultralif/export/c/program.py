"""The functions of the C program: they push events forward, compute currents and make neurons fire."""

import math
from collections.abc import Iterator

from ultralif.export.c import gather
from ultralif.export.c.inputs import cleared, held, input_functions
from ultralif.export.c.plan import Gathered, LayerPlan
from ultralif.export.c.source import fields
from ultralif.export.c.text import constant, fill, lines
from ultralif.export.graph import Flatten, Last, Pooling, Sum
from ultralif.export.integer import (
    Decay,
    IntegerLeaky,
    IntegerNetwork,
    IntegerNeuron,
    IntegerNode,
    IntegerSynapses,
    Multiply,
    Offset,
    Shifts,
)

__all__ = ["program"]


def program(net: IntegerNetwork, plan: LayerPlan) -> dict[str, object]:
    """Return the functions of all layers, and their helper functions."""
    places = range(len(net.nodes))
    remember = [
        op
        for node in net.nodes
        if isinstance(op := node.op, IntegerLeaky) or (isinstance(op, IntegerNeuron) and op.adapt is not None)
    ]
    wide = "int64_t" if remember else f"int{2 * net.bits}_t"
    exact = [node.op for place, node in enumerate(net.nodes) if place not in plan.without_membranes]
    replaced = {layer.synapses for layer in plan.gathered.values() if layer.threshold is not None}
    narrow = {layer.synapses for layer in plan.gathered.values() if gather.offset(net, layer) is not None}
    exempt = replaced | narrow
    synapses = [node.op for place, node in enumerate(net.nodes) if place not in exempt]
    ways = {op.scaling for op in synapses if isinstance(op, IntegerSynapses)}
    helpers = dict.fromkeys(
        name for op in exact if isinstance(op, IntegerNeuron | IntegerLeaky) for name in _helpers(op)
    )
    rows = {
        (f"add_{_adding(node)}.c", node.sum_bits)
        for node in net.nodes
        if isinstance(node.op, IntegerSynapses) and len(node.shape) == 1
    }
    kernels = {layer.synapses: layer.kernel for layer in plan.gathered.values()}
    rowwise = any(
        isinstance(node.op, IntegerSynapses) and kernels.get(place, "wide") == "wide"
        for place, node in enumerate(net.nodes)
    )
    calls = lines(4, _calls(net, plan))
    return {
        "helpers": fill("right.c")
        + (fill("up.c") if ways & {"up", "scaled"} else "")
        + "".join(fill(name, wide=wide) for name in helpers)
        + (fill("lowered.c") if ways & {"lowered", "scaled"} else "")
        + (fill("scaled.c") if "scaled" in ways else "")
        + (fill("weight_4.c" if net.synapses[0].weight_bits == 4 else "weight.c") if rowwise else "")
        + "".join(fill(name, bits=bits) for name, bits in sorted(rows))
        + gather.shared(net, plan),
        "input": input_functions(net, plan),
        "pushes": "".join(_push(net, plan, place) for place in reversed(places)),
        "values": "".join(_value(net, plan, place) for place in places),
        "layers": "".join(_layer(net, plan, place) for place in places),
        "index": "    uint32_t i;\n" if "for (i" in calls else "",
        "ready": " || s->levels == 0" if gather.has_levels(plan) else "",
        "calls": calls,
        "mixing": fill("mix.c") if any(isinstance(op, IntegerNeuron) for op in exact) else "",
        "mixes": lines(
            4,
            [
                f"hash = mix(hash, s->v_{place}, {math.prod(net.nodes[place].shape)});"
                for place in places
                if isinstance(net.nodes[place].op, IntegerNeuron) and place not in plan.without_membranes
            ]
            or ["(void)s; /* every layer is decided by thresholds, and keeps no membranes */"],
        ),
    }


def _adding(node: IntegerNode) -> str:
    """Return the name of the function that adds a row of weights."""
    late = isinstance(node.op, IntegerSynapses) and node.op.delay is not None
    return "late" if late else "times" if node.graded else "row"


def _helpers(op: IntegerNeuron | IntegerLeaky) -> Iterator[str]:
    decays = [op.decay, op.adapt] if isinstance(op, IntegerNeuron) else [op.decay]
    if any(isinstance(decay, Multiply) for decay in decays):
        yield "scale.c"
    if isinstance(op, IntegerNeuron) and op.coupling != "add":
        yield "larger.c" if op.table is None else "soft_max.c"


def _calls(net: IntegerNetwork, plan: LayerPlan) -> Iterator[str]:
    """Yield the statements of a time step, in order; at its end all sums except the held ones are 0 again."""
    if net.levels is None:
        yield "s->events = 0;"
    yield from gather.reset_rows(net, plan)
    for place, node in enumerate(net.nodes):
        if isinstance(node.op, Last):
            yield f"for (i = 0; i < {math.prod(node.shape)}; i++)"
            yield f"    if (s->last_{place}[i]) {{"
            yield f"        s->last_{place}[i] = 0;"
            yield f"        push_{place}(s, i);"
            yield "    }"
    for place, node in enumerate(net.nodes):
        if isinstance(node.op, IntegerLeaky):
            yield f"leaky_{place}(s);"
        elif place in plan.gathered:  # all rows, except those of a layer that only a gathered layer reads
            if gather.runs_alone(net, plan, place):
                yield f"rows_{place}(s, {node.shape[1]});"
        elif isinstance(node.op, IntegerNeuron):
            yield f"layer_{place}(s);"
    for place in plan.gathered:  # membranes of rows that pooling drops
        if not gather.runs_alone(net, plan, place) and place not in plan.without_membranes:
            yield f"rows_{place}(s, {net.nodes[place].shape[1]});"
    if not net.is_count[-1]:
        yield "for (i = 0; i < MODEL_CLASSES; i++)"
        yield f"    s->score[i] += value_{len(net.nodes) - 1}(s, i);"
    if gather.holds(net, plan):
        yield "s->known[0] = 1;"
    stay = held(net, plan)
    late = {
        f"sum_{place}": (place, node.shape[0], node.op.slots)
        for place, node in enumerate(net.nodes)
        if isinstance(node.op, IntegerSynapses) and node.op.delay is not None
    }
    for place, size, slots in late.values():
        yield f"for (i = 0; i < {size}; i++)"
        yield f"    s->sum_{place}[s->slot_{place}[0] * {size} + i] = 0;"
        yield f"s->slot_{place}[0] = (s->slot_{place}[0] + 1) % {slots};"
    yield from cleared(
        [
            field
            for field in fields(net, plan)
            if field.name.startswith(("sum_", "seen_")) and field not in stay and field.name not in late
        ]
    )


def _push(net: IntegerNetwork, plan: LayerPlan, place: int) -> str:
    """Return the statements that pass an event of a node to the nodes that read it."""
    text, to = "", []
    if place in plan.internal or not gather.is_pushed(net, plan, place):
        return ""
    if not net.is_count[place]:
        node = net.nodes[place]
        spreads = isinstance(node.op, IntegerSynapses) and len(node.shape) > 1
        return fill("spread.c", **_convolution(net, place)) if spreads else ""
    level = ", level" if net.nodes[place].graded else ""
    for reader, node in enumerate(net.nodes):
        if reader in plan.internal:
            continue
        for _ in range(node.inputs.count(place)):
            if isinstance(node.op, IntegerSynapses) and len(node.shape) > 1:
                to.append(f"spread_{reader}(s, i{level});")
            elif isinstance(node.op, IntegerSynapses):
                given = f"s->sum_{reader}, weight_{reader}[i]"
                more = level
                if node.op.delay is not None:
                    given += f", delay_{reader}[i]"
                    more = f", s->slot_{reader}[0], {node.op.slots}"
                to.append(f"add_{_adding(node)}_{node.sum_bits}({given}, {node.shape[0]}{more});")
            elif isinstance(node.op, Pooling):
                to.append(f"pool_{reader}(s, i{level});")
            else:
                to.append(f"push_{reader}(s, i{level});")
    if place == len(net.nodes) - 1:
        to.append("s->score[i]++;")
    to += [
        f"s->last_{other}[i] = 1;"
        for other, node in enumerate(net.nodes)
        if isinstance(node.op, Last) and node.op.of == place
    ]
    if place in plan.listed and place not in plan.gathered:
        to += gather.list_append(net, plan, place)
    text = fill("push.c", l=place, level=_level(net, place), to=lines(4, to))
    if isinstance(net.nodes[place].op, Pooling):
        text += fill("pool_push.c", **_windows(net, place), found=lines(12, _found(net, place)))
    return text


def _found(net: IntegerNetwork, place: int) -> list[str]:
    """Return the statements for an event in a pooling window: a maximum passes on only the first event."""
    op = net.nodes[place].op
    if isinstance(op, Pooling) and op.kind == "max":
        return [
            f"if (!s->seen_{place}[at]) {{",
            f"    s->seen_{place}[at] = 1;",
            f"    push_{place}(s, at);",
            "}",
        ]
    return [f"push_{place}(s, at{', level' if net.nodes[place].graded else ''});"]


def _level(net: IntegerNetwork, place: int) -> str:
    """Return the argument of functions that pass on levels."""
    return ", int32_t level" if net.nodes[place].graded else ""


def _value(net: IntegerNetwork, plan: LayerPlan, place: int) -> str:
    """Return the code that computes a current."""
    node = net.nodes[place]
    if net.is_count[place] or place in plan.internal:
        return ""
    if isinstance(node.op, Pooling):
        child = f"value_{node.inputs[0]}(s, at + y * {net.nodes[node.inputs[0]].shape[2]} + x)"
        larger = f"{child} > found"
        if node.op.flipped:
            larger = f"(flipped_{place}[i / {node.shape[1] * node.shape[2]}] ? {child} < found : {larger})"
        largest = f"if (y + x == 0 || {larger})\n                found = {child}"
        mean = node.op.kind == "mean"
        return fill(
            "value_pool.c",
            **_windows(net, place),
            start=0,
            take=f"found += {child}" if mean else largest,
        )
    if isinstance(node.op, IntegerSynapses):
        slot = "" if node.op.delay is None else f"s->slot_{place}[0] * {node.shape[0]} + "
        at = _at(math.prod(node.shape), node.shape[0])
        value = _current(node.op, place, f"s->sum_{place}[{slot}i]", at)
    elif isinstance(node.op, IntegerLeaky):
        value = f"s->i_{place}[i]"
    elif isinstance(node.op, Sum | Flatten):
        value = " + ".join(f"value_{i}(s, i)" for i in node.inputs)
    else:
        return ""
    return fill("value.c", l=place, value=value)


def _current(op: IntegerSynapses, place: int, total: str, at: str) -> str:
    """Return the current for a sum."""
    if op.factor is not None:
        total = f"(int64_t){total} * factor_{place}[{at}]"
    return f"{op.scaling}({total}, shift_{place}[{at}]) + bias_{place}[{at}]"


def _at(size: int, constants: int) -> str:
    """Return the index of neuron ``i``'s constant, which its channel may share."""
    return "i" if constants == size else f"i / {size // constants}"


def _windows(net: IntegerNetwork, place: int) -> dict[str, object]:
    """Return the template numbers for a pooling node."""
    node = net.nodes[place]
    before, op = net.nodes[node.inputs[0]].shape, node.op
    if not isinstance(op, Pooling):
        raise TypeError(f"{node.name!r} does not pool")
    return _maps(place, before, node.shape) | {
        "level": _level(net, place),
        "rows": op.size[0],
        "columns": op.size[1],
        "stride_y": op.stride[0],
        "stride_x": op.stride[1],
    }


def _maps(place: int, before: tuple[int, ...], after: tuple[int, ...]) -> dict[str, object]:
    return {
        "l": place,
        "height": before[1],
        "width": before[2],
        "plane": before[1] * before[2],
        "out_height": after[1],
        "out_width": after[2],
        "out_plane": after[1] * after[2],
    }


def _convolution(net: IntegerNetwork, place: int) -> dict[str, object]:
    """Return the template numbers for a convolution."""
    node = net.nodes[place]
    before, op = net.nodes[node.inputs[0]].shape, node.op
    if not isinstance(op, IntegerSynapses) or op.geometry is None:
        raise TypeError(f"{node.name!r} is not a convolution")
    g, outputs = op.geometry, len(op.weight) // op.geometry.groups
    plane = node.shape[1] * node.shape[2]
    first = "0" if g.groups == 1 else f"c / {before[0] // g.groups} * {outputs * plane}"
    numbers = {
        "rows": op.weight.shape[2],
        "columns": op.weight.shape[3],
        "outputs": outputs,
        "first": first,
        "bits": node.sum_bits,
        "level": _level(net, place),
        "times": " * level" if node.graded else "",
    }
    for name, pair in (("stride", g.stride), ("pad", g.padding), ("dilation", g.dilation)):
        numbers |= {f"{name}_y": pair[0], f"{name}_x": pair[1]}
    return _maps(place, before, node.shape) | numbers


def _layer(net: IntegerNetwork, plan: LayerPlan, place: int) -> str:
    """Return the code for a layer of neurons."""
    node = net.nodes[place]
    neuron, size = node.op, math.prod(node.shape)
    if isinstance(neuron, IntegerLeaky):
        return fill(
            "leaky.c", l=place, n=size, decay=_decay(neuron.decay, place, size), **{"from": node.inputs[0]}
        )
    if not isinstance(neuron, IntegerNeuron):
        return ""
    if place in plan.gathered:
        layer = plan.gathered[place]
        exact = [] if layer.threshold is not None else _exact(net, layer)
        current = _gathered_current(net, layer) if gather.is_held(net, layer) else None
        text = gather.functions(net, plan, layer, gather.is_pushed(net, plan, place), exact, current)
        return text if layer.threshold is not None else _macros(neuron, place, node.shape[0]) + text
    floor = "" if neuron.floor is None else f"\n    if (v < {neuron.floor})\n        v = {neuron.floor};"
    facts = {
        "l": place,
        "n": size,
        "from": node.inputs[0],
        "threshold_at": _at(size, neuron.threshold.numel()),
        "reset": _reset(neuron, place, size),
        "ceiling": _ceiling(neuron, place, size),
        "decay": _decay(neuron.decay, place, size),
        **_adaptation(neuron, place, size),
        "top": _top(neuron, place),
        "floor": floor,
        "delayed": _delayed(neuron, place, size, floor),
    }
    if neuron.coupling == "ring":
        step = math.prod(node.shape[len(node.shape) + neuron.axis + 1 :])
        length = node.shape[neuron.axis]
        facts |= {"step": step, "reach": (length - 1) * step, "rings": _rings(place, size, length, step)}
    return fill("fire.c", **facts) + fill(f"layer_{neuron.coupling}.c", **facts)


def _macros(neuron: IntegerNeuron, place: int, channels: int) -> str:
    """Return the macros for a gathered layer that keeps membranes."""
    top = "" if neuron.coupling == "add" else f"#define top_{place}(a, b) {_top(neuron, place)}\n"
    return f"\n#define decay_{place}(v, i) {_decay(neuron.decay, place, channels)}\n{top}"


def _exact(net: IntegerNetwork, layer: Gathered) -> list[str]:
    """Return the statements that update the membrane of channel ``c`` for the sum ``best[c]``."""
    place, node = layer.neuron, net.nodes[layer.neuron]
    neuron = node.op
    if not isinstance(neuron, IntegerNeuron):
        raise TypeError(f"{node.name!r} is not a layer of neurons")
    channels, _, width = node.shape
    decayed = f"decay_{place}(*at_v, c)"
    current = "now[c]" if gather.is_held(net, layer) else _gathered_current(net, layer)
    both = f"{decayed} + {current}" if neuron.coupling == "add" else f"top_{place}({decayed}, {current})"
    found = [f"model_membrane *at_v = s->v_{place} + (y * {width} + x) * {channels} + c;"]
    found.append(f"int32_t v = {both};")
    if neuron.floor is not None:
        found += [f"if (v < {neuron.floor})", f"    v = {neuron.floor};"]
    if neuron.delayed and (back := _back(neuron, place, "c")):
        found += [f"if (*at_v > threshold_{place}[c])", f"    {back}"]
        if neuron.floor is not None:
            found += [f"if (v < {neuron.floor})", f"    v = {neuron.floor};"]
    found += [f"if (v > threshold_{place}[c]) {{", "    SPIKE"]
    if not neuron.delayed and (back := _back(neuron, place, "c")):
        found.append(f"    {back}")
    found.append("}")
    if neuron.after == "saturate":
        most = constant("reset", place, neuron.reset, "c")
        found += [f"if (v > {most})", f"    v = {most};"]
    return [*found, "*at_v = (model_membrane)v;"]


def _gathered_current(net: IntegerNetwork, layer: Gathered) -> str:
    """Return the current of the sum ``best[c]``."""
    n, op = layer.synapses, net.nodes[layer.synapses].op
    if not isinstance(op, IntegerSynapses):
        raise TypeError(f"{net.nodes[n].name!r} has no weights")
    if gather.offset(net, layer) is not None:
        return f"RIGHT(best[c] * factor_{n}[c] + offset_{n}[c], shift_{n}[c])"
    return _current(op, n, "best[c]", "c")


def _back(neuron: IntegerNeuron, place: int, at: str) -> str:
    """Return the statement with which a spike resets a membrane, or nothing."""
    if neuron.after not in ("zero", "subtract"):
        return ""
    sign = "" if neuron.after == "zero" else "-"
    risen = " + rise" if neuron.after == "subtract" and neuron.adapt is not None else ""
    return f"v {sign}= {constant('reset', place, neuron.reset, at)}{risen};"


def _adaptation(neuron: IntegerNeuron, place: int, size: int) -> dict[str, str]:
    """Return the statements that raise AdaLIF's threshold: its decay, and the jump after a spike."""
    if neuron.adapt is None or neuron.jump is None:
        return {"rise": "", "risen": "", "jump": ""}
    decay = _decay(neuron.adapt, place, size, "adapt", "rise")
    jump = constant("jump", place, neuron.jump, _at(size, neuron.jump.numel()))
    return {
        "rise": f"\n    const int32_t rise = s->rise_{place}[i];\n    s->rise_{place}[i] = {decay};\n"
        f"    if (s->fired_{place}[i])\n        s->rise_{place}[i] += {jump};\n    s->fired_{place}[i] = 0;",
        "risen": " + rise",
        "jump": f"\n        s->fired_{place}[i] = 1;",
    }


def _reset(neuron: IntegerNeuron, place: int, size: int) -> str:
    """Return the statement that resets a membrane after a spike."""
    back = "" if neuron.delayed else _back(neuron, place, _at(size, neuron.reset.numel()))
    return f"\n        {back}" if back else ""


def _delayed(neuron: IntegerNeuron, place: int, size: int, floor: str) -> str:
    """Return the statements of a delayed reset: a membrane above its threshold spiked in the last step."""
    back = _back(neuron, place, _at(size, neuron.reset.numel())) if neuron.delayed else ""
    last = f"s->v_{place}[i] > threshold_{place}[{_at(size, neuron.threshold.numel())}]"
    return f"{floor}\n    if ({last})\n        {back}" if back else ""


def _ceiling(neuron: IntegerNeuron, place: int, size: int) -> str:
    """Return the statement that limits a saturating membrane."""
    if neuron.after != "saturate":
        return ""
    top = constant("reset", place, neuron.reset, _at(size, neuron.reset.numel()))
    return f"\n    if (v > {top})\n        v = {top};"


def _rings(place: int, size: int, length: int, step: int) -> str:
    """Return the C statements that update each of a layer's ``size / length`` rings."""
    if size == length:
        return f"    ring_{place}(s, 0);"
    return lines(
        4,
        [
            "uint32_t start, i;",
            f"for (start = 0; start < {size}; start += {length * step})",
            f"    for (i = 0; i < {step}; i++)",
            f"        ring_{place}(s, start + i);",
        ],
    )


def _decay(decay: Decay | None, place: int, size: int, name: str = "leak", v: str = "v") -> str:
    """Return the decay of ``v``, a value of neuron ``i``, in a form that a macro may contain."""
    if isinstance(decay, Multiply):
        return f"scale({v}, {name}_{place}[{_of(size, decay.factor.numel())}])"
    if isinstance(decay, Offset):
        amount = decay.amount
        return f"(({v}) + {constant(name, place, amount, _of(size, amount.numel()))})"
    if isinstance(decay, Shifts):
        terms = (f" {'+-'[sign < 0]} RIGHT({v}, {distance})" for sign, distance in decay.terms)
        return f"(({v}){''.join(terms)})"
    return f"({v})"


def _of(size: int, constants: int) -> str:
    """Return `_at` with ``i`` in parentheses, for use in a macro."""
    return _at(size, constants).replace("i", "(i)", 1)


def _top(neuron: IntegerNeuron, place: int) -> str:
    if neuron.table is None:
        return "larger(a, b)"
    return f"soft_max(a, b, table_{place}, {len(neuron.table.entries)}, {neuron.table.shift})"
