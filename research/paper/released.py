"""Tables with both readings of the paper: as written, and as computed by the author's code."""

from collections.abc import Iterator, Sequence
from statistics import fmean, stdev
from typing import NamedTuple

from research.paper import published
from research.paper.grids import ABLATED, CLIPPED, CONSTANT, STATIC
from research.paper.published import BASELINES, DATASETS, LAMBDAS, TIMESTEPS, ULTRA
from research.paper.results import Results, difference, number
from research.paper.statistics import interval
from ultralif.report import Table

__all__ = ["MARGIN", "PublishedCell", "cells_of", "deep_cells", "penalized_cells", "reproduced", "table"]

MARGIN = 0.5
"""The margin, in points of accuracy, within which a published number counts as reproduced."""
DEPTHS = {
    ("mnist", 2): (95.97, 96.22),
    ("mnist", 3): (95.90, 96.35),
    ("fashion-mnist", 2): (82.65, 83.45),
    ("fashion-mnist", 3): (82.90, 83.55),
    ("cifar10", 2): (40.89, 44.63),
    ("cifar10", 3): (40.35, 44.15),
    ("n-mnist", 2): (90.01, 94.94),
    ("n-mnist", 3): (87.82, 94.87),
    ("dvs-gesture", 2): (52.27, 56.44),
    ("dvs-gesture", 3): (50.38, 51.14),
    ("shd", 2): (19.48, 50.84),
    ("shd", 3): (21.73, 45.67),
}
"""LIF and the best Ultra neuron on the author's page, by dataset and hidden layers, at T=1."""


class PublishedCell(NamedTuple):
    """A published accuracy, and the best test epoch of each of our runs in the author's reading, by seed."""

    neuron: str
    dataset: str
    timesteps: int
    published: float
    best: dict[int, float]

    @property
    def mean(self) -> float:
        """Mean accuracy of the best epochs."""
        return fmean(self.best.values())

    @property
    def spread(self) -> float:
        """Standard deviation over seeds."""
        return stdev(self.best.values()) if len(self.best) > 1 else 0.0

    @property
    def is_reproduced(self) -> bool:
        """Whether the published number is within the margin, or two standard deviations, of the mean."""
        return abs(self.mean - self.published) <= max(MARGIN, 2 * self.spread)


def cells_of(results: Results, datasets: Sequence[str] = STATIC) -> Iterator[PublishedCell]:
    """Yield the published accuracies that have runs."""
    for dataset in datasets:
        for label in (*BASELINES, *ULTRA):
            for timesteps in TIMESTEPS:
                best = results.best_epoch(label, dataset, timesteps)
                if best:
                    theirs = published.accuracy(dataset, label, timesteps)
                    yield PublishedCell(label, dataset, timesteps, theirs, best)


def penalized_cells(
    results: Results, datasets: Sequence[str] = STATIC
) -> Iterator[tuple[PublishedCell, float]]:
    """Yield published accuracies with a penalty, and our spike rate minus the published one."""
    for dataset in datasets:
        for row in published.sparsity_rows(dataset):
            label = f"{row.neuron} lambda={row.sparsity:g}"
            best = results.best_epoch(label, dataset, row.timesteps)
            rate = results.spike_rate(label, dataset, row.timesteps, encoding=CLIPPED)
            if best and rate:
                cell = PublishedCell(label, dataset, row.timesteps, row.accuracy, best)
                yield cell, fmean(rate.values()) - row.spike_rate


def deep_cells(results: Results) -> Iterator[PublishedCell]:
    """Yield the author's published accuracies of LIF and the best Ultra neuron in deeper networks."""
    for (dataset, depth), pair in DEPTHS.items():
        for labels, theirs in zip((["LIF"], ULTRA), pair, strict=True):
            tried = {label: results.best_epoch(f"{label} {depth} layers", dataset, 1) for label in labels}
            known = {label: best for label, best in tried.items() if best}
            if known:
                label = max(known, key=lambda label: fmean(known[label].values()))
                yield PublishedCell(f"{label} {depth} layers", dataset, 1, theirs, known[label])


def reproduced(results: Results, datasets: Sequence[str] = STATIC) -> tuple[int, int, int]:
    """Return the numbers of published accuracies that were reproduced, tried, and printed in all."""
    tried = list(cells_of(results, datasets))
    every = len(datasets) * len(TIMESTEPS) * len((*BASELINES, *ULTRA))
    return sum(cell.is_reproduced for cell in tried), len(tried), every


def table(name: str, results: Results) -> Table:
    """Build one of the tables whose names begin with ``released-``."""
    kind = name.removeprefix("released-")
    if kind == "sparsity":
        return _sparsity(results)
    if kind == "ablation":
        return _ablation(results)
    return _depth(results) if kind == "depth" else _accuracy(kind, results)


def _accuracy(dataset: str, results: Results) -> Table:
    columns = ("neuron", "T", "published", "best epoch", "difference", "last epoch", "written", "seeds")
    rows = []
    for label in (*BASELINES, *ULTRA, "SigmaLIF"):
        for time in TIMESTEPS:
            control = label == "SigmaLIF"
            theirs = None if control else published.accuracy(dataset, label, time)
            best = interval(results.best_epoch(label, dataset, time))
            last = interval(results.accuracy(label, dataset, time, encoding=CLIPPED))
            written = interval(results.accuracy("SoftLIF" if control else label, dataset, time))
            rows.append(
                (
                    label,
                    str(time),
                    number(theirs),
                    str(best or results.nothing(dataset)),
                    difference(best, theirs),
                    str(last or "-"),
                    str(written or "-"),
                    str(best.seeds if best else 0),
                )
            )
    good, tried, every = reproduced(results, [dataset])
    notes = [
        f"{good} of {tried} published accuracies ({every} in all) are within {MARGIN} points or two standard "
        "deviations of the mean best epoch.",
        "*Best* and *last* are epochs in the author's code, where all spikes are soft; the published numbers "
        "are best test epochs of one seed. *Written* is the last epoch of the runs as written, where the "
        "baselines have binary spikes. SigmaLIF is SoftLIF with threshold 0; as written it has 0.5.",
    ]
    return Table(f"released-{dataset}", f"Both readings on {dataset}", columns, rows, notes)


def _sparsity(results: Results) -> Table:
    columns = (
        *("dataset", "neuron", "T", "lambda", "published", "best epoch", "last epoch"),
        *("written", "published rate", "rate", "written rate"),
    )
    rows = []
    for dataset in DATASETS:
        for row in published.sparsity_rows(dataset):
            if row.sparsity not in LAMBDAS:
                continue
            label = row.neuron if not row.sparsity else f"{row.neuron} lambda={row.sparsity:g}"
            best = interval(results.best_epoch(label, dataset, row.timesteps))
            last, written = (
                interval(results.accuracy(label, dataset, row.timesteps, encoding=code))
                for code in (CLIPPED, "rate")
            )
            rates = [
                interval(results.spike_rate(label, dataset, row.timesteps, encoding=code))
                for code in (CLIPPED, "rate")
            ]
            rows.append(
                (
                    dataset,
                    row.neuron,
                    str(row.timesteps),
                    f"{row.sparsity:g}",
                    number(row.accuracy),
                    str(best or results.nothing(dataset)),
                    str(last or "-"),
                    str(written or "-"),
                    f"{row.spike_rate:.3f}",
                    *(f"{rate.mean:.3f}" if rate else "-" for rate in rates),
                )
            )
    return Table("released-sparsity", "The sparsity penalty as the author's code has it", columns, rows)


def _ablation(results: Results) -> Table:
    columns = (
        *("neuron", "eps", "published", "best epoch", "difference", "last epoch"),
        *("published rate", "rate", "published eps", "eps"),
    )
    rows = []
    for neuron in ULTRA:
        for eps in (*ABLATED, None):
            label = neuron if eps is None else f"{neuron} eps={eps:g}"
            theirs = published.ablation("accuracy", neuron, eps)
            best = interval(results.best_epoch(label, "mnist", 1, CONSTANT))
            last = interval(results.accuracy(label, "mnist", 1, encoding=CONSTANT))
            rate = interval(results.spike_rate(label, "mnist", 1, encoding=CONSTANT))
            final = interval(results.eps(label, "mnist", 1, CONSTANT)) if eps is None else None
            rows.append(
                (
                    neuron,
                    "learned" if eps is None else f"{eps:g}",
                    number(theirs),
                    str(best or results.nothing("mnist")),
                    difference(best, theirs),
                    str(last or "-"),
                    f"{published.ablation('spike_rate', neuron, eps):.3f}",
                    f"{rate.mean:.3f}" if rate else "-",
                    f"{published.final_eps(neuron):.3f}" if eps is None else "-",
                    f"{final.mean:.3f}" if final else "-",
                )
            )
    notes = [
        "The author's system for this study: threshold 1, the text's UltraDLIF, normalised pixels as a "
        "constant current, spiking output neurons, Adam without a schedule."
    ]
    return Table("released-ablation", "The temperature in the author's system", columns, rows, notes)


def _depth(results: Results) -> Table:
    columns = ("dataset", "hidden layers", "LIF page", "LIF", "Ultra page", "best Ultra", "SigmaLIF")
    found = {(cell.dataset, cell.neuron): cell for cell in deep_cells(results)}
    rows = []
    for (dataset, depth), (lif, ultra) in DEPTHS.items():
        mine = found.get((dataset, f"LIF {depth} layers"))
        best = [
            f"{interval(cell.best)} ({label})"
            for label in ULTRA
            if (cell := found.get((dataset, f"{label} {depth} layers")))
        ]
        control = interval(results.best_epoch(f"SigmaLIF {depth} layers", dataset, 1))
        rows.append(
            (
                dataset,
                str(depth),
                number(lif),
                str(interval(mine.best) if mine else results.nothing(dataset)),
                number(ultra),
                *(best or ["-"]),
                str(control or "-"),
            )
        )
    notes = ["All numbers are best test epochs at T=1, which also choose the best of the four Ultra neurons."]
    return Table("released-depth", "Two and three hidden layers, T=1", columns, rows, notes)
