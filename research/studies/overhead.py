"""Measure how much training time log-sum-exp adds over LIF; the paper says about 5 %.

    python -m research studies overhead results/paper.jsonl.gz

Networks from the paper (784 inputs, 64 neurons, 10 classes, batches of 128) take training steps in turn on
one thread. CPU time is measured, so that other programs interfere less. The medians are added to a results
file, where `python -m research verdicts` reads them.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import torch
from torch.nn.functional import cross_entropy

import ultralif as ul
from research.paper.archive import read, write

NEURONS = ("LIF", "UltraLIF", "UltraPLIF", "UltraDLIF", "UltraDPLIF")


def stepper(neuron: str, timesteps: int, backend: str) -> Callable[[], None]:
    """Return a function that takes one training step."""
    torch.manual_seed(0)
    network = ul.Network((784, 64, 10), neuron, {"backend": backend})
    optimizer = torch.optim.Adam(network.parameters(), fused=True)
    x = (torch.rand(timesteps, 128, 784) < 0.1).float()
    labels = torch.randint(10, (128,))

    def step() -> None:
        optimizer.zero_grad()
        cross_entropy(network(x), labels).backward()
        optimizer.step()

    return step


def measure(timesteps: int, backend: str, rounds: int) -> dict[str, float]:
    """Return the milliseconds per step for each neuron."""
    steps = {neuron: stepper(neuron, timesteps, backend) for neuron in NEURONS}
    times: dict[str, list[float]] = {neuron: [] for neuron in NEURONS}
    for repetition in range(rounds + 3):
        for neuron, step in steps.items():
            began = time.process_time()
            step()
            if repetition >= 3:
                times[neuron].append(1e3 * (time.process_time() - began))
    return {neuron: median(values) for neuron, values in times.items()}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("results", type=Path)
    path = parser.parse_args().results
    torch.set_num_threads(1)
    found = {
        f"T={timesteps} {backend}": measure(timesteps, backend, rounds=60 if backend == "auto" else 20)
        for timesteps in (1, 10, 30)
        for backend in ("auto", "reference")
    }
    for setting, milliseconds in found.items():
        print(
            setting,
            {name: f"{ms:.2f} ms ({ms / milliseconds['LIF'] - 1:+.0%})" for name, ms in milliseconds.items()},
        )
    write(path, read(path).results, found)
