"""`Stack`: many networks computed as one, so that members with the same batch share every kernel.

Each member computes the same result as it would alone; the stack only places parameters side by side. The
first layers of all members become one matrix product, and all neurons of one kind share an operator call. One
vector holds the constants of all neurons. Members may also read different batches, for example with different
seeds; the products, the readout and the loss are still shared.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from ultralif.errors import InputError
from ultralif.functional import Mode
from ultralif.nn.network import Network, Output
from ultralif.nn.neuron import Neuron
from ultralif.stack import streams
from ultralif.stack.neurons import StackedNeurons, kind

__all__ = ["Stack"]

AnyNeuron = Neuron[Any]


class Stack(nn.Module):
    """Networks of one shape, computed together: ``[T, B, *input]`` to scores ``[M, B, classes]``.

    Args:
        networks: the members, in any order: see `order`.
        eps_speeds: for each member, how many times faster Adam moves its temperature.
        readers: the index of the batch that each member reads; all batches need equally many readers. None:
            all members read the same batch.

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
            raise InputError(f"readers must contain each batch index from 0 equally often, got {batch}")
        kinds = [kind(cast(AnyNeuron, network.neurons[0])) for network in networks]
        self.order = sorted(range(len(networks)), key=lambda i: (batch[i], kinds.index(kinds[i])))
        """The indices of the networks, sorted by the batch that they read, then by kind."""
        self.members = [networks[i] for i in self.order]
        self.sizes, self.readout = networks[0].sizes, networks[0].readout
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        for linears in zip(*(member.linears for member in self.members), strict=True):
            self.weights.append(torch.stack([cast(nn.Linear, linear).weight.detach() for linear in linears]))
            self.biases.append(torch.stack([cast(nn.Linear, linear).bias.detach() for linear in linears]))
        speeds = [1.0] * len(networks) if eps_speeds is None else [eps_speeds[i] for i in self.order]
        self.neurons = nn.ModuleList(
            StackedNeurons(
                [cast(AnyNeuron, member.neurons[layer]) for member in self.members], speeds, self.batches
            )
            for layer in range(len(networks[0].neurons))
        ).to(self.weights[0].dtype)

    def __len__(self) -> int:
        return len(self.members)

    draws = False
    """A forward pass draws no random numbers."""

    def forward(self, x: Tensor, mode: Mode | None = None, *, by_step: bool = False) -> Output:
        """Return the scores ``[M, B, classes]`` and each spiking layer's rates ``[B, M, neurons]``.

        Args:
            x: ``[T, B, *input]``, or one such tensor for each batch.
            mode: the mode to run in; None means the modes of the members when they were stacked.
            by_step: also return the scores of each step, ``[T, M, B, classes]``.
        """
        rates, signal = self._run(x, mode, by_step)
        scores = torch.stack([self._read_out(s) for s in signal]) if by_step else None
        return Output(self._read_out(rates[-1]), rates, scores)

    def rates(self, x: Tensor, mode: Mode | None = None) -> tuple[Tensor, ...]:
        """Return the rates of each spiking layer, as `forward` does, without scores."""
        return self._run(x, mode, by_step=False)[0]

    def _run(self, x: Tensor, mode: Mode | None, by_step: bool) -> tuple[tuple[Tensor, ...], Tensor]:
        """Return the rates of each spiking layer, and with ``by_step`` the spikes of the last."""
        signal, rates = x, []
        for layer, neurons in enumerate(self.neurons):
            last = layer == len(self.neurons) - 1
            rate = last and not by_step
            with streams.side_by_side(x.device) as branch:
                currents = self._current(signal, layer) if layer else self._first_currents(x)
                with branch():  # in parallel with the product that computes the currents
                    prepared = cast(StackedNeurons, neurons).prepare(currents, mode, rate)
            signal = neurons(currents, mode, rate, prepared)
            rates.append(signal if last and not by_step else signal.mean(0))
        return tuple(rates), signal

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
            flat = streams.linear(x.flatten(2), weight.flatten(0, 1), bias.flatten())
            return [flat.view(*x.shape[:2], *bias.shape)]
        batches, time, batch = x.shape[:3]
        flat = torch.baddbmm(
            bias.view(batches, 1, -1),
            x.reshape(batches, time * batch, -1),
            weight.view(batches, -1, weight.shape[2]).mT,
        )
        return flat.view(batches, time, batch, -1, bias.shape[1]).unbind()

    def _current(self, signal: Tensor, layer: int) -> Sequence[Tensor]:
        """Return the currents ``[T, B, M, N]`` of a layer after the first."""
        weight, bias = self.weights[layer], self.biases[layer]
        time, batch, members, _ = signal.shape
        by_member = signal.permute(2, 0, 1, 3).reshape(members, time * batch, -1)
        current = torch.baddbmm(bias.unsqueeze(1), by_member, weight.mT)
        return [current.view(members, time, batch, -1).permute(1, 2, 0, 3).contiguous()]

    def spread(self, of_batches: Tensor) -> Tensor:
        """Expand labels ``[B]`` or ``[batches, B]`` to every member, ``[M, B]``.

        Labels may be probabilities, with an axis for the classes at the end.
        """
        shape = of_batches.shape[-2:] if of_batches.is_floating_point() else of_batches.shape[-1:]
        by_batch = of_batches.reshape(self.batches, 1, *shape)
        return by_batch.expand(-1, len(self) // self.batches, *shape).reshape(len(self), *shape)

    def hidden_rate(self, rates: Sequence[Tensor]) -> Tensor:
        """Return the mean spike of the hidden neurons, ``[M]``, from the rates of all spiking layers."""
        hidden = [rate.flatten(2) for rate in rates[: len(self.sizes) - 2]]
        return (hidden[0] if len(hidden) == 1 else torch.cat(hidden, 2)).mean((0, 2))

    def layer_rates(self, rates: Sequence[Tensor]) -> Tensor:
        """Return the mean spike of each hidden layer, ``[layers, M]``, from the rates of all layers."""
        return torch.stack([rate.mean((0, 2)) for rate in rates[: len(self.sizes) - 2]])

    def first_weights(self) -> Sequence[Tensor]:
        """Return the weights of each member's first layer."""
        return list(self.weights[0])

    def role(self, name: str) -> Literal["weight", "eps", "other"]:
        """Return a parameter's role: only weights decay; `eps_speeds` is built into the temperatures."""
        return "weight" if name.startswith("weights.") else "other"

    def modes(self, place: int) -> tuple[Mode, ...]:
        """Return the modes of a member's neurons."""
        return next(self.members[place].layers())[1].modes

    def constants(self, name: str) -> list[Tensor | None]:
        """Return a constant of each member's first spiking layer, or None for neurons without it."""
        return cast(StackedNeurons, self.neurons[0]).by_member(name)

    def assign(self, name: str, place: int, value: float) -> None:
        """Change a fixed constant in all layers of a member."""
        for neurons in self.neurons:
            cast(StackedNeurons, neurons).assign(name, place, value)

    def is_finite(self) -> Tensor:
        """Return whether all parameters of each member are finite, ``[M]``."""
        parts = [torch.isfinite(p).flatten(1).all(1).cpu() for p in (*self.weights, *self.biases)]
        parts += [cast(StackedNeurons, neurons).is_finite() for neurons in self.neurons]
        return torch.stack(parts).all(0)

    def copy_member(self, place: int, source: Mapping[str, Tensor], target: Mapping[str, Tensor]) -> None:
        """Copy the parameters of the member at ``place`` from one ``state_dict`` of the stack to another."""
        for layer in range(len(self.weights)):
            for name in (f"weights.{layer}", f"biases.{layer}"):
                target[name][place] = source[name][place]
        for layer, neurons in enumerate(self.neurons):
            name = f"neurons.{layer}.raw"
            cast(StackedNeurons, neurons).copy_member(place, source[name], target[name])

    @torch.no_grad()
    def unstack(self) -> list[Network]:
        """Write all parameters back to the networks, and return the networks in their original order."""
        for place, member in enumerate(self.members):
            for linear, weight, bias in zip(member.linears, self.weights, self.biases, strict=True):
                cast(nn.Linear, linear).weight.copy_(weight[place])
                cast(nn.Linear, linear).bias.copy_(bias[place])
        for neurons in self.neurons:
            cast(StackedNeurons, neurons).write_back()
        restored = dict(zip(self.order, self.members, strict=True))
        return [restored[i] for i in range(len(restored))]


def _check(networks: Sequence[Network]) -> None:
    if not networks:
        raise InputError("networks must contain at least one network, got none")
    shapes = {(network.sizes, network.readout) for network in networks}
    if len(shapes) > 1:
        raise InputError(
            f"stacked networks must all have the same shape, got {sorted(shapes)}; stack them separately"
        )
    for network in networks:
        for _, neuron in network.layers():
            if not hasattr(neuron, "operator"):
                raise InputError(
                    f"{type(neuron).__name__} has no operator, so it cannot be stacked; "
                    "subclass ultralif.Stepped"
                )
            if getattr(neuron, "time_constants", None) is not None:
                raise InputError(
                    f"{type(neuron).__name__} with time_constants cannot be stacked; train these "
                    "networks separately"
                )
