"""Benchmark subjects: our neurons, their definitions as loops, other libraries, and a copy."""

import importlib
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ultralif.nn import NEURONS

__all__ = ["OURS", "PEERS", "BenchSubject", "Layer", "Skip", "build", "kept_bytes", "peer_versions"]

OURS = ("UltraLIF", "UltraDLIF", "LIF", "PLIF")
LEAK, THRESHOLD, SLOPE = 0.9, 0.5, 10.0
Forward = Callable[[Tensor], Tensor]


class Skip(Exception):
    """A subject that cannot run here, with the reason."""


class Layer(NamedTuple):
    """The size and dtype of a layer."""

    time: int
    batch: int
    features: int
    dtype: str = "float32"

    @property
    def steps(self) -> int:
        """The product of neurons, samples and time steps."""
        return self.time * self.batch * self.features


class BenchSubject:
    """A subject on a layer: a call runs the forward pass, then computes input and parameter gradients."""

    def __init__(self, name: str, layer: Layer, device: torch.device) -> None:
        self.forward, parameters = build(name, device)
        shape, dtype = layer[:3], getattr(torch, layer.dtype)
        generator = torch.Generator(device).manual_seed(1)
        self.x = torch.randn(shape, generator=generator, device=device).to(dtype).requires_grad_()
        self.inputs = [self.x, *parameters]
        self.weight: Tensor | None = None

    def __call__(self) -> tuple[Tensor, ...]:
        """Run forward and backward once."""
        out = self.forward(self.x)
        if self.weight is None or self.weight.shape != out.shape:
            self.weight = torch.randn(out.shape, device=out.device).to(out.dtype)
        return torch.autograd.grad(out, self.inputs, self.weight)


def build(name: str, device: torch.device) -> tuple[Forward, list[nn.Parameter]]:
    """Return a subject by name, such as ``UltraLIF`` or ``SpikingJelly LIF``, and its parameters.

    A second word after the name of one of our neurons selects how it runs: ``rate`` returns the
    mean over time, ``loop`` runs the definition, and ``compiled`` runs that loop under `torch.compile`.
    """
    if name == "copy":
        return _Copy.apply, []
    if name in PEERS:
        package, make = PEERS[name]
        try:
            module = importlib.import_module(package)
        except ImportError as error:
            raise Skip(f"{name}: {package} is not installed ({error})") from error
        forward, neuron = make(module, device)
        return forward, list(neuron.parameters())
    kind, _, way = name.partition(" ")
    ours = NEURONS[kind](backend="reference" if way in ("loop", "compiled") else "auto").to(device)
    parameters = list(ours.parameters())
    if way == "compiled":
        return torch.compile(ours), parameters
    return (ours.rate if way == "rate" else ours), parameters


class _Copy(torch.autograd.Function):
    """A copy, the cheapest possible layer: one read and one write, forward and backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return grads[0].clone()


def _spikingjelly(kind: str) -> Callable[[Any, torch.device], tuple[Forward, nn.Module]]:
    """Build a fused multi-step neuron; with ``decay_input=False``, its membrane is the same as ours."""

    def make(module: Any, device: torch.device) -> tuple[Forward, nn.Module]:
        tau = {"tau" if kind == "LIFNode" else "init_tau": 1 / (1 - LEAK)}
        surrogate = importlib.import_module("spikingjelly.activation_based.surrogate").Sigmoid(alpha=SLOPE)
        neuron = getattr(module, kind)(
            **tau,
            decay_input=False,
            v_threshold=THRESHOLD,
            v_reset=0.0,
            surrogate_function=surrogate,
            step_mode="m",
        ).to(device)

        def forward(x: Tensor) -> Tensor:
            neuron.reset()
            spikes: Tensor = neuron(x)
            return spikes

        return forward, neuron

    return make


def _snntorch(module: Any, device: torch.device) -> tuple[Forward, nn.Module]:
    surrogate = importlib.import_module("snntorch.surrogate").sigmoid(slope=SLOPE)
    neuron = module.Leaky(beta=LEAK, threshold=THRESHOLD, spike_grad=surrogate, reset_mechanism="zero")
    neuron = neuron.to(device)

    def forward(x: Tensor) -> Tensor:
        membrane, spikes = torch.zeros_like(x[0]), []
        for step in x:
            spike, membrane = neuron(step, membrane)
            spikes.append(spike)
        return torch.stack(spikes)

    return forward, neuron


def _norse(module: Any, device: torch.device) -> tuple[Forward, nn.Module]:
    neuron = module.LIF().to(device)
    return lambda x: neuron(x)[0], neuron


PEERS: dict[str, tuple[str, Callable[[Any, torch.device], tuple[Forward, nn.Module]]]] = {
    "SpikingJelly LIF": ("spikingjelly.activation_based.neuron", _spikingjelly("LIFNode")),
    "SpikingJelly PLIF": ("spikingjelly.activation_based.neuron", _spikingjelly("ParametricLIFNode")),
    "snnTorch Leaky": ("snntorch", _snntorch),
    "norse LIF": ("norse.torch", _norse),
}
"""Neurons from other libraries: the module, and a function that builds one from it."""


def peer_versions() -> dict[str, str]:
    """Return the versions of the other installed libraries."""
    found = {}
    for package in sorted({module.partition(".")[0] for module, _ in PEERS.values()}):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def kept_bytes(run: BenchSubject) -> int:
    """Return the bytes that a forward pass keeps for the backward pass, beyond its input and output."""
    if run.x.is_cuda:
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        out = run.forward(run.x)
        return int(torch.cuda.memory_allocated()) - int(before) - out.untyped_storage().nbytes()
    kept: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        out = run.forward(run.x)
    for tensor in (out, *run.inputs):
        kept.pop(tensor.untyped_storage().data_ptr(), None)
    return sum(kept.values())
