"""`StackedNeurons`: one layer of neurons of every member of a stack; their constants are one vector."""

import math
from collections.abc import Hashable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ultralif.functional import Mode
from ultralif.nn.neuron import Neuron
from ultralif.nn.parameters import LOG, SOFTPLUS, bounded

__all__ = ["StackedNeurons", "kind"]

AnyNeuron = Neuron[Any]


class _Entry(NamedTuple):
    """Position of one neuron's constant in the vector of all constants."""

    neuron: AnyNeuron
    name: str
    size: int


class StackedNeurons(nn.Module):
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
            if place % readers == 0 or kind(self.groups[-1][0]) != kind(neuron):
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


def kind(neuron: AnyNeuron) -> Hashable:
    """Return what neurons must have in common to be integrated in one call."""
    choices = tuple(getattr(neuron, name) for name in neuron.choices)
    names = tuple((name, _size(neuron, name)) for name in neuron.declared())
    return type(neuron).operator, neuron.modes, neuron.backend, choices, names
