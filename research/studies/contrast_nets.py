"""The networks for `contrasts`: a spoken-digit network, controls without reset, and small perceptrons."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import ultralif as ul
from research.studies.memory_nets import calm, level

__all__ = ["Cell", "build", "rates"]


@dataclass(frozen=True)
class Cell:
    """One run."""

    study: str
    task: str
    method: str
    lr: float
    width: float
    """Initial temperature, or initial width of the surrogate gradient."""
    tau: tuple[float, float] = (10.0, 10.0)
    """Range of time constants, spread over a layer's neurons; a fixed leak uses the geometric mean."""
    soft: float = 0.0
    """Fraction of the epochs with soft spikes; the rest use binary spikes."""
    timesteps: int = 99
    head: str = "mean"
    shift: int = 0
    dropout: float = 0.0
    penalty: float = 0.0
    seed: int = 0
    held: bool = False


def tempered(neuron: str, reset: str) -> Callable[[Cell, int], nn.Module]:
    """Return a factory for neurons with a temperature, learned leaks and spread time constants."""

    def make(cell: Cell, size: int) -> nn.Module:
        options = {"time_constants": cell.tau, "eps": cell.width, "eps_range": (min(cell.width, 0.1), 20.0)}
        if neuron == "SoftLIF":
            options["learn_leak"] = True
        return ul.nn.NEURONS[neuron](reset=reset, parameter_shape=(size,), **options)

    return make


def surrogate(neuron: str, reset: str) -> Callable[[Cell, int], nn.Module]:
    """Return a factory for neurons with an arctangent surrogate of learned width; PLIF's leaks are spread."""

    def make(cell: Cell, size: int) -> nn.Module:
        low, high = cell.tau
        leak: Any = math.exp(-1 / math.sqrt(low * high))
        if neuron == "PLIF":
            leak = torch.exp(-1 / torch.logspace(math.log10(low), math.log10(high), size))
        options = {"surrogate": "atan", "surrogate_slope": 1 / cell.width, "learn_slope": True}
        return ul.nn.NEURONS[neuron](reset=reset, leak=leak, parameter_shape=(size,), **options)

    return make


class Frozen(nn.Module):
    """UltraPLIF without reset, with its input-dependent gate replaced by the mean over batch and time.

    UltraPLIF's membrane is exactly V = g (V + eps log leak) + (1 - g) I + eps H(g), where H is the entropy
    and g the weight of the past in the log-sum-exp. Here each neuron uses the mean of g, so V is additive.
    """

    def __init__(self, cell: Cell, size: int) -> None:
        super().__init__()
        self.inner: Any = tempered("UltraPLIF", "none")(cell, size)

    def forward(self, current: Tensor) -> Tensor:
        eps, decay, steps = self.inner.eps, self.inner.log_decay, len(current)
        with torch.no_grad():
            place = torch.arange(steps, device=current.device).view(-1, 1, 1) * decay
            v = torch.logcumsumexp(current.float() / eps - place, 0) + place
            gate = torch.exp(v[:-1] + decay - v[1:]).mean((0, 1)).clamp(1e-4, 1 - 1e-4)
        entropy = -gate * gate.log() - (1 - gate) * torch.log1p(-gate)
        driven = (1 - gate) * current + eps * (gate * decay + entropy)
        return fire(additive(driven, gate), self.inner)


class Softplus(nn.Module):
    """SoftLIF without reset and with a softplus on its input, positive like the terms of a log-sum-exp."""

    def __init__(self, cell: Cell, size: int) -> None:
        super().__init__()
        self.inner: Any = tempered("SoftLIF", "none")(cell, size)

    def forward(self, current: Tensor) -> Tensor:
        return self.inner(F.softplus(current))


class MaskedParallel(nn.Module):
    """A masked parallel spiking neuron (Fang et al. 2023): learned weights over past steps, no state."""

    def __init__(self, cell: Cell, size: int) -> None:
        super().__init__()
        self.inner: Any = tempered("SoftLIF", "none")(cell, size)
        age = torch.arange(cell.timesteps)[:, None] - torch.arange(cell.timesteps)
        middle = math.sqrt(cell.tau[0] * cell.tau[1])
        start = torch.exp(-age.clamp(min=0) / middle).tril()
        self.weight = nn.Parameter(start / start.square().sum(1, keepdim=True).sqrt())
        self.bias = nn.Parameter(torch.zeros(cell.timesteps, 1, 1))

    def forward(self, current: Tensor) -> Tensor:
        v = torch.einsum("ts,sbd->tbd", self.weight.tril(), current) + self.bias
        return fire(v, self.inner)


def additive(driven: Tensor, gate: Tensor) -> Tensor:
    """Compute V(t) = gate V(t - 1) + driven(t) for all steps at once."""
    age = torch.arange(len(driven), device=driven.device)
    age = age[:, None] - age
    powers = torch.exp(age.clamp(min=0)[..., None] * gate.log()).masked_fill((age < 0)[..., None], 0)
    return torch.einsum("tsd,sbd->tbd", powers, driven)


def fire(v: Tensor, neuron: Any) -> Tensor:
    """Return binary spikes with the gradient of the neuron's soft spikes."""
    soft = torch.sigmoid((v - neuron.threshold) / neuron.eps)
    return (v > neuron.threshold).to(v.dtype) + soft - soft.detach()


METHODS: dict[str, Callable[[Cell, int], nn.Module]] = {
    "UltraPLIF, no reset": tempered("UltraPLIF", "none"),
    "UltraPLIF": tempered("UltraPLIF", "zero"),
    "SoftLIF, no reset": tempered("SoftLIF", "none"),
    "SoftLIF": tempered("SoftLIF", "zero"),
    "PLIF, no reset": surrogate("PLIF", "none"),
    "PLIF": surrogate("PLIF", "zero"),
    "LIF, no reset": surrogate("LIF", "none"),
    "LIF": surrogate("LIF", "zero"),
    "UltraLIF": lambda cell, size: ul.nn.UltraLIF(eps=cell.width, eps_range=(min(cell.width, 0.1), 20.0)),
    "UltraPLIF, frozen gate": Frozen,
    "SoftLIF, softplus, no reset": Softplus,
    "masked PSN": MaskedParallel,
}
"""The neurons by name; a spoken-digit network may add ", recurrent" or ", delays" to a name."""


class Delays(ul.DelayedLinear):
    """A layer of learned delays whose triangular kernel narrows to a single step during training.

    Outside training, delays are rounded to whole steps and the kernel covers a single step.
    """

    width: Tensor
    """Half the width of the kernel's base, in steps."""

    def __init__(self, inputs: int, outputs: int, max_delay: int = 24) -> None:
        super().__init__(inputs, outputs, max_delay=max_delay, bias=False)
        self.register_buffer("width", torch.tensor(max_delay / 2))

    @property
    def taps(self) -> Tensor:
        """The weight of every synapse at every delay, ``[outputs, inputs, max_delay + 1]``."""
        step = torch.arange(self.max_delay + 1, device=self.delay.device)
        delay = self.delay.clamp(0, self.max_delay)
        delay, width = (delay, self.width) if self.training else (delay.round(), 1.0)
        share = (1 - (delay.unsqueeze(-1) - step).abs() / width).clamp(min=0)
        return self.weight.unsqueeze(-1) * share / share.sum(-1, keepdim=True)


class Layered(nn.Module):
    """Hidden layers with batch norm and dropout, and a linear head.

    The head reads the mean spike or, for "softmax", sums the softmax of leaky integrators over time.
    """

    def __init__(self, cell: Cell, sizes: tuple[int, ...]) -> None:
        super().__init__()
        *hidden, classes = sizes
        name, _, wiring = cell.method.partition(", with ")
        linear = Delays if wiring == "delays" else lambda a, b: nn.Linear(a, b, bias=False)
        self.maps = nn.ModuleList(linear(a, b) for a, b in pairwise(hidden))
        self.norms = nn.ModuleList(nn.BatchNorm1d(size) for size in hidden[1:])
        self.neurons = nn.ModuleList(METHODS[name](cell, size) for size in hidden[1:])
        with torch.no_grad():
            for norm, neuron in zip(self.norms, self.neurons, strict=True):
                begin(name, norm, neuron)
        if wiring == "recurrence":
            self.neurons = nn.ModuleList(
                ul.nn.Recurrent(neuron, feedback(size))
                for neuron, size in zip(self.neurons, hidden[1:], strict=True)
            )
        self.dropout = nn.Dropout(cell.dropout)
        self.head = nn.Linear(hidden[-1], classes)
        self.decay = nn.Parameter(torch.full((classes,), 3.0)) if cell.head == "softmax" else None
        self.spikes: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        shape, self.spikes = x.shape[:2], []
        for linear, norm, neuron in zip(self.maps, self.norms, self.neurons, strict=True):
            spikes = neuron(norm(linear(x).flatten(0, 1)).unflatten(0, shape))
            self.spikes.append(spikes)
            x = self.dropout(spikes)
        if self.decay is None:
            return self.head(x.mean(0))
        gate = torch.sigmoid(self.decay)
        return torch.log_softmax(additive((1 - gate) * self.head(x), gate), -1).exp().mean(0).log()


def feedback(size: int) -> nn.Linear:
    """Return small recurrent weights."""
    linear = nn.Linear(size, size, bias=False)
    nn.init.orthogonal_(linear.weight, gain=0.2)
    return linear


def begin(name: str, norm: nn.BatchNorm1d, neuron: Any) -> None:
    """Initialize neurons without reset so that all of them fire in about 30 % of the steps."""
    if name in ("UltraPLIF, no reset", "UltraPLIF, frozen gate"):
        norm.bias += level(getattr(neuron, "inner", neuron)).flatten()
    elif name in ("SoftLIF, no reset", "PLIF, no reset", "LIF, no reset"):
        leak = torch.as_tensor(neuron.leak).flatten().expand(norm.num_features)
        calm(norm, leak, float(neuron.threshold))
    elif name == "SoftLIF, softplus, no reset":
        leak = neuron.inner.leak.flatten()
        calm(norm, leak, float(neuron.inner.threshold))
        norm.bias -= 2.0
    elif name == "masked PSN":
        norm.bias += float(neuron.inner.threshold) - 0.52


def build(cell: Cell, sizes: tuple[int, ...]) -> nn.Module:
    """Return the network of a run."""
    torch.manual_seed(cell.seed)
    if cell.task not in ("clothes", "pictures"):
        return Layered(cell, sizes)
    options: dict[str, Any] = {"eps": cell.width}
    if cell.method == "LIF":
        options = {"surrogate": "atan", "surrogate_slope": 1 / cell.width, "learn_slope": True}
    stages: Any = "vgg5" if cell.task == "clothes" else ((64, 64), (128, 128), (256, 256))
    channels = 1 if cell.task == "clothes" else 3
    return ul.models.vgg(
        stages, channels=channels, timesteps=cell.timesteps, neuron=cell.method, neuron_options=options
    )


def rates(net: Any) -> Iterator[Tensor]:
    """Yield the mean spike of each hidden layer in the last batch."""
    for spikes in net.spikes:
        yield spikes.mean()
