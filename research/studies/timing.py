"""Classify from spike times alone, and measure how long each neuron's membrane remembers.

    python -m research studies timing  # a few minutes on one CPU core; writes timing.json and a figure

The task is randman: 64 inputs fire once each in 30 steps. Networks have 64 hidden neurons with the paper's
constants and reset, and are trained alike (Adam 1e-2, 20 epochs, five seeds). Memory is the mean of
abs(dV(n) / dV(0)) over the neurons of a trained network and 64 test samples, computed by autograd with soft
spikes from the tenth step. For a ring it is the derivative of the sum of all membranes. Existing runs are not
trained again.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import ultralif as ul
from research import DOCS, RESULTS
from research.paper.statistics import interval, paired
from research.readings.presets import reading_config
from ultralif.report import new_figure, save_figure, style_of
from ultralif.training import Store, plan, run_local

OUT, FIGURE = RESULTS / "timing.json", DOCS / "images" / "timing.png"
NEURONS: dict[str, dict[str, Any]] = {
    "LIF": {"neuron": "LIF"},
    "SoftLIF": {"neuron": "SoftLIF"},
    "UltraDLIF centred": {"neuron": "UltraDLIF", "centered": True},
    "UltraDLIF": {"neuron": "UltraDLIF"},
    "UltraLIF": {"neuron": "UltraLIF"},
}
SEEDS = range(42, 47)
FIELDS = {"dataset": "randman", "timesteps": 30, "learning_rate": 1e-2, "batch_size": 64, "epochs": 20}
START, STEPS = 9, 20
"""The step at which the memory measurement starts, and its number of steps."""


def memory(net: ul.Network, x: Tensor) -> list[float]:
    """Return the mean of abs(dV(n) / dV(0)) for n = 0, 1 ..."""
    linear, neuron = next(net.layers())
    currents = linear(x.float()).detach()
    with ul.mode(net, "soft"):
        state = None
        for current in currents[: START + 1]:
            _, state = neuron.step(current, state)
        start = state.v.detach().requires_grad_()
        state, found = type(state)(start), [1.0]
        for current in currents[START + 1 : START + 1 + STEPS]:
            _, state = neuron.step(current, state)
            (slope,) = torch.autograd.grad(state.v.sum(), start, retain_graph=True)
            found.append(float(slope.abs().mean()))
    return found


def measure(runs_dir: Path) -> list[dict[str, Any]]:
    """Train the missing runs, and return the accuracies and memory of every network."""
    configs = {
        (label, seed): reading_config("written", seed=seed, **FIELDS, **own)
        for label, own in NEURONS.items()
        for seed in SEEDS
    }
    store = Store(runs_dir)
    for _ in run_local(plan(list(configs.values()), store, seeds=len(SEEDS)), store):
        pass
    test = ul.data.load("randman", timesteps=30).test
    x = test.batch(list(range(64)))
    rows = []
    for (label, seed), config in configs.items():
        run = store.read(config.id)
        own = run.result.by_mode
        rows.append(
            {
                "neuron": label,
                "seed": seed,
                "accuracy": run.result.own.accuracy,
                "binary": own["hard"].accuracy,
                "memory": memory(ul.load(config.id, runs_dir), x),
            }
        )
    return rows


def by_seed(rows: list[dict[str, Any]], label: str, name: str) -> dict[int, float]:
    """Return one of a neuron's measurements by seed."""
    return {row["seed"]: row[name] for row in rows if row["neuron"] == label}


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """Draw the accuracies, and memory over time steps."""
    figure, ((upper,), (lower,)) = new_figure(1, 2, width=4.6, height=2.8)
    for place, label in enumerate(NEURONS):
        style = style_of(label) | ({"linestyle": "dashed"} if "centred" in label else {})
        for name, shift, fill in (("accuracy", -0.12, style["color"]), ("binary", 0.12, "white")):
            found = interval(by_seed(rows, label, name))
            upper.errorbar(
                [place + shift],
                [found.mean],
                [found.half],
                fmt=style["marker"],
                color=style["color"],
                mfc=fill,
            )
        memories = torch.tensor([row["memory"] for row in rows if row["neuron"] == label])
        lower.plot(memories.mean(0), color=style["color"], ls=style["linestyle"], label=label)
    upper.set_xticks(range(len(NEURONS)), [label.replace(" ", "\n") for label in NEURONS], fontsize=8)
    upper.set_ylabel("test accuracy, %")
    upper.set_title("randman, T=30; hollow: binary spikes", fontsize=10)
    lower.set(xlabel="time steps later", ylabel="share of the membrane left", yscale="log", ylim=(1e-6, 2))
    lower.set_xticks(range(0, 21, 5))
    lower.set_title("memory of the trained networks", fontsize=10)
    lower.legend(fontsize=8, frameon=False)
    save_figure(figure, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--runs-dir", type=Path, default=Path("runs-timing"))
    given = parser.parse_args()
    torch.set_num_threads(1)
    rows = measure(given.runs_dir)
    OUT.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")
    draw(rows, FIGURE)
    for label in NEURONS:
        shown = [interval(by_seed(rows, label, name)) for name in ("accuracy", "binary")]
        print(f"{label:18} {shown[0]}, binary {shown[1]}")
    for name in ("accuracy", "binary"):
        lead = paired(*(by_seed(rows, label, name) for label in ("UltraDLIF centred", "UltraDLIF")))
        print(f"centred over drifting, {name}: {lead.signed if lead else '-'}")


if __name__ == "__main__":
    main()
