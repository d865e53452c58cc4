"""Layers that work with neurons: per-step modules, delays, feedback, and state kept between calls."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import conv1d

from ultralif.errors import InputError
from ultralif.nn.integrator import LeakyIntegrator
from ultralif.nn.neuron import Neuron
from ultralif.nn.pooling import pools_by_slices, window_maxima
from ultralif.ops.autograd import is_plain
from ultralif.ops.constants import bounded
from ultralif.ops.operators import is_tracing

__all__ = ["DelayedLinear", "Recurrent", "RecurrentState", "TimeDistributed", "step", "truncated"]

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
"""Layers that process each sample independently and draw no random numbers."""


class TimeDistributed(nn.Module):
    """Apply a module for batches ``[B, ...]`` to a sequence ``[T, B, ...]`` by folding time into the batch.

    Convolutions and pooling need it; `nn.Linear` does not, because it accepts any leading axes. The
    convolution of an image expanded over time, ``image.expand(T, *image.shape)``, is computed only once.

    Example:
        >>> conv = TimeDistributed(nn.Conv2d(1, 8, 3))
        >>> conv(torch.zeros(5, 2, 1, 28, 28)).shape
        torch.Size([5, 2, 8, 26, 26])
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: Tensor) -> Any:
        """Return ``[T, B, ...]`` for ``[T, B, ...]``; a tuple if the module returns one."""
        folded: Any
        if self._repeats(x):
            folded = torch.cat([self.module(x[0])] * len(x))  # callers may modify each copy
        else:
            folded = _apply(self.module, x.flatten(0, 1))
        if isinstance(folded, tuple):  # such as the maxima and their positions
            return tuple(each.reshape(*x.shape[:2], *each.shape[1:]) for each in folded)
        return folded.reshape(*x.shape[:2], *folded.shape[1:])

    def _repeats(self, x: Tensor) -> bool:
        """Return whether all steps share one image; False while tracing, as a trace must fit any input."""
        if type(self.module) not in CONVOLUTIONS or _must_be_called(self.module):
            return False
        return is_plain(x) and not is_tracing() and x.stride(0) == 0 and len(x) > 1


def is_watched(module: nn.Module) -> bool:
    """Return whether a module has hooks, which must run as usual."""
    return bool(module._forward_hooks or module._forward_pre_hooks)


def shown(neuron: nn.Module, current: Tensor, spikes: Tensor) -> Tensor:
    """Run the hooks of a neuron that ran step by step, as if it had been called on the whole sequence."""
    before = neuron.__dict__.get("forward")
    neuron.__dict__["forward"] = lambda current: spikes
    try:
        seen: Tensor = neuron(current)
    finally:
        del neuron.__dict__["forward"]
        if before is not None:
            neuron.__dict__["forward"] = before
    return seen


def _must_be_called(module: nn.Module) -> bool:
    """Return whether a module has hooks or a replaced forward, which must see every step."""
    hooks = is_watched(module) or module._backward_hooks or module._backward_pre_hooks
    return bool(hooks) or "forward" in vars(module)


def _apply(module: nn.Module, x: Tensor) -> Any:
    if _must_be_called(module):
        return module(x)
    if type(module) is nn.Sequential:
        for layer in module:
            x = _apply(layer, x)
        return x
    if isinstance(module, nn.MaxPool2d) and pools_by_slices(module, x):
        return window_maxima(x, module.kernel_size)
    return module(x)


class DelayedLinear(nn.Module):
    r"""A linear layer with a delay for every synapse.

    .. math:: y_o(t) = \sum_i w_{oi}\, x_i(t - d_{oi}) + b_o

    A delay may be fractional, from 0 to ``max_delay`` steps. Between two steps x is interpolated linearly, so
    the gradient with respect to the delay is exact: :math:`w\,(x^{(t-k-1)} - x^{(t-k)})` for a delay between
    k and k + 1. Before the first step x is 0. For hardware with integer delays, round them after training:
    ``layer.delay.data.round_()``.

    Args:
        inputs: number of input features.
        outputs: number of output features.
        max_delay: the longest delay, in steps.
        bias: add a bias.

    Example:
        >>> DelayedLinear(8, 4, max_delay=5)(torch.rand(20, 2, 8)).shape
        torch.Size([20, 2, 4])
    """

    def __init__(self, inputs: int, outputs: int, *, max_delay: int, bias: bool = True) -> None:
        super().__init__()
        if inputs < 1 or outputs < 1 or max_delay < 1:
            raise InputError(
                f"inputs, outputs and max_delay must be at least 1, got {inputs}, {outputs}, {max_delay}; "
                "without delays use nn.Linear"
            )
        self.inputs, self.outputs, self.max_delay = inputs, outputs, max_delay
        reach = 1 / math.sqrt(inputs)
        self.weight = nn.Parameter(torch.empty(outputs, inputs).uniform_(-reach, reach))
        self.delay = nn.Parameter(torch.empty(outputs, inputs).uniform_(0, max_delay))
        self.bias = nn.Parameter(torch.empty(outputs).uniform_(-reach, reach)) if bias else None

    @property
    def taps(self) -> Tensor:
        """The weight of every synapse at every integer delay, ``[outputs, inputs, max_delay + 1]``."""
        delay = bounded(self.delay, 0.0, float(self.max_delay))
        step = torch.arange(self.max_delay + 1, dtype=delay.dtype, device=delay.device)
        share = (1 - (delay.unsqueeze(-1) - step).abs()).clamp(min=0)
        return self.weight.unsqueeze(-1) * share

    def forward(self, x: Tensor) -> Tensor:
        """Return ``[T, B, outputs]`` for ``[T, B, inputs]``, with zero input before the first step."""
        return self.run(x)[0]

    def run(self, x: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return the output for ``[T, B, inputs]`` and the state to continue from: the last inputs."""
        if x.dim() != 3 or x.shape[-1] != self.inputs or not len(x):
            raise InputError(
                f"x must be [T, B, {self.inputs}] with at least one time step, got shape {tuple(x.shape)}; "
                "flatten its features"
            )
        past = x.new_zeros(self.max_delay, *x.shape[1:]) if state is None else state
        if past.shape != (self.max_delay, *x.shape[1:]):
            raise InputError(
                f"state has shape {tuple(past.shape)}, but must be {(self.max_delay, *x.shape[1:])}; pass "
                "state=None to start at rest"
            )
        signal = torch.cat([past, x])
        out = conv1d(signal.permute(1, 2, 0), self.taps.flip(-1), self.bias)
        return out.permute(2, 0, 1), signal[len(signal) - self.max_delay :]

    def step(self, x: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return the output for one time step ``[B, inputs]`` and the state to continue from."""
        out, state = self.run(x.unsqueeze(0), state)
        return out[0], state

    def extra_repr(self) -> str:
        """Show the sizes."""
        return f"{self.inputs}, {self.outputs}, max_delay={self.max_delay}, bias={self.bias is not None}"


class RecurrentState(NamedTuple):
    """The state of a recurrent layer between steps: the state of its neurons and their last spikes.

    Example:
        >>> import torch
        >>> from ultralif.nn import LIF
        >>> _, state = Recurrent(LIF(), nn.Linear(3, 3)).run(torch.rand(5, 2, 3))
        >>> state._fields
        ('neuron', 'spikes')
    """

    neuron: Any
    spikes: Tensor


class Recurrent(nn.Module):
    r"""Neurons with feedback: their input current is :math:`I^{(t)} + W s^{(t-1)} + b`.

    Gradients also flow through the feedback, and are exact if the spikes are soft. Time is a loop, because
    each step needs the spikes of the previous one.

    Args:
        neuron: any neuron.
        linear: the feedback, a module that preserves the shape ``[B, *features]``: ``nn.Linear(n, n)``,
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
                f"neuron must be an ultralif neuron, got {type(neuron).__name__}; pass the feedback second"
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
        driven, spikes = [], []
        for x in current.unbind(axis):
            drive, spike, state = self._advance(x, state)
            driven.append(drive)
            spikes.append(spike)
        if state is None:
            raise AssertionError("a sequence has at least one step")
        out = torch.stack(spikes, axis)
        return (shown(self.neuron, torch.stack(driven, axis), out) if is_watched(self.neuron) else out), state

    def step(self, x: Tensor, state: RecurrentState | None = None) -> tuple[Tensor, RecurrentState]:
        """Return the spike for one time step ``[B, *features]`` and the state to continue from."""
        return self._advance(x, state)[1:]

    def _advance(self, x: Tensor, state: RecurrentState | None) -> tuple[Tensor, Tensor, RecurrentState]:
        """Return the neuron's input current, its spike and the next state."""
        if state is None:
            state = RecurrentState(None, torch.zeros_like(x))
        back: Tensor = self.linear(state.spikes)
        if back.shape != x.shape:
            raise InputError(
                f"linear returned shape {tuple(back.shape)} for spikes {tuple(state.spikes.shape)}, but one "
                f"step of the current has {tuple(x.shape)}; the feedback must preserve the shape"
            )
        drive = x + back
        spike, inner = self.neuron.step(drive, state.neuron)
        return drive, spike, RecurrentState(inner, spike)


@contextmanager
def truncated(net: nn.Module) -> Iterator[None]:
    """Let every call of a network continue where the previous one ended, inside a ``with`` block.

    States are detached between calls, so training on a long sequence needs memory for only one piece at a
    time: truncated backpropagation through time. At the start of the block, the network is at rest.

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


def step(net: nn.Module, x: Tensor, state: tuple[Any, ...] | None = None) -> tuple[Tensor, tuple[Any, ...]]:
    """Advance a whole network by one time step and return its output and the state to continue from.

    The network itself stores no state. Gradients flow through the states.

    Args:
        net: any module over ``[T, B, *input]`` with our neurons.
        x: one time step, ``[B, *input]``.
        state: the state that the last call returned; None starts at rest.

    Example:
        >>> from ultralif.nn import UltraLIF
        >>> net, state = nn.Sequential(nn.Linear(8, 4), UltraLIF()), None
        >>> for x in torch.rand(10, 2, 8):
        ...     y, state = step(net, x, state)
        >>> y.shape
        torch.Size([2, 4])
    """
    layers = stateful_layers(net)
    if state is not None and len(state) != len(layers):
        raise InputError(
            f"state has {len(state)} parts, but the network has {len(layers)} stateful layers; pass the "
            "state that ul.step returned for this network, or None"
        )
    states = [None] * len(layers) if state is None else list(state)
    axis = 1 if any(getattr(layer, "batch_first", False) for layer in layers) else 0
    with carried(layers, states):
        out: Tensor = net(x.unsqueeze(axis))
    return (out if getattr(net, "averages", False) else out.select(axis, 0)), tuple(states)


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
    """Let each call of a layer start from its entry in ``states``, and store the next state there."""
    hooks = []
    before = [vars(layer).get("forward") for layer in layers]  # another tool may have replaced it
    for i, layer in enumerate(layers):
        layer.forward = _carrying(i, layer, states, keep)
        hooks.append(layer.register_forward_hook(_seen))
    try:
        yield
    finally:
        for layer, hook, forward in zip(layers, hooks, before, strict=True):
            del layer.forward
            if forward is not None:
                layer.forward = forward
            hook.remove()


def _remembering(module: nn.Module) -> Iterator[nn.Module]:
    """Yield the outermost modules that have a state."""
    if isinstance(module, Neuron | Recurrent | DelayedLinear | LeakyIntegrator) or (
        getattr(type(module), "keeps_state", False)
    ):
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
    """Do nothing: a neuron with a hook is called as a module, even if only its mean spikes are needed."""


def _detached(state: Any) -> Any:
    if isinstance(state, Tensor):
        return state.detach()
    return type(state)(*map(_detached, state))
