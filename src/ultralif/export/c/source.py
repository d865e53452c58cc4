"""The parts of the C program that depend on the network, as text."""

import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.resources import files
from string import Template

import numpy as np
import torch
from torch import Tensor

from ultralif.export.integer import IntegerLayer, IntegerNetwork, IntegerNeuron, Multiply, Offset, Shifts

__all__ = ["Array", "arrays", "checksum", "fill", "program", "recording", "state"]

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
        return f"static const {self.kind} {self.name}{size} = {{\n{_numbers(self.values)}\n}};"


def fill(template: str, **facts: object) -> str:
    """Fill in a template of this folder."""
    text = (files("ultralif.export.c") / template).read_text()
    return Template(text).substitute(facts)


def arrays(net: IntegerNetwork) -> list[Array]:
    """Return the constants of the program."""
    return [array for number, layer in enumerate(net.layers, 1) for array in _arrays(number, layer, net.bits)]


def _arrays(number: int, layer: IntegerLayer, bits: int) -> Iterator[Array]:
    yield Array(f"weight_{number}", "int8_t", layer.weight.mT)  # [inputs, n]: an event adds one row
    yield Array(f"shift_{number}", "uint8_t", layer.shift)
    yield Array(f"bias_{number}", "int32_t", layer.bias)
    if layer.neuron is None:
        return
    yield Array(f"threshold_{number}", f"int{bits}_t", layer.neuron.threshold)
    yield Array(f"reset_{number}", f"int{bits}_t", layer.neuron.reset)
    if isinstance(layer.neuron.decay, Multiply):
        yield Array(f"leak_{number}", "uint16_t", layer.neuron.decay.factor)
    if isinstance(layer.neuron.decay, Offset):
        yield Array(f"leak_{number}", "int32_t", layer.neuron.decay.amount)
    if layer.neuron.table is not None:
        yield Array(f"table_{number}", "uint16_t", layer.neuron.table.entries)


def state(net: IntegerNetwork) -> dict[str, str]:
    """Return the declarations of the state."""
    spiking = [(number, layer) for number, layer in enumerate(net.layers, 1) if layer.neuron is not None]
    sums = (f"int32_t sum_{number}[{len(layer.weight)}];" for number, layer in enumerate(net.layers, 1))
    membranes = (f"model_membrane v_{number}[{len(layer.weight)}];" for number, layer in spiking)
    return {"membrane": f"int{net.bits}_t", "sums": _lines(4, sums), "membranes": _lines(4, membranes)}


def program(net: IntegerNetwork) -> dict[str, object]:
    """Return the functions of the layers, and what they call."""
    neurons = {number: layer.neuron for number, layer in enumerate(net.layers, 1) if layer.neuron is not None}
    helpers = dict.fromkeys(name for neuron in neurons.values() for name in _helpers(neuron))
    wide = f"int{2 * net.bits}_t"
    return {
        "first": net.sizes[1],
        "helpers": "".join(fill(name, wide=wide) for name in helpers),
        "layers": "".join(_layer(net, number) for number in range(1, len(net.layers) + 1)),
        "calls": _lines(4, (f"layer_{number}(s);" for number in range(1, len(net.layers) + 1))),
        "mixes": _lines(4, (f"hash = mix(hash, s->v_{n}, {net.sizes[n]});" for n in neurons)),
    }


def _helpers(neuron: IntegerNeuron) -> Iterator[str]:
    if isinstance(neuron.decay, Multiply) or (isinstance(neuron.decay, Shifts) and neuron.decay.terms):
        yield "down.c"
    if isinstance(neuron.decay, Multiply):
        yield "scale.c"
    if neuron.coupling != "add":
        yield "larger.c" if neuron.table is None else "soft_max.c"


def _layer(net: IntegerNetwork, number: int) -> str:
    neuron, size = net.layers[number - 1].neuron, net.sizes[number]
    current = fill("current.c", l=number)
    if neuron is None:
        return current + fill("readout.c", l=number, n=size)
    emit = ["s->score[i]++;"]
    if number < len(net.layers):
        after, targets = number + 1, net.sizes[number + 1]
        emit = [f"COUNT(additions, {targets});", f"add_row(s->sum_{after}, weight_{after}[i], {targets});"]
    floor = "" if neuron.floor is None else f"\n    if (v < {neuron.floor})\n        v = {neuron.floor};"
    facts = {
        "l": number,
        "n": size,
        "last": size - 1,
        "decay": _decay(neuron, number),
        "top": _top(neuron, number),
        "floor": floor,
        "emit": _lines(8, emit),
    }
    return current + fill("fire.c", **facts) + fill(f"layer_{neuron.coupling}.c", **facts)


def _decay(neuron: IntegerNeuron, number: int) -> str:
    """Return the decay of the macro's ``v``, the membrane of neuron ``i``."""
    if isinstance(neuron.decay, Multiply):
        return f"scale(v, leak_{number}[i])"
    if isinstance(neuron.decay, Offset):
        return f"((v) + leak_{number}[i])"
    if isinstance(neuron.decay, Shifts):
        terms = (f" {'+-'[sign < 0]} (int32_t)down(v, {distance})" for sign, distance in neuron.decay.terms)
        return f"((v){''.join(terms)})"
    return "(v)"


def _top(neuron: IntegerNeuron, number: int) -> str:
    if neuron.table is None:
        return "larger(a, b)"
    return f"soft_max(a, b, table_{number}, {len(neuron.table.entries)}, {neuron.table.shift})"


def recording(net: IntegerNetwork, recorded: Tensor) -> dict[str, object]:
    """Return recorded inputs ``[T, B, *input]`` as events, with what the simulator makes of them."""
    output = net.run(recorded)
    counts = recorded.flatten(2).long().transpose(0, 1)  # [B, T, inputs]
    index = torch.arange(net.sizes[0]).expand_as(counts)
    events = index.flatten().repeat_interleave(counts.flatten())
    return {
        "samples": counts.shape[0],
        "steps": counts.shape[1],
        "count": _numbers(counts.sum(-1)),
        # One more, so that a recording without events is C too.
        "event": _numbers(torch.cat([events, events.new_zeros(1)])),
        "hash": _numbers(torch.from_numpy(checksum(output.membranes).astype(np.int64)), suffix="u"),
        "score": _numbers(output.scores),
    }


def checksum(membranes: tuple[Tensor, ...]) -> np.ndarray[tuple[int, ...], np.dtype[np.uint32]]:
    """Return for each sample what ``model_hash`` makes of all membranes, ``[T, B, n]`` a layer."""
    words = torch.cat(membranes, -1).numpy().astype(np.int32).view(np.uint32)  # [T, B, n]
    hashes = np.full(words.shape[1], HASH_START, np.uint32)
    for step in words:
        for word in step.T:
            hashes = (hashes ^ word) * HASH_FACTOR
    return hashes


def _numbers(values: Tensor, suffix: str = "") -> str:
    """Return the inside of an initializer: a row of the last axis in braces, if there are several."""
    if values.dim() == 1:
        text = ", ".join(f"{value}{suffix}" for value in values.tolist())
        return textwrap.fill(text, 110, initial_indent="    ", subsequent_indent="    ")
    return ",\n".join(f"    {{\n{_numbers(row)}\n    }}" for row in values)


def _lines(indent: int, lines: Iterable[str]) -> str:
    return "\n".join(" " * indent + line for line in lines)
