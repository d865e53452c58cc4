"""Time whole networks against other libraries, eager and compiled, on one CPU thread.

    python benchmarks/networks.py --out docs/results/networks-cpu.json

There are two networks: a 784-256-10 perceptron with 8 time steps, and two convolutions with a linear layer
and 4 time steps. All libraries use the same weights, and LIF neurons with leak 0.9, threshold 0.5, a reset to
zero and an atan surrogate (norse: SuperSpike). Subjects take turns, so that other work on the machine affects
all of them alike. A number is the lower quartile of a step's CPU time in milliseconds. `peak_mb` is the
memory growth of a separate process during ten training steps.
"""

import argparse
import json
import multiprocessing
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

import ultralif as ul
from ultralif.bench import describe

LEAK, THRESHOLD, SLOPE = 0.9, 0.5, 2.0
NETWORKS = {"perceptron": (8, 128), "convolutional": (4, 32)}
"""Time steps and batch."""
SUBJECTS = (
    *("UltraLIF library, LIF", "UltraLIF library, UltraLIF"),
    *("SpikingJelly", "SpikingJelly compiled", "snnTorch", "snnTorch compiled", "norse"),
)
CHANNELS = (16, 32)


def layers(
    network: str, fold: Callable[[nn.Module], nn.Module], neuron: Callable[[], nn.Module]
) -> list[nn.Module]:
    """Return a network's layers with the same weights for every library."""
    torch.manual_seed(0)
    if network == "perceptron":
        made = [nn.Linear(784, 256), neuron(), nn.Linear(256, 10), neuron()]
    else:
        one, two = CHANNELS
        made = [
            *(fold(nn.Conv2d(1, one, 3, padding=1)), neuron(), fold(nn.MaxPool2d(2))),
            *(fold(nn.Conv2d(one, two, 3, padding=1)), neuron(), fold(nn.MaxPool2d(2))),
            *(fold(nn.Flatten()), nn.Linear(two * 49, 10), neuron()),
        ]
    for layer in nn.ModuleList(made).modules():
        if isinstance(layer, nn.Linear | nn.Conv2d):
            layer.weight.data.mul_(2)
    return made


class Stepwise(nn.Module):
    """A network from another library, called step by step."""

    def __init__(self, layers: list[nn.Module], states: int) -> None:
        super().__init__()
        self.layers, self.states = nn.ModuleList(layers), states

    def forward(self, x: Tensor) -> Tensor:
        """Return the spikes of the last layer, ``[T, B, classes]``."""
        states: list[Any] = [None] * len(self.layers)
        outs = []
        for frame in x:
            for i, layer in enumerate(self.layers):
                if type(layer).__module__.startswith(("snntorch", "norse")):
                    if states[i] is None and type(layer).__module__.startswith("snntorch"):
                        states[i] = torch.zeros_like(frame)
                    frame, states[i] = layer(frame, states[i])
                else:
                    frame = layer(frame)
            outs.append(frame)
        return torch.stack(outs)


def build(subject: str, network: str) -> Callable[[Tensor], Tensor]:
    """Return a library's network."""
    library, _, rest = subject.partition(" ")
    if library == "UltraLIF":
        options = {"threshold": THRESHOLD, "leak": LEAK}
        lif = {"surrogate": "atan", "surrogate_slope": SLOPE, **options}
        make = (lambda: ul.UltraLIF(**options)) if rest.endswith("UltraLIF") else (lambda: ul.LIF(**lif))
        net: Any = nn.Sequential(*layers(network, ul.TimeDistributed, make))
    elif library == "SpikingJelly":
        from spikingjelly.activation_based import functional as sj
        from spikingjelly.activation_based import layer, neuron, surrogate

        class Net(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                made = lambda: neuron.LIFNode(  # noqa: E731
                    tau=1 / (1 - LEAK), decay_input=False, v_threshold=THRESHOLD, detach_reset=True,
                    surrogate_function=surrogate.ATan(SLOPE), step_mode="m", store_v_seq=False,
                )  # fmt: skip
                self.layers = nn.Sequential(*layers(network, layer.SeqToANNContainer, made))

            def forward(self, x: Tensor) -> Tensor:
                sj.reset_net(self)
                return self.layers(x)

        net = Net()
    elif library == "snnTorch":
        import snntorch
        from snntorch import surrogate as theirs

        cell = lambda: snntorch.Leaky(  # noqa: E731
            beta=LEAK, threshold=THRESHOLD, spike_grad=theirs.atan(SLOPE), reset_mechanism="zero"
        )
        net = Stepwise(layers(network, lambda module: module, cell), 1)
    else:
        import norse.torch as norse

        box = lambda: norse.LIFBoxCell(  # noqa: E731
            norse.LIFBoxParameters(
                tau_mem_inv=torch.tensor(1000 * (1 - LEAK)), v_th=torch.tensor(THRESHOLD * (1 - LEAK))
            ),
            dt=1e-3,
        )
        net = Stepwise(layers(network, lambda module: module, box), 1)
    return torch.compile(net, dynamic=False) if rest.endswith("compiled") else net


def data(network: str) -> tuple[Tensor, Tensor]:
    """Return labels and spikes with MNIST's rate, 0.13."""
    steps, batch = NETWORKS[network]
    torch.manual_seed(1)
    shape = (784,) if network == "perceptron" else (1, 28, 28)
    return (torch.rand(steps, batch, *shape) < 0.13).float(), torch.randint(10, (batch,))


def trainer(net: Any, x: Tensor, y: Tensor) -> Callable[[], None]:
    """Return a training step."""
    optimizer = torch.optim.Adam(net.parameters(), 1e-3)

    def step() -> None:
        net.train()
        loss = functional.cross_entropy(net(x).mean(0), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def inference(net: Any, x: Tensor) -> Callable[[], None]:
    """Return a call without gradients."""

    def step() -> None:
        net.eval()
        with torch.no_grad():
            net(x).mean(0)

    return step


def times(calls: dict[str, Callable[[], None]], rounds: int) -> dict[str, float]:
    """Return the lower quartile of each call's CPU time in milliseconds; the calls take turns."""
    found: dict[str, list[float]] = {name: [] for name in calls}
    for call in (call for _ in range(3) for call in calls.values()):
        call()
    for _ in range(rounds):
        for name, call in calls.items():
            start = time.process_time()
            call()
            found[name].append(1e3 * (time.process_time() - start))
    return {name: round(sorted(values)[len(values) // 4], 3) for name, values in found.items()}


def peak(subject: str, network: str) -> float:
    """Return this process's memory growth during ten training steps, in MB."""
    torch.set_num_threads(1)
    x, y = data(network)
    small = trainer(build(subject, network), x[:1, :1], y[:1])
    small()  # libraries loaded here are not counted
    step = trainer(build(subject, network), x, y)
    Path("/proc/self/clear_refs").write_text("5")  # reset the peak to the present size
    before = resident()
    for _ in range(10):
        step()
    return round((resident() - before) / 1024, 1)


def resident() -> int:
    """Return this process's peak memory since the last reset, in kB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def main() -> None:
    """Measure all subjects and write a file."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--subjects", nargs="*", default=list(SUBJECTS))
    given = parser.parse_args()
    torch.set_num_threads(1)
    report: dict[str, Any] = {"machine": describe(torch.device("cpu")), "networks": {}}
    for network in NETWORKS:
        x, y = data(network)
        nets = {subject: build(subject, network) for subject in given.subjects}
        with torch.no_grad():
            rates = {subject: round(float(net(x).mean()), 4) for subject, net in nets.items()}
        called = times({subject: inference(net, x) for subject, net in nets.items()}, given.rounds)
        trained = times({subject: trainer(net, x, y) for subject, net in nets.items()}, given.rounds)
        context = multiprocessing.get_context("spawn")
        memory = {}
        for subject in given.subjects:
            if "compiled" not in subject:
                with context.Pool(1) as pool:
                    memory[subject] = pool.apply(peak, (subject, network))
        report["networks"][network] = {
            "timesteps": NETWORKS[network][0],
            "batch": NETWORKS[network][1],
            "output_rate": rates,
            "training_step_cpu_ms": trained,
            "inference_cpu_ms": called,
            "peak_mb": memory,
        }
    given.out.write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps(report["networks"], indent=1))


if __name__ == "__main__":
    main()
