"""Tables for our own studies: equal tuning, the factorial, and one open reading at a time."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from statistics import fmean
from typing import NamedTuple

from research.paper.published import ULTRA
from research.paper.results import NOT_RUN, Results, scores
from research.paper.statistics import Interval, Scores, holm, images, interval, paired
from research.studies.grids import (
    RATES,
    READ,
    READINGS,
    SMALL,
    TUNED,
    WIDTHS,
    Runs,
    StudyCell,
    collect,
    factorial,
    held_out,
    one_at_a_time,
    open_readings,
    tuned,
    tuning,
)
from ultralif.report import Table
from ultralif.training import Result

__all__ = [
    "BASELINES",
    "Compared",
    "at_edge",
    "factors_table",
    "open_table",
    "readings_table",
    "tuned_groups",
    "tuned_summary",
    "tuned_table",
]

GROUPS: dict[str, tuple[str, ...]] = {
    "LIF, three surrogates": ("LIF", "LIF atan", "LIF triangle"),
    "other baselines": ("PLIF", "AdaLIF", "FullPLIF", "DSpike", "DSpikePlus"),
    "LIF learned width": ("LIF learned width",),
    "SoftLIF": ("SoftLIF",),
    "Ultra": ULTRA,
    "SoftLIF binary": ("SoftLIF binary",),
    "Ultra binary": ("UltraLIF binary", "UltraPLIF binary", "UltraDLIF binary"),
}
"""Groups compared in the tuning summary; the best of each is chosen on the held-out sixth."""
BASELINES = (*GROUPS["LIF, three surrogates"], *GROUPS["other baselines"])
CONTROLS = {"Ultra": "SoftLIF", "Ultra binary": "LIF learned width"}
"""The control without log-sum-exp for the best neuron of each group."""


class Tuned(NamedTuple):
    """A tuned neuron: its chosen setting, and its accuracy on held-out data and on the test set."""

    setting: str
    held_out: float
    own: Scores
    binary: Scores


def _tuned(results: Sequence[Result]) -> dict[StudyCell, Tuned]:
    """Return all neurons with a complete grid; those not yet retrained have no accuracies."""
    known = {result.id: result for result in results}
    chosen: dict[StudyCell, tuple[float, str]] = {}
    for cell, config in tuning():
        if config.id in known:
            label, _, setting = cell.label.partition(", ")
            entry = held_out(known[config.id]), setting
            at = cell._replace(label=label)
            chosen[at] = max(chosen.get(at, entry), entry, key=lambda pair: pair[0])
    runs = collect(tuned(results), results)
    return {
        cell: Tuned(
            chosen[cell][1],
            chosen[cell][0],
            *(scores(runs.get(cell, {}), mode) for mode in (None, "hard")),
        )
        for cell, _ in tuned(results)
    }


def _places(runs: Runs, found: Mapping[StudyCell, object]) -> list[tuple[str, int]]:
    """Return the datasets and T with results, in the order of the study."""
    places = dict.fromkeys((cell.dataset, cell.timesteps) for cell, _ in runs)
    known = {(cell.dataset, cell.timesteps) for cell in found}
    return [place for place in places if place in known]


def tuned_table(results: Iterable[Result]) -> Table:
    """Build the table of all tuned neurons."""
    found = _tuned(list(results))
    columns = ("dataset", "T", "neuron", "chosen", "held out", "test", "test, binary", "seeds")
    edges = []
    for place in _places(tuning(), found):
        chosen = [one.setting for cell, one in found.items() if cell[1:] == place]
        rates, widths = at_edge(chosen, "rate", RATES), at_edge(chosen, "width", WIDTHS)
        edges.append(f"{place[0]}, T={place[1]}, {rates} rates and {widths} widths of {len(chosen)}")
    rows = [
        (
            cell.dataset,
            str(cell.timesteps),
            label,
            one.setting,
            f"{one.held_out:.2f}",
            str(interval(one.own) or NOT_RUN),
            str(interval(one.binary) or "-"),
            str(len(one.own)),
        )
        for place in _places(tuning(), found)
        for label in TUNED
        if (one := found.get(cell := StudyCell(label, *place)))
    ]
    notes = [
        "Each neuron has the same 16 settings, four learning rates and four widths, judged on a sixth of the "
        "training set after 20 epochs with one seed; the chosen one is then trained on all of it "
        "for 100 epochs with other seeds. A learned width starts at the chosen value.",
        "*Test* uses the same kind of spikes as training, and *binary* uses binary spikes.",
        f"Settings chosen at an edge of the grid, so that a better one may lie outside: {'; '.join(edges)}.",
    ]
    return Table("tuned", "Every neuron tuned alike", columns, rows, notes)


def at_edge(settings: Iterable[str], name: str, values: Sequence[float]) -> int:
    """Count the settings in which a quantity has its smallest or largest value."""
    edges = {f"{name} {value:g}" for value in (min(values), max(values))}
    return sum(bool(edges & set(setting.split(", "))) for setting in settings)


class Compared(NamedTuple):
    """The best neuron of a group of neurons tuned alike, chosen on held-out data."""

    dataset: str
    timesteps: int
    group: str
    name: str
    test: Interval | None
    """Accuracy on the test set; None if it was not retrained yet."""
    over: Interval | None
    """Difference from the best baseline, chosen the same way; its p-value is corrected by Holm's rule."""
    past: Interval | None
    """Difference from the group's control, corrected the same way."""
    binary: Interval | None
    """Difference from the best baseline when networks trained soft are run with binary spikes."""
    is_best: bool
    """Whether this is the best baseline itself."""


def tuned_groups(results: Iterable[Result]) -> list[Compared]:
    """Compare the best of each group with the best baseline and with the group's control.

    The digits are left out, because 360 test images are too few to be informative.
    """
    found = _tuned(list(results))
    rows = []
    for dataset, time in _places(tuning(), found):
        best = {}
        for group, labels in (*GROUPS.items(), ("", BASELINES)):
            here = [(label, one) for label in labels if (one := found.get(StudyCell(label, dataset, time)))]
            if here:
                best[group] = max(here, key=lambda pair: pair[1].held_out)
        if dataset == SMALL or "" not in best:
            continue
        first, chosen = best.pop("")
        base = chosen.own
        for group, (name, one) in best.items():
            like = found.get(StudyCell(CONTROLS.get(group, ""), dataset, time))
            over = None if name in BASELINES else paired(one.own, base)
            binary = paired(one.binary, base) if one.binary != one.own else None
            past = paired(one.own, like.own) if like else None
            test = interval(one.own)
            rows.append(Compared(dataset, time, group, name, test, over, past, binary, name == first))
    for name in ("past", "over"):  # the planned contrasts with the control form a separate family
        each = [one for row in rows if (one := getattr(row, name))]
        chances = iter(holm([1.0 if one.p is None else one.p for one in each]))
        rows = [
            row._replace(**{name: one._replace(p=next(chances))}) if (one := getattr(row, name)) else row
            for row in rows
        ]
    return rows


def tuned_summary(results: Iterable[Result]) -> Table:
    """Show the best tuned neuron of each group."""
    columns = ("dataset", "T", "best of its group", "test", "over the best baseline", "over its control")
    rows = [
        (
            row.dataset,
            str(row.timesteps),
            row.name if row.name == row.group else f"{row.group}: {row.name}",
            str(row.test or NOT_RUN),
            "best on held-out data" if row.is_best else _with_p(row.over),
            _with_p(row.past),
            row.binary.signed if row.binary else "-",
        )
        for row in tuned_groups(results)
    ]
    return Table("tuned-summary", "", (*columns, "run binary"), rows)


def _with_p(each: Interval | None) -> str:
    """Format a difference with its p-value."""
    if each is None or each.p is None:
        return "-" if each is None else each.signed
    return f"{each.signed} (p {'< 0.001' if each.p < 0.001 else f'= {each.p:.3f}'})"


def factors_table(results: Iterable[Result]) -> Table:
    """Show the factorial: each factor's mean effect over all settings of the others, by dataset and T."""
    found = {cell: scores(runs) for cell, runs in collect(factorial(), results).items()}
    columns = ("dataset", "T", "effect", "mean", "least", "most", "pairs")
    rows = []
    for place in _places(factorial(), found):
        here = {tuple(cell.label.split(", ")): v for cell, v in found.items() if cell[1:] == place}
        for name, position, ours, theirs in _EFFECTS:
            pairs = [
                (values, here[other])
                for words, values in here.items()
                if words[position:][:1] == (ours,)
                and (other := (*words[:position], theirs, *words[position + 1 :])) in here
            ]
            differences = [d for pair in pairs if (d := paired(*pair)) is not None]
            seeds = set.intersection(*(set(a.keys() & b.keys()) for a, b in pairs)) if pairs else set()
            overall = interval(
                {seed: fmean(a[seed] - b[seed] for a, b in pairs) for seed in sorted(seeds)},
                fmean(images(*pair) for pair in pairs) if pairs else 0.0,  # at most this for a mean
            )
            if overall:
                ends = (f"{end(d.mean for d in differences):+.2f}" for end in (min, max))
                rows.append((place[0], str(place[1]), name, overall.signed, *ends, str(len(pairs))))
        for unit, name in (("Sigmoid perceptron", "sigmoid"), ("Rectifier perceptron", "ReLU")):
            mine, like = here.get((unit,)), here.get(("additive", "soft", "learned", "detached"))
            if mine and like and (over := paired(mine, like)):
                text = f"{name} perceptron, {interval(mine)}, over the additive soft membrane, learned width"
                rows.append((place[0], str(place[1]), text, over.signed, "-", "-", "1"))
    notes = ["Each effect is a mean over all settings of the other factors."]
    return Table("factorial", "What each ingredient adds", columns, rows, notes)


_EFFECTS = (
    ("LSE over additive membrane", 0, "LSE", "additive"),
    ("ring over additive membrane", 0, "ring", "additive"),
    ("soft over binary spikes", 1, "soft", "binary"),
    ("learned over fixed width", 2, "learned", "fixed"),
    ("reset detached over differentiated", 3, "detached", "differentiated"),
)


def readings_table(results: Iterable[Result]) -> Table:
    """Show the effect of each open reading separately, by neuron."""
    found = {cell: scores(runs) for cell, runs in collect(one_at_a_time(), results).items()}
    rows = []
    for place, name in product(_places(one_at_a_time(), found), READINGS):
        cells = []
        for neuron in READ:
            mine, base = (
                found.get(StudyCell(f"{neuron}, {word}", *place), Scores({})) for word in (name, "as written")
            )
            shown = interval(mine) if name == "as written" else paired(mine, base)
            cells.append("-" if shown is None else str(shown) if name == "as written" else shown.signed)
        if set(cells) != {"-"}:
            rows.append((place[0], str(place[1]), name, *cells))
    return Table("readings", "One open reading at a time", ("dataset", "T", "reading", *READ), rows)


def open_table(results: Results) -> Table:
    """Show the effect of each choice left open by the text, beside the runs as written."""
    found = {cell: scores(runs) for cell, runs in collect(open_readings(), results.every).items()}
    rows = []
    for cell, _ in open_readings():
        neuron, _, name = cell.label.partition(", ")
        if name == "as written":
            continue
        base = found.get(cell._replace(label=f"{neuron}, as written"))
        base = base or results.accuracy(neuron, cell.dataset, cell.timesteps)
        change = paired(found.get(cell, Scores({})), base)
        if change is not None:
            rows.append((cell.dataset, str(cell.timesteps), name, neuron, str(interval(base)), change.signed))
    return Table("open", "", ("dataset", "T", "choice", "neuron", "as written", "change"), rows)
