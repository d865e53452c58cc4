"""Compare surrogate gradients of a deep binary network with the true gradient, layer by layer.

    python -m research studies deep_gradient --figure research/docs/images/deep/gradient.png

A perceptron with binary spikes (T=1) is trained with soft and then binary spikes; its weights and norms are
then fixed. The true gradient for a layer's weights is the gradient of the loss averaged over a little
Gaussian noise on the layer's currents. It is sampled with pairs of opposite noise, in two independent halves
A and B, so that sampling noise does not lower the cosine: g (A + B) / 2 over |g| sqrt(A B). All methods see
the same binary network; only their derivatives differ. For a soft network, the true gradient comes from
finite differences.
"""

import argparse
import json
import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import ultralif as ul
from research import RESULTS
from research.readings.neurons import register_neurons
from ultralif.report import new_figure, save_figure

INPUTS, WIDTH, CLASSES = 16, 32, 4
THRESHOLD = 0.5
NOISE = 0.3  # standard deviation, where the currents have 1
STYLES = {
    "UltraLIF soft": ("#0072B2", "-"),
    "UltraLIF": ("#D55E00", "-"),
    "sigmoid": ("#80868F", ":"),
    "triangle": ("#8C6BB1", "--"),
}
Rule = Callable[[Tensor], Tensor]


def ultra(eps: float) -> dict[str, float]:
    """Return UltraLIF's arguments for spikes at currents above THRESHOLD, as for all other methods."""
    return {"eps": eps, "threshold": eps * math.log(math.exp(THRESHOLD / eps) + 0.9 ** (1 / eps))}


def neuron(name: str, **options: object) -> Rule:
    """Return a one-step binary neuron as a function of currents ``[B, N]``."""
    module = ul.NEURONS[name](**options)
    module.mode = "hard"
    return lambda current: module(current.unsqueeze(0))[0]


register_neurons()
METHODS: dict[str, Rule] = {
    "sigmoid, slope 10 (the paper's)": neuron("UnscaledLIF", surrogate_slope=10.0),
    "sigmoid, slope 4": neuron("UnscaledLIF", surrogate_slope=4.0),
    "sigmoid, slope 2": neuron("UnscaledLIF", surrogate_slope=2.0),
    "triangle, half-width 1": neuron("UnscaledLIF", surrogate="triangle", surrogate_slope=1.0),
    "triangle, half-width 2": neuron("UnscaledLIF", surrogate="triangle", surrogate_slope=0.5),
    "UltraLIF, eps 0.3": neuron("UltraLIF", **ultra(0.3), learn_eps=False),
    "UltraLIF, eps 0.6": neuron("UltraLIF", **ultra(0.6), learn_eps=False),
}


class RandomTask:
    """Gaussian inputs, labelled by a random network with one hidden layer."""

    def __init__(self, random: torch.Generator) -> None:
        self.random = random
        self.hidden = torch.randn(INPUTS, 32, generator=random) / INPUTS**0.5
        self.out = torch.randn(32, CLASSES, generator=random)

    def draw(self, count: int) -> tuple[Tensor, Tensor]:
        x = torch.randn(count, INPUTS, generator=self.random)
        return x, (torch.tanh(2 * x @ self.hidden) @ self.out).argmax(1)


class Binary:
    """A perceptron with fixed norms: each sum minus its mean, divided by its standard deviation."""

    def __init__(self, depth: int, random: torch.Generator) -> None:
        sizes = [INPUTS, *[WIDTH] * depth]
        self.weights = [torch.randn(m, n, generator=random) / m**0.5 for m, n in pairwise(sizes)]
        self.head = torch.randn(WIDTH, CLASSES, generator=random) / WIDTH**0.5
        self.norms: list[tuple[Tensor, Tensor]] = []

    def currents(self, layer: int, signal: Tensor) -> Tensor:
        summed = signal @ self.weights[layer]
        if not self.norms:  # in training: batch statistics
            return (summed - summed.mean(0)) / summed.std(0)
        mean, deviation = self.norms[layer]
        return (summed - mean) / deviation

    def scores(self, signal: Tensor, rule: Rule, first: int = 0, noise: Tensor | None = None) -> Tensor:
        """Return the scores for the input to layer ``first``, whose currents may be perturbed."""
        for layer in range(first, len(self.weights)):
            current = self.currents(layer, signal)
            signal = rule(current if noise is None or layer > first else current + noise)
        return signal @ self.head

    def train(self, task: RandomTask, steps: int) -> float:
        """Train with soft, then binary spikes, fix the norms, and return the binary accuracy."""
        parameters = [*self.weights, self.head]
        for parameter in parameters:
            parameter.requires_grad_()
        rule = ul.nn.SoftLIF(eps=0.3, learn_eps=False)
        adam = torch.optim.Adam(parameters, 1e-2)
        falling = torch.optim.lr_scheduler.LinearLR(adam, 1.0, 0.02, steps)
        for step in range(steps):
            rule.mode = "soft" if step < 0.7 * steps else "hard"
            x, labels = task.draw(500)
            adam.zero_grad()
            cross_entropy(self.scores(x, lambda c: rule(c.unsqueeze(0))[0]), labels).backward()
            adam.step()
            falling.step()
        for parameter in parameters:
            parameter.requires_grad_(False)
        self.fix(task)
        x, labels = task.draw(20_000)
        return (self.scores(x, METHODS["sigmoid, slope 4"]).argmax(1) == labels).float().mean().item()

    def fix(self, task: RandomTask) -> None:
        signal, norms = task.draw(50_000)[0], []
        for weight in self.weights:
            summed = signal @ weight
            norms.append((summed.mean(0), summed.std(0)))
            signal = (((summed - summed.mean(0)) / summed.std(0)) > THRESHOLD).float()
        self.norms = norms


def claimed(net: Binary, rule: Rule, x: Tensor, labels: Tensor) -> list[Tensor]:
    """Return a method's gradients for the weights of all layers, summed over the samples."""
    for weight in net.weights:
        weight.requires_grad_()
    loss = cross_entropy(net.scores(x, rule), labels, reduction="sum")
    grads = torch.autograd.grad(loss, net.weights)
    for weight in net.weights:
        weight.requires_grad_(False)
    return list(grads)


def sampled(net: Binary, x: Tensor, labels: Tensor, random: torch.Generator) -> list[Tensor]:
    """Return the sampled gradients of the smoothed loss for all layers, summed over the samples."""
    rule, signal, found = METHODS["sigmoid, slope 4"], x, []
    for layer in range(len(net.weights)):
        noise = NOISE * torch.randn(len(x), WIDTH, generator=random)
        up, down = (
            cross_entropy(net.scores(signal, rule, layer, sign * noise), labels, reduction="none")
            for sign in (1, -1)
        )
        per_current = (up - down)[:, None] / 2 * noise / NOISE**2
        found.append(signal.T @ (per_current / net.norms[layer][1]))
        signal = rule(net.currents(layer, signal))
    return found


def cosines(net: Binary, task: RandomTask, samples: int, random: torch.Generator) -> dict[str, list[float]]:
    """Return each method's cosine to the true gradient, layer by layer."""
    halves = [[torch.zeros_like(w) for w in net.weights] for _ in range(2)]
    grads = {name: [torch.zeros_like(w) for w in net.weights] for name in METHODS}
    for i in range(samples // 20_000):
        x, labels = task.draw(20_000)
        with torch.no_grad():
            add(halves[i % 2], sampled(net, x, labels, random))
        if i % 10 == 0:  # these gradients have little noise
            for name, rule in METHODS.items():
                add(grads[name], claimed(net, rule, x, labels))
    found = {"|true gradient|": [0.0] * len(net.weights)} | {name: [] for name in METHODS}
    for layer, (a, b) in enumerate(zip(*halves, strict=True)):
        length = max((a * b).sum().item(), 1e-12) ** 0.5
        found["|true gradient|"][layer] = length / (samples / 2)
        for name in METHODS:
            g = grads[name][layer]
            found[name].append(((g * (a + b)).sum() / 2 / g.norm() / length).item())
    return found


def add(sums: Sequence[Tensor], more: Sequence[Tensor]) -> None:
    for total, part in zip(sums, more, strict=True):
        total += part


def soft_cosines(net: Binary, task: RandomTask, random: torch.Generator) -> list[float]:
    """Return the cosine between soft UltraLIF's gradient and finite differences along 40 directions."""
    wide = Binary(0, random)
    wide.weights = [w.double() for w in net.weights]
    wide.head, wide.norms = net.head.double(), [(m.double(), d.double()) for m, d in net.norms]
    soft = ul.nn.UltraLIF(**ultra(0.3), learn_eps=False)
    rule: Rule = lambda current: soft(current.unsqueeze(0))[0]  # noqa: E731
    x, labels = task.draw(1000)
    grads = claimed(wide, rule, x.double(), labels)
    found = []
    for layer, g in enumerate(grads):
        kept, pairs = wide.weights[layer], []
        for _ in range(40):
            way = torch.randn(g.shape, generator=random).double()
            losses = []
            for sign in (1, -1):
                wide.weights[layer] = kept + sign * 1e-5 * way
                losses.append(cross_entropy(wide.scores(x.double(), rule), labels, reduction="sum"))
            pairs.append(((losses[0] - losses[1]) / 2e-5, (g * way).sum()))
        wide.weights[layer] = kept
        measured, told = (torch.stack(side) for side in zip(*pairs, strict=True))
        found.append(nn.functional.cosine_similarity(measured, told, dim=0).item())
    return found


def draw(results: dict[str, Any], path: Path) -> None:
    """Draw the cosine by layer for the soft network and for every method on binary networks."""
    figure, ((axis,),) = new_figure(1, width=4.6, height=4.2)
    for name, seeds in results["cosines"].items():
        if name.startswith("|"):
            continue
        kind = next(kind for kind in STYLES if name.startswith(kind))
        mean = torch.tensor(seeds).mean(0)
        label = "soft UltraLIF network: exact" if "soft" in name else f"binary, {name}"
        marker = {"1": "o", "2": "s", "4": "^", "6": "s"}.get(name.partition(" (")[0][-1], "o")
        color, line = STYLES[kind]
        axis.plot(range(1, len(mean) + 1), mean, line, color=color, marker=marker, ms=4, label=label)
    axis.set(xlabel="layer, from the input", ylabel="cosine to the true gradient", ylim=(0, 1.05))
    figure.legend(loc="outside upper center", ncols=1, fontsize=8, frameon=False)
    save_figure(figure, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--depth", type=int, default=8)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=100, help="of training")
    parser.add_argument("--samples", type=int, default=1_600_000, help="noise samples for the true gradient")
    parser.add_argument("--out", type=Path, default=RESULTS / "deep-gradient.json")
    parser.add_argument("--figure", type=Path)
    given = parser.parse_args()
    curves: dict[str, list[list[float]]] = {}
    accuracies = []
    for seed in range(given.seeds):
        random = torch.Generator().manual_seed(seed)
        task, net = RandomTask(random), Binary(given.depth, random)
        accuracies.append(net.train(task, given.steps))
        found = cosines(net, task, given.samples, random)
        found["UltraLIF soft, its own loss"] = soft_cosines(net, task, random)
        for name, values in found.items():
            curves.setdefault(name, []).append([round(v, 5) for v in values])
            print(f"{name:32}", *(f"{v:6.3f}" for v in values), flush=True)
        print(f"binary accuracy {accuracies[-1]:.3f}", flush=True)
    settings = {"depth": given.depth, "width": WIDTH, "noise": NOISE, "samples": given.samples}
    results = {**settings, "binary accuracy": accuracies, "cosines": curves}
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps(results, indent=1) + "\n")
    if given.figure:
        draw(results, given.figure)


if __name__ == "__main__":
    main()
