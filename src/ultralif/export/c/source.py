"""The data of the C program: constants, state, and a recording for its self-test, as text."""

import math
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from ultralif.export.c import gather
from ultralif.export.c.plan import LayerPlan
from ultralif.export.c.text import BYTES, Array, Field, lines, numbers
from ultralif.export.graph import Last, Pooling
from ultralif.export.integer import (
    IntegerLeaky,
    IntegerNetwork,
    IntegerNeuron,
    IntegerSynapses,
    Multiply,
    Offset,
)

__all__ = [
    "arrays",
    "checksum",
    "constants_hash",
    "fields",
    "mixed",
    "recording",
    "state",
]

HASH_START, HASH_FACTOR = 2166136261, np.uint32(16777619)  # FNV-1a, over words


def arrays(net: IntegerNetwork, plan: LayerPlan) -> list[Array]:
    """Return the constants of the program."""
    found: list[Array] = []
    gathered = {layer.synapses: layer for layer in plan.gathered.values()}
    for number, node in enumerate(net.nodes):
        if isinstance(node.op, IntegerSynapses):
            layer = gathered.get(number)
            added = None if layer is None else gather.offset(net, layer)
            if layer is None or layer.threshold is None:
                found += _scales(number, node.op, added)
            found += _weights(number, node.op) if layer is None else gather.constants(net, layer)
        if isinstance(node.op, IntegerNeuron) and number not in plan.without_membranes:
            found += _neuron(number, node.op, net.bits)
        if isinstance(node.op, IntegerLeaky) and isinstance(node.op.decay, Multiply):
            found.append(Array(f"leak_{number}", "uint16_t", node.op.decay.factor.flatten()))
        if isinstance(node.op, Pooling) and node.op.flipped:
            flipped = torch.zeros(node.shape[0], dtype=torch.int64)
            flipped[list(node.op.flipped)] = 1
            found.append(Array(f"flipped_{number}", "uint8_t", flipped))
    return found


def _weights(number: int, op: IntegerSynapses) -> Iterator[Array]:
    weight = op.weight
    if op.geometry is None:
        rows = weight.mT  # [inputs, n]: an event adds one row
    else:  # [inputs, rows, columns, outputs of the group]
        grouped = weight.view(op.geometry.groups, -1, *weight.shape[1:]).permute(0, 2, 3, 4, 1)
        rows = grouped.flatten(0, 1)
    yield Array(f"weight_{number}", gather.weight_type(op), gather.stored(op, rows))
    if op.delay is not None:
        yield Array(f"delay_{number}", "uint8_t", op.delay.mT)


def _scales(number: int, op: IntegerSynapses, added: Tensor | None) -> Iterator[Array]:
    if op.factor is not None:
        yield Array(f"factor_{number}", "uint16_t", op.factor)
    if added is not None:
        yield Array(f"offset_{number}", "int32_t", added)
    else:
        yield Array(f"bias_{number}", "int32_t", op.bias)
    if op.scaling == "lowered":
        yield Array(f"shift_{number}", "uint8_t", -op.shift)
    else:
        yield Array(f"shift_{number}", "int8_t" if op.rounds else "uint8_t", op.shift)


def _neuron(number: int, op: IntegerNeuron, bits: int) -> Iterator[Array]:
    yield Array(f"threshold_{number}", f"int{bits}_t", op.threshold.flatten())
    if op.after != "none" and _differ(op.reset):
        yield Array(f"reset_{number}", f"int{bits}_t", op.reset.flatten())
    if isinstance(op.decay, Multiply):
        yield Array(f"leak_{number}", "uint16_t", op.decay.factor.flatten())
    if isinstance(op.decay, Offset) and _differ(op.decay.amount):
        yield Array(f"leak_{number}", "int32_t", op.decay.amount.flatten())
    if isinstance(op.adapt, Multiply):
        yield Array(f"adapt_{number}", "uint16_t", op.adapt.factor.flatten())
    if op.jump is not None and _differ(op.jump):
        yield Array(f"jump_{number}", "int32_t", op.jump.flatten())
    if op.table is not None:
        yield Array(f"table_{number}", "uint16_t", op.table.entries)


def _differ(values: Tensor) -> bool:
    """Return whether neurons need an array of constants; otherwise `text.constant` writes a single number."""
    return bool((values != values.flatten()[0]).any())


def fields(net: IntegerNetwork, plan: LayerPlan) -> list[Field]:
    """Return the arrays of the state, the widest first, so that none needs padding."""
    found = list(gather.lists(net, plan))
    for number, node in enumerate(net.nodes):
        size = math.prod(node.shape)
        if isinstance(node.op, IntegerSynapses) and number not in plan.internal:
            found.append(Field(f"sum_{number}", f"int{node.sum_bits}_t", size * node.op.slots))
            if node.op.delay is not None:
                found.append(Field(f"slot_{number}", "uint32_t", 1))
        if isinstance(node.op, IntegerLeaky):
            found.append(Field(f"i_{number}", "int32_t", size))
        if isinstance(node.op, Last):
            found.append(Field(f"last_{number}", "uint8_t", size))
        if isinstance(node.op, IntegerNeuron) and node.op.adapt is not None:
            found += [Field(f"rise_{number}", "int32_t", size), Field(f"fired_{number}", "uint8_t", size)]
        if isinstance(node.op, IntegerNeuron) and number not in plan.without_membranes:
            found.append(Field(f"v_{number}", f"int{net.bits}_t", size))
        if isinstance(node.op, Pooling) and node.op.kind == "max" and net.is_count[number]:
            found.append(Field(f"seen_{number}", "uint8_t", size))
    return sorted(found, key=lambda field: -BYTES[field.kind])


def state(net: IntegerNetwork, plan: LayerPlan) -> str:
    """Return the declarations of the state."""
    rows = [
        f"uint32_t rows_{place}; /* of layer {place}, done in this time step */" for place in plan.gathered
    ]
    made = fields(net, plan)
    membrane = {field.name: "model_membrane" for field in made if field.name.startswith("v_")}
    declared = (f"{membrane.get(field.name, field.kind)} {field.name}[{field.size}];" for field in made)
    return lines(4, [*rows, *declared])


def recording(net: IntegerNetwork, plan: LayerPlan, recorded: Tensor) -> dict[str, object]:
    """Return the simulator's outputs for recorded inputs ``[T, B, *input]``."""
    output = net.run(recorded)
    return {
        "samples": recorded.shape[1],
        "steps": recorded.shape[0],
        "hash": numbers(torch.from_numpy(checksum(net, plan, output.membranes).astype(np.int64)), suffix="u"),
        "score": numbers(output.scores),
    }


def checksum(
    net: IntegerNetwork, plan: LayerPlan, membranes: tuple[Tensor, ...]
) -> np.ndarray[tuple[int, ...], np.dtype[np.uint32]]:
    """Return ``model_hash`` of each sample's membranes, which are ``[T, B, *features]`` for each layer."""
    places = [place for place, node in enumerate(net.nodes) if isinstance(node.op, IntegerNeuron)]
    flat = [
        (membrane.movedim(2, -1) if place in plan.gathered else membrane).flatten(2)
        for place, membrane in zip(places, membranes, strict=True)
        if place not in plan.without_membranes
    ]
    hashes = np.full(membranes[0].shape[1], HASH_START, np.uint32)
    if not flat:
        return hashes
    words = torch.cat(flat, -1).numpy().astype(np.int32).view(np.uint32)  # [T, B, n]
    for step in words:
        for word in step.T:
            hashes = (hashes ^ word) * HASH_FACTOR
    return hashes


def constants_hash(constants: Sequence[Array]) -> int:
    """Return ``model_constants`` of the program, a checksum that changes with any single constant."""
    found = HASH_START
    for array in constants:
        for value in array.values.flatten().tolist():
            found = (found ^ (value & 0xFFFFFFFF)) * int(HASH_FACTOR) & 0xFFFFFFFF
    return found


def mixed(constants: Sequence[Array]) -> str:
    """Return the statements of ``model_constants``."""
    return lines(4, (f"MIX({array.kind}, {array.name})" for array in constants))
