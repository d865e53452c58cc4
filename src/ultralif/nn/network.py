"""Spiking multilayer perceptrons, as in the paper's experiments."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal, NamedTuple, cast, get_args

from torch import Tensor, nn

from ultralif.errors import InputError, check_choice
from ultralif.names import find_name
from ultralif.nn import baselines, ultra
from ultralif.nn.neuron import Neuron

__all__ = ["NEURONS", "Network", "Output", "Readout", "find_neuron", "register"]

Readout = Literal["linear", "spiking"]
AnyNeuron = Neuron[Any]

NEURONS: dict[str, type[AnyNeuron]] = {
    name: getattr(home, name) for home in (baselines, ultra) for name in home.__all__
}
"""All neuron classes by name."""
_BUILT_IN = dict(NEURONS)


def register(neuron: type[AnyNeuron]) -> type[AnyNeuron]:
    """Register your own neuron by name for networks and `ultralif.train`; usable as a decorator.

    Runs are identified by their neuron's name, so the names of the library's neurons are reserved.

    Example:
        >>> from ultralif.nn import LIF, find_neuron
        >>> @register
        ... class FastLIF(LIF):
        ...     pass
        >>> find_neuron("FastLIF") is FastLIF
        True
    """
    if _BUILT_IN.get(neuron.__name__, neuron) is not neuron:
        raise InputError(
            f"{neuron.__module__}.{neuron.__name__} has the same name as a built-in neuron, so their "
            "runs would be mixed up; rename your class"
        )
    NEURONS[neuron.__name__] = neuron
    return neuron


def find_neuron(name: str) -> type[AnyNeuron]:
    """Return the neuron class with that name; spellings such as ``ultra_lif`` and ``DSpike+`` are accepted.

    Example:
        >>> find_neuron("ultra_lif").__name__
        'UltraLIF'
    """
    return NEURONS[find_name("neuron", name, NEURONS)]


class Output(NamedTuple):
    """The output of a network: class scores, and how often each spiking layer fired.

    Example:
        >>> import torch
        >>> from ultralif.nn import Network
        >>> out = Network((4, 8, 2)).observe(torch.rand(5, 3, 4))
        >>> out.logits.shape, out.rates[0].shape
        (torch.Size([3, 2]), torch.Size([3, 8]))
    """

    logits: Tensor
    """``[B, classes]``"""
    rates: tuple[Tensor, ...]
    """The mean spike over time of each spiking layer, ``[B, neurons]``."""
    by_step: Tensor | None = None
    """The scores of each time step, ``[T, B, classes]``, if requested; `logits` is their mean."""


class Network(nn.Module):
    r"""A spiking multilayer perceptron over ``[T, B, *input]``, with class scores ``[B, classes]``.

    The linear readout is the paper's :math:`\hat y = \frac1T \sum_t W_{out} s^{(t)}` (appendix D.3); the
    spiking readout is the mean spike of a final layer of neurons (eq. 25).

    Args:
        sizes: inputs, neurons of each hidden layer, classes: ``(784, 64, 10)``.
        neuron: a neuron's name or class.
        neuron_options: its arguments; every layer gets its own neurons. With ``time_constants``, each neuron
            gets its own constants.
        readout: ``linear`` or ``spiking``.

    Example:
        >>> import torch
        >>> net = Network((784, 64, 10), neuron="UltraDLIF")
        >>> net(torch.rand(10, 32, 28, 28)).shape
        torch.Size([32, 10])
    """

    def __init__(
        self,
        sizes: Sequence[int],
        neuron: str | type[AnyNeuron] = "UltraLIF",
        neuron_options: Mapping[str, Any] | None = None,
        readout: Readout = "linear",
    ) -> None:
        super().__init__()
        _check_arguments(sizes, neuron)
        if len(sizes) < 3 or any(size < 1 for size in sizes):
            raise InputError(
                f"sizes must list inputs, at least one hidden layer and classes, all positive, got "
                f"{tuple(sizes)}; for example (784, 64, 10)"
            )
        check_choice("readout", readout, get_args(Readout))
        kind = find_neuron(neuron) if isinstance(neuron, str) else neuron
        options = dict(neuron_options or {})
        if options.get("batch_first"):
            raise InputError("batch_first is not supported by Network; leave it out and pass [T, B, *input]")
        self.sizes = tuple(sizes)
        self.readout: Readout = readout
        self.linears = nn.ModuleList(nn.Linear(n_in, n_out) for n_in, n_out in pairwise(sizes))
        spiking = len(self.linears) - (readout == "linear")
        each: list[dict[str, Any]] = [options] * spiking
        if options.get("time_constants") is not None:
            each = [{"parameter_shape": (size,)} | options for size in sizes[1 : 1 + spiking]]
        self.neurons = nn.ModuleList(kind(**given) for given in each)

    def layers(self) -> Iterator[tuple[nn.Linear, AnyNeuron]]:
        """Yield the spiking layers: each linear map with its neurons."""
        for linear, neuron in zip(self.linears, self.neurons, strict=False):
            yield cast(nn.Linear, linear), cast(AnyNeuron, neuron)

    averages = True  # the output has no time axis

    def forward(self, x: Tensor) -> Tensor:
        """Return the class scores ``[B, classes]`` for ``[T, B, *input]``."""
        return self.observe(x).logits

    def observe(self, x: Tensor) -> Output:
        """Return the class scores and the spike rates of every spiking layer."""
        self._check(x, ("T", "B"))
        signal = x.flatten(2)
        rates = []
        for i, (linear, neuron) in enumerate(self.layers(), start=1):
            if i < len(self.neurons):
                signal = neuron(linear(signal))
                rates.append(signal.mean(0))
            else:  # after the last layer only the mean is needed
                rates.append(neuron.rate(linear(signal)))
        logits = self.linears[-1](rates[-1]) if self.readout == "linear" else rates[-1]
        return Output(logits, tuple(rates))

    def step(
        self, x: Tensor, states: Sequence[tuple[Tensor, ...]] | None = None
    ) -> tuple[Tensor, tuple[tuple[Tensor, ...], ...]]:
        """Compute one time step ``[B, *input]``; `forward` returns the mean of its outputs over time.

        Args:
            x: one time step.
            states: the states that the previous call returned; None starts at rest.
        """
        self._check(x, ("B",))
        if states is not None and len(states) != len(self.neurons):
            raise InputError(
                f"states has {len(states)} entries, but the network has {len(self.neurons)} spiking layers; "
                "pass the states that the last call returned, or None to start at rest"
            )
        signal = x.flatten(1)
        after = []
        for i, (linear, neuron) in enumerate(self.layers()):
            signal, state = neuron.step(linear(signal), None if states is None else states[i])
            after.append(state)
        return (self.linears[-1](signal) if self.readout == "linear" else signal), tuple(after)

    def _check(self, x: Tensor, leading: tuple[str, ...]) -> None:
        if not x.is_floating_point():
            raise TypeError(f"input must be a floating-point tensor, got {x.dtype}; call .float() on it")
        sample = x.shape[len(leading) :]
        if not sample or sample.numel() != self.sizes[0]:
            raise InputError(
                f"input must be [{', '.join(leading)}, *input] with {self.sizes[0]} values per sample, got "
                f"shape {tuple(x.shape)}; reshape it, or add a missing axis with unsqueeze"
            )


def _check_arguments(sizes: object, neuron: object) -> None:
    """Raise a clear error for two mistakes: sizes passed one by one, and an instance as the neuron."""
    if not isinstance(sizes, Sequence) or not all(isinstance(size, int) for size in sizes):
        raise TypeError(
            f"sizes must be one sequence of integers, got {sizes!r}; for example Network((784, 64, 10))"
        )
    if isinstance(neuron, Neuron):
        name = type(neuron).__name__
        raise TypeError(
            f"neuron must be a class or a name, got an instance of {name}: each layer creates its own "
            f"neurons; pass neuron={name} and its arguments as neuron_options"
        )
    if not isinstance(neuron, str) and not (isinstance(neuron, type) and issubclass(neuron, Neuron)):
        raise TypeError(
            f"neuron must be a neuron's class or name, got {neuron!r}; choose one of "
            f"{', '.join(sorted(NEURONS))}"
        )
