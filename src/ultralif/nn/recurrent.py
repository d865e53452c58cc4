"""Recurrent layer: its own spikes of the previous step are fed back."""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ultralif.errors import InputError
from ultralif.nn.neuron import Neuron

__all__ = ["Recurrent", "RecurrentState"]


class RecurrentState(NamedTuple):
    """The state of a recurrent layer between steps: the state of its neurons and their last spikes."""

    neuron: Any
    spikes: Tensor


class Recurrent(nn.Module):
    r"""Neurons whose spikes come back one step later: :math:`I^{(t)} + W s^{(t-1)} + b` drives them.

    Gradients are those of the neuron, carried through the feedback: exact where its spikes are soft. Time is
    a loop, because each step needs the spikes of the one before.

    Args:
        neuron: any neuron.
        linear: the feedback, a module that keeps the shape of a step ``[B, *features]``: ``nn.Linear(n, n)``,
            or a convolution with padding.

    Example:
        >>> from ultralif.nn import UltraLIF
        >>> net = nn.Sequential(nn.Linear(8, 64), Recurrent(UltraLIF(), nn.Linear(64, 64)), nn.Linear(64, 3))
        >>> net(torch.rand(10, 2, 8)).shape
        torch.Size([10, 2, 3])
    """

    def __init__(self, neuron: Neuron[Any], linear: nn.Module) -> None:
        super().__init__()
        if not isinstance(neuron, Neuron):
            raise TypeError(
                f"neuron must be an ultralif neuron, got {type(neuron).__name__}; the feedback comes second"
            )
        self.neuron = neuron
        self.linear = linear

    def forward(self, current: Tensor) -> Tensor:
        """Return the spikes for a current ``[T, B, *features]``, from rest."""
        return self.run(current)[0]

    def run(self, current: Tensor, state: RecurrentState | None = None) -> tuple[Tensor, RecurrentState]:
        """Return the spikes for ``[T, B, *features]`` and the state to continue from."""
        axis = 1 if self.neuron.batch_first else 0
        if current.dim() < 3 or current.shape[axis] == 0:
            raise InputError(
                f"current must be [T, B, *features] with at least one time step, got shape "
                f"{tuple(current.shape)}; add the missing axes with unsqueeze"
            )
        spikes = []
        for x in current.unbind(axis):
            spike, state = self.step(x, state)
            spikes.append(spike)
        if state is None:
            raise AssertionError("a sequence has at least one step")
        return torch.stack(spikes, axis), state

    def step(self, x: Tensor, state: RecurrentState | None = None) -> tuple[Tensor, RecurrentState]:
        """Return the spike for one time step ``[B, *features]`` and the state to continue from."""
        if state is None:
            state = RecurrentState(None, torch.zeros_like(x))
        back: Tensor = self.linear(state.spikes)
        if back.shape != x.shape:
            raise InputError(
                f"linear gives {tuple(back.shape)} for spikes {tuple(state.spikes.shape)}, but a step of the "
                f"current has {tuple(x.shape)}; the feedback must keep the shape"
            )
        spike, inner = self.neuron.step(x + back, state.neuron)
        return spike, RecurrentState(inner, spike)
