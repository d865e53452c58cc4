"""The sentences of docs/results/paper.md about the studies around the paper."""

from collections.abc import Callable

from paper_parts import HERE, NAMES, wrapped

from ultralif.paper.results import Results
from ultralif.paper.statistics import paired
from ultralif.paper.studied import BASELINES, accuracy, factors_table, tuned_summary
from ultralif.paper.studies import SMALL, Cell, collect, one_at_a_time, tuned
from ultralif.paper.table import NOT_RUN

__all__ = ["dspike"]


def of_studies(results: Results) -> list[Callable[[Results], str]]:
    """Return the sentences about the studies of which there are runs beside those of digits."""
    words = ((tuned_summary, _tuned), (factors_table, _factors))
    return [word for table, word in words if {row[0] for row in table(results.every).rows} - {SMALL}]


def _tuned(results: Results) -> str:
    """Compare the tuned groups, and LIF before and after."""
    known: dict[tuple[str, int], list[str]] = {}
    absent: dict[tuple[str, int], list[str]] = {}
    for dataset, time, group, test, over, binary, p in tuned_summary(results.every).rows:
        name = group.rpartition(": ")[2]
        if dataset != SMALL and name not in BASELINES:
            run = f", {binary} run binary" if binary != "-" else ""
            words = absent if test == NOT_RUN else known
            text = name if test == NOT_RUN else f"{name} {over}{run} (p = {p})"
            words.setdefault((dataset, int(time)), []).append(text)
    tuned_runs = collect(tuned(results.every), results.every)
    parts = []
    for (dataset, time), texts in known.items():
        after = accuracy(tuned_runs.get(Cell("LIF", dataset, time), {}))
        gain = paired(after, results.accuracy("LIF", dataset, time))
        if gain is not None:
            parts.append(f"On {NAMES[dataset]} at T={time} this gives LIF {gain.signed} points.")
        left = absent.get((dataset, time), [])
        rest = f"; tuned, but not trained again yet, are {', '.join(left)}" if left else ""
        parts.append(f"Over the best tuned baseline: {', '.join(texts)}, p after Holm's correction{rest}.")
    return wrapped(f"Sixteen settings were tried for every neuron on held-out data. {' '.join(parts)}")


def _factors(results: Results) -> str:
    found: dict[str, list[str]] = {}
    for dataset, time, effect, change, *_ in factors_table(results.every).rows:
        if dataset != SMALL and "perceptron" not in effect:
            found.setdefault(f"{NAMES[dataset]} at T={time}", []).append(f"{effect} {change}")
    each = "; ".join(f"on {place} {', '.join(effects)}" for place, effects in found.items())
    return wrapped(f"One ingredient changed and the others averaged over, in points: {each}.")


def dspike(results: Results) -> str:
    """Say where DSpike falls behind LIF in the text's reading, and what clipping its curve changes."""
    behind = [
        f"{NAMES[dataset]} {over.signed}"
        for dataset in HERE
        if (over := paired(results.accuracy("DSpike", dataset, 10), results.accuracy("LIF", dataset, 10)))
    ]
    runs = collect(one_at_a_time(), results.every)
    clipped = [
        f"{NAMES[dataset]} {over.signed}"
        for dataset in HERE
        if (
            over := paired(
                *(
                    accuracy(runs.get(Cell(f"DSpike, {reading}", dataset, 10), {}))
                    for reading in ("curve clipped", "as written")
                )
            )
        )
    ]
    cause = (
        f"Clipping it and nothing else changes T=10 by: {', '.join(clipped)}."
        if clipped
        else "That the unclipped curve is the cause was seen in short runs alone, which were not kept."
    )
    return wrapped(
        f"In the text's reading DSpike falls behind LIF beyond T=1; at T=10 by: {', '.join(behind)}. Its "
        "curve as printed leaves [0, 1]; in the author's code, and by default in this library, it is "
        f"clipped. {cause}",
        "",
    )
