"""Draw binary accuracy against depth and against training time, from the study and the speedrun.

python -m research studies deep_figures
"""

from collections.abc import Iterable
from pathlib import Path
from statistics import mean
from typing import Any

from research.pages.deep import PAGE, lines
from ultralif.report import STYLES, new_figure, save_figure

Row = dict[str, Any]
FOLDER = PAGE.parent / "images" / "deep"
COLORS = {name: STYLES[name][0] for name in ("UltraLIF", "SoftLIF", "DSpike")} | {
    "sigmoid": "#E69F00",
    "LIF, learned width": "#80868F",
    "LIF, atan": "#8C6BB1",
    "ReLU": "black",
}
WORDS = {"LIF, atan": "LIF, arctangent surrogate", "LIF, learned width": "LIF, learned surrogate width"}


def depth(rows: Iterable[Row], path: Path) -> bool:
    """Draw the accuracy of every run by the number of convolutions, with lines through the means."""
    curves: dict[str, dict[int, list[float]]] = {}
    for row in rows:
        cell = row["cell"]
        if cell["study"] == "depth":
            depth = sum(map(len, cell["stages"]))
            curves.setdefault(cell["method"], {}).setdefault(depth, []).append(row["accuracy"])
    if not curves:
        return False
    figure, axes = new_figure(1, width=4.6, height=3.2)
    axis = axes[0, 0]
    for name, curve in curves.items():
        layers, color = sorted(curve), COLORS.get(name)
        means = [mean(curve[n]) for n in layers]
        axis.plot(layers, means, label=WORDS.get(name, name), color=color)
        axis.plot(*zip(*((n, value) for n in layers for value in curve[n]), strict=True), ".", color=color)
    axis.set_xscale("log", base=2)
    axis.set_xticks(sorted({n for curve in curves.values() for n in curve}), labels=None)
    axis.get_xaxis().set_major_formatter("{x:.0f}")
    axis.set(xlabel="convolutions of 64 channels", ylabel="test accuracy, %")
    axis.legend(fontsize=8, frameon=False)
    save_figure(figure, path)
    return True


def seconds(rows: Iterable[Row], path: Path) -> bool:
    """Draw the test accuracy of every speedrun by its time."""
    found: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        if not row["holdout"]:
            name = {"spikingjelly": "SpikingJelly's LIF"}.get(
                row["recipe"]["neuron"], row["recipe"]["neuron"]
            )
            found.setdefault(f"{name}, T={row['recipe']['timesteps']}", []).append(
                (row["seconds"], row["accuracy"])
            )
    if not found:
        return False
    figure, axes = new_figure(1, width=4.6, height=3.0)
    axis = axes[0, 0]
    for (name, points), mark in zip(sorted(found.items()), "ox^sv", strict=False):
        axis.scatter(*zip(*points, strict=True), marker=mark, label=name)
    axis.set_xscale("log")
    axis.set_xticks([10, 20, 30, 60, 120, 240], labels=["10", "20", "30", "60", "120", "240"])
    axis.set_xticks([], minor=True)
    axis.set_xlim(7, 300)
    axis.set(xlabel="seconds on one H200", ylabel="test accuracy, %")
    axis.legend(fontsize=8, frameon=False)
    save_figure(figure, path)
    return True


def draw_figures() -> None:
    """Draw both figures."""
    for draw, name in ((depth, "deep.jsonl"), (seconds, "speedrun.jsonl")):
        path = FOLDER / f"{draw.__name__}.png"
        print(path if draw(lines(name), path) else f"{name} has no runs to draw")
