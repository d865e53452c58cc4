"""The sentences of docs/results/paper.md about the studies around the paper."""

from collections.abc import Callable, Sequence

from paper_parts import HERE, NAMES, wrapped

from ultralif.paper.judgement import MARGIN
from ultralif.paper.results import Results, scores
from ultralif.paper.statistics import Interval, paired
from ultralif.paper.studied import CONTROLS, Compared, factors_table, tuned_groups, tuned_summary
from ultralif.paper.studies import SMALL, Cell, collect, one_at_a_time, tuned

__all__ = ["dspike"]


def of_studies(results: Results) -> list[Callable[[Results], str]]:
    """Return the sentences about the studies of which there are runs beside those of digits."""
    words = ((tuned_summary, _tuned), (factors_table, _factors))
    return [word for table, word in words if {row[0] for row in table(results.every).rows} - {SMALL}]


def _tuned(results: Results) -> str:
    """Answer whether a tuned Ultra neuron is ahead of its control, and say what tuning gives LIF."""
    rows = tuned_groups(results.every)
    past = [row.past for row in rows if row.past]
    ahead, behind = (
        sum(each.p is not None and each.p < 0.05 and sign * each.mean > 0 for each in past)
        for sign in (1, -1)
    )
    runs = collect(tuned(results.every), results.every)
    gains = []
    for place in dict.fromkeys((row.dataset, row.timesteps) for row in rows):
        after = scores(runs.get(Cell("LIF", *place), {}))
        gains += [(place, gain)] if (gain := paired(after, results.accuracy("LIF", *place))) else []
    soft, binary = ([row for row in rows if row.group == group] for group in CONTROLS)
    left = [f"{row.name} ({_place(row.dataset, row.timesteps)})" for row in rows if row.test is None]
    rest = f" Tuned, but not trained again yet: {', '.join(left)}." if left else ""
    excluded = sum(each.high < MARGIN for each in past)
    unknown = len(past) - excluded - ahead
    return wrapped(
        "**Tuned alike, the best Ultra neuron is significantly ahead of its control, which has no "
        f"log-sum-exp, in {ahead or 'none'} of {len(past)} comparisons**, and behind in {behind or 'none'}; "
        f"a lead of more than {MARGIN} points is excluded in {excluded}, and {unknown} are inconclusive "
        "(sixteen settings for every neuron, judged on held-out data; Holm's correction). Soft, it is "
        f"{_each(soft, 'past')} points from SoftLIF, {_each(soft, 'over')} from the best binary baseline, "
        f"and {_each(soft, 'binary')} from it when run with binary spikes. Trained binary, it is "
        f"{_each(binary, 'past')} from LIF with a learned width, and {_each(binary, 'over')} from the best "
        f"baseline. Tuning alone gives LIF {_listed(gains)}.{rest}"
    )


def _place(dataset: str, timesteps: int) -> str:
    return f"{NAMES[dataset]}, T={timesteps}"


def _each(rows: Sequence[Compared], name: str) -> str:
    """List a difference of some groups by dataset and T."""
    return _listed([((row.dataset, row.timesteps), getattr(row, name)) for row in rows])


def _listed(found: Sequence[tuple[tuple[str, int], Interval | None]]) -> str:
    texts = [f"{each.signed} ({_place(*place)})" for place, each in found if each is not None]
    return " and ".join(filter(None, (", ".join(texts[:-1]), *texts[-1:]))) or "(not run)"


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
                    scores(runs.get(Cell(f"DSpike, {reading}", dataset, 10), {}))
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
