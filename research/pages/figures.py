"""Draw the paper's figures from available runs, with the published points."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from research.pages.paper_parts import NAMES
from research.paper import published
from research.paper.grids import ABLATED, CONSTANT
from research.paper.published import BASELINES, DATASETS, TIMESTEPS, ULTRA
from research.paper.results import Results
from research.paper.statistics import Interval, interval
from ultralif.errors import InputError
from ultralif.report import new_figure, save_figure, style_of

__all__ = ["ablation_figure", "accuracy_figure", "paper_figures"]

ORDER = (*BASELINES, *ULTRA)
WIDTH = 4.6  # inches: narrow enough to be read on a phone


def paper_figures(results: Results, folder: Path, suffix: str = ".png") -> list[Path]:
    """Draw every figure that has runs, and return the files."""
    datasets = list(dict.fromkeys(key.dataset for key in results.runs))
    datasets.sort(key=lambda name: DATASETS.index(name) if name in DATASETS else len(DATASETS))
    drawn = [accuracy_figure(folder / f"accuracy{suffix}", results, datasets)] if datasets else []
    images = [name for name in datasets if results.best_epoch("LIF", name, 1)]
    if images:
        drawn.append(accuracy_figure(folder / f"released{suffix}", results, images, released=True))
    if any(results.trajectories(neuron, CONSTANT) for neuron in ULTRA):
        drawn.append(ablation_figure(folder / f"released-ablation{suffix}", results, CONSTANT))
    return drawn


def accuracy_figure(
    path: Path, results: Results, datasets: Sequence[str] = DATASETS, *, released: bool = False
) -> Path:
    """Draw measured minus published accuracy, with a row for each dataset and T and a dot for each neuron.

    Lines are 95 % intervals. The scale is linear within one point and logarithmic beyond.

    Args:
        path: the image file to write.
        results: the runs.
        datasets: the datasets, from top to bottom.
        released: draw the best epochs in the author's reading; otherwise the last epochs as written.
    """
    if not datasets:
        raise InputError(f"datasets must contain at least one name, such as {DATASETS[0]}")
    find = results.best_epoch if released else results.accuracy
    found = {
        (dataset, time): [
            (label, value, value.mean - published.accuracy(dataset, label, time))
            for label in (*BASELINES, *ULTRA)
            if (value := interval(find(label, dataset, time))) is not None
        ]
        for dataset in datasets
        for time in TIMESTEPS
    }
    rows = {place: dots for place, dots in found.items() if dots}
    figure, axes = new_figure(1, width=WIDTH, height=1.2 + 0.27 * len(rows))
    axis = axes[0, 0]
    axis.axvline(0, color="black", lw=0.8)
    for row, dots in enumerate(rows.values()):
        for i, (label, value, difference) in enumerate(dots):
            name = "Ultra neurons" if label in ULTRA else "baselines"
            style = {"color": "#0072B2", "fmt": "o"} if label in ULTRA else {"color": "#80868F", "fmt": "s"}
            height = row + 0.6 * (i / max(len(dots) - 1, 1) - 0.5)
            axis.errorbar(difference, height, xerr=value.half or 0.0, **style, ms=3, lw=1, label=name)
    axis.set_xscale("symlog", linthresh=1)
    axis.set_xticks([-20, -5, -1, 0, 1, 5, 20], ["-20", "-5", "-1", "0", "1", "5", "20"])
    axis.set_xlim(-35, 35)
    axis.grid(axis="x", lw=0.3)
    axis.set_yticks(range(len(rows)), [f"{NAMES.get(dataset, dataset)}, T={time}" for dataset, time in rows])
    axis.set_ylim(len(rows) - 0.5, -0.5)
    axis.set_xlabel("measured minus published, points")
    _legend(figure, axes)
    return save_figure(figure, path)


def _legend(figure: Any, axes: Any) -> None:
    """Place one legend below all panels."""
    found = {
        label: handle
        for axis in axes.flat
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    order = sorted(found, key=lambda label: ORDER.index(label) if label in ORDER else len(ORDER))
    figure.legend(
        [found[label] for label in order], order, loc="outside upper center", ncols=2, frameon=False
    )


def ablation_figure(path: Path, results: Results, encoding: str = "rate") -> Path:
    """Draw fixed and learned temperatures on MNIST at T=1, and learned temperatures by epoch.

    Args:
        path: the image file to write.
        results: the runs.
        encoding: a reading of the text, or the author's separate system, for which best epochs are drawn.
    """
    figure, axes = new_figure(1, 2, width=WIDTH, height=3.1)
    upper, lower = axes[:, 0]
    for i, neuron in enumerate(ULTRA):
        _draw_fixed(upper, results, neuron, encoding, shift=1.03 ** (i - 1.5))
        color = style_of(neuron)["color"]
        for seed, values in enumerate(results.trajectories(neuron, encoding).values()):
            label = neuron if seed == 0 else None
            lower.plot(range(1, len(values) + 1), values, color=color, lw=1, alpha=0.8, label=label)
        lower.axhline(published.final_eps(neuron), color=color, lw=0.8, ls=":")
    upper.set(xlabel="temperature eps; stars: learned", ylabel="test accuracy, %", xscale="log")
    upper.set_title("MNIST, T=1; hollow: published", fontsize=10)
    low, high = upper.get_xlim()
    ticks = [tick for tick in (0.1, 0.2, 0.5, 1, 2, 5) if low <= tick <= high]
    upper.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    upper.minorticks_off()
    lower.set(xlabel="epoch", ylabel="learned eps", ylim=(0, None))
    lower.set_title("learned temperatures; dotted: published", fontsize=10)
    _legend(figure, axes)
    return save_figure(figure, path)


def _draw_fixed(axis: Any, results: Results, neuron: str, encoding: str, shift: float) -> None:
    """Draw accuracy at fixed temperatures, slightly shifted for each neuron, and at the learned one."""
    style = style_of(neuron)

    def accuracy(label: str) -> Interval | None:
        best = results.best_epoch(label, "mnist", 1, encoding)
        return interval(best or results.accuracy(label, "mnist", 1, encoding=encoding))

    found: dict[float, Interval] = {}
    for eps in ABLATED:
        value = accuracy(f"{neuron} eps={eps:g}")
        if value is not None:
            found[eps * shift] = value
    halves = [value.half or 0.0 for value in found.values()]
    axis.errorbar(list(found), [v.mean for v in found.values()], halves, **style, ms=4, lw=1.1)
    theirs = [published.ablation("accuracy", neuron, eps) for eps in ABLATED]
    places = [eps * shift for eps in ABLATED]
    axis.plot(places, theirs, style["marker"], color=style["color"], mfc="none", ms=6.5, alpha=0.7)
    learned, there = accuracy(neuron), published.ablation("accuracy", neuron, None)
    axis.plot(published.final_eps(neuron), there, "*", color=style["color"], mfc="none", ms=11, alpha=0.7)
    end = interval(results.eps(neuron, "mnist", 1, encoding))
    if learned is not None and end is not None:
        axis.errorbar([end.mean], [learned.mean], [learned.half or 0.0], color=style["color"], fmt="*", ms=9)
