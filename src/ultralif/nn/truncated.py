"""Truncated backpropagation: states pass from one piece of a sequence to the next, gradients do not."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from ultralif.errors import InputError
from ultralif.nn.delays import DelayedLinear
from ultralif.nn.integrator import LeakyIntegrator
from ultralif.nn.neuron import Neuron
from ultralif.nn.recurrent import Recurrent

__all__ = ["carried", "stateful_layers", "truncated"]


@contextmanager
def truncated(net: nn.Module) -> Iterator[None]:
    """Let every call of a network continue where the last one ended, inside a ``with`` block.

    States are cut off from their past between calls, so that each piece of a long sequence is trained in
    the memory of that piece: truncated backpropagation through time. The block starts at rest.

    Args:
        net: any module. Our neurons, `LeakyIntegrator`, `Recurrent` and `DelayedLinear` keep their states.

    Example:
        >>> import torch
        >>> from ultralif.nn import UltraLIF
        >>> net = nn.Sequential(nn.Linear(8, 4), UltraLIF())
        >>> with truncated(net):
        ...     for piece in torch.rand(1000, 2, 8).split(50):
        ...         net(piece).mean().backward()
    """
    layers = stateful_layers(net)
    with carried(layers, [None] * len(layers), _detached):
        yield


def stateful_layers(net: nn.Module) -> list[nn.Module]:
    """Return the outermost modules of a network that have a state."""
    layers = list(_remembering(net))
    if not layers:
        raise InputError(
            f"net is a {type(net).__name__} without ultralif neurons, so it has no state to keep; pass the "
            "whole network"
        )
    return layers


@contextmanager
def carried(
    layers: Sequence[Any], states: list[Any], keep: Callable[[Any], Any] = lambda state: state
) -> Iterator[None]:
    """Let each call of a layer begin with its entry of ``states``, and leave the next state there."""
    hooks = []
    for i, layer in enumerate(layers):
        layer.forward = _carrying(i, layer, states, keep)
        hooks.append(layer.register_forward_hook(_seen))
    try:
        yield
    finally:
        for layer, hook in zip(layers, hooks, strict=True):
            del layer.forward
            hook.remove()


def _remembering(module: nn.Module) -> Iterator[nn.Module]:
    """Yield the outermost modules that have a state."""
    if isinstance(module, Neuron | Recurrent | DelayedLinear | LeakyIntegrator):
        yield module
        return
    for child in module.children():
        yield from _remembering(child)


def _carrying(
    i: int, layer: Any, states: list[Any], keep: Callable[[Any], Any]
) -> Callable[[Tensor], Tensor]:
    def forward(x: Tensor) -> Tensor:
        out: Tensor
        out, state = layer.run(x, states[i])
        states[i] = keep(state)
        return out

    return forward


def _seen(module: nn.Module, given: Any, out: Any) -> None:
    """Do nothing. With a hook, a neuron is called as a module even where only its mean spikes are needed."""


def _detached(state: Any) -> Any:
    if isinstance(state, Tensor):
        return state.detach()
    return type(state)(*map(_detached, state))
