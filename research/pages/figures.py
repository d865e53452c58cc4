"""The paper's figures, drawn from available runs, with the published points."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from research.paper import published
from research.paper.grids import ABLATED, ABLATION, CONSTANT, CONTROLS
from research.paper.published import BASELINES, DATASETS, TIMESTEPS, ULTRA
from research.paper.results import Results
from research.paper.statistics import Interval, interval
from ultralif.errors import InputError
from ultralif.report import new_figure, save_figure, style_of

__all__ = ["ablation_figure", "accuracy_figure", "paper_figures"]

ORDER = (*BASELINES, *ULTRA, *(control.label for control in CONTROLS))
PUBLISHED = "hollow: published"
FAMILIES = {
    "leaky": BASELINES[:4],
    "DSpike": BASELINES[4:],
    "temporal": ULTRA[:2],
    "spatial": ULTRA[2:],
    "controls": (*(control.label for control in CONTROLS), "SigmaLIF"),
}
"""The rows of the figure of accuracies, with few lines in each panel."""


def paper_figures(results: Results, folder: Path, suffix: str = ".png") -> list[Path]:
    """Draw every figure for which there are runs, and return the files."""
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
    """Draw accuracy over T: a column for each dataset, a row for each family of neurons, LIF in all of them.

    Means with 95 % intervals; hollow: published.

    Args:
        path: the file.
        results: the runs.
        datasets: the columns.
        released: draw the best epochs of the author's code; otherwise the last ones of the paper as written.
    """
    if not datasets:
        raise InputError(f"datasets must name at least one, such as {DATASETS[0]}")
    labels = [*_labels(results), *(["SigmaLIF"] if released else [])]
    families = {name: [one for one in family if one in labels] for name, family in FAMILIES.items()}
    others = [label for label in labels if not any(label in family for family in FAMILIES.values())]
    if others and not released:
        families["others"] = others
    drawn = {name: family for name, family in families.items() if family}
    figure, axes = new_figure(len(datasets), len(drawn), width=2.3, height=1.6)
    beside_paper = False
    for column, dataset in zip(axes.T, datasets, strict=True):
        times = _times(results, dataset)
        for axis, family in zip(column, drawn.values(), strict=True):
            axis.sharey(column[0])
            beside = ["LIF"] if "LIF" in labels else []
            for i, label in enumerate(dict.fromkeys((*family, *beside))):
                shift = 0.08 * (i - len(family) / 2)
                beside_paper |= _draw_line(axis, results, label, dataset, times, shift, released=released)
            axis.set_xticks(range(len(times)), [str(time) for time in times])
            axis.set_xlim(-0.5, len(times) - 0.5)
        column[0].set_title(dataset, fontsize=10)
        column[-1].set_xlabel("time steps T")
    for axis, name in zip(axes[:, 0], drawn, strict=True):
        axis.set_ylabel(f"{name}: %")
    reading = "as released, best epoch" if released else "as written, last epoch"
    _legend(figure, axes, f"test accuracy, {reading}" + (f"; {PUBLISHED}" if beside_paper else ""))
    return save_figure(figure, path)


def _labels(results: Results) -> list[str]:
    """Return the networks without a penalty and with learned temperature, the paper's first."""
    found = dict.fromkeys(
        key.label for key in results.runs if not re.search(r"lambda=| layers$|^SigmaLIF", key.label)
    )
    known = {*ORDER, *(variant.label for variant in ABLATION)}
    return [label for label in ORDER if label in found] + [label for label in found if label not in known]


def _times(results: Results, dataset: str) -> list[int]:
    return sorted({key.timesteps for key in results.runs if key.dataset == dataset})


def _legend(figure: Any, axes: Any, title: str | None) -> None:
    """Put one legend below all panels."""
    found = {
        label: handle
        for axis in axes.flat
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    order = sorted(found, key=lambda label: ORDER.index(label) if label in ORDER else len(ORDER))
    options = {"title": title, "title_fontsize": 8, "fontsize": 8, "frameon": False}
    figure.legend([found[label] for label in order], order, loc="outside lower center", ncols=5, **options)


def _draw_line(
    axis: Any,
    results: Results,
    label: str,
    dataset: str,
    times: Sequence[int],
    shift: float,
    *,
    released: bool,
) -> bool:
    """Draw a neuron's accuracy and the published points; tell whether there are published points."""
    style = style_of(label)
    find = results.best_epoch if released else results.accuracy
    found = [interval(find(label, dataset, time)) for time in times]
    known = [(x + shift, value) for x, value in enumerate(found) if value is not None]
    if known:
        axis.plot(*zip(*((x, value.mean) for x, value in known), strict=True), **style, ms=0, lw=1, alpha=0.5)
        axis.errorbar(
            [x for x, _ in known],
            [value.mean for _, value in known],
            [value.half or 0.0 for _, value in known],
            **(style | {"linestyle": "none"}),
            ms=4,
            lw=1.1,
            label=label,
        )
    theirs = [
        (x + shift, published.accuracy(dataset, label, time))
        for x, time in enumerate(times)
        if dataset in DATASETS and label in (*BASELINES, *ULTRA) and time in TIMESTEPS
    ]
    for place in theirs:
        axis.plot(*place, style["marker"], color=style["color"], mfc="none", ms=6.5, alpha=0.7)
    return bool(theirs)


def ablation_figure(path: Path, results: Results, encoding: str = "rate") -> Path:
    """Draw fixed and learned temperatures on MNIST at T=1, and how learned ones move from epoch to epoch.

    Args:
        path: the file.
        results: the runs.
        encoding: those of a reading of the text, or of the author's own system: there best epochs are drawn.
    """
    figure, axes = new_figure(2, height=3.6)
    left, right = axes[0]
    for i, neuron in enumerate(ULTRA):
        _draw_fixed(left, results, neuron, encoding, shift=1.03 ** (i - 1.5))
        color = style_of(neuron)["color"]
        for seed, values in enumerate(results.trajectories(neuron, encoding).values()):
            label = neuron if seed == 0 else None
            right.plot(range(1, len(values) + 1), values, color=color, lw=1, alpha=0.8, label=label)
        right.axhline(published.final_eps(neuron), color=color, lw=0.8, ls=":")
    left.set(xlabel="temperature eps (star: learned)", ylabel="test accuracy %", xscale="log")
    left.set_title("MNIST, T=1 (hollow: published; UltraDLIF and UltraDPLIF are equal)", fontsize=8)
    low, high = left.get_xlim()
    ticks = [tick for tick in (0.1, 0.2, 0.5, 1, 2, 5) if low <= tick <= high]
    left.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    left.minorticks_off()
    right.set(xlabel="epoch", ylabel="learned eps", ylim=(0, None))
    right.set_title("learned temperatures (dotted: published end)", fontsize=9)
    _legend(figure, axes, None)
    return save_figure(figure, path)


def _draw_fixed(axis: Any, results: Results, neuron: str, encoding: str, shift: float) -> None:
    """Draw accuracy over fixed temperatures, shifted a little for each neuron, and at the learned one."""
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
