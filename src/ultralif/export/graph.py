"""Describe a network for export: the operations on one time step, in order.

`ultralif.export.trace.describe` builds a `Graph` from any module, and every export reads it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as torch_functional

from ultralif.errors import InputError
from ultralif.functional import Constant
from ultralif.nn import DelayedLinear, LeakyIntegrator
from ultralif.nn.modes import evaluating
from ultralif.nn.network import AnyNeuron

__all__ = [
    "Flatten",
    "Geometry",
    "Graph",
    "Input",
    "Last",
    "Leaky",
    "Node",
    "Norm",
    "Op",
    "PoolKind",
    "Pooling",
    "Spikes",
    "Sum",
    "Synapses",
    "evaluating",
    "norm_constants",
]

PoolKind = Literal["mean", "max"]


@dataclass(frozen=True)
class Input:
    """The input of the network."""


@dataclass(frozen=True)
class Geometry:
    """A convolution's settings, each for rows and columns."""

    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    groups: int


@dataclass(frozen=True)
class Synapses:
    """A linear map, optionally with delays, or a convolution, including any batch normalization after it."""

    module: nn.Linear | nn.Conv2d | DelayedLinear
    geometry: Geometry | None
    """None for a linear map."""
    norm: nn.BatchNorm1d | nn.BatchNorm2d | None = None

    @property
    def delay(self) -> Tensor | None:
        """The delay of each synapse in steps, ``[outputs, inputs]``."""
        return self.module.delay.detach().double().cpu() if isinstance(self.module, DelayedLinear) else None

    def __call__(self, x: Tensor) -> Tensor:
        """Return the currents for one time step ``[B, *features]``."""
        out: Tensor = self.module(x)
        return out if self.norm is None else torch.as_tensor(self.norm(out))

    @torch.no_grad()
    def folded(self) -> tuple[Tensor, Tensor]:
        """Return weight and bias in float64, with the normalization folded in."""
        weight = self.module.weight.detach().double().cpu()
        bias = weight.new_zeros(len(weight)) if self.module.bias is None else self.module.bias.double().cpu()
        if self.norm is None:
            return weight, bias
        scale, mean, shift = norm_constants(self.norm)
        return weight * scale.view(-1, *[1] * (weight.dim() - 1)), (bias - mean) * scale + shift

    @torch.no_grad()
    def move(self, shift: Tensor) -> None:
        """Add a number to the current of each output channel, in place."""
        if self.norm is not None:
            if self.norm.affine:
                self.norm.bias.add_(shift)
            else:
                scale, _, _ = norm_constants(self.norm)
                torch.as_tensor(self.norm.running_mean).sub_((shift / scale.to(shift)).to(shift))
        elif self.module.bias is None:
            self.module.bias = nn.Parameter(shift.to(self.module.weight))
        else:
            self.module.bias.add_(shift)


@dataclass(frozen=True)
class Norm:
    """A batch normalization that could not be folded into preceding synapses."""

    module: nn.BatchNorm1d | nn.BatchNorm2d


@dataclass(frozen=True)
class Pooling:
    """The mean or the maximum of windows, without padding."""

    kind: PoolKind
    size: tuple[int, int]
    stride: tuple[int, int]
    flipped: tuple[int, ...] = ()
    """Channels that use the minimum instead, because a normalization with a negative scale follows."""

    def __call__(self, x: Tensor) -> Tensor:
        """Pool ``[B, C, H, W]``."""
        if self.kind == "mean":
            return torch_functional.avg_pool2d(x, self.size, self.stride)
        high = torch.as_tensor(torch_functional.max_pool2d(x, self.size, self.stride))
        if not self.flipped:
            return high
        low = -torch.as_tensor(torch_functional.max_pool2d(-x, self.size, self.stride))
        # Avoid a tensor of signs: the scan in which torch.export traces a sequence cannot hold constants.
        chosen = ((low if i in self.flipped else high)[:, i : i + 1] for i in range(x.shape[1]))
        return torch.cat(list(chosen), 1)

    @property
    def count(self) -> int:
        """The number of values in a window."""
        return math.prod(self.size)

    @property
    def overlap(self) -> int:
        """The maximum number of windows that share a value."""
        return math.prod(-(-size // stride) for size, stride in zip(self.size, self.stride, strict=True))


@dataclass(frozen=True)
class Flatten:
    """Flattening of ``[C, H, W]`` into one axis."""


@dataclass(frozen=True)
class Sum:
    """The sum of two branches, as in a residual block."""


@dataclass(frozen=True)
class Leaky:
    """A decaying current: the input is added to ``leak`` times the previous current."""

    leak: Constant
    module: LeakyIntegrator | None = None
    """None for a neuron layer's synaptic current."""


@dataclass(frozen=True)
class Last:
    """The spikes of a later layer at the previous time step, which feedback reads."""

    of: int


@dataclass(frozen=True)
class Spikes:
    """A layer of neurons."""

    neuron: AnyNeuron


Op = Input | Synapses | Norm | Pooling | Flatten | Sum | Leaky | Last | Spikes


@dataclass(frozen=True)
class Node:
    """An operation, the nodes that it reads, and the shape of its output for one sample."""

    name: str
    op: Op
    inputs: tuple[int, ...]
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Graph:
    """A network's operations; the first is its input, the last its output."""

    nodes: tuple[Node, ...]

    @property
    def spiking(self) -> list[int]:
        """The positions of the neuron layers."""
        return [i for i, node in enumerate(self.nodes) if isinstance(node.op, Spikes)]

    @cached_property
    def is_count(self) -> tuple[bool, ...]:
        """For each node, whether it produces spikes or sums of spikes; the input counts as spikes."""
        counted: list[bool] = []
        for node in self.nodes:
            if isinstance(node.op, Input | Spikes | Last):
                counted.append(True)
            elif isinstance(node.op, Synapses | Norm | Leaky):
                counted.append(False)
            else:
                counted.append(all(counted[i] for i in node.inputs))
        return tuple(counted)

    @cached_property
    def near_input(self) -> frozenset[int]:
        """The nodes that pass on input values, rearranged or summed, and the synapses that read them."""
        found: set[int] = set()
        for place, node in enumerate(self.nodes):
            taken = [i for i in node.inputs if i in found and self.is_count[i]]
            if isinstance(node.op, Input) or (taken and not isinstance(node.op, Spikes)):
                found.add(place)
        return frozenset(found)

    def neuron(self, place: int) -> AnyNeuron:
        """Return the neurons of a spiking node."""
        op = self.nodes[place].op
        if not isinstance(op, Spikes):
            raise TypeError(f"node {place} is {type(op).__name__}, not Spikes")
        return op.neuron

    def sources(self, place: int) -> dict[int, int]:
        """Return the synapses whose currents a node sums, each with the number of values that it averages."""
        node = self.nodes[place]
        if isinstance(node.op, Synapses):
            return {place: 1}
        factor = node.op.count if isinstance(node.op, Pooling) and node.op.kind == "mean" else 1
        found: dict[int, int] = {}
        for i in node.inputs:
            if not self.is_count[i]:
                for source, inner in self.sources(i).items():
                    if found.setdefault(source, inner * factor) != inner * factor:
                        raise InputError(
                            f"{node.name!r} adds {self.nodes[source].name!r} to a mean of itself, which "
                            "cannot be exported"
                        )
        return found

    @cached_property
    def memory(self) -> list[tuple[int, str, tuple[int, ...]]]:
        """The states kept between time steps: the node, name and per-sample shape of each."""
        kept: list[tuple[int, str, tuple[int, ...]]] = []
        for place, node in enumerate(self.nodes):
            if isinstance(node.op, Spikes):
                kept += [(place, field, node.shape) for field in node.op.neuron.state_type._fields]
            elif isinstance(node.op, Leaky):
                kept.append((place, "current", node.shape))
            elif isinstance(node.op, Last):
                kept.append((place, "spikes", node.shape))
            elif isinstance(node.op, Synapses) and isinstance(node.op.module, DelayedLinear):
                kept.append((place, "inputs", (node.op.module.max_delay, node.op.module.inputs)))
        return kept

    def step(self, x: Tensor, states: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """Compute one time step ``[B, *input]`` with the network's own modules.

        Args:
            x: one time step.
            states: a tensor ``[B, *shape]`` for each entry of `memory`, zeros at rest.
        """
        values: list[Tensor] = []
        before, after = iter(states), []
        for node in self.nodes:
            taken = [values[i] for i in node.inputs]
            match node.op:
                case Input():
                    value = x if x.shape[1:] == node.shape else x.reshape(-1, *node.shape)
                case Synapses(module=DelayedLinear() as delayed):
                    recent = torch.cat([taken[0].unsqueeze(1), next(before)], 1)  # the newest first
                    value = torch.einsum("bki,oik->bo", recent, delayed.taps)
                    value = value if delayed.bias is None else value + delayed.bias
                    after.append(recent[:, :-1].clone())
                case Synapses() | Pooling():
                    value = node.op(*taken)
                case Norm():
                    value = node.op.module(*taken)
                case Flatten():
                    value = taken[0].flatten(1)
                case Sum():
                    value = taken[0] + taken[1]
                case Leaky():
                    value = node.op.leak * next(before) + taken[0]
                    after.append(value.clone())  # a scan may not return a tensor twice
                case Last():
                    value = next(before)
                    after.append(value)  # replaced below, when the spikes of this step are known
                case Spikes():
                    kind = node.op.neuron.state_type
                    state = kind(*(next(before) for _ in kind._fields))
                    value, state = node.op.neuron.step(taken[0], state)
                    after += state
            values.append(value)
        for i, (place, _, _) in enumerate(self.memory):
            op = self.nodes[place].op
            if isinstance(op, Last):
                after[i] = values[op.of]
        return values[-1], after


def norm_constants(norm: nn.BatchNorm1d | nn.BatchNorm2d) -> tuple[Tensor, Tensor, Tensor]:
    """Return a normalization's scale, mean and shift from its running statistics, in float64."""
    mean, variance = (torch.as_tensor(part).double().cpu() for part in (norm.running_mean, norm.running_var))
    scale, shift = torch.rsqrt(variance + norm.eps), torch.zeros_like(mean)
    if norm.affine:
        scale, shift = scale * norm.weight.detach().double().cpu(), norm.bias.detach().double().cpu()
    return scale, mean, shift
