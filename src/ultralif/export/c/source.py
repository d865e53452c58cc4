"""The data of the C program: constants, state, and a recording for its self-test, as text."""

import math
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.resources import files
from string import Template

import numpy as np
import torch
from torch import Tensor

from ultralif.export.graph import Pooling
from ultralif.export.integer import IntegerNetwork, IntegerNeuron, IntegerSynapses, Multiply, Offset

__all__ = [
    "Array",
    "Field",
    "arrays",
    "checksum",
    "fields",
    "fill",
    "lines",
    "numbers",
    "recording",
    "state",
    "weight_type",
]

BYTES = {"int8_t": 1, "uint8_t": 1, "int16_t": 2, "uint16_t": 2, "int32_t": 4}
HASH_START, HASH_FACTOR = 2166136261, np.uint32(16777619)  # FNV-1a, over words


@dataclass(frozen=True)
class Array:
    """A constant of the C program."""

    name: str
    kind: str
    values: Tensor

    @property
    def bytes(self) -> int:
        """Its size."""
        return BYTES[self.kind] * self.values.numel()

    def text(self) -> str:
        """Its definition."""
        size = "".join(f"[{n}]" for n in self.values.shape)
        return f"static const {self.kind} {self.name}{size} = {{\n{numbers(self.values)}\n}};"


@dataclass(frozen=True)
class Field:
    """An array in the state."""

    name: str
    kind: str
    size: int

    @property
    def bytes(self) -> int:
        """Its size."""
        return BYTES[self.kind] * self.size


def fill(template: str, **facts: object) -> str:
    """Fill in a template of this folder."""
    text = (files("ultralif.export.c") / template).read_text()
    return Template(text).substitute(facts)


def arrays(net: IntegerNetwork) -> list[Array]:
    """Return the constants of the program."""
    found: list[Array] = []
    for number, node in enumerate(net.nodes):
        if isinstance(node.op, IntegerSynapses):
            found += _synapses(number, node.op)
        if isinstance(node.op, IntegerNeuron):
            found += _neuron(number, node.op, net.bits)
        if isinstance(node.op, Pooling) and node.op.flipped:
            flipped = torch.zeros(node.shape[0], dtype=torch.int64)
            flipped[list(node.op.flipped)] = 1
            found.append(Array(f"flipped_{number}", "uint8_t", flipped))
    return found


def weight_type(op: IntegerSynapses) -> str:
    """Return the type of weights, ``int8`` or ``int16``."""
    return str(op.weight.dtype).removeprefix("torch.")


def _synapses(number: int, op: IntegerSynapses) -> Iterator[Array]:
    weight = op.weight
    if op.geometry is None:
        rows = weight.mT  # [inputs, n]: an event adds one row
    else:  # [inputs, rows, columns, outputs of the group]
        grouped = weight.view(op.geometry.groups, -1, *weight.shape[1:]).permute(0, 2, 3, 4, 1)
        rows = grouped.flatten(0, 1)
    yield Array(f"weight_{number}", f"{weight_type(op)}_t", rows)
    yield Array(f"shift_{number}", "int8_t" if op.rounds else "uint8_t", op.shift)
    if op.factor is not None:
        yield Array(f"factor_{number}", "uint16_t", op.factor)
    yield Array(f"bias_{number}", "int32_t", op.bias)


def _neuron(number: int, op: IntegerNeuron, bits: int) -> Iterator[Array]:
    yield Array(f"threshold_{number}", f"int{bits}_t", op.threshold.flatten())
    if op.after != "none":
        yield Array(f"reset_{number}", f"int{bits}_t", op.reset.flatten())
    if isinstance(op.decay, Multiply):
        yield Array(f"leak_{number}", "uint16_t", op.decay.factor.flatten())
    if isinstance(op.decay, Offset):
        yield Array(f"leak_{number}", "int32_t", op.decay.amount.flatten())
    if op.table is not None:
        yield Array(f"table_{number}", "uint16_t", op.table.entries)


def fields(net: IntegerNetwork) -> list[Field]:
    """Return the arrays of the state, the widest first, so that none needs padding."""
    found = []
    for number, node in enumerate(net.nodes):
        size = math.prod(node.shape)
        if isinstance(node.op, IntegerSynapses):
            found.append(Field(f"sum_{number}", f"int{node.sum_bits}_t", size))
        if isinstance(node.op, IntegerNeuron):
            found.append(Field(f"v_{number}", f"int{net.bits}_t", size))
        if isinstance(node.op, Pooling) and node.op.kind == "max" and net.is_count[number]:
            found.append(Field(f"seen_{number}", "uint8_t", size))
    return sorted(found, key=lambda field: -BYTES[field.kind])


def state(net: IntegerNetwork) -> str:
    """Return the declarations of the state."""
    membrane = {field.name: "model_membrane" for field in fields(net) if field.name.startswith("v_")}
    return lines(
        4, (f"{membrane.get(field.name, field.kind)} {field.name}[{field.size}];" for field in fields(net))
    )


def recording(net: IntegerNetwork, recorded: Tensor) -> dict[str, object]:
    """Return recorded inputs ``[T, B, *input]`` and the simulator's answers to them."""
    output = net.run(recorded)
    return {
        "inputs": _recorded_inputs(net, recorded),
        "samples": recorded.shape[1],
        "steps": recorded.shape[0],
        "hash": numbers(torch.from_numpy(checksum(output.membranes).astype(np.int64)), suffix="u"),
        "score": numbers(output.scores),
    }


def _recorded_inputs(net: IntegerNetwork, recorded: Tensor) -> str:
    """Return recorded inputs ``[T, B, *input]`` as constants, and the function that replays them."""
    if net.levels is not None:
        levels = net.levels(recorded).flatten(2).transpose(0, 1)  # [B, T, inputs]
        if bool((levels == levels[:, :1]).all()):
            levels = levels[:, :1]
        return fill("recorded_levels.c", frames=levels.shape[1], level=numbers(levels))
    counts = recorded.flatten(2).long().transpose(0, 1)
    index = torch.arange(net.inputs).expand_as(counts)
    events = index.flatten().repeat_interleave(counts.flatten())
    return fill(
        "recorded_events.c",
        count=numbers(counts.sum(-1)),
        # One more, so that a recording without events is C too.
        event=numbers(torch.cat([events, events.new_zeros(1)])),
    )


def checksum(membranes: tuple[Tensor, ...]) -> np.ndarray[tuple[int, ...], np.dtype[np.uint32]]:
    """Return ``model_hash`` of each sample's membranes, which are ``[T, B, *features]`` for each layer."""
    flat = torch.cat([membrane.flatten(2) for membrane in membranes], -1)
    words = flat.numpy().astype(np.int32).view(np.uint32)  # [T, B, n]
    hashes = np.full(words.shape[1], HASH_START, np.uint32)
    for step in words:
        for word in step.T:
            hashes = (hashes ^ word) * HASH_FACTOR
    return hashes


def numbers(values: Tensor, suffix: str = "") -> str:
    """Return the inside of an initializer: a row of the last axis in braces, if there are several."""
    if values.dim() == 1:
        text = ", ".join(f"{value}{suffix}" for value in values.tolist())
        return textwrap.fill(text, 110, initial_indent="    ", subsequent_indent="    ")
    return ",\n".join(f"    {{\n{numbers(row)}\n    }}" for row in values)


def lines(indent: int, parts: Iterable[str]) -> str:
    """Return lines with an indentation."""
    return "\n".join(" " * indent + part for part in parts)
