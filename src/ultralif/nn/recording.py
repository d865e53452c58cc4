"""Recordings: spikes and membranes of a network's layers at every step, for plots and comparisons."""

from itertools import chain
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ultralif.errors import InputError
from ultralif.functional import Constant
from ultralif.nn.network import Network
from ultralif.nn.neuron import Neuron

__all__ = ["Recording", "record"]


class Recording(NamedTuple):
    """Spikes and membranes of one spiking layer at every step.

    Example:
        >>> from ultralif.nn import LIF
        >>> (shown,) = record(LIF(), torch.rand(5, 1, 4))
        >>> shown.membrane.shape, shown.threshold
        (torch.Size([5, 1, 4]), 0.5)
    """

    spikes: Tensor
    """``[T, B, *features]``"""
    membrane: Tensor
    """Membranes after the reset, in the same shape."""
    threshold: Constant


@torch.no_grad()
def record(net: nn.Module, x: Tensor) -> list[Recording]:
    """Return a recording of each spiking layer, in the order in which the layers are called.

    Args:
        net: a network, a neuron, or any module that calls neurons.
        x: its input, ``[T, B, *input]``.

    Example:
        >>> from ultralif.nn import Network
        >>> (hidden,) = record(Network((4, 8, 2)), torch.rand(5, 1, 4))
        >>> hidden.spikes.shape
        torch.Size([5, 1, 8])
    """
    if isinstance(net, Network):
        net, x = nn.Sequential(*chain(*net.layers())), x.flatten(2)
    currents: list[tuple[Neuron[Any], Tensor]] = []

    def keep(neuron: nn.Module, args: tuple[Tensor, ...], out: Tensor) -> None:
        assert isinstance(neuron, Neuron)  # noqa: S101 - only neurons are hooked
        currents.append((neuron, args[0].transpose(0, 1) if neuron.batch_first else args[0]))

    hooks = [m.register_forward_hook(keep) for m in net.modules() if isinstance(m, Neuron)]
    try:
        net(x)
    finally:
        for hook in hooks:
            hook.remove()
    if not currents:
        raise InputError(
            f"net is a {type(net).__name__} that calls no ultralif neurons, so there are no spikes to record"
        )
    return [_step_through(neuron, current) for neuron, current in currents]


def _step_through(neuron: Neuron[Any], current: Tensor) -> Recording:
    state, spikes, membranes = None, [], []
    for x in current:
        spike, state = neuron.step(x, state)
        spikes.append(spike)
        membranes.append(state[0])
    return Recording(torch.stack(spikes), torch.stack(membranes), neuron.threshold)
