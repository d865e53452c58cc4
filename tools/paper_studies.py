"""The sentences of docs/results/paper.md about the studies around the paper."""

from collections.abc import Callable, Sequence

from paper_parts import HERE, NAMES, listed, span, wrapped

from ultralif.paper.judgement import MARGIN
from ultralif.paper.results import Results, scores
from ultralif.paper.statistics import paired
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
        gains += [gain] if (gain := paired(after, results.accuracy("LIF", *place))) else []
    soft, binary = ([row for row in rows if row.group == group] for group in CONTROLS)
    early, late = ([row for row in soft if (row.timesteps == 1) == is_first] for is_first in (True, False))
    excluded = sum(each.high < MARGIN for each in past)
    unknown = len(past) - excluded - ahead
    places = listed(NAMES[row.dataset] for row in rows)
    over = [row.over for row in binary if row.over]
    sure = sum(each.p is not None and each.p < 0.05 for each in over)
    return wrapped(
        "**Tuned alike, the best Ultra neuron is significantly ahead of its control, which has no "
        f"log-sum-exp, in {ahead or 'none'} of {len(past)} comparisons**, and behind in {behind or 'none'}; "
        f"a lead of more than {MARGIN} points is excluded in {excluded}, and {unknown} are inconclusive "
        f"({places} at T=1 and 10; sixteen settings for every neuron, judged on held-out data; Holm's "
        f"correction). Soft, it is {_span(soft, 'past')} points from SoftLIF; from the best binary baseline "
        f"it is {_span(early, 'over')} at T=1 and {_span(late, 'over')} at T=10, and "
        f"{_span(early, 'binary')} and {_span(late, 'binary')} when run with binary spikes. Trained binary, "
        f"it is {_span(binary, 'past')} from LIF with a learned width and {_span(binary, 'over')} from the "
        f"best baseline, which is significant in {sure or 'none'} of {len(over)} cells. Tuning alone gives "
        f"LIF {span([gain.mean for gain in gains])} points."
    )


def _span(rows: Sequence[Compared], name: str) -> str:
    """Write the least and the greatest mean of a difference."""
    return span([each.mean for row in rows if (each := getattr(row, name)) is not None])


def over_tuned_baselines(results: Results) -> str:
    """Say what tuning leaves of the lead with binary spikes on CIFAR-10 at T=10."""
    rows = {row.group: row for row in tuned_groups(results.every) if row[:2] == ("cifar10", 10)}
    soft, binary = (rows[group] for group in CONTROLS)
    if soft.binary is None or binary.over is None:
        raise SystemExit("the tuned networks of CIFAR-10 at T=10 are not in the results")
    return (
        f"Tuned alike, at T=10, the best Ultra neuron is {soft.binary.signed} from the best baseline if it "
        f"was trained soft, and {binary.over.signed} if it was trained with binary spikes."
    )


def _factors(results: Results) -> str:
    found: dict[str, dict[str, list[float]]] = {}
    places = []
    for dataset, time, effect, change, *_ in factors_table(results.every).rows:
        if dataset != SMALL and "perceptron" not in effect:
            found.setdefault(time, {}).setdefault(effect, []).append(float(change.split()[0]))
            places.append(NAMES[dataset])
    each = "; ".join(
        f"at T={time} {', '.join(f'{effect} {span(changes)}' for effect, changes in effects.items())}"
        for time, effects in found.items()
    )
    return wrapped(f"One ingredient changed and the others averaged over, on {listed(places)}: {each}.")


def dspike(results: Results) -> str:
    """Say where DSpike falls behind LIF in the text's reading, and what clipping its curve changes."""
    behind = [
        f"{NAMES[dataset]} {over.signed}"
        for dataset in HERE
        if (over := paired(results.accuracy("DSpike", dataset, 10), results.accuracy("LIF", dataset, 10)))
    ]
    clipped, detached = (
        _of_reading(results, f"DSpike, {reading}")
        for reading in ("curve clipped", "reset not differentiated")
    )
    return wrapped(
        f"In the text's reading DSpike falls behind LIF beyond T=1; at T=10 by: {', '.join(behind)}. Its "
        "curve as printed leaves [0, 1]; in the author's code, and by default in this library, it is "
        f"clipped. Clipping it and nothing else changes T=10 by: {clipped}. Not differentiating the reset, "
        f"and nothing else: {detached}. So an unclipped curve seems to spoil the gradient through the reset.",
        "",
    )


def _of_reading(results: Results, label: str) -> str:
    """List by dataset what one changed reading does to a neuron at T=10."""
    runs = collect(one_at_a_time(), results.every)
    neuron = label.partition(",")[0]
    found = []
    for dataset in HERE:
        changed, base = (
            scores(runs.get(Cell(name, dataset, 10), {})) for name in (label, f"{neuron}, as written")
        )
        found += [f"{NAMES[dataset]} {over.signed}"] if (over := paired(changed, base)) else []
    return ", ".join(found)
