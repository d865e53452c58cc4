"""The tables in research/docs/paper.md, each a function of the results."""

import json
import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple, get_args

from research import RESULTS
from research.paper.grids import CLIPPED, STATIC
from research.paper.judgement import Judgement, kept
from research.paper.published import BASELINES, TIMESTEPS, ULTRA
from research.paper.released import MARGIN
from research.paper.results import Results
from research.paper.statistics import Interval, holm, interval, paired
from research.paper.verdicts import judge
from research.studies.grids import RATES, SMALL, WIDTHS
from research.studies.tables import (
    at_edge,
    factors_table,
    open_table,
    readings_table,
    tuned_summary,
    tuned_table,
)
from ultralif.report import Table, to_markdown

__all__ = [
    "binary",
    "control",
    "factorial",
    "gains",
    "gradient_variance",
    "open_readings",
    "readings",
    "tuned",
    "verdicts",
    "written",
]

FOUR = (*STATIC, "n-mnist")
HERE = (*FOUR, "shd")
NAMES = {
    "mnist": "MNIST",
    "fashion-mnist": "Fashion-MNIST",
    "cifar10": "CIFAR-10",
    "n-mnist": "N-MNIST",
    "shd": "SHD",
}
NONE = "not run"


def wrapped(text: str, indent: str = "   ") -> str:
    """Wrap a paragraph, indenting all lines but the first."""
    return textwrap.fill(text, 130, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def span(values: Sequence[float], form: str = "+.2f") -> str:
    """Format the smallest and the largest of some numbers."""
    low, high = format(min(values), form), format(max(values), form)
    return low if low == high else f"{low} to {high}"


def listed(words: Iterable[str]) -> str:
    """Join words, with "and" before the last."""
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


class ControlComparison(NamedTuple):
    """The author's control compared with the best Ultra neuron in one cell."""

    dataset: str
    timesteps: int
    best: str
    own: str
    difference: Interval
    p: float
    """p-value, corrected for the number of cells."""


def compared_with_control(results: Results) -> list[ControlComparison]:
    """Compare the author's control with the best Ultra neuron."""
    rows = []
    for dataset in HERE:
        for time in TIMESTEPS:
            best = results.best(dataset, ULTRA, time, encoding=CLIPPED)
            mine = results.accuracy("SigmaLIF", dataset, time, encoding=CLIPPED)
            if best is None or not mine:
                continue
            difference = paired(mine, results.accuracy(best[0], dataset, time, encoding=CLIPPED))
            if difference is None:
                continue
            own, p = str(interval(mine)), 1.0 if difference.p is None else difference.p
            rows.append(ControlComparison(dataset, time, f"{best[1]} ({best[0]})", own, difference, p))
    return [row._replace(p=p) for row, p in zip(rows, holm([row.p for row in rows]), strict=True)]


def control(results: Results) -> str:
    """Show the author's control next to the best Ultra neuron."""
    head = "| dataset | T | best Ultra | SigmaLIF | SigmaLIF - best Ultra | p (Holm) |"
    found = compared_with_control(results)
    body = [
        f"| {NAMES[row.dataset]} | {row.timesteps} | {row.best} | {row.own} | {row.difference.signed} | "
        f"{row.p:.3f} |"
        for row in found
    ]
    no_loss = _no_loss("SigmaLIF", [row.difference for row in found])
    return "\n".join([head, "|---|---|---|---|---|---|", *body, "", no_loss])


def _no_loss(label: str, differences: Sequence[Interval]) -> str:
    """Count the cells in which a control is at most the margin behind the best Ultra neuron."""
    safe = sum(kept(difference) == "holds" for difference in differences)
    return (
        f"In {safe} of {len(differences)} cells the interval rules out that {label} is more than {MARGIN} "
        "points behind."
    )


def gains(results: Results) -> str:
    """Show the best Ultra neuron's gain over the best baseline in both readings."""
    columns = ("released, all soft", "released, Ultra binary", "written, Ultra soft", "written, all binary")
    lines = [f"| dataset | T | {' | '.join(columns)} |", "|---|---|---|---|---|---|"]
    for dataset in HERE:
        for time in TIMESTEPS:
            found = [
                results.gain(dataset, time, mode, code)
                for code, mode in ((CLIPPED, None), (CLIPPED, "hard"), ("rate", None), ("rate", "hard"))
            ]
            if any(found):
                shown = [f"{gain.difference.signed}" if gain else NONE for gain in found]
                lines.append(f"| {NAMES[dataset]} | {time} | {' | '.join(shown)} |")
    return "\n".join(lines)


def written(results: Results) -> str:
    """Show T=1 as written, with both controls."""
    columns = (
        "dataset",
        "best baseline",
        "best Ultra, soft",
        "SoftLIF, soft",
        "SoftLIF - best Ultra, soft",
        "best Ultra, binary",
        "LIF learned width",
    )
    lines = [f"| {' | '.join(columns)} |", "|---|---|---|---|---|---|---|"]
    found: list[Interval] = []
    for dataset in HERE:
        best = [
            results.best(dataset, labels, 1, mode)
            for labels, mode in ((BASELINES, None), (ULTRA, None), (ULTRA, "hard"))
        ]
        shown = [f"{found[1]} ({found[0]})" if found else NONE for found in best]
        mine = results.accuracy("SoftLIF", dataset, 1)
        over = paired(mine, results.accuracy(best[1][0], dataset, 1)) if best[1] else None
        soft = f"{interval(mine)} | {over.signed if over else NONE}"
        width = interval(results.accuracy("LIF learned width", dataset, 1))
        lines.append(f"| {NAMES[dataset]} | {shown[0]} | {shown[1]} | {soft} | {shown[2]} | {width} |")
        found += [over] if over else []
    return "\n".join([*lines, "", _no_loss("SoftLIF", found)])


def verdicts(results: Results) -> str:
    """Count the verdicts in both readings."""
    found = judge(results)
    kinds: tuple[Judgement, ...] = get_args(Judgement)
    both = Counter(v.verdict for v in found), Counter(v.released for v in found)
    lines = [f"| of {len(found)} claims | {' | '.join(kinds)} |", "|---|---|---|---|---|---|"]
    for name, counts in zip(("as written", "as released"), both, strict=True):
        lines.append(f"| {name} | {' | '.join(str(counts[kind]) for kind in kinds)} |")
    return "\n".join(lines)


def binary(results: Results) -> str:
    """Compare the recipes for binary spikes with LIF's learned width and the best baseline."""
    lines = [
        "| dataset | T | binary | best baseline | difference | LIF learned width | difference |",
        "|---|---|---|---|---|---|---|",
    ]
    for dataset in HERE:
        for time in TIMESTEPS:
            mine = results.accuracy("binary", dataset, time, "hard")
            base = results.best(dataset, BASELINES, time)
            width = results.accuracy("LIF learned width", dataset, time)
            own, wide = interval(mine), interval(width)
            if own is None or base is None or wide is None:
                continue
            over, past = paired(mine, results.accuracy(base[0], dataset, time)), paired(mine, width)
            shown = [part.signed if part else "-" for part in (over, past)]
            ours = f"{own} | {base[1]} ({base[0]}) | {shown[0]} | {wide} | {shown[1]}"
            lines.append(f"| {NAMES[dataset]} | {time} | {ours} |")
    return "\n".join(lines)


def tuned(results: Results) -> str:
    """Compare neurons tuned alike."""
    chosen = [row[3] for row in tuned_table(results.every).rows if row[0] != SMALL]
    rates, widths = at_edge(chosen, "rate", RATES), at_edge(chosen, "width", WIDTHS)
    text = (
        f"The chosen learning rate is at an edge of the grid in {rates} of {len(chosen)} cases, and the "
        f"width in {widths}. For any neuron, a better setting may therefore lie outside the grid."
    )
    return f"{_study(tuned_summary(results.every))}\n\n{wrapped(text, '')}"


def factorial(results: Results) -> str:
    """Show the effect of each ingredient."""
    return _study(factors_table(results.every))


def readings(results: Results) -> str:
    """Show the effect of each open reading."""
    return _study(readings_table(results.every))


def open_readings(results: Results) -> str:
    """Show the effect of each choice left open by the text."""
    return _study(open_table(results), but="")


def gradient_variance(results: Results) -> str:
    """Show the gradient's bias and variance by temperature, with means and intervals over networks."""
    found = json.loads((RESULTS / "gradient-variance.json").read_text())
    rows = []
    for place, eps in enumerate(found["temperatures"]):
        cells = [f"{eps:g}"]
        for mode in ("soft", "hard"):
            seeds = [seed[place] for seed in found["length, variance, bias by seed"][mode]]
            for values in zip(*seeds, strict=True):
                over = interval(dict(enumerate(values)))
                cells.append(f"{over.mean:.3g} ± {over.half:.2g}" if over and over.half is not None else "-")
        rows.append(tuple(cells))
    heads = (f"{mode}: {name}" for mode in ("soft", "binary") for name in ("length", "variance", "bias"))
    return to_markdown(Table("", "", ("eps", *heads), rows)).rstrip("\n")


def _study(table: Table, but: str = SMALL) -> str:
    """Show a study without the rows for digits, which appear only in the full table."""
    named = [tuple(NAMES.get(cell, cell) for cell in row) for row in table.rows if row[0] != but]
    return to_markdown(replace(table, title="", rows=named)).rstrip("\n") if named else "Not run yet."
