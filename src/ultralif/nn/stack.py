"""`Stack`: many networks computed as one, so that members with the same batch share every kernel.

A member computes what it computes alone; the stack only lays parameters side by side. The first layers of all
members are one matrix product, neurons of one kind are one call of their operator, and the constants of all
neurons are one vector. Members may also read different batches, such as those of different seeds: the
products, the readout and the loss are still shared.
"""

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, cast

import torch
from torch import Tensor, nn

from ultralif.errors import InputError
from ultralif.functional import Mode
from ultralif.nn.network import Network, Output
from ultralif.nn.neuron import Neuron
from ultralif.nn.parameters import LOG, SOFTPLUS, bounded

__all__ = ["Stack"]

AnyNeuron = Neuron[Any]


class Stack(nn.Module):
    """Networks of one shape, computed together: ``[T, B, *input]`` to scores ``[M, B, classes]``.

    Args:
        networks: the members, in any order: see `order`.
        eps_speeds: for each member a factor of the speed at which Adam moves its temperature.
        readers: for each member the number of the batch that it reads; as many read each. None: all read one.

    Example:
        >>> stack = Stack([Network((4, 8, 2), "UltraLIF"), Network((4, 8, 2), "LIF")])
        >>> stack(torch.rand(3, 5, 4)).logits.shape
        torch.Size([2, 5, 2])
    """

    def __init__(
        self,
        networks: Sequence[Network],
        eps_speeds: Sequence[float] | None = None,
        readers: Sequence[int] | None = None,
    ) -> None:
        super().__init__()
        _check(networks)
        batch = [0] * len(networks) if readers is None else list(readers)
        self.batches = max(batch) + 1
        if any(batch.count(number) * self.batches != len(networks) for number in range(self.batches)):
            raise InputError(f"readers must name each batch from 0 equally often, got {batch}")
        kinds = [_kind(cast(AnyNeuron, network.neurons[0])) for network in networks]
        self.order = sorted(range(len(networks)), key=lambda i: (batch[i], kinds.index(kinds[i])))
        """The network at each place, sorted by the batch that it reads, then by its kind."""
        self.members = [networks[i] for i in self.order]
        self.sizes, self.readout = networks[0].sizes, networks[0].readout
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        for linears in zip(*(member.linears for member in self.members), strict=True):
            self.weights.append(torch.stack([cast(nn.Linear, linear).weight.detach() for linear in linears]))
            self.biases.append(torch.stack([cast(nn.Linear, linear).bias.detach() for linear in linears]))
        speeds = [1.0] * len(networks) if eps_speeds is None else [eps_speeds[i] for i in self.order]
        self.neurons = nn.ModuleList(
            _StackedNeurons(
                [cast(AnyNeuron, member.neurons[layer]) for member in self.members], speeds, self.batches
            )
            for layer in range(len(networks[0].neurons))
        ).to(self.weights[0].dtype)

    def __len__(self) -> int:
        return len(self.members)

    draws = False
    """A forward pass draws no random numbers."""

    def forward(self, x: Tensor, mode: Mode | None = None, *, by_step: bool = False) -> Output:
        """Return the scores ``[M, B, classes]`` and for each spiking layer the rates ``[B, M, neurons]``.

        Args:
            x: ``[T, B, *input]``, or one such for each batch.
            mode: what `ultralif.set_mode` would set; None, the modes that the members had when stacked.
            by_step: return the scores of each step too, ``[T, M, B, classes]``.
        """
        signal, rates = x, []
        for layer, neurons in enumerate(self.neurons):
            last = layer == len(self.neurons) - 1
            currents = self._current(signal, layer) if layer else self._first_currents(x)
            signal = neurons(currents, mode, rate=last and not by_step)
            rates.append(signal if last and not by_step else signal.mean(0))
        scores = torch.stack([self._read_out(s) for s in signal]) if by_step else None
        return Output(self._read_out(rates[-1]), tuple(rates), scores)

    def _read_out(self, spikes: Tensor) -> Tensor:
        """Return the scores ``[M, B, classes]`` for the spikes ``[B, M, N]`` of the last layer."""
        out = spikes.transpose(0, 1)
        if self.readout == "linear":
            out = torch.baddbmm(self.biases[-1].unsqueeze(1), out, self.weights[-1].mT)
        return out

    def _first_currents(self, x: Tensor) -> Sequence[Tensor]:
        """Return the currents ``[T, B, M, N]`` of the first layer for the readers of each batch."""
        weight, bias = self.weights[0], self.biases[0]
        if self.batches == 1:
            flat = nn.functional.linear(x.flatten(2), weight.flatten(0, 1), bias.flatten())
            return [flat.view(*x.shape[:2], *bias.shape)]
        batches, time, batch = x.shape[:3]
        flat = torch.baddbmm(
            bias.view(batches, 1, -1),
            x.reshape(batches, time * batch, -1),
            weight.view(batches, -1, weight.shape[2]).mT,
        )
        return flat.view(batches, time, batch, -1, bias.shape[1]).unbind()

    def _current(self, signal: Tensor, layer: int) -> Sequence[Tensor]:
        """Return the currents ``[T, B, M, N]`` of a further layer."""
        weight, bias = self.weights[layer], self.biases[layer]
        time, batch, members, _ = signal.shape
        by_member = signal.permute(2, 0, 1, 3).reshape(members, time * batch, -1)
        current = torch.baddbmm(bias.unsqueeze(1), by_member, weight.mT)
        return [current.view(members, time, batch, -1).permute(1, 2, 0, 3).contiguous()]

    def spread(self, of_batches: Tensor) -> Tensor:
        """Return for each member what its batch has: labels ``[B]`` or ``[batches, B]`` to ``[M, B]``.

        Labels may be probabilities, with an axis for the classes at the end.
        """
        shape = of_batches.shape[-2:] if of_batches.is_floating_point() else of_batches.shape[-1:]
        by_batch = of_batches.reshape(self.batches, 1, *shape)
        return by_batch.expand(-1, len(self) // self.batches, *shape).reshape(len(self), *shape)

    def hidden_rate(self, rates: Sequence[Tensor]) -> Tensor:
        """Return the mean spike of the hidden neurons, ``[M]``, from the rates of all spiking layers."""
        hidden = [rate.flatten(2) for rate in rates[: len(self.sizes) - 2]]
        return (hidden[0] if len(hidden) == 1 else torch.cat(hidden, 2)).mean((0, 2))

    def first_weights(self) -> Sequence[Tensor]:
        """Return the weights of each member's first layer."""
        return list(self.weights[0])

    def role(self, name: str) -> Literal["weight", "eps", "other"]:
        """Return the role of a parameter: only weights decay; `eps_speeds` is built into the temperatures."""
        return "weight" if name.startswith("weights.") else "other"

    def modes(self, place: int) -> tuple[Mode, ...]:
        """Return the modes of the neurons of the member at a place."""
        return next(self.members[place].layers())[1].modes

    def constants(self, name: str) -> list[Tensor | None]:
        """Return a constant of the first spiking layer for each place, or None for neurons without it."""
        return cast(_StackedNeurons, self.neurons[0]).by_member(name)

    def assign(self, name: str, place: int, value: float) -> None:
        """Give a constant that is not learned another value, in all layers of the member at a place."""
        for neurons in self.neurons:
            cast(_StackedNeurons, neurons).assign(name, place, value)

    def is_finite(self) -> Tensor:
        """Tell for each place whether all parameters there are finite, ``[M]``."""
        parts = [torch.isfinite(p).flatten(1).all(1).cpu() for p in (*self.weights, *self.biases)]
        parts += [cast(_StackedNeurons, neurons).is_finite() for neurons in self.neurons]
        return torch.stack(parts).all(0)

    def copy_member(self, place: int, source: Mapping[str, Tensor], target: Mapping[str, Tensor]) -> None:
        """Copy the parameters at one place from one ``state_dict`` of the stack into another."""
        for layer in range(len(self.weights)):
            for name in (f"weights.{layer}", f"biases.{layer}"):
                target[name][place] = source[name][place]
        for layer, neurons in enumerate(self.neurons):
            name = f"neurons.{layer}.raw"
            cast(_StackedNeurons, neurons).copy_member(place, source[name], target[name])

    @torch.no_grad()
    def unstack(self) -> list[Network]:
        """Write all parameters back to the networks that were stacked, and return these in their order."""
        for place, member in enumerate(self.members):
            for linear, weight, bias in zip(member.linears, self.weights, self.biases, strict=True):
                cast(nn.Linear, linear).weight.copy_(weight[place])
                cast(nn.Linear, linear).bias.copy_(bias[place])
        for neurons in self.neurons:
            cast(_StackedNeurons, neurons).write_back()
        restored = dict(zip(self.order, self.members, strict=True))
        return [restored[i] for i in range(len(restored))]


class _Entry(NamedTuple):
    """Position of one neuron's constant in the vector of all constants."""

    neuron: AnyNeuron
    name: str
    size: int


class _StackedNeurons(nn.Module):
    """One layer of neurons of every member; their constants are one vector, ``raw``, that is learned."""

    by_log: Tensor
    by_softplus: Tensor
    dead: Tensor
    is_learned: Tensor
    fixed: Tensor
    low: Tensor
    high: Tensor
    speed: Tensor

    def __init__(self, neurons: list[AnyNeuron], eps_speeds: list[float], batches: int) -> None:
        super().__init__()
        self.members = neurons
        self.groups: list[list[AnyNeuron]] = []
        readers = len(neurons) // batches
        for place, neuron in enumerate(neurons):
            if place % readers == 0 or _kind(self.groups[-1][0]) != _kind(neuron):
                self.groups.append([])
            self.groups[-1].append(neuron)
        self.numbers = [_numbers(group) for group in self.groups]
        self.choices = [{name: getattr(group[0], name) for name in group[0].choices} for group in self.groups]
        speeds = dict(zip(map(id, neurons), eps_speeds, strict=True))
        self.entries = [
            _Entry(neuron, name, _size(neuron, name))
            for group in self.groups
            for name in group[0].declared()
            for neuron in group
        ]
        parts = [_describe(entry, speeds[id(entry.neuron)]) for entry in self.entries]
        raw, *buffers = (torch.cat(column) for column in zip(*parts, strict=True))
        self.raw = nn.Parameter(raw)
        self.assigned: dict[tuple[int, str], float] = {}
        for name, buffer in zip(_COLUMNS[1:], buffers, strict=True):
            self.register_buffer(name, buffer, persistent=False)
        self.any_softplus, self.any_dead = bool(self.by_softplus.any()), bool(self.dead.any())

    def values(self) -> Tensor:
        """Return all constants now."""
        raw = self.raw * self.speed
        value = torch.where(self.by_log, torch.exp(raw * self.by_log), torch.sigmoid(raw))
        if self.any_softplus:
            value = torch.where(self.by_softplus, nn.functional.softplus(raw), value)
        inside = bounded(value, self.low, self.high)
        if self.any_dead:
            inside = torch.where(self.dead, value.clamp(self.low, self.high), inside)
        return torch.where(self.is_learned, inside, self.fixed)

    def forward(self, currents: Sequence[Tensor], mode: Mode | None, rate: bool) -> Tensor:
        """Return the spikes ``[T, B, M, N]`` of all members, or their mean over time."""
        constants = iter(torch.split(self.values(), [n for group in self.groups for n in _sizes(group)]))
        spikes = []
        parts = self._parts(currents)
        for group, numbers, chosen, part in zip(self.groups, self.numbers, self.choices, parts, strict=True):
            one = group[0]
            given = {name: next(constants).view(len(group), -1) for name in one.declared()} | numbers
            choices = dict(chosen)
            if mode is not None and "mode" in choices:
                choices["mode"] = mode if mode in one.modes else "hard"
            spikes.append(type(one).integrate(part, None, rate, one.backend, **given, **choices)[0])
        return spikes[0] if len(spikes) == 1 else torch.cat(spikes, dim=1 if rate else 2)

    def _parts(self, currents: Sequence[Tensor]) -> Iterator[Tensor]:
        """Yield the current of each group; one that is given holds whole groups."""
        lengths = iter([len(group) for group in self.groups])
        for current in currents:
            inside: list[int] = []
            while sum(inside) < current.shape[2]:
                inside.append(next(lengths))
            yield from torch.split(current, inside, dim=2)

    def by_member(self, name: str) -> list[Tensor | None]:
        """Return one constant of each member, as it is now: parts of one copy in main memory."""
        values = self._split(self.values().detach().cpu())
        found = {id(entry.neuron): value for entry, value in values if entry.name == name}
        return [found.get(id(neuron)) for neuron in self.members]

    def is_finite(self) -> Tensor:
        """Tell for each member whether its constants are finite."""
        whole = dict.fromkeys(map(id, self.members), True)
        for entry, part in self._split(torch.isfinite(self.raw).cpu()):
            whole[id(entry.neuron)] &= bool(part.all())
        return torch.tensor([whole[id(neuron)] for neuron in self.members])

    def copy_member(self, place: int, source: Tensor, target: Tensor) -> None:
        """Copy the constants of a member from one vector of all into another."""
        for (entry, new), (_, old) in zip(self._split(source), self._split(target), strict=True):
            if entry.neuron is self.members[place]:
                old.copy_(new)

    def assign(self, name: str, place: int, value: float) -> None:
        """Give a fixed constant of a member another value."""
        neuron = self.members[place]
        for group, numbers in zip(self.groups, self.numbers, strict=True):
            if neuron in group:
                numbers.pop(name, None)
        for entry, fixed in self._split(self.fixed):
            if entry.neuron is neuron and entry.name == name:
                fixed.fill_(value)
                self.assigned[id(neuron), name] = value

    def write_back(self) -> None:
        """Copy the constants to the neurons themselves."""
        for entry, raw in self._split(self.raw * self.speed):
            learned = entry.neuron.learned(entry.name)
            if learned is not None:
                learned[2].copy_(raw.view_as(learned[2]))
            elif (id(entry.neuron), entry.name) in self.assigned:
                entry.neuron.assign(entry.name, self.assigned[id(entry.neuron), entry.name])

    def _split(self, vector: Tensor) -> Iterator[tuple[_Entry, Tensor]]:
        return zip(self.entries, torch.split(vector, [entry.size for entry in self.entries]), strict=True)


_COLUMNS = ("raw", "by_log", "by_softplus", "dead", "is_learned", "fixed", "low", "high", "speed")


def _describe(entry: _Entry, eps_speed: float) -> tuple[Tensor, ...]:
    """Return the entry's part of every column."""
    learned = entry.neuron.learned(entry.name)
    if learned is None:
        fixed = entry.neuron.constant(entry.name)
        columns: tuple[Any, ...] = (0.0, False, False, False, False, fixed, 0.0, math.inf, 1.0)
    else:
        form, bounds, raw = learned
        speed = eps_speed if entry.name == "eps" else 1.0
        by_log, by_softplus = form.prefix == LOG.prefix, form.prefix == SOFTPLUS.prefix
        dead = entry.neuron.clamp == "dead"
        low, high = bounds or (0.0, math.inf)
        start = raw.detach().double() / speed
        columns = (start, by_log, by_softplus, dead, True, 1.0, low, high, speed)
    kinds = (torch.bool if isinstance(column, bool) else torch.float64 for column in columns)
    parts = (torch.as_tensor(column, dtype=kind) for column, kind in zip(columns, kinds, strict=True))
    return tuple(part.reshape(-1).expand(entry.size) for part in parts)


def _size(neuron: AnyNeuron, name: str) -> int:
    learned = neuron.learned(name)
    value = neuron.constant(name) if learned is None else learned[2]
    return value.numel() if isinstance(value, Tensor) else 1


def _sizes(group: list[AnyNeuron]) -> list[int]:
    """Return how much of the vector each constant of a group takes."""
    return [sum(_size(neuron, name) for neuron in group) for name in group[0].declared()]


def _numbers(group: list[AnyNeuron]) -> dict[str, float]:
    """Return the constants that nobody in a group learns and that are one number for all."""
    values = {name: [neuron.constant(name) for neuron in group] for name in group[0].declared()}
    return {
        name: first
        for name, (first, *others) in values.items()
        if isinstance(first, float) and all(isinstance(x, float) and x == first for x in others)
    }


def _kind(neuron: AnyNeuron) -> Hashable:
    """Return what neurons must have in common to be integrated in one call."""
    choices = tuple(getattr(neuron, name) for name in neuron.choices)
    names = tuple((name, _size(neuron, name)) for name in neuron.declared())
    return type(neuron).operator, neuron.modes, neuron.backend, choices, names


def _check(networks: Sequence[Network]) -> None:
    if not networks:
        raise InputError("networks must hold at least one network, got none")
    shapes = {(network.sizes, network.readout) for network in networks}
    if len(shapes) > 1:
        raise InputError(
            f"networks must have one shape to be stacked, got {sorted(shapes)}; stack each by itself"
        )
    for network in networks:
        for _, neuron in network.layers():
            if not hasattr(neuron, "operator"):
                raise InputError(
                    f"{type(neuron).__name__} has no operator to be stacked with; derive it from "
                    "ultralif.Stepped"
                )
            if getattr(neuron, "time_constants", None) is not None:
                raise InputError(
                    f"{type(neuron).__name__} with time_constants cannot be stacked; train each "
                    "network by itself"
                )
