"""Turn a trained network into integers, with a proof that no number can overflow."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, cast

import torch
from torch import Tensor, nn

from ultralif.errors import InputError
from ultralif.export import bounds
from ultralif.export.integer import (
    Coupling,
    Decay,
    IntegerLayer,
    IntegerNetwork,
    IntegerNeuron,
    Multiply,
    Offset,
    Shifts,
    Table,
)
from ultralif.functional import Constant, Mode
from ultralif.nn import LIF, DSpike, Network, SoftLIF, UltraDLIF, UltraDPLIF, UltraLIF
from ultralif.nn.network import AnyNeuron

__all__ = ["LeakBy", "halvings", "quantize", "table", "table_error"]

LeakBy = Literal["multiply", "shift"]

WEIGHT_MAX = 127
TABLE_REACH = 8  # tables end at this many eps: what they drop, log(1 + e^-8), is below 0.0004 eps
FLOOR = 16  # a membrane that saturates should do so no nearer to rest than this many thresholds
FINEST = 8  # a membrane's unit is at most 2^8 times finer than a weight's, or than a table's step


@dataclass(frozen=True)
class _Request:
    """How `quantize` was asked to do its work; its docstring describes the fields."""

    mode: Mode
    timesteps: int
    bits: Literal[16, 32]
    saturate: bool
    leak: LeakBy
    table_bits: int

    def __post_init__(self) -> None:
        if self.mode not in ("hard", "tropical"):
            raise InputError(f"mode must be hard or tropical to run in integers, got {self.mode!r}")
        if not 1 <= self.timesteps <= 1_000_000:
            raise InputError(f"timesteps must lie in 1..1000000, got {self.timesteps}")
        if self.bits not in (16, 32):
            raise InputError(f"bits must be 16 or 32, got {self.bits}")
        if self.leak not in ("multiply", "shift"):
            raise InputError(f"leak must be multiply or shift, got {self.leak!r}")
        if not 3 <= self.table_bits <= 10:
            raise InputError(f"table_bits must lie in 3..10, got {self.table_bits}")


def quantize(
    net: Network,
    *,
    mode: Mode = "hard",
    timesteps: int = 100,
    input_max: int = 1,
    max_events: int | None = None,
    bits: Literal[16, 32] = 32,
    saturate: bool = False,
    leak: LeakBy = "multiply",
    table_bits: int = 8,
) -> IntegerNetwork:
    """Return a network of int8 weights and int16 or int32 membranes that spikes like ``net``.

    Every neuron has its own weight scale. Membranes are counted in the finest unit for which the worst
    case that weights and input range allow still fits; if none does, an `InputError` says by how much.

    Args:
        net: a trained network.
        mode: ``hard``, log-sum-exp membranes by table, or ``tropical``, maxima.
        timesteps: the longest sequence between two resets.
        input_max: the largest event count of an input in one time step; 1 for binary spikes.
        max_events: the most events of all inputs together in one time step; None: each at its largest.
        bits: of a membrane.
        saturate: let a membrane stop at its lowest number, where the worst case would fall below.
        leak: how a leak factor acts: ``multiply`` by a 15-bit fraction, or ``shift``, up to three halvings.
        table_bits: the table of a log-sum-exp has 2^table_bits entries.
    """
    request = _Request(mode, timesteps, bits, saturate, leak, table_bits)
    events = net.sizes[0] * input_max if max_events is None else max_events
    if not 1 <= events < 1 << 31:
        raise InputError(
            f"input_max={input_max} and max_events={max_events} allow {events} events in a time step; allow "
            "1 to 2^31 - 1"
        )
    neurons: list[AnyNeuron | None] = [neuron for _, neuron in net.layers()]
    neurons += [None] * (len(net.linears) - len(neurons))
    layers = []
    for number, (linear, neuron) in enumerate(zip(net.linears, neurons, strict=True), 1):
        source = _Source(f"layer {number}", cast(nn.Linear, linear), neuron)
        layers.append(_finest(source, request, events if number == 1 else None))
    return IntegerNetwork(tuple(layers), timesteps, events, bits)


def table(resolution: int, bits: int) -> Table:
    r"""Tabulate :math:`\epsilon \log(1 + e^{-d/\epsilon})` for distances d of up to 8 eps.

    Args:
        resolution: membrane units in one eps, a power of two of at least 2^bits / 8.
        bits: the table has 2^bits entries, each the middle of the distances it serves.
    """
    width = resolution * TABLE_REACH >> bits  # distances that share an entry
    middle = torch.arange(2**bits, dtype=torch.float64) * width + (width - 1) / 2
    entries = _whole(resolution * torch.log1p(torch.exp(-middle / resolution)))
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


@dataclass(frozen=True)
class _Source:
    """A layer of the network that is quantized."""

    name: str
    linear: nn.Linear
    neuron: AnyNeuron | None

    def each(self, constant: Constant) -> Tensor:
        """Return a constant of the layer as float64 ``[n]``."""
        value = torch.as_tensor(constant).detach().double().cpu()
        return value.expand(self.linear.out_features).contiguous()

    def weight(self) -> Tensor:
        """Return the weights as float64 ``[n, inputs]``, known to be finite."""
        weight = self.linear.weight.detach().double().cpu()
        if not bool(torch.isfinite(weight).all() and torch.isfinite(self.bias()).all()):
            raise InputError(f"{self.name} has weights that are not finite, so they fit no integer range")
        return weight

    def bias(self) -> Tensor:
        return self.each(0.0 if self.linear.bias is None else self.linear.bias)

    def has_table(self, mode: Mode) -> bool:
        return mode == "hard" and isinstance(self.neuron, UltraLIF | UltraDLIF)


def _finest(source: _Source, request: _Request, events: int | None) -> IntegerLayer:
    """Return the layer in the finest unit that fits."""
    complaint = ""
    for unit, shift in _units(source, request):
        layer = _layer(source, request, unit, shift)
        complaint = _overflow(layer, request, events)
        if not complaint:
            return layer
    raise InputError(f"{source.name} {complaint}")


def _units(source: _Source, request: _Request) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield membrane units, float64 ``[n]``, and the shifts from weights to them, the finest first.

    Neurons that are compared with each other, or share a table, need one unit, so weight scales are that
    unit times powers of two. A neuron whose weights are all tiny is counted at 1/256 of the largest scale.
    """
    scale = source.weight().abs().amax(1) / WEIGHT_MAX
    largest = float(scale.max()) or 1.0
    scale = scale.clamp(min=largest / 256)
    compared = source.neuron is None or isinstance(source.neuron, UltraDLIF)
    coarsest = torch.full_like(scale, largest) if compared else scale
    if source.neuron is not None and source.has_table(request.mode):
        coarsest = source.each(source.neuron.eps) / (2**request.table_bits // TABLE_REACH)
        if compared and bool((coarsest != coarsest[0]).any()):
            raise InputError(
                f"{source.name} couples neurons of different eps, which no one table serves; train one eps "
                "a layer, or choose mode='tropical'"
            )
    finest = FINEST
    if request.saturate and source.neuron is not None:
        room = 2 ** (request.bits - 1) / FLOOR * coarsest / source.each(source.neuron.threshold)
        finest = max(0, min(FINEST, math.floor(math.log2(float(room.min())))))
    for fraction in range(finest, -1, -1):
        unit = coarsest / 2**fraction
        yield unit, (scale / unit).log2().ceil().clamp(min=0).long()


def _layer(source: _Source, request: _Request, unit: Tensor, shift: Tensor) -> IntegerLayer:
    weight = _whole(source.weight() / (unit * 2.0**shift)[:, None]).to(torch.int8)
    bias, neuron = source.bias(), None
    if source.neuron is not None:
        neuron = _neuron(source, source.neuron, request, unit)
        if neuron.table is not None and getattr(source.neuron, "centered", False):
            bias = bias - source.each(source.neuron.eps) * math.log(3)
    return IntegerLayer(weight, shift, _whole(bias / unit), unit, neuron)


def _neuron(source: _Source, neuron: AnyNeuron, request: _Request, unit: Tensor) -> IntegerNeuron:
    if getattr(neuron, "delayed_reset", False):
        raise InputError(f"{source.name} has delayed_reset=True, which has no integer form")
    decay: Decay | None = None
    coupling: Coupling = "add"
    if isinstance(neuron, UltraDLIF):
        coupling = "ring"
        if isinstance(neuron, UltraDPLIF):
            offset = neuron.leak_form == "shift"
            decay = _offset(source, neuron, unit) if offset else _factor(source, neuron, request)
    elif isinstance(neuron, UltraLIF):
        coupling = "max"
        decay = _offset(source, neuron, unit)
    elif isinstance(neuron, LIF | DSpike | SoftLIF):
        decay = _factor(source, neuron, request)
    else:
        raise InputError(
            f"{source.name} has {type(neuron).__name__} neurons, which have no integer form; choose "
            "UltraLIF, UltraDLIF, LIF, PLIF or FullPLIF"
        )
    resolution = round(float(source.each(neuron.eps)[0] / unit[0])) if source.has_table(request.mode) else 0
    return IntegerNeuron(
        coupling,
        # A whole number exceeds theta / unit exactly when it exceeds its floor.
        threshold=(source.each(neuron.threshold) / unit).floor().long(),
        reset=_whole(source.each(neuron.v_reset) / unit),
        decay=decay,
        table=table(resolution, request.table_bits) if resolution else None,
        floor=1 - (1 << (request.bits - 1)) if request.saturate else None,
    )


def _offset(source: _Source, neuron: AnyNeuron, unit: Tensor) -> Offset:
    return Offset(_whole(source.each(neuron.leak).log() / unit))


def _factor(source: _Source, neuron: AnyNeuron, request: _Request) -> Decay:
    leak = source.each(neuron.leak)
    if request.leak == "multiply":
        return Multiply(_whole(leak * (1 << 15)))
    if bool((leak != leak[0]).any()):
        raise InputError(f"{source.name} has a leak for each neuron; choose leak='multiply' for it")
    return halvings(float(leak[0]))


def _overflow(layer: IntegerLayer, request: _Request, events: int | None) -> str:
    """Say what does not fit, or nothing."""
    total = bounds.sums(layer.weight, events)
    current = bounds.currents(layer, total)
    wide = [total, current]
    if layer.neuron is None:
        wide.append(current.times(request.timesteps))
    else:
        before, after = bounds.membranes(layer.neuron, current, request.timesteps)
        wide.append(before)
        constants = bounds.Range(
            torch.minimum(layer.neuron.threshold, layer.neuron.reset),
            torch.maximum(layer.neuron.threshold, layer.neuron.reset),
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


def _whole(x: Tensor) -> Tensor:
    """Round to int64; what is out of all ranges stays so, and is found by `_overflow`."""
    return x.round().clamp(-(2.0**40), 2.0**40).long()
