"""Measure bias and variance of gradients by temperature, for the paper's corollary on gradient scaling.

    python -m research studies gradient_variance

Perceptrons with binary spikes (T=1) are trained as in `deep_gradient`; then their weights are fixed. For each
temperature, gradients of batches of 128 samples are computed for the soft network and for the binary network
with the soft derivative. *Variance* is the variance over batches, summed over all weights and divided by the
squared length of the mean gradient. *Bias* is 1 minus the cosine between the mean gradient and the true
gradient of the binary network, whose loss is averaged over a little noise.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import ultralif as ul
from research import RESULTS
from research.studies.deep_gradient import Binary, RandomTask, Rule, add, claimed, sampled, ultra

TEMPERATURES = (0.1, 0.2, 0.4, 0.8, 1.6)
BATCH = 128


def rule(eps: float, mode: str) -> Rule:
    """Return a one-step UltraLIF that is soft, or binary with the soft derivative."""
    options: dict[str, Any] = {**ultra(eps), "mode": mode, "learn_eps": False}
    module = ul.UltraLIF(**options)
    return lambda current: module(current.unsqueeze(0))[0]


def flat(grads: list[Tensor]) -> Tensor:
    return torch.cat([grad.flatten() for grad in grads])


def moments(net: Binary, task: RandomTask, method: Rule, batches: int) -> tuple[Tensor, float, float]:
    """Return the mean gradient, its length, and the relative variance of the batch gradients."""
    found = torch.stack([flat(claimed(net, method, *task.draw(BATCH))) / BATCH for _ in range(batches)])
    mean, spread = found.mean(0), found.var(0).sum()
    squared = mean.square().sum() - spread / batches  # remove the part contributed by the variance
    return mean, float(squared.sqrt()), float(spread / squared)


def measure(seed: int, depth: int, batches: int, samples: int) -> dict[str, list[list[float]]]:
    """Return gradient length, relative variance and bias by mode, for each temperature."""
    random = torch.Generator().manual_seed(seed)
    task, net = RandomTask(random), Binary(depth, random)
    net.train(task, 100)
    halves = [[torch.zeros_like(w) for w in net.weights] for _ in range(2)]
    with torch.no_grad():
        for i in range(samples // 20_000):
            add(halves[i % 2], sampled(net, *task.draw(20_000), random))
    a, b = map(flat, halves)
    true, length = (a + b) / 2, (a @ b).clamp(min=1e-12).sqrt()
    found: dict[str, list[list[float]]] = {"soft": [], "hard": []}
    for mode, rows in found.items():
        for eps in TEMPERATURES:
            mean, size, variance = moments(net, task, rule(eps, mode), batches)
            rows.append([size, variance, 1 - float(mean @ true / length) / size])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--depth", type=int, default=2)
    parser.add_argument("--batches", type=int, default=400)
    parser.add_argument("--samples", type=int, default=600_000, help="noise samples for the true gradient")
    parser.add_argument("--out", type=Path, default=RESULTS / "gradient-variance.json")
    given = parser.parse_args()
    runs = [measure(seed, given.depth, given.batches, given.samples) for seed in range(given.seeds)]
    rows = {mode: [run[mode] for run in runs] for mode in ("soft", "hard")}
    for mode, seeds in rows.items():
        for eps, (size, variance, bias) in zip(
            TEMPERATURES, torch.tensor(seeds).mean(0).tolist(), strict=True
        ):
            print(f"{mode} eps {eps:g}: length {size:.4f}, variance {variance:.2f}, bias {bias:.3f}")
    settings = {"depth": given.depth, "batch": BATCH, "batches": given.batches, "samples": given.samples}
    document = {**settings, "temperatures": TEMPERATURES, "length, variance, bias by seed": rows}
    given.out.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
