"""`StackedNeurons`: one layer of neurons for all members of a stack, with their constants in one vector."""

import math
from collections.abc import Hashable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ultralif.functional import Mode
from ultralif.nn.neuron import Neuron
from ultralif.ops.autograd import runs_triton
from ultralif.ops.constants import Form, Learned, decode
from ultralif.stack.groups import KindGroup, Prepared, prepare_groups, run_groups

__all__ = ["StackedNeurons", "kind"]

AnyNeuron = Neuron[Any]
INVERTED = ("surrogate_slope",)
"""Constants that are passed to operators as their inverse."""


class _Entry(NamedTuple):
    """The position of a neuron's constant in the vector of all constants."""

    neuron: AnyNeuron
    name: str
    size: int


class StackedNeurons(nn.Module):
    """One layer of neurons for all members, with their constants in one learned vector, ``raw``."""

    rows: Tensor
    """For each constant: form, fixed number, low, high, inverse, speed, as kernels read them."""

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
        self.sizes = [n for group in self.groups for n in _sizes(group)]
        self.learned = [
            {name: any(neuron.learned(name) for neuron in group) for name in group[0].declared()}
            for group in self.groups
        ]
        self.can_be_fused = all(
            one.backend == "auto" and "synapse" not in one.declared() for one, *_ in self.groups
        )
        speeds = dict(zip(map(id, neurons), eps_speeds, strict=True))
        self.entries = [
            _Entry(neuron, name, _size(neuron, name))
            for group in self.groups
            for name in group[0].declared()
            for neuron in group
        ]
        parts = [_describe(entry, speeds[id(entry.neuron)]) for entry in self.entries]
        raw, rows = (torch.cat(part) for part in zip(*parts, strict=True))
        self.raw = nn.Parameter(raw)
        self.assigned: dict[tuple[int, str], float] = {}
        self.register_buffer("rows", rows, persistent=False)
        self.forms = [form for form in Form if bool((rows[:, 0] == form).any())]

    def values(self) -> Tensor:
        """Return the current values of all constants."""
        form, number, low, high, _, speed = self.rows.unbind(1)
        return torch.where(form != 0, decode(self.raw * speed, form, low, high, self.forms), number)

    def prepare(self, currents: Sequence[Tensor], mode: Mode | None, rate: bool) -> list[Prepared | None]:
        """Choose kernels for each current without reading its values; None where none is suitable."""
        return [self._prepare(*share, mode, rate) for share in self._shares(currents)]

    def forward(
        self,
        currents: Sequence[Tensor],
        mode: Mode | None,
        rate: bool,
        prepared: Sequence[Prepared | None] | None = None,
    ) -> Tensor:
        """Return the spikes ``[T, B, M, N]`` of all members, or their mean over time."""
        prepared = self.prepare(currents, mode, rate) if prepared is None else prepared
        spikes: list[Tensor] = []
        values: list[dict[str, Tensor]] = []
        for (current, numbers), kernels in zip(self._shares(currents), prepared, strict=True):
            if kernels is not None:  # a single call, without copies
                spikes.append(run_groups(current, kernels, rate))
                continue
            values = values or self._by_group(self.values())
            parts = torch.split(current, [len(self.groups[n]) for n in numbers], dim=2)
            for n, part in zip(numbers, parts, strict=True):
                one = self.groups[n][0]
                given = {name: v.view(len(self.groups[n]), -1) for name, v in values[n].items()}
                given |= self.numbers[n] | self._chosen(n, mode)
                spikes.append(type(one).integrate(part, None, rate, one.backend, **given)[0])
        return spikes[0] if len(spikes) == 1 else torch.cat(spikes, dim=1 if rate else 2)

    def _prepare(self, current: Tensor, numbers: list[int], mode: Mode | None, rate: bool) -> Prepared | None:
        if not self.can_be_fused or not runs_triton(current):
            return None
        raws, rows = self._by_group(self.raw), self._by_group(self.rows)
        groups = []
        for n in numbers:
            size = len(self.groups[n])
            given: dict[str, Any] = {
                name: Learned(
                    (raw if self.learned[n][name] else raw.detach()).view(size, -1),
                    Form.VALUE,
                    rows=rows[n][name],
                )
                for name, raw in raws[n].items()
            }
            given |= self.numbers[n] | self._chosen(n, mode)
            groups.append(KindGroup(type(self.groups[n][0]).operator, size, given))
        return prepare_groups(current, self.raw, self.rows, groups, rate)

    def _by_group(self, vector: Tensor) -> list[dict[str, Tensor]]:
        """Return each group's part of a vector of all constants, by name."""
        parts = iter(torch.split(vector, self.sizes))
        return [{name: next(parts) for name in group[0].declared()} for group in self.groups]

    def _chosen(self, n: int, mode: Mode | None) -> dict[str, Any]:
        """Return a group's choices; a mode that it does not support becomes ``hard``."""
        choices = dict(self.choices[n])
        if mode is not None and "mode" in choices:
            choices["mode"] = mode if mode in self.groups[n][0].modes else "hard"
        return choices

    def _shares(self, currents: Sequence[Tensor]) -> Iterator[tuple[Tensor, list[int]]]:
        """Yield each current with the indices of its groups; no group is split."""
        numbers = iter(range(len(self.groups)))
        for current in currents:
            inside: list[int] = []
            while sum(len(self.groups[n]) for n in inside) < current.shape[2]:
                inside.append(next(numbers))
            yield current, inside

    def by_member(self, name: str) -> list[Tensor | None]:
        """Return the current value of one constant for each member, as views of one copy on the CPU."""
        values = self._split(self.values().detach().cpu())
        found = {id(entry.neuron): value for entry, value in values if entry.name == name}
        return [found.get(id(neuron)) for neuron in self.members]

    def is_finite(self) -> Tensor:
        """Return whether each member's constants are finite."""
        whole = dict.fromkeys(map(id, self.members), True)
        for entry, part in self._split(torch.isfinite(self.raw).cpu()):
            whole[id(entry.neuron)] &= bool(part.all())
        return torch.tensor([whole[id(neuron)] for neuron in self.members])

    def copy_member(self, place: int, source: Tensor, target: Tensor) -> None:
        """Copy the constants of a member from one vector of all constants to another."""
        for (entry, new), (_, old) in zip(self._split(source), self._split(target), strict=True):
            if entry.neuron is self.members[place]:
                old.copy_(new)

    def assign(self, name: str, place: int, value: float) -> None:
        """Change a fixed constant of a member."""
        neuron = self.members[place]
        for group, numbers in zip(self.groups, self.numbers, strict=True):
            if neuron in group:
                numbers.pop(name, None)
        for entry, row in self._split(self.rows):
            if entry.neuron is neuron and entry.name == name:
                row[:, 1] = value
                self.assigned[id(neuron), name] = value

    def write_back(self) -> None:
        """Copy the constants to the neurons themselves."""
        for entry, raw in self._split(self.raw * self.rows[:, 5]):
            learned = entry.neuron.learned(entry.name)
            if learned is not None:
                learned[2].copy_(raw.view_as(learned[2]))
            elif (id(entry.neuron), entry.name) in self.assigned:
                entry.neuron.assign(entry.name, self.assigned[id(entry.neuron), entry.name])

    def _split(self, vector: Tensor) -> Iterator[tuple[_Entry, Tensor]]:
        return zip(self.entries, torch.split(vector, [entry.size for entry in self.entries]), strict=True)


def _describe(entry: _Entry, eps_speed: float) -> tuple[Tensor, Tensor]:
    """Return the entry's part of the raw vector and of the rows that describe how to decode it."""
    learned = entry.neuron.learned(entry.name)
    inverse = float(entry.name in INVERTED)
    if learned is None:
        fixed = entry.neuron.constant(entry.name)
        raw, row = torch.zeros(1), (0.0, fixed, 0.0, math.inf, inverse, 1.0)
    else:
        form, bounds, raw = learned
        speed = eps_speed if entry.name == "eps" else 1.0
        low, high = bounds or (0.0, math.inf)
        raw = raw.detach().double() / speed
        row = (float(form), 1.0, low, high, inverse, speed)
    columns = [
        torch.as_tensor(column, dtype=torch.float64).reshape(-1).expand(entry.size) for column in (raw, *row)
    ]
    return columns[0], torch.stack(columns[1:], 1)


def _size(neuron: AnyNeuron, name: str) -> int:
    learned = neuron.learned(name)
    value = neuron.constant(name) if learned is None else learned[2]
    return value.numel() if isinstance(value, Tensor) else 1


def _sizes(group: list[AnyNeuron]) -> list[int]:
    """Return the number of entries that each of a group's constants occupies in the vector."""
    return [sum(_size(neuron, name) for neuron in group) for name in group[0].declared()]


def _numbers(group: list[AnyNeuron]) -> dict[str, float]:
    """Return a group's fixed constants that have the same value for all its members."""
    values = {name: [neuron.constant(name) for neuron in group] for name in group[0].declared()}
    return {
        name: first
        for name, (first, *others) in values.items()
        if isinstance(first, float) and all(isinstance(x, float) and x == first for x in others)
    }


def kind(neuron: AnyNeuron) -> Hashable:
    """Return the properties that neurons must share to be integrated in one call."""
    choices = tuple(getattr(neuron, name) for name in neuron.choices)
    names = tuple((name, _size(neuron, name)) for name in neuron.declared())
    return type(neuron).operator, neuron.modes, neuron.backend, choices, names
