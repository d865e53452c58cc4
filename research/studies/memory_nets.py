"""The networks for `memory`: perceptrons, deeper ones with batch norm, and convolutions along columns."""

import math
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

import ultralif as ul
from research.readings.neurons import register_neurons

METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "none": ("UltraPLIF", {"reset": "none"}),
    "saturate": ("UltraPLIF", {"reset": "saturate"}),
    "saturate, learned": ("UltraPLIF", {"reset": "saturate"}),  # a ceiling per neuron, initially v_sat
    "zero": ("UltraPLIF", {"reset": "zero"}),
    "subtract": ("UltraPLIF", {"reset": "subtract"}),
    "SoftLIF": ("SoftLIF", {"reset": "zero", "learn_leak": True}),
    "SoftLIF, no reset": ("SoftLIF", {"reset": "none", "learn_leak": True}),
    "LIF": ("UnscaledLIF", {}),
    "LIF, learned width": ("LIF", {"surrogate": "sigmoid", "learn_slope": True}),
    "PLIF, learned width": ("PLIF", {"surrogate": "sigmoid", "learn_slope": True}),
    "PLIF, no reset": ("PLIF", {"surrogate": "sigmoid", "reset": "none", "learn_slope": True}),
}
SURROGATE = ("LIF", "LIF, learned width", "PLIF, learned width", "PLIF, no reset")
"""Methods trained with binary spikes throughout."""
MAKE = Callable[..., nn.Module]


class MemoryCell(NamedTuple):
    """One run of the study."""

    task: str
    method: str
    lr: float
    time_constants: tuple[float, ...]
    eps: float
    """Temperature, or initial surrogate width; 0 means the neuron's default."""
    v_sat: float
    seed: int
    held: bool


class Columns(nn.Module):
    """A network for images read column by column, ``[T, B, 3 * 32]``, as in Fang et al. (2023).

    Each of two blocks has three convolutions along the column, with batch norm and neurons, and then averages
    pairs of pixels. A dense layer of neurons and a linear head on their mean spike follow.
    """

    def __init__(self, width: int, make: MAKE) -> None:
        super().__init__()
        widths = (3, *[width] * 6)
        self.maps = nn.ModuleList(
            nn.Conv2d(a, b, (3, 1), padding=(1, 0), bias=False) for a, b in pairwise(widths)
        )
        self.norms = nn.ModuleList(nn.BatchNorm2d(width) for _ in self.maps)
        self.neurons = nn.ModuleList(make((width, 1, 1)) for _ in self.maps)
        self.linear = nn.Linear(8 * width, 2 * width)
        self.last = make((2 * width,))
        self.head = nn.Linear(2 * width, 10)

    def forward(self, x: Tensor) -> Tensor:
        steps, x = len(x), x.flatten(0, 1).unflatten(1, (3, 32, 1)).to(memory_format=torch.channels_last)
        for place, (conv, norm, neuron) in enumerate(zip(self.maps, self.norms, self.neurons, strict=True)):
            x = neuron(norm(conv(x)).unflatten(0, (steps, -1))).flatten(0, 1)
            x = nn.functional.avg_pool2d(x, (2, 1)) if place in (2, 5) else x
        spikes = self.last(self.linear(x.flatten(1).unflatten(0, (steps, -1))))
        return self.head(spikes.mean(0, dtype=torch.float32))

    def layers(self) -> Iterator[tuple[nn.Module, ul.nn.Neuron[Any]]]:
        """Yield, for each layer of neurons, the module that holds its bias and the neurons."""
        yield from zip((*self.norms, self.linear), (*self.neurons, self.last), strict=True)


class DeepMemory(nn.Module):
    """Hidden layers with batch norm over samples and time, and a linear head for the mean spike."""

    def __init__(self, sizes: tuple[int, ...], make: MAKE) -> None:
        super().__init__()
        *hidden, classes = sizes
        self.maps = nn.ModuleList(nn.Linear(a, b, bias=False) for a, b in pairwise(hidden))
        self.norms = nn.ModuleList(nn.BatchNorm1d(size) for size in hidden[1:])
        self.neurons = nn.ModuleList(make((size,)) for size in hidden[1:])
        self.head = nn.Linear(hidden[-1], classes)

    def forward(self, x: Tensor) -> Tensor:
        shape = x.shape[:2]
        for linear, norm, neuron in zip(self.maps, self.norms, self.neurons, strict=True):
            x = neuron(norm(linear(x).flatten(0, 1)).unflatten(0, shape))
        return self.head(x.mean(0, dtype=torch.float32))

    def layers(self) -> Iterator[tuple[nn.Module, ul.nn.Neuron[Any]]]:
        """Yield, for each layer of neurons, the module that holds its bias and the neurons."""
        yield from zip(self.norms, self.neurons, strict=True)


def options_of(cell: MemoryCell) -> tuple[str, dict[str, Any]]:
    """Return a run's neuron and its arguments."""
    register_neurons()
    neuron, options = METHODS[cell.method]
    options = dict(options)
    if cell.method in SURROGATE:
        options |= {"surrogate_slope": 1 / cell.eps} if cell.eps else {}
        return neuron, options | (
            {"leak": math.exp(-1 / cell.time_constants[0])} if cell.time_constants else {}
        )
    options |= {"time_constants": cell.time_constants, "eps": cell.eps, "eps_range": (cell.eps, 20.0)}
    return neuron, options | ({"v_sat": cell.v_sat} if cell.v_sat else {})


def build(cell: MemoryCell, sizes: tuple[int, ...]) -> nn.Module:
    """Return a run's network; neurons without reset are initialized so that they do not fire all the time."""
    torch.manual_seed(cell.seed)
    neuron, options = options_of(cell)

    def make(shape: tuple[int, ...]) -> nn.Module:
        return ul.nn.NEURONS[neuron](parameter_shape=shape, **options)

    if cell.task == "columns":
        net: Any = Columns(sizes[1], make)
    elif len(sizes) > 3:
        net = DeepMemory(sizes, make)
    else:
        net = ul.Network(sizes, neuron=neuron, neuron_options=options)
    if cell.method == "saturate, learned":
        for _, layer in net.layers():
            del layer.v_sat
            layer.v_sat = nn.Parameter(torch.full_like(layer.log_time_constant, cell.v_sat))
    with torch.no_grad():
        for biased, layer in net.layers():
            if "no reset" in cell.method:
                calm(biased, layer.leak.flatten(), layer.threshold)
            elif "saturate" in cell.method or cell.method == "none":
                biased.bias += (rest if isinstance(biased, nn.Linear) else level)(layer).flatten()
    return net


def calm(biased: Any, leak: Tensor, threshold: float) -> None:
    """Initialize membranes without reset to about unit size and above threshold in 30 % of the steps."""
    gain = torch.sqrt(1 - leak**2)
    biased.weight *= gain[:, None] if biased.weight.dim() == 2 else gain
    biased.bias += (threshold - 0.52) * (1 - leak)


def rest(neuron: Any) -> Tensor:
    """Return the bias at which a membrane without input or reset stays at 0."""
    return neuron.eps * torch.log(-torch.expm1(neuron.log_decay))


def level(neuron: Any, steps: int = 100) -> Tensor:
    """Return the bias at which neurons without reset fire in 30 % of the steps under unit noise."""
    eps, decay = neuron.eps.flatten(), neuron.log_decay.flatten()
    v = torch.full((256, len(eps)), -torch.inf)
    for _ in range(steps):
        v = eps * torch.logaddexp(v / eps + decay, torch.randn(v.shape) / eps)
    return neuron.threshold - v.quantile(0.7, 0)


def memory(net: Any, x: Tensor) -> float:
    """Return the mean of log |dV(t) / dV(t - 1)| in the first layer with soft spikes, by autograd."""
    _, neuron = next(iter(net.layers()))
    seen: list[Tensor] = []
    handle = neuron.register_forward_pre_hook(lambda _, given: seen.append(given[0].detach()))
    with ul.mode(net, "soft"), handle:
        net(x)
        state: Any = None
        found: list[float] = []
        for step in seen[0][:100]:
            before = None if state is None else type(state)(state.v.detach().requires_grad_())
            _, state = neuron.step(step, before)
            if before is not None:
                (slope,) = torch.autograd.grad(state.v.sum(), before.v)
                found.append(slope.abs().clamp(min=1e-12).log().mean())
        return float(torch.stack(found).mean())


def modes(net: Any) -> tuple[str, ...]:
    """Return the spike modes of a network's neurons."""
    return next(iter(net.layers()))[1].modes
