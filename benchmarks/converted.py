"""Time networks of other libraries before and after ``ul.convert``, on one CPU thread.

    python benchmarks/converted.py --out docs/results/converted-cpu.json

Each network is written as in its library's tutorials. The original and the converted network take turns. A
number is the lower quartile of the CPU time of a forward and a backward pass, in milliseconds. Nothing is
compiled.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import ultralif as ul
from ultralif.bench import describe

BATCH = 128


class Tutorial(nn.Module):
    """snnTorch's perceptron of its fifth tutorial, with the surrogate of its sixth."""

    def __init__(self, size: int = 256, steps: int = 25) -> None:
        import snntorch as snn
        from snntorch import surrogate

        super().__init__()
        gradient = surrogate.fast_sigmoid(slope=25)
        self.steps = steps
        self.fc1, self.lif1 = nn.Linear(784, size), snn.Leaky(beta=0.95, spike_grad=gradient)
        self.fc2, self.lif2 = nn.Linear(size, 10), snn.Leaky(beta=0.95, spike_grad=gradient)

    def forward(self, x: Tensor) -> Tensor:
        """Return the spikes of the last layer, ``[T, B, 10]``, for a static image."""
        mem1, mem2 = self.lif1.init_leaky(), self.lif2.init_leaky()
        spikes = []
        for _ in range(self.steps):
            spk1, mem1 = self.lif1(self.fc1(x), mem1)
            spk2, mem2 = self.lif2(self.fc2(spk1), mem2)
            spikes.append(spk2)
        return torch.stack(spikes)


def snntorch_static() -> tuple[nn.Module, Tensor]:
    """Return snnTorch's tutorial network and a batch of images."""
    return Tutorial(), torch.rand(BATCH, 784)


def snntorch_spikes() -> tuple[nn.Module, Tensor]:
    """Return the same layers for spikes that change in every step."""

    class Spikes(Tutorial):
        def forward(self, x: Tensor) -> Tensor:
            mem1, mem2 = self.lif1.init_leaky(), self.lif2.init_leaky()
            spikes = []
            for t in range(x.shape[0]):
                spk1, mem1 = self.lif1(self.fc1(x[t]), mem1)
                spk2, mem2 = self.lif2(self.fc2(spk1), mem2)
                spikes.append(spk2)
            return torch.stack(spikes)

    return Spikes(), (torch.rand(25, BATCH, 784) < 0.13).float()


def spikingjelly() -> tuple[nn.Module, Tensor]:
    """Return a convolutional network in SpikingJelly's multi-step mode."""
    from spikingjelly.activation_based import functional, layer, neuron, surrogate

    def lif() -> nn.Module:
        made: nn.Module = neuron.LIFNode(surrogate_function=surrogate.ATan(), detach_reset=True)
        return made

    net = nn.Sequential(
        *(layer.Conv2d(1, 16, 3, padding=1, bias=False), layer.BatchNorm2d(16), lif(), layer.MaxPool2d(2)),
        *(layer.Conv2d(16, 32, 3, padding=1, bias=False), layer.BatchNorm2d(32), lif(), layer.MaxPool2d(2)),
        *(layer.Flatten(), layer.Linear(32 * 49, 10, bias=False), lif()),
    )
    functional.set_step_mode(net, "m")
    return net, (torch.rand(4, 32, 1, 28, 28) < 0.5).float()


NETWORKS = {
    "snnTorch, tutorial, static images": snntorch_static,
    "snnTorch, tutorial, spikes": snntorch_spikes,
    "SpikingJelly, two convolutions": spikingjelly,
}


def trained(net: nn.Module, x: Tensor) -> Callable[[], None]:
    """Return a forward and a backward pass from rest."""
    from spikingjelly.activation_based.functional import reset_net

    def step() -> None:
        reset_net(net)  # for SpikingJelly's neurons; nothing to do for the others
        net.zero_grad()
        net(x).sum().backward()

    return step


def measure(make: Callable[[], tuple[nn.Module, Tensor]], rounds: int) -> dict[str, Any]:
    """Time one network before and after conversion; every spike of the two is compared first."""
    torch.manual_seed(0)
    net, x = make()
    ours = ul.convert(net, check=x)
    calls = {"before": trained(net, x), "after": trained(ours, x)}
    found: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds + 3):
        for name, call in calls.items():
            began = time.process_time()
            call()
            found[name].append(1e3 * (time.process_time() - began))
    quartile = {name: round(sorted(times[3:])[rounds // 4], 2) for name, times in found.items()}
    return {**quartile, "ratio": round(quartile["before"] / quartile["after"], 2)}


def main() -> None:
    """Measure all networks and write a file."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=30)
    given = parser.parse_args()
    torch.set_num_threads(1)
    found = {name: measure(make, given.rounds) for name, make in NETWORKS.items()}
    machine = describe(torch.device("cpu"))
    given.out.write_text(json.dumps({"machine": machine, "networks": found}, indent=1) + "\n")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
