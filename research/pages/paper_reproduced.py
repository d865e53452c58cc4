"""The parts of research/docs/paper.md about published numbers, each a function of the results."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from statistics import correlation, fmean, stdev
from typing import NamedTuple

from research import RESULTS
from research.pages.paper_parts import HERE, NAMES, NONE, listed, span, wrapped
from research.paper import published
from research.paper.archive import read
from research.paper.grids import BASE, CLIPPED, SEED, STATIC, key_of
from research.paper.published import BASELINES, TIMESTEPS, ULTRA
from research.paper.released import MARGIN, PublishedCell, cells_of, deep_cells, penalized_cells, reproduced
from research.paper.results import Results
from research.paper.statistics import Interval, holm, paired
from research.paper.tables import make_table
from ultralif.report import Table, to_markdown

__all__ = ["again", "best_epoch", "beyond", "cells", "depth", "draws", "exceptions", "rates"]

HIDDEN, CLASSES = BASE.hidden[0], 10  # spiking neurons in the temperature study


def cells(results: Results) -> str:
    """Count the published accuracies reproduced in the released reading."""
    lines = ["| dataset | T=1 | T=10 | T=30 | seeds |", "|---|---|---|---|---|"]
    for dataset in HERE:
        found = list(cells_of(results, [dataset]))
        row = []
        for time in TIMESTEPS:
            of_time = [cell for cell in found if cell.timesteps == time]
            good = sum(cell.is_reproduced for cell in of_time)
            row.append(f"{good} of {len(of_time)}" if of_time else NONE)
        seeds = sorted({len(cell.best) for cell in found})
        lines.append(f"| {NAMES[dataset]} | {' | '.join(row)} | {', '.join(map(str, seeds)) or '-'} |")
    good, _, every = reproduced(results)
    far = max((abs(cell.mean - cell.published) for cell in cells_of(results)), default=0.0)
    apart = {(cell.dataset, cell.timesteps, cell.published, cell.mean) for cell in cells_of(results)}
    near = sum(abs(cell.mean - cell.published) <= MARGIN for cell in cells_of(results))
    lines += [
        "",
        wrapped(
            f"On the three sets of images, **{good} of {every} published cells** are reproduced, {near} of "
            f"them within {MARGIN} points. The largest difference is {far:.2f}. At T=1 LIF, PLIF and AdaLIF "
            "are one network, and so are DSpike and DSpikePlus, and UltraDLIF and UltraDPLIF, so "
            f"{every - len(apart)} of the {every} cells duplicate another.",
            "",
        ),
        "",
        wrapped(f"{_agreement(results, STATIC)} {_agreement(results, ['shd'])}", ""),
    ]
    return "\n".join(lines)


class Agreement(NamedTuple):
    """The agreement between measured and published accuracies."""

    cells: int
    error: float
    """Root mean square error."""
    bias: float
    correlation: float
    """Correlation over neurons within a dataset and T."""
    null: int
    """Cells that a constant would reproduce: the mean of our neurons for each dataset and T."""


def agreement(results: Results, datasets: Sequence[str]) -> Agreement:
    """Return the agreement on some datasets."""
    found = list(cells_of(results, datasets))
    off = [cell.mean - cell.published for cell in found]
    groups: dict[tuple[str, int], list[PublishedCell]] = {}
    for cell in found:
        groups.setdefault((cell.dataset, cell.timesteps), []).append(cell)
    null, ours, theirs = 0, [], []
    for group in groups.values():
        mean, paper = fmean(cell.mean for cell in group), fmean(cell.published for cell in group)
        null += sum(abs(mean - cell.published) <= max(MARGIN, 2 * cell.spread) for cell in group)
        ours += [cell.mean - mean for cell in group]
        theirs += [cell.published - paper for cell in group]
    error = fmean(x * x for x in off) ** 0.5
    return Agreement(len(found), error, fmean(off), correlation(ours, theirs), null)


def _agreement(results: Results, datasets: Sequence[str]) -> str:
    """Describe the agreement, and how many cells a constant would reproduce as a null model."""
    found = agreement(results, datasets)
    names = listed(NAMES[dataset] for dataset in datasets)
    return (
        f"On {names} the root mean square error of the {found.cells} cells is "
        f"{found.error:.2f} points, their mean error is {found.bias:+.2f}, and the "
        f"correlation of neurons within a dataset and T is {found.correlation:.2f}. The count alone "
        "is a weak test: predicting the mean of our neurons for each dataset and T would reproduce "
        f"{found.null} of {found.cells}."
    )


def exceptions(results: Results) -> str:
    """List the published accuracies that are not reproduced."""
    found = [cell for cell in cells_of(results, HERE) if not cell.is_reproduced]
    images = sum(cell.dataset in STATIC for cell in found)
    first = f"{images} on the three sets of images:" if images else "All cells on images are reproduced."
    if not found:
        return first
    lines = [
        f"{first} On N-MNIST {sum(cell.dataset == 'n-mnist' for cell in found)} cells differ, and on SHD "
        f"{sum(cell.dataset == 'shd' for cell in found)}:",
        "",
        "| dataset | neuron | T | published | best epoch, mean | sd | difference |",
        "|---|---|---|---|---|---|---|",
    ]
    for cell in found:
        lines.append(
            f"| {NAMES[cell.dataset]} | {cell.neuron} | {cell.timesteps} | {cell.published:.2f} | "
            f"{cell.mean:.2f} | {cell.spread:.2f} | {cell.mean - cell.published:+.2f} |"
        )
    return "\n".join(lines)


def beyond(results: Results) -> str:
    """Count the reproduced accuracies with a penalty."""
    found = list(penalized_cells(results))
    events = [cell for cell, _ in penalized_cells(results, ["n-mnist"])]
    every = sum(row.sparsity > 0 for dataset in STATIC for row in published.sparsity_rows(dataset))
    spoken = [cell for cell, _ in penalized_cells(results, ["shd"])]
    later = [cell for cell in events if cell.timesteps > 1]
    off = [abs(rate) for _, rate in found]
    return wrapped(
        f"By the same measure, {_good(cell for cell, _ in found)} of the {every} published accuracies with a "
        f"penalty on images are reproduced. Their spike rates are off by {fmean(off):.3f} on average and by "
        f"{max(off):.3f} at most. On N-MNIST {_good(events)} of {len(events)} are reproduced, including "
        f"{_good(later)} of the {len(later)} at T=10 and 30, and on SHD {_good(spoken)} of {len(spoken)}.",
        "",
    )


def _good(cells: Iterable[PublishedCell]) -> int:
    return sum(cell.is_reproduced for cell in cells)


def rates(_: Results) -> str:
    """Compare the published spike rates in the temperature study with ours over all spiking neurons."""
    found = json.loads((RESULTS / "ablation-rates.json").read_text())
    runs, floored = (
        {label: _off(label, rate["hidden"], rate["output"]) for label, rate in part.items()}
        for part in found.values()
    )
    near = [abs(value) for value in runs.values() if abs(value) < 0.015]
    rest = [label for label, value in runs.items() if abs(value) >= 0.015]
    return wrapped(
        "The published spike rates of this study seem to count hidden and output neurons together. Our table "
        "counts hidden neurons only, like the rest of the paper. If both are counted, "
        f"{len(near)} of {len(runs)} rates are within {max(near):.3f} of the published ones (seed {SEED}; "
        f"`research/studies/ablation_rates.py`), while "
        f"{listed(f'{one} is off by {runs[one]:+.3f}' for one in rest)}. "
        f"In these two runs, our leak falls towards 0. With a {[*found][1]} they are off by "
        f"{listed(f'{floored[one]:+.3f}' for one in rest)}, so the author's system seems to have such a "
        "lower bound.",
        "",
    )


def _off(label: str, hidden: float, output: float) -> float:
    """Return the rate of all spiking neurons minus the published rate."""
    neuron, _, eps = label.partition(" eps=")
    rate = (HIDDEN * hidden + CLASSES * output) / (HIDDEN + CLASSES)
    return rate - published.ablation("spike_rate", neuron, float(eps) if eps else None)


def depth(results: Results) -> str:
    """Show deeper networks next to the author's published ones, with the control."""
    cells = list(deep_cells(results))
    table = make_table("released-depth", results)
    rows = [
        tuple(NAMES.get(cell, cell) for cell in row)
        for row in table.rows
        if any(cell.dataset == row[0] and cell.neuron.endswith(f" {row[1]} layers") for cell in cells)
    ]
    over = control_in_depth(results)
    chances = holm([1.0 if each.p is None else each.p for _, _, each in over])
    sure = sum(p < 0.05 for p in chances)
    p, (dataset, layers, closest) = min(zip(chances, over, strict=True))
    images = [cell for cell in cells if cell.dataset in STATIC]
    events = [cell for cell in cells if cell.dataset not in STATIC]
    text = (
        f"By the same measure, {_good(images)} of {len(images)} accuracies of the author's page on images "
        f"are reproduced, and {_good(events)} of {len(events)} on N-MNIST and SHD. After the last epoch "
        "SigmaLIF is ahead of the best Ultra neuron, chosen on the test set, by "
        f"{span([difference.mean for *_, difference in over])} points. After Holm's correction "
        f"{sure or 'none'} of {len(over)} differences is significant (closest: {NAMES[dataset]} with "
        f"{layers}, {closest.signed}, p = {p:.3f})."
    )
    shown = to_markdown(replace(table, title="", rows=rows, notes=[]))
    return f"{shown}\n{wrapped(text, '')}"


def control_in_depth(results: Results) -> list[tuple[str, str, Interval]]:
    """Return SigmaLIF minus the best Ultra neuron after the last epoch, by dataset and depth, at T=1."""
    found = []
    for dataset in HERE:
        for layers in ("2 layers", "3 layers"):
            best = results.best(dataset, [f"{label} {layers}" for label in ULTRA], 1, encoding=CLIPPED)
            mine = results.accuracy(f"SigmaLIF {layers}", dataset, 1, encoding=CLIPPED)
            theirs = results.accuracy(best[0], dataset, 1, encoding=CLIPPED) if best else None
            if theirs and (difference := paired(mine, theirs)):
                found.append((dataset, layers, difference))
    return found


def best_epoch(results: Results) -> str:
    """Show the gain from choosing the best test epoch."""
    lines = [
        "| dataset | T | gain of best over last epoch, mean of the ten neurons | smallest | largest |",
        "|---|---|---|---|---|",
    ]
    for dataset in HERE:
        for time in TIMESTEPS:
            added = []
            for label in (*BASELINES, *ULTRA):
                difference = paired(
                    results.best_epoch(label, dataset, time),
                    results.accuracy(label, dataset, time, encoding=CLIPPED),
                )
                if difference is not None:
                    added.append(difference.mean)
            if added:
                shown = f"{fmean(added):+.2f} | {min(added):+.2f} | {max(added):+.2f}"
                lines.append(f"| {NAMES[dataset]} | {time} | {shown} |")
    return "\n".join(lines)


def draws(results: Results) -> str:
    """Show the spread due to one draw of the rate code, from two independent draws at the last epoch."""
    lines = ["| dataset | T | sd of one draw of the test set's spikes | networks |", "|---|---|---|---|"]
    for dataset in STATIC:
        for time in TIMESTEPS:
            found = results.draw_spread(dataset, time)
            if found:
                lines.append(f"| {NAMES[dataset]} | {time} | {found[0]:.2f} | {found[1]} |")
    return "\n".join(lines)


def again(results: Results) -> str:
    """Show how much accuracy changes when the text's runs from 0.1.0 are trained again."""
    off: dict[tuple[str, int], list[float]] = {}
    for run in read(RESULTS / "again.jsonl.gz").results:
        key = key_of(run.config)
        if key is not None and (before := results.runs[key][run.seed].own.accuracy) is not None:
            off.setdefault(key[1:3], []).append((run.own.accuracy or 0.0) - before)
    rows = [
        (NAMES[dataset], str(time), f"{fmean(values):+.2f}", f"{stdev(values):.2f}")
        for (dataset, time), values in sorted(off.items())
    ]
    head = wrapped(
        f"With version 0.2.0, we trained {sum(map(len, off.values()))} of the text's runs with seed 42 "
        "again. The table shows the change in accuracy from 0.1.0, as the mean over 20 networks:",
        "",
    )
    table = Table("", "", ("dataset", "T", "change", "standard deviation"), rows)
    return f"{head}\n\n{to_markdown(table)}".rstrip("\n")
