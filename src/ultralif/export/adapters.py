"""Use our neurons in other libraries' networks, following those libraries' conventions.

>>> from ultralif.nn import UltraLIF
>>> import torch
>>> cell = for_norse(UltraLIF())
>>> spike, state = cell(torch.zeros(2, 8))  # then cell(x, state)
"""

from importlib import import_module
from typing import Any, cast

from torch import Tensor, nn

from ultralif.errors import InputError, JobError
from ultralif.nn import Network
from ultralif.nn.network import AnyNeuron

__all__ = ["for_neurobench", "for_norse", "for_snntorch", "for_spikingjelly"]


def for_norse(neuron: AnyNeuron) -> nn.Module:
    """Return a cell ``(x, state=None) -> (spike, state)`` for one time step, as in ``SequentialState``.

    Example:
        >>> import torch
        >>> from ultralif.nn import LIF
        >>> spike, state = for_norse(LIF())(torch.rand(2, 3))
        >>> spike.shape
        torch.Size([2, 3])
    """
    return _NorseCell(_time_first(neuron))


def for_snntorch(neuron: AnyNeuron) -> nn.Module:
    """Return a cell ``(x, mem=None) -> (spk, mem)`` for one time step, with ``reset_mem()`` to start.

    Example:
        >>> import torch
        >>> from ultralif.nn import LIF
        >>> spk, mem = for_snntorch(LIF())(torch.rand(2, 3))
        >>> mem.shape
        torch.Size([2, 3])
    """
    if len(neuron.state_type._fields) > 1:
        raise InputError(
            f"{type(neuron).__name__} has more state than a membrane, which (spk, mem) cannot hold; use its "
            "step(x, state)"
        )
    return _SnnTorchCell(_time_first(neuron))


def for_spikingjelly(neuron: AnyNeuron, step_mode: str = "s") -> nn.Module:
    """Return a ``MemoryModule`` that keeps its state until ``functional.reset_net``.

    Args:
        neuron: any neuron.
        step_mode: ``s``, one time step per call, or ``m``, sequences ``[T, B, *features]``.

    Example:
        >>> import torch
        >>> from ultralif.nn import LIF
        >>> layer = for_spikingjelly(LIF(), step_mode="m")
        >>> layer(torch.rand(5, 2, 3)).shape
        torch.Size([5, 2, 3])
    """
    try:
        base: Any = import_module("spikingjelly.activation_based.base")
    except ImportError as error:
        raise JobError("this needs spikingjelly; install it with: pip install spikingjelly") from error
    methods = {"single_step_forward": _single_step, "multi_step_forward": _multi_step, "detach": _detach}
    module = type("SpikingJellyNeuron", (base.MemoryModule,), methods)()
    module.neuron = _time_first(neuron)
    module.step_mode = step_mode
    for name in neuron.state_type._fields:
        module.register_memory(name, None)
    return cast(nn.Module, module)


def for_neurobench(net: nn.Module) -> nn.Module:
    """Return a network over ``[B, T, *input]`` for NeuroBench, in which every connection receives spikes.

    A `Network` averages spikes before its readout, which the harness would count as multiplications; here
    the readout comes first. Any other module is called with ``[T, B, *input]``, and its output is averaged
    over time. Register ``ultralif.Neuron`` as an activation module.

    Example:
        >>> import torch
        >>> from ultralif.nn import Network
        >>> for_neurobench(Network((4, 8, 2), "LIF"))(torch.rand(3, 5, 4)).shape
        torch.Size([3, 2])
    """
    return _Judged(net)


def _time_first(neuron: AnyNeuron) -> AnyNeuron:
    if neuron.batch_first:
        raise InputError("batch_first=True does not work inside other libraries; leave it out")
    return neuron


class _NorseCell(nn.Module):
    def __init__(self, neuron: AnyNeuron) -> None:
        super().__init__()
        self.neuron = neuron

    def forward(self, x: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        return self.neuron.step(x, state)


class _SnnTorchCell(nn.Module):
    def __init__(self, neuron: AnyNeuron) -> None:
        super().__init__()
        self.neuron = neuron

    def forward(self, x: Tensor, mem: Tensor | None = None) -> tuple[Tensor, Tensor]:
        spk, state = self.neuron.step(x, None if mem is None else self.neuron.state_type(mem))
        return spk, state[0]

    def reset_mem(self) -> None:
        """Return None, which stands for a membrane at rest for any batch size."""


class _Judged(nn.Module):
    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        signal: Tensor = x.transpose(0, 1)
        if not isinstance(self.net, Network):
            signal = self.net(signal)
            return signal.mean(0)
        signal = signal.flatten(2)
        for linear, neuron in self.net.layers():
            signal = neuron(linear(signal))
        if self.net.readout == "linear":
            signal = self.net.linears[-1](signal)
        return signal.mean(0)


def _single_step(self: Any, x: Tensor) -> Tensor:
    return _remember(self, *self.neuron.step(x, _memory(self)))


def _multi_step(self: Any, x_seq: Tensor) -> Tensor:
    return _remember(self, *self.neuron.run(x_seq, _memory(self)))


def _detach(self: Any) -> None:
    """Detach the state from its history, but not in place, because it may be a view."""
    state = _memory(self)
    if state is not None:
        _remember(self, state[0], type(state)(*(tensor.detach() for tensor in state)))


def _memory(module: Any) -> Any:
    """Return the state of a SpikingJelly module; None at rest."""
    kind = module.neuron.state_type
    state = [getattr(module, name) for name in kind._fields]
    return None if state[0] is None else kind(*state)


def _remember(module: Any, spikes: Tensor, state: Any) -> Tensor:
    for name, tensor in state._asdict().items():
        setattr(module, name, tensor)
    return spikes
