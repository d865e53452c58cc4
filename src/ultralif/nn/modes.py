"""Switch a whole network between soft, hard and tropical spikes, or into evaluation mode."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import get_args

from torch import Tensor, nn

from ultralif.errors import InputError, check_choice
from ultralif.functional import Mode
from ultralif.nn.neuron import Neuron

__all__ = ["evaluating", "mode", "set_mode"]


def set_mode(net: nn.Module, mode: Mode) -> None:
    """Put every neuron of a network into ``soft``, ``hard`` or ``tropical`` mode.

    A neuron that does not support the mode uses ``hard``, which every neuron supports.

    Example:
        >>> from ultralif.nn import UltraLIF
        >>> net = nn.Sequential(nn.Linear(4, 3), UltraLIF())
        >>> set_mode(net, "hard")
        >>> net[1].mode
        'hard'
    """
    check_choice("mode", mode, get_args(Mode))
    neurons = _neurons(net)
    if not neurons:
        raise InputError(
            f"net is a {type(net).__name__} without ultralif neurons, so it has no mode to set; pass the "
            "network that contains them"
        )
    for neuron in neurons:
        neuron.mode = mode if mode in neuron.modes else "hard"


@contextmanager
def mode(net: nn.Module, mode: Mode) -> Iterator[None]:
    """Set the mode of a network inside a ``with`` block; see `set_mode`.

    Example:
        >>> import torch
        >>> from ultralif.nn import UltraLIF
        >>> net = torch.nn.Sequential(torch.nn.Linear(4, 8), UltraLIF())
        >>> with mode(net, "hard"):
        ...     net(torch.rand(5, 2, 4)).unique().numel() <= 2
        True
        >>> net[1].mode
        'soft'
    """
    before = [(neuron, neuron.mode) for neuron in _neurons(net)]
    set_mode(net, mode)
    try:
        yield
    finally:
        for neuron, previous in before:
            neuron.mode = previous


def _neurons(net: nn.Module) -> list[Neuron[tuple[Tensor, ...]]]:
    return [module for module in net.modules() if isinstance(module, Neuron)]


@contextmanager
def evaluating(net: nn.Module) -> Iterator[None]:
    """Put a network into evaluation mode inside a ``with`` block."""
    training = [module for module in net.modules() if module.training]
    net.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True
