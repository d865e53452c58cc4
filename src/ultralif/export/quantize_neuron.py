"""Neurons turned into integers: constants in units of the membrane, tables of log-sum-exp."""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ultralif.errors import InputError
from ultralif.export.graph import Node
from ultralif.export.integer_neuron import (
    After,
    Coupling,
    Decay,
    IntegerNeuron,
    Multiply,
    Offset,
    Shifts,
    Table,
)
from ultralif.functional import Constant, Mode
from ultralif.nn import LIF, DSpike, SoftLIF, UltraDLIF, UltraDPLIF, UltraLIF
from ultralif.nn.network import AnyNeuron

__all__ = [
    "TABLE_REACH",
    "LeakBy",
    "Wanted",
    "each",
    "halvings",
    "has_table",
    "integer_neuron",
    "table",
    "table_error",
    "whole",
]

LeakBy = Literal["multiply", "shift"]
TABLE_REACH = 8  # tables end at this many eps: what they drop, log(1 + e^-8), is below 0.0004 eps


@dataclass(frozen=True)
class Wanted:
    """The choices of `ultralif.export.quantize`, whose docstring describes them."""

    mode: Mode
    timesteps: int
    bits: Literal[16, 32]
    saturate: bool
    leak: LeakBy
    table_bits: int
    weight_bits: Literal[8, 16]

    def __post_init__(self) -> None:
        """Check them."""
        if self.mode not in ("hard", "tropical"):
            raise InputError(f"mode must be hard or tropical to run in integers, got {self.mode!r}")
        if not 1 <= self.timesteps <= 1_000_000:
            raise InputError(f"timesteps must be in 1..1000000, got {self.timesteps}")
        if self.bits not in (16, 32):
            raise InputError(f"bits must be 16 or 32, got {self.bits}")
        if self.weight_bits not in (8, 16):
            raise InputError(f"weight_bits must be 8 or 16, got {self.weight_bits}")
        if self.leak not in ("multiply", "shift"):
            raise InputError(f"leak must be multiply or shift, got {self.leak!r}")
        if not 3 <= self.table_bits <= 10:
            raise InputError(f"table_bits must be in 3..10, got {self.table_bits}")


def has_table(neuron: AnyNeuron, mode: Mode) -> bool:
    """Tell whether a neuron's membrane is a log-sum-exp."""
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
    """Round to int64. Numbers beyond every range stay beyond it, and are found when ranges are checked."""
    return x.round().clamp(-(2.0**40), 2.0**40).long()


def integer_neuron(node: Node, neuron: AnyNeuron, wanted: Wanted, unit: Tensor) -> IntegerNeuron:
    """Return a layer of neurons in integers.

    Args:
        node: their node in the graph.
        neuron: the neurons.
        wanted: the choices of `quantize`.
        unit: unit of the membranes, ``[channels]`` or ``[1]``.
    """
    unit = unit.view(-1, *[1] * (len(node.shape) - 1))
    coupling, decay = _form(node, neuron, wanted, unit)
    made = None
    if has_table(neuron, wanted.mode):
        made = table(
            max(1, round(float((each(neuron.eps, node.shape) / unit).flatten()[0]))), wanted.table_bits
        )
    return IntegerNeuron(
        coupling,
        # A whole number exceeds theta / unit exactly when it exceeds its floor.
        threshold=whole((each(neuron.threshold, node.shape) / unit).floor()),
        reset=whole(each(_level(neuron), node.shape) / unit),
        decay=decay,
        table=made,
        axis=getattr(neuron, "coupled_axis", -1),
        floor=1 - (1 << (wanted.bits - 1)) if wanted.saturate else None,
        after=_after(neuron),
    )


def _level(neuron: AnyNeuron) -> Constant:
    """Return the membrane after a spike, or the greatest that is kept."""
    return neuron.v_sat if isinstance(neuron, UltraLIF) and neuron.reset == "saturate" else neuron.v_reset


def _after(neuron: AnyNeuron) -> After:
    return neuron.reset if isinstance(neuron, UltraLIF) and neuron.reset != "subtract" else "zero"


def _form(node: Node, neuron: AnyNeuron, wanted: Wanted, unit: Tensor) -> tuple[Coupling, Decay | None]:
    """Return the coupling and the decay of a membrane, or raise an error that says why it has none."""
    name = f"layer {node.name!r}"
    if "synapse" in neuron.declared():
        raise InputError(f"{name} has a synaptic current (synapse=), which has no integer form; leave it out")
    usual = {"delayed_reset": False, "reset": "zero", "coupling": "membrane"}
    for option, value in (usual | {"neighborhood": "ring"}).items():
        found = getattr(neuron, option, value)
        if (
            option == "reset"
            and _after(neuron) == found
            and (found != "saturate" or wanted.mode == "tropical")
        ):
            continue
        if found != value:
            raise InputError(
                f"{name} has {option}={found!r}, which has no integer form; train with {value!r}"
            )
    offset = (
        Offset(whole(each(neuron.leak, node.shape).log() / unit)) if "leak" in neuron.declared() else None
    )
    if isinstance(neuron, UltraDLIF):
        if not isinstance(neuron, UltraDPLIF):
            return "ring", None
        if neuron.leak_form == "factor":
            return "ring", _factor(name, node, neuron, wanted)
        if neuron.leak_form == "shift":
            return "ring", offset
    if isinstance(neuron, UltraLIF):
        return "max", offset
    if isinstance(neuron, LIF | DSpike | SoftLIF):
        return "add", _factor(name, node, neuron, wanted)
    raise InputError(
        f"{name} has {type(neuron).__name__} neurons, which have no integer form; choose "
        "UltraLIF, UltraDLIF, LIF, PLIF or FullPLIF"
    )


def _factor(name: str, node: Node, neuron: AnyNeuron, wanted: Wanted) -> Decay:
    leak = each(neuron.leak, node.shape)
    if wanted.leak == "multiply":
        return Multiply(whole(leak * (1 << 15)))
    if bool((leak != leak.flatten()[0]).any()):
        raise InputError(f"{name} has a leak for each neuron; choose leak='multiply' for it")
    return halvings(float(leak.flatten()[0]))


def table(resolution: int, bits: int) -> Table:
    r"""Tabulate :math:`\epsilon \log(1 + e^{-d/\epsilon})` for distances d of up to 8 eps.

    Args:
        resolution: membrane units in one eps.
        bits: the table has 2^bits entries or up to twice as many, each the middle of the distances it
            serves.
    """
    exact = resolution * TABLE_REACH / 2**bits
    width = 1 << max(0, math.floor(math.log2(exact)))  # distances that share an entry
    middle = torch.arange(math.ceil(resolution * TABLE_REACH / width), dtype=torch.float64) * width
    entries = whole(resolution * torch.log1p(torch.exp(-(middle + (width - 1) / 2) / resolution)))
    return Table(entries, shift=width.bit_length() - 1)


def table_error(table: Table, resolution: int) -> float:
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
