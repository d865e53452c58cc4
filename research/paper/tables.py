"""The paper's tables with published and measured numbers side by side."""

from collections.abc import Sequence
from itertools import product

from research.paper import published, released
from research.paper.grids import ABLATED, CONTROLS, RECIPES, STATIC, TABLES, runs_of
from research.paper.published import BASELINES, DATASETS, TIMESTEPS, ULTRA
from research.paper.results import NOT_RUN, Results, difference, number
from research.paper.statistics import Interval, interval
from ultralif.report import Table
from ultralif.training import RunConfig

__all__ = ["make_table"]

CONTROL_LABELS = tuple(variant.label for variant in CONTROLS)


def make_table(name: str, results: Results, seeds: int = 5) -> Table:
    """Build one of the tables in `research.paper.grids.TABLES` from finished runs."""
    if name in DATASETS:
        table = _accuracy(name, results)
    elif name == "t1-summary":
        table = _summary(results)
    elif name == "eps-ablation":
        table = _ablation(results)
    elif name == "encodings":
        table = _encodings(results)
    elif name == "binary":
        table = _binary(results)
    elif name.startswith("released-"):
        table = released.table(name, results)
    else:
        dataset, _, kind = name.rpartition("-")
        rows = (
            published.efficiency_rows(dataset) if kind == "efficiency" else published.sparsity_rows(dataset)
        )
        table = _rates(name, dataset, rows, results)
    wanted = runs_of(name, seeds)
    table.notes.extend(_draws(wanted, results))
    if any(config.dataset == "n-mnist" for config in wanted):
        table.notes.append("Our recordings of N-MNIST are denoised: about 76 % of the events are kept.")
    if any(config.dataset == "shd" for config in wanted):
        table.notes.append(
            "SHD was not read from the published files. The spikes of both sets were regenerated from the "
            "original recordings and counted in 30 bins per sample."
        )
    missing = len(results.missing(wanted))
    if missing:
        table.notes.append(f"Incomplete: {len(wanted) - missing} of {len(wanted)} runs are finished.")
    return table


def _draws(wanted: Sequence[RunConfig], results: Results) -> list[str]:
    """Describe the spread that one draw of the rate code adds to a table's accuracies, if measured."""
    cells = dict.fromkeys(
        (config.dataset, config.timesteps) for config in wanted if config.encoding.startswith("rate")
    )
    found = [(*cell, spread[0]) for cell in cells if (spread := results.draw_spread(*cell))]
    if not found:
        return []
    shown = ", ".join(f"{spread:.2f} on {dataset} at T={time}" for dataset, time, spread in found)
    return [
        "Each accuracy is measured with one random draw of the test set's spikes. The standard deviation "
        f"due to this draw is included in each interval: {shown}."
    ]


def _accuracy(dataset: str, results: Results) -> Table:
    columns = ("neuron", "T", "paper", "measured", "difference", "binary spikes", "max-plus", "seeds")
    rows = []
    for label in (*BASELINES, *ULTRA, *CONTROL_LABELS):
        for time in TIMESTEPS:
            theirs = None if label in CONTROL_LABELS else published.accuracy(dataset, label, time)
            own = interval(results.accuracy(label, dataset, time))
            hard, tropical = (
                interval(results.accuracy(label, dataset, time, mode)) for mode in ("hard", "tropical")
            )
            rows.append(
                (
                    label,
                    str(time),
                    number(theirs),
                    str(own or results.nothing(dataset)),
                    difference(own, theirs),
                    str(hard or "-") if label not in BASELINES else "-",
                    str(tropical or "-"),
                    str(own.seeds if own else 0),
                )
            )
    notes = [
        "Ultra neurons and SoftLIF are measured with soft spikes, as in the paper, and with binary spikes."
    ]
    return Table(dataset, f"Test accuracy (%) on {dataset}", columns, rows, notes)


def _summary(results: Results) -> Table:
    columns = (
        "dataset",
        "",
        "best baseline",
        "best Ultra, soft",
        "gain",
        "best Ultra, binary",
        "gain, binary",
    )
    rows: list[tuple[str, ...]] = []
    for dataset in DATASETS:
        theirs = {label: published.accuracy(dataset, label, 1) for label in (*BASELINES, *ULTRA)}
        base, ultra = (max(group, key=lambda label: theirs[label]) for group in (BASELINES, ULTRA))
        gain = theirs[ultra] - theirs[base]
        rows.append(
            (
                dataset,
                "paper",
                f"{theirs[base]:.2f} ({base})",
                f"{theirs[ultra]:.2f} ({ultra})",
                f"{gain:+.2f}",
                "-",
                "-",
            )
        )
        best = results.best(dataset, BASELINES, 1)
        if best is None:
            rows.append((dataset, "measured", *[results.nothing(dataset)] * 5))
            continue
        cells = [_named(*best)]
        for mode in (None, "hard"):
            found, gained = results.best(dataset, ULTRA, 1, mode), results.gain(dataset, 1, mode)
            cells += ["-", "-"] if not found or not gained else [_named(*found), gained.difference.signed]
        rows.append((dataset, "measured", *cells))
    notes = ["The best of six baselines, and of four Ultra neurons in each mode, is chosen on the test set."]
    return Table("t1-summary", "T=1: best baseline and best Ultra neuron", columns, rows, notes)


def _rates(name: str, dataset: str, rows: Sequence[published.Row], results: Results) -> Table:
    columns = (
        "neuron",
        "T",
        "lambda",
        "paper %",
        "measured %",
        "difference",
        "paper rate",
        "measured rate",
        "T*rate",
        "binary %",
        "binary rate",
    )
    out = []
    for row in rows:
        label = row.neuron if not row.sparsity else f"{row.neuron} lambda={row.sparsity:g}"
        own = interval(results.accuracy(label, dataset, row.timesteps))
        rate = interval(results.spike_rate(label, dataset, row.timesteps))
        hard = interval(results.accuracy(label, dataset, row.timesteps, "hard"))
        hard_rate = interval(results.spike_rate(label, dataset, row.timesteps, "hard"))
        out.append(
            (
                row.neuron,
                str(row.timesteps),
                f"{row.sparsity:g}",
                number(row.accuracy),
                str(own or results.nothing(dataset)),
                difference(own, row.accuracy),
                f"{row.spike_rate:.3f}",
                f"{rate.mean:.3f}" if rate else "-",
                f"{rate.mean * row.timesteps:.2f}" if rate else "-",
                str(hard or "-"),
                f"{hard_rate.mean:.3f}" if hard_rate else "-",
            )
        )
    return Table(name, TABLES[name].capitalize(), columns, out)


def _ablation(results: Results) -> Table:
    columns = (
        "neuron",
        "eps",
        "paper %",
        "rate code %",
        "normalised %",
        "paper rate",
        "rate",
        "final eps: paper",
        "measured",
    )
    rows = []
    for neuron in ULTRA:
        for eps in (*ABLATED, None):
            label = neuron if eps is None else f"{neuron} eps={eps:g}"
            measured = [
                interval(results.accuracy(label, "mnist", 1, encoding=code))
                for code in ("rate", "rate-normalized")
            ]
            rate = interval(results.spike_rate(label, "mnist", 1))
            final = interval(results.eps(label, "mnist", 1))
            rows.append(
                (
                    neuron,
                    "learned" if eps is None else f"{eps:g}",
                    number(published.ablation("accuracy", neuron, eps)),
                    *(str(value or NOT_RUN) for value in measured),
                    f"{published.ablation('spike_rate', neuron, eps):.3f}",
                    f"{rate.mean:.3f}" if rate else "-",
                    f"{published.final_eps(neuron):.3f}" if eps is None else "-",
                    f"{final.mean:.3f}" if final and eps is None else "-",
                )
            )
    return Table("eps-ablation", "Fixed and learned temperature, MNIST, T=1", columns, rows)


def _encodings(results: Results) -> Table:
    columns = ("dataset", "neuron", "paper", "p = 0.5 x", "p = 0.5 (x - mean) / std")
    rows = []
    for dataset in STATIC:
        for label in (*BASELINES, *ULTRA, *CONTROL_LABELS):
            theirs = None if label in CONTROL_LABELS else published.accuracy(dataset, label, 1)
            measured = (
                interval(results.accuracy(label, dataset, 1, encoding=code))
                for code in ("rate", "rate-normalized")
            )
            rows.append((dataset, label, number(theirs), *(str(m or NOT_RUN) for m in measured)))
    return Table("encodings", "T=1 under both readings of the rate code", columns, rows)


def _binary(results: Results) -> Table:
    labels = [recipe.label for recipe in RECIPES]
    columns = ("dataset", "T", "best baseline", *CONTROL_LABELS, "best Ultra of the paper", *labels)
    rows = []
    for dataset, timesteps in product(DATASETS, TIMESTEPS):
        base = results.best(dataset, BASELINES, timesteps)
        ultra = results.best(dataset, ULTRA, timesteps, "hard")
        if base is None or ultra is None:
            rows.append((dataset, str(timesteps), *[results.nothing(dataset)] * (len(columns) - 2)))
            continue
        controls, recipes = (
            [interval(results.accuracy(label, dataset, timesteps, "hard")) for label in group]
            for group in (CONTROL_LABELS, labels)
        )
        cells = [_named(*base), *(str(c or NOT_RUN) for c in controls), _named(*ultra)]
        rows.append((dataset, str(timesteps), *cells, *(str(r or NOT_RUN) for r in recipes)))
    chosen = (
        "Recipes were chosen at T=1 on held-out training data: binary on CIFAR-10, binary narrow on MNIST."
    )
    notes = ["All networks have binary spikes.", chosen]
    return Table("binary", "Binary spikes", columns, rows, notes)


def _named(label: str, value: Interval) -> str:
    return f"{value} ({label})"
