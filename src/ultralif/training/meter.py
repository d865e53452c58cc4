"""Synaptic operations of members, counted while they are evaluated."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import pairwise
from typing import Protocol

import torch
from torch import Tensor, nn

from ultralif.functional import Mode
from ultralif.stack import Stack
from ultralif.training.energy import Operations, count_operations
from ultralif.training.members import Members
from ultralif.training.single import Single

__all__ = ["Meter", "make_meter"]


class Meter(Protocol):
    """Counts the operations per sample, averaged over all samples seen."""

    def read(self, x: Tensor, batch: int) -> None:
        """Take note of a batch of inputs."""
        ...

    def watching(self, mode: Mode) -> AbstractContextManager[None]:
        """Count the operations of what is computed inside."""
        ...

    def widths(self) -> list[int]:
        """Return the neurons of each hidden layer."""
        ...

    def synapses(self) -> int:
        """Return the multiplications of one time step."""
        ...

    def operations(self, place: int, mode: Mode, rates: list[float]) -> Operations:
        """Return the operations of a member; the rates are those of its hidden layers."""
        ...

    def by_layer(self, mode: Mode) -> dict[str, Operations]:
        """Return the operations of each layer, where they are known."""
        ...


def make_meter(members: Members, timesteps: int) -> Meter:
    """Return the meter for members: a module's layers are watched, a stack's follow from its sizes."""
    if isinstance(members, Single):
        return _Layers(members, timesteps)
    assert isinstance(members, Stack)  # noqa: S101 - there are no others
    return _Sizes(members, timesteps)


class _Sizes:
    """Multilayer perceptrons: operations follow from sizes, rates and the share of nonzero inputs."""

    def __init__(self, stack: Stack, timesteps: int) -> None:
        self.stack, self.timesteps = stack, timesteps
        self.nonzero, self.samples, self.binary = torch.zeros(stack.batches), 0, True

    def read(self, x: Tensor, batch: int) -> None:
        of_batch = x.reshape(self.stack.batches, -1)
        self.nonzero += of_batch.count_nonzero(1).cpu() / (of_batch.shape[1] // batch)
        self.samples += batch
        self.binary = self.binary and bool(((x == 0) | (x == 1)).all())

    def watching(self, mode: Mode) -> AbstractContextManager[None]:
        return nullcontext()

    def widths(self) -> list[int]:
        return list(self.stack.sizes[1:-1])

    def synapses(self) -> int:
        return sum(a * b for a, b in pairwise(self.stack.sizes))

    def operations(self, place: int, mode: Mode, rates: list[float]) -> Operations:
        density = float(self.nonzero[place * self.stack.batches // len(self.stack)]) / self.samples
        return count_operations(
            self.stack.sizes,
            self.timesteps,
            density,
            rates,
            input_binary=self.binary,
            binary=mode != "soft",
        )

    def by_layer(self, mode: Mode) -> dict[str, Operations]:
        return {}


class _Count:
    """Multiplications of a layer: all, those whose input is not zero, and whether inputs are 0 and 1."""

    def __init__(self) -> None:
        self.every, self.active, self.binary = 0, 0.0, True

    def add(self, layer: nn.Module, x: Tensor, out: Tensor) -> None:
        work = out.numel() * layer.get_parameter("weight")[0].numel()
        nonzero = x != 0
        self.every += work
        self.active += work * float(nonzero.double().mean())
        self.binary = self.binary and bool((x.masked_select(nonzero) == 1).all())

    def operations(self, samples: int) -> Operations:
        count = self.active / samples
        return Operations(0.0, count) if self.binary else Operations(count, 0.0)


class _Layers:
    """Any module: operations are counted from the inputs of its linear and convolutional layers."""

    def __init__(self, single: Single, timesteps: int) -> None:
        kinds = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
        self.layers = {name: part for name, part in single.net.named_modules() if isinstance(part, kinds)}
        self.single, self.timesteps, self.samples = single, timesteps, 0
        self.counts: dict[Mode, dict[str, _Count]] = {}

    def read(self, x: Tensor, batch: int) -> None:
        self.samples += batch

    @contextmanager
    def watching(self, mode: Mode) -> Iterator[None]:
        counts = self.counts.setdefault(mode, {name: _Count() for name in self.layers})
        hooks = [
            layer.register_forward_hook(lambda layer, given, out, n=name: counts[n].add(layer, given[0], out))
            for name, layer in self.layers.items()
        ]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def widths(self) -> list[int]:
        return self.single.seen_widths()

    def synapses(self) -> int:
        counts = next(iter(self.counts.values()), {})
        return sum(count.every for count in counts.values()) // max(1, self.samples * self.timesteps)

    def operations(self, place: int, mode: Mode, rates: list[float]) -> Operations:
        parts = self.by_layer(mode).values()
        return Operations(sum(part.macs for part in parts), sum(part.acs for part in parts))

    def by_layer(self, mode: Mode) -> dict[str, Operations]:
        return {name: count.operations(self.samples) for name, count in self.counts[mode].items()}
