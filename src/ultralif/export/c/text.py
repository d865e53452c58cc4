"""C text: templates, constant arrays and state fields."""

import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.resources import files
from string import Template

from torch import Tensor

__all__ = ["BYTES", "Array", "Field", "constant", "fill", "lines", "numbers"]

BYTES = {"int8_t": 1, "uint8_t": 1, "int16_t": 2, "uint16_t": 2, "int32_t": 4, "uint32_t": 4}


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
        suffix = "u" if self.kind == "uint32_t" else ""
        return f"static const {self.kind} {self.name}{size} = {{\n{numbers(self.values, suffix)}\n}};"


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
    """Fill in a template from this folder."""
    text = (files("ultralif.export.c") / template).read_text()
    return Template(text).substitute(facts)


def constant(name: str, place: int, values: Tensor, at: str) -> str:
    """Return a neuron's constant: a number if the whole layer shares it, or an entry of its array."""
    first = int(values.flatten()[0])
    return f"({first})" if bool((values == first).all()) else f"{name}_{place}[{at}]"


def numbers(values: Tensor, suffix: str = "") -> str:
    """Return the body of an initializer, with each row of the last axis in braces if there are several."""
    if values.dim() == 1:
        text = ", ".join(f"{value}{suffix}" for value in values.tolist())
        return textwrap.fill(text, 110, initial_indent="    ", subsequent_indent="    ")
    return ",\n".join(f"    {{\n{numbers(row, suffix)}\n    }}" for row in values)


def lines(indent: int, parts: Iterable[str]) -> str:
    """Join lines, each indented by ``indent`` spaces."""
    return "\n".join(" " * indent + part for part in parts)
