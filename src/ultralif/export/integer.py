"""A simulator of quantized networks that uses only integers.

Exported C is compared with it, bit for bit.
"""

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import conv2d

from ultralif.errors import InputError
from ultralif.export.graph import Flatten, Geometry, Input, Last, Pooling, Sum

__all__ = [
    "IntegerLeaky",
    "IntegerNetwork",
    "IntegerNode",
    "IntegerOp",
    "IntegerOutput",
    "IntegerSynapses",
    "Levels",
    "earlier",
]

Coupling = Literal["add", "max", "ring"]
After = Literal["zero", "subtract", "none", "saturate"]

LEVEL_MAX = 127, 255  # signed and unsigned


@dataclass(frozen=True)
class Levels:
    """A real-valued input quantized to 8-bit levels, like those of an A/D converter."""

    step: float
    """The value of one level."""
    signed: bool
    """Whether levels range from -127 to 127 instead of from 0 to 255."""

    @classmethod
    def of(cls, low: float, high: float) -> "Levels":
        """Return the levels for values from ``low`` to ``high``."""
        largest = max(abs(low), abs(high))
        if not (low <= high and 0 < largest < math.inf):
            raise InputError(f"input_range must be finite numbers in ascending order, got ({low}, {high})")
        return cls(largest / LEVEL_MAX[low >= 0], low < 0)

    @property
    def low(self) -> int:
        """The least level."""
        return -LEVEL_MAX[0] if self.signed else 0

    @property
    def high(self) -> int:
        """The greatest level."""
        return LEVEL_MAX[not self.signed]

    def __call__(self, x: Tensor) -> Tensor:
        """Return the nearest levels; values out of range saturate."""
        return (x.double() / self.step).round().clamp(self.low, self.high).long()


@dataclass(frozen=True)
class IntegerSynapses:
    """A linear map or a convolution in 4, 8 or 16 bits."""

    weight: Tensor
    """int8 or int16 ``[outputs, inputs]`` or ``[outputs, inputs / groups, rows, columns]``; -7 to 7 in int8
    where the program packs two weights into a byte."""
    shift: Tensor
    """int64 ``[outputs]``: 2^shift (and a factor) converts a sum of weights to units."""
    bias: Tensor
    """int64 ``[outputs]``, in units."""
    unit: Tensor
    """float64 ``[outputs]``: the real value of the integer 1."""
    geometry: Geometry | None
    factor: Tensor | None = None
    """int64 ``[outputs]``, at most 2^15: the factor for the sums; None if units are powers of two."""
    delay: Tensor | None = None
    """int64 ``[outputs, inputs]``: the time steps after which an event arrives."""
    weight_bits: int = 8
    """Bits per weight in the program: 4, 8 or 16."""
    clipped: Tensor | None = None
    """int64, shaped like ``weight``: the scale steps that each weight lost to clipping; None if none did."""

    @property
    def grid(self) -> Tensor:
        """float64 ``[outputs]``: the real value of a weight of 1."""
        return self.unit * 2.0**self.shift * (1 if self.factor is None else self.factor)

    @property
    def slots(self) -> int:
        """The number of time steps for which sums are kept."""
        return 1 if self.delay is None else int(self.delay.max()) + 1

    @property
    def rounds(self) -> bool:
        """True if currents are rounded rather than only shifted to the left."""
        return self.factor is not None or bool((self.shift < 0).any())

    @property
    def scaling(self) -> str:
        """The function of the C program that shifts sums: all to the left, all to the right, or either."""
        if not self.rounds:
            return "up"
        return "lowered" if bool((self.shift < 0).all()) else "scaled"

    def sums(self, x: Tensor, weight: Tensor | None = None, steps: int = 1) -> Tensor:
        """Return the sums of these weights, or of other weights, for counts ``[N, *inputs]``.

        They stay far below 2^53, so float64 represents them exactly, and multiplies faster. With delays, x
        holds ``steps`` consecutive time steps, and the input before them is 0.
        """
        weight = (self.weight if weight is None else weight).double()
        if self.delay is not None:
            parts = (
                earlier(x.double(), steps, late) @ (weight * (self.delay == late)).mT
                for late in range(self.slots)
            )
            return torch.stack(list(parts)).sum(0).long()
        if self.geometry is None:
            return (x.double() @ weight.mT).long()
        g = self.geometry
        total: Tensor = conv2d(x.double(), weight, None, g.stride, g.padding, g.dilation, g.groups)
        return total.long()

    def __call__(self, x: Tensor, steps: int = 1) -> Tensor:
        """Return the current for counts ``[N, *inputs]``, in units."""
        total = self.sums(x, steps=steps)
        return self.currents(total.movedim(1, -1)).movedim(-1, 1)

    def currents(self, sums: Tensor) -> Tensor:
        """Return the currents, in units, for sums ``[..., outputs]``; a division is rounded to nearest."""
        sums = sums if self.factor is None else sums * self.factor
        up, down = self.shift.clamp(min=0), (-self.shift).clamp(min=0)
        return (((sums << up) + ((1 << down) >> 1)) >> down) + self.bias


@dataclass(frozen=True)
class Multiply:
    """A decay to ``v * factor / 2^15``, rounded to nearest."""

    factor: Tensor
    """int64, at most 2^15."""

    def __call__(self, v: Tensor) -> Tensor:
        """Return the decayed membrane."""
        return (v * self.factor + (1 << 14)) >> 15


@dataclass(frozen=True)
class Shifts:
    """A decay by added and subtracted right shifts, ``v - (v >> 3) + (v >> 5)``, without multiplication."""

    terms: tuple[tuple[int, int], ...]
    """Signs and distances: ``((-1, 3), (1, 5))``."""

    def __call__(self, v: Tensor) -> Tensor:
        """Return the decayed membrane."""
        return v + sum(sign * (v >> distance) for sign, distance in self.terms)


@dataclass(frozen=True)
class Offset:
    """A decay to ``v + amount``: the leak of max-plus algebra."""

    amount: Tensor
    """int64, negative."""

    def __call__(self, v: Tensor) -> Tensor:
        """Return the decayed membrane."""
        return v + self.amount


Decay = Multiply | Shifts | Offset


@dataclass(frozen=True)
class IntegerLeaky:
    """A decaying current, in the units of its input."""

    decay: Decay

    def over_time(self, current: Tensor, before: Tensor | None) -> Tensor:
        """Return the currents ``[T, B, *features]``, given the inputs and the current before them."""
        i = torch.zeros_like(current[0]) if before is None else before
        return torch.stack([i := self.decay(i) + x for x in current])


@dataclass(frozen=True)
class LogSumExpTable:
    r"""Excess of log-sum-exp over the maximum, :math:`\epsilon \log(1 + e^{-d/\epsilon})`, by distance d."""

    entries: Tensor
    """int64, decreasing; 0 beyond the last entry."""
    shift: int
    """Distance d is looked up at ``d >> shift``."""

    def __call__(self, distance: Tensor) -> Tensor:
        """Return the excess of log-sum-exp over the larger of two numbers that are this far apart."""
        index = distance >> self.shift
        last = len(self.entries) - 1
        return torch.where(index > last, 0, self.entries[index.clamp(max=last)])


@dataclass(frozen=True)
class IntegerNeuron:
    """A layer of neurons, with constants in the units of their membranes."""

    coupling: Coupling
    """``add``: decay(v) + I (LIF). ``max``: max(decay(v), I) (UltraLIF). ``ring``: the maximum of
    decay(v) over three neighbours, + I (UltraDLIF)."""
    threshold: Tensor
    """int64, ``[n]``, ``[C, 1, 1]`` or ``[C, H, W]``, like all constants; v > threshold is a spike."""
    reset: Tensor
    """int64: the membrane after a spike; for ``subtract`` the amount that a spike subtracts, for ``saturate``
    the greatest membrane."""
    decay: Decay | None
    table: LogSumExpTable | None
    """Turns each maximum into a log-sum-exp; None in tropical mode."""
    axis: int = -1
    """The axis of a ring."""
    floor: int | None = None
    """The lowest membrane; None if the membrane provably never falls that low."""
    after: After = "zero"
    """A spike sets the membrane to ``reset`` (``zero``), subtracts it (``subtract``) or does nothing
    (``none``); ``saturate`` clips the membrane at it."""
    delayed: bool = False
    """A spike resets the membrane one time step later, before the neuron fires again. A membrane above its
    threshold has just fired, so no other state is needed."""
    adapt: Decay | None = None
    """AdaLIF: the decay of the threshold's rise; None if the rise persists."""
    jump: Tensor | None = None
    """int64: the rise that a spike causes, two steps later."""

    def membrane(self, current: Tensor, v: Tensor) -> Tensor:
        """Return the membrane before its reset."""
        decayed = v if self.decay is None else self.decay(v)
        if self.coupling == "add":
            membrane = decayed + current
        elif self.coupling == "max":
            membrane = self._top(decayed, current)
        else:
            pair = self._top(decayed.roll(1, self.axis), decayed)
            membrane = self._top(pair, decayed.roll(-1, self.axis)) + current
        return membrane if self.floor is None else membrane.clamp(min=self.floor)

    def step(self, current: Tensor, v: Tensor, rise: Tensor | int = 0) -> tuple[Tensor, Tensor]:
        """Return the spikes, True or False, and the membrane after reset; ``rise`` raises the threshold."""
        membrane = self.membrane(current, v)
        if self.delayed:
            membrane = self.kept(membrane, v > self.threshold)
            membrane = membrane if self.floor is None else membrane.clamp(min=self.floor)
            return membrane > self.threshold, membrane
        spike = membrane > self.threshold + rise
        return spike, self.kept(membrane, spike, rise)

    def risen(self, rise: Tensor, spike: Tensor) -> Tensor:
        """Return the threshold's rise at the next time step, given the last spike."""
        return rise if self.adapt is None or self.jump is None else self.adapt(rise) + self.jump * spike

    def kept(self, membrane: Tensor, spike: Tensor, rise: Tensor | int = 0) -> Tensor:
        """Return the membrane after the reset."""
        if self.after == "zero":
            return torch.where(spike, self.reset, membrane)
        if self.after == "subtract":
            return torch.where(spike, membrane - (self.reset + rise), membrane)
        return membrane if self.after == "none" else torch.minimum(membrane, self.reset)

    def _top(self, a: Tensor, b: Tensor) -> Tensor:
        top = torch.maximum(a, b)
        return top if self.table is None else top + self.table((a - b).abs())


IntegerOp = Input | IntegerSynapses | Pooling | Flatten | Sum | IntegerLeaky | Last | IntegerNeuron


@dataclass(frozen=True)
class IntegerNode:
    """An operation in an integer network; average pooling is a sum in a correspondingly smaller unit."""

    name: str
    op: IntegerOp
    inputs: tuple[int, ...]
    shape: tuple[int, ...]
    sum_bits: int = 32
    """For synapses, the bits that hold every sum of weights."""
    graded: bool = False
    """Whether the node passes on input levels, or has synapses that multiply them."""


class IntegerOutput(NamedTuple):
    """The outputs of an integer network for a batch.

    Example:
        >>> import torch
        >>> from ultralif.export import quantize
        >>> from ultralif.nn import Network
        >>> output = quantize(Network((4, 8, 2)), timesteps=5).run((torch.rand(5, 3, 4) < 0.3).long())
        >>> output.scores.shape, output.spikes[0].shape
        (torch.Size([3, 2]), torch.Size([5, 3, 8]))
    """

    scores: Tensor
    """int64 ``[B, classes]``: sums over time, or spike counts for a spiking readout."""
    spikes: tuple[Tensor, ...]
    """Bool ``[T, B, *features]`` for each spiking layer."""
    membranes: tuple[Tensor, ...]
    """int64 ``[T, B, *features]`` for each spiking layer, after reset."""


@dataclass(frozen=True)
class IntegerNetwork:
    """An integer network, as returned by `ultralif.export.quantize`.

    Example:
        >>> from ultralif.export import quantize
        >>> from ultralif.nn import Network
        >>> quantize(Network((4, 8, 2)), timesteps=5).classes
        2
    """

    nodes: tuple[IntegerNode, ...]
    is_count: tuple[bool, ...]
    """For each node, whether it produces spikes or sums of spikes."""
    timesteps: int
    """The longest sequence for which no number can overflow."""
    max_events: int
    """The most input spikes in one time step for which no number can overflow."""
    bits: int
    """Bits per membrane."""
    levels: Levels | None = None
    """How real-valued inputs are converted to levels; None if inputs are event counts."""

    @property
    def inputs(self) -> int:
        """The number of inputs."""
        return math.prod(self.nodes[0].shape)

    @property
    def classes(self) -> int:
        """The number of scores."""
        return math.prod(self.nodes[-1].shape)

    @property
    def synapses(self) -> list[IntegerSynapses]:
        """All synapses, in order."""
        return [node.op for node in self.nodes if isinstance(node.op, IntegerSynapses)]

    @property
    def neurons(self) -> list[IntegerNeuron]:
        """All layers of neurons, in order."""
        return [node.op for node in self.nodes if isinstance(node.op, IntegerNeuron)]

    def __str__(self) -> str:
        """Return the shapes of input, neurons and output: ``1x28x28-8x14x14-10``."""
        last = len(self.nodes) - 1
        shown = [
            node.shape
            for i, node in enumerate(self.nodes)
            if i in (0, last) or isinstance(node.op, IntegerNeuron)
        ]
        return "-".join("x".join(map(str, shape)) for shape in shown)

    def run(self, x: Tensor) -> IntegerOutput:
        """Run inputs ``[T, B, *input]`` from rest: event counts, or real numbers to round to levels."""
        counts, (steps, batch) = self._check(x), x.shape[:2]
        feeds_back = any(isinstance(node.op, Last) for node in self.nodes)
        state: dict[int, Tensor] = {}
        pieces = counts.view(steps, batch, *self.nodes[0].shape).unbind(0) if feeds_back else [counts]
        parts = [self._run(piece, batch, state) for piece in pieces]
        scores = torch.stack([part.scores for part in parts]).sum(0)
        spikes, membranes = (
            tuple(torch.cat(layer) for layer in zip(*layers, strict=True))
            for layers in ([part.spikes for part in parts], [part.membranes for part in parts])
        )
        return IntegerOutput(scores, spikes, membranes)

    def _run(self, counts: Tensor, batch: int, state: dict[int, Tensor]) -> IntegerOutput:
        """Run counts ``[T * B, *input]`` from this state, and update it."""
        values: dict[int, Tensor] = {}
        spikes: list[Tensor] = []
        membranes: list[Tensor] = []
        last_use = {i: place for place, node in enumerate(self.nodes) for i in node.inputs}
        for place, node in enumerate(self.nodes):
            taken = [values[i] for i in node.inputs]
            if isinstance(node.op, IntegerNeuron):
                train, membrane, state[place] = _over_time(
                    node.op, taken[0].view(-1, batch, *node.shape), state.get(place)
                )
                spikes.append(train)
                membranes.append(membrane)
                values[place] = train.flatten(0, 1).long()
            elif isinstance(node.op, IntegerLeaky):
                currents = node.op.over_time(taken[0].view(-1, batch, *node.shape), state.get(place))
                state[place], values[place] = currents[-1], currents.flatten(0, 1)
            elif isinstance(node.op, Last):
                before = state.get(node.op.of)
                values[place] = counts.new_zeros(batch, *node.shape) if before is None else before[-1]
            elif isinstance(node.op, IntegerSynapses) and node.op.delay is not None:
                past = node.op.slots * batch
                given = torch.cat([state.get(place, taken[0].new_zeros(past, *taken[0].shape[1:])), taken[0]])
                values[place] = node.op(given, len(given) // batch)[past:]
                state[place] = given[len(given) - past :]
            else:
                values[place] = _apply(node.op, taken, counts)
            for i in node.inputs:
                if last_use[i] == place:
                    values.pop(i, None)
        scores = values[len(self.nodes) - 1].reshape(len(counts) // batch, batch, -1).sum(0)
        return IntegerOutput(scores, tuple(spikes), tuple(membranes))

    def additions(self, x: Tensor, output: IntegerOutput) -> int:
        """Count the weight additions: every event and every spike costs one per target.

        Every nonzero level costs the same, plus a multiplication. A constant input is counted once.
        """
        values: dict[int, Tensor] = {}
        counts, trains, total = self._check(x), iter(output.spikes), 0
        if self.levels is not None:
            levels = counts.view(*x.shape[:2], -1)
            fresh = torch.cat([levels[:1] == levels[:1], levels[1:] != levels[:-1]]).any(-1, keepdim=True)
            counts = ((levels != 0) & fresh).long().view_as(counts)
        for place, node in enumerate(self.nodes):
            taken = [values[i] for i in node.inputs if i in values]
            if isinstance(node.op, IntegerNeuron):
                values[place] = next(trains).flatten(0, 1).long()
            elif isinstance(node.op, Last):
                train = output.spikes[sum(isinstance(n.op, IntegerNeuron) for n in self.nodes[: node.op.of])]
                values[place] = earlier(train.flatten(0, 1).long(), len(x), 1)
            elif isinstance(node.op, IntegerSynapses):
                ones = torch.ones_like(node.op.weight)
                total += int(node.op.sums(taken[0], ones, len(x)).sum())
            elif self.is_count[place]:
                values[place] = _apply(node.op, taken, counts)
        return total

    def _check(self, x: Tensor) -> Tensor:
        """Return counts or levels ``[T * B, *input]``."""
        if x.dim() < 3 or math.prod(x.shape[2:]) != self.inputs:
            raise InputError(
                f"x must be [T, B, *input] with {self.inputs} values per sample, got shape {tuple(x.shape)}"
            )
        if len(x) > self.timesteps:
            raise InputError(
                f"x has {len(x)} time steps, but the network was quantized for {self.timesteps}; "
                f"quantize it again with timesteps={len(x)}"
            )
        if self.levels is not None:
            if x.numel() == 0 or not bool(torch.isfinite(x).all()):
                raise InputError("x must hold finite numbers")
            return self.levels(x).reshape(-1, *self.nodes[0].shape)
        counts = x.long()
        if counts.numel() == 0 or bool((counts != x).any()) or bool((counts < 0).any()):
            raise InputError(
                "x must hold event counts (integers of at least 0); encode it as spikes, or quantize with "
                "input_range for real numbers"
            )
        events = int(counts.flatten(2).clamp(max=1 << 31).sum(-1).max())
        if events > self.max_events:
            raise InputError(
                f"x has {events} events in a time step, but the network was quantized for at most "
                f"{self.max_events}; quantize it again with max_events={events}"
            )
        return counts.reshape(-1, *self.nodes[0].shape)


def _apply(op: IntegerOp, taken: list[Tensor], counts: Tensor) -> Tensor:
    """Return the output of a stateless operation for ``[N, *features]``."""
    match op:
        case Input():
            return counts
        case IntegerSynapses():
            return op(taken[0])
        case Flatten():
            return taken[0].flatten(1)
        case Sum():
            return taken[0] + taken[1]
        case Pooling(kind="max"):
            return op(taken[0].double()).long()
        case Pooling():
            ones = torch.ones(taken[0].shape[1], 1, *op.size, dtype=torch.float64)
            return torch.as_tensor(conv2d(taken[0].double(), ones, None, op.stride, groups=len(ones))).long()
    raise TypeError(f"{type(op).__name__} has memory")


def _over_time(
    neuron: IntegerNeuron, current: Tensor, before: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return spikes, membranes and the state: membrane, rise of the threshold, and last spike."""
    v, rise, spike = current.new_zeros(3, *current.shape[1:]) if before is None else before
    spikes, membranes = [], []
    for x in current:
        raised = neuron.risen(rise, spike)
        spike, v = neuron.step(x, v, rise)
        rise = raised
        spikes.append(spike)
        membranes.append(v)
    return torch.stack(spikes), torch.stack(membranes), torch.stack([v, rise, spike.long()])


def earlier(x: Tensor, steps: int, late: int) -> Tensor:
    """Return ``x``, of shape ``[T * B, ...]``, delayed by ``late`` time steps and padded with zeros."""
    late = min(late, steps) * (len(x) // steps)
    return torch.cat([torch.zeros_like(x[:late]), x[: len(x) - late]])
