"""The sentences of research/docs/paper.md about the studies around the paper."""

from collections.abc import Callable, Sequence
from itertools import product
from statistics import fmean

from research.pages.paper_parts import FOUR, HERE, NAMES, listed, span, wrapped
from research.paper.judgement import MARGIN
from research.paper.published import ULTRA
from research.paper.results import Results, scores
from research.paper.statistics import Interval, images, interval, paired
from research.studies.grids import SMALL, StudyCell, collect, one_at_a_time, tuned
from research.studies.tables import CONTROLS, Compared, factors_table, tuned_groups, tuned_summary
from ultralif.training import Result

__all__ = ["dspike", "over_control"]


def of_studies(results: Results) -> list[Callable[[Results], str]]:
    """Return the sentences about the studies of which there are runs beside those of digits."""
    words = ((tuned_summary, _tuned), (factors_table, _factors))
    return [word for table, word in words if {row[0] for row in table(results.every).rows} - {SMALL}]


def _tuned(results: Results) -> str:
    """Answer whether a tuned Ultra neuron is ahead of its control, and say what tuning gives LIF."""
    rows = tuned_groups(results.every)
    past = [(row, row.past) for row in rows if row.past]
    ahead, behind = (sum(_is_sure(each) and sign * each.mean > 0 for _, each in past) for sign in (1, -1))
    apart = [(row, each) for row, each in past if not _is_control_itself(row)]
    left = [(row, each) for row, each in apart if each.high >= MARGIN]
    unsure = listed(dict.fromkeys(f"{NAMES[row.dataset]} at T={row.timesteps}" for row, _ in left))
    datasets = dict.fromkeys(NAMES[row.dataset] for row in rows)
    runs = collect(tuned(results.every), results.every)
    gains = []
    for place in dict.fromkeys((row.dataset, row.timesteps) for row in rows):
        after = scores(runs.get(StudyCell("LIF", *place), {}))
        gains += [gain.mean] if (gain := paired(after, results.accuracy("LIF", *place))) else []
    soft, binary = ([row for row in rows if row.group == group] for group in CONTROLS)
    early, late = ([row for row in soft if (row.timesteps == 1) == is_first] for is_first in (True, False))
    return wrapped(
        "**Tuned alike, the best Ultra neuron is significantly ahead of its control, which has no "
        f"log-sum-exp, in {ahead or 'none'} of {len(past)} comparisons**, and behind in {behind or 'none'} "
        f"({listed(datasets)} at T=1 and 10; sixteen settings for every neuron, "
        f"judged on held-out data; Holm's correction). {len(past) - len(apart)} of them, at T=1, are the "
        f"same network up to its first bias; of the other {len(apart)} a lead of more than {MARGIN} points "
        f"is excluded in {len(apart) - len(left)}, and {len(left)} are inconclusive ({unsure}: "
        f"{listed(each.signed for _, each in left)}). Soft, its lead over SoftLIF is {_span(soft, 'past')} "
        f"points. Over the best binary baseline it is, at T=1, {_span(early, 'over')} soft{_sure(early)} and "
        f"{_span(early, 'binary')} run binary; at T=10, {_span(late, 'over')} soft{_sure(late)} and "
        f"{_span(late, 'binary')} run binary. Trained binary, it leads LIF with a learned width by "
        f"{_span(binary, 'past')} and the best baseline by {_span(binary, 'over')}{_sure(binary)}. "
        f"LIF itself gains {span(gains)} points over its runs as written, in which its reset is "
        "differentiated and its surrogate not scaled by the slope; these two alone change little (below)."
    )


def _is_control_itself(row: Compared) -> bool:
    """Tell whether a neuron is its control up to a bias: UltraDLIF is at T=1, soft or trained binary."""
    return row.timesteps == 1 and row.name.startswith("UltraD")


def _is_sure(each: Interval) -> bool:
    return each.p is not None and each.p < 0.05


def _sure(rows: Sequence[Compared]) -> str:
    """Say on which datasets a group is significantly ahead of the best baseline, and behind it."""
    parts = []
    for word, sign in (("ahead", 1), ("behind", -1)):
        found = [
            NAMES[row.dataset] for row in rows if row.over and _is_sure(row.over) and sign * row.over.mean > 0
        ]
        parts += [f"{word} on {listed(found)}"] if found else []
    return f" (significantly {', '.join(parts)})" if parts else " (nowhere significant)"


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
        f"Tuned alike, at T=10 alone, the best Ultra neuron leads the best baseline by {soft.binary.signed} "
        f"when trained soft and run binary, as here, and by {binary.over.signed} when trained binary."
    )


def _factors(results: Results) -> str:
    found: dict[str, dict[str, list[float]]] = {}
    places: dict[str, None] = {}
    for dataset, time, effect, change, *_ in factors_table(results.every).rows:
        if dataset != SMALL and "perceptron" not in effect:
            found.setdefault(time, {}).setdefault(effect, []).append(float(change.split()[0]))
            places[NAMES[dataset]] = None
    each = "; ".join(
        f"at T={time} {', '.join(f'{effect} {span(changes)}' for effect, changes in effects.items())}"
        for time, effects in found.items()
    )
    return wrapped(
        f"One ingredient changed and the others averaged over, on {listed(places)}: {each}. (At T=1 the ring "
        "is the additive membrane.)"
    )


def over_control(results: Results) -> str:
    """Show each tuned Ultra neuron against SoftLIF, as a mean over T=1 and 10 of the datasets."""
    lines = [
        "| neuron | minus SoftLIF, four datasets | cells below 0 | minus SoftLIF, SHD |",
        "|---|---|---|---|",
    ]
    for neuron in ULTRA:
        pooled, below, cells = from_control(results, neuron, FOUR)
        lines.append(
            f"| {neuron} | {pooled} | {below} of {cells} | {from_control(results, neuron, ['shd'])[0]} |"
        )
    return "\n".join(lines)


def from_control(results: Results, neuron: str, datasets: Sequence[str]) -> tuple[str, int, int]:
    """Return a tuned neuron less SoftLIF, pooled over T=1 and 10, and the cells in which it is behind."""
    runs = collect(tuned(results.every), results.every)
    by_seed: dict[int, list[float]] = {}
    means, spread = [], []
    for place in product(datasets, (1, 10)):
        ours, theirs = (scores(runs.get(StudyCell(name, *place), {})) for name in (neuron, "SoftLIF"))
        for seed in ours.keys() & theirs.keys():
            by_seed.setdefault(seed, []).append(ours[seed] - theirs[seed])
        if over := paired(ours, theirs):
            means.append(over.mean)
            spread.append(images(ours, theirs))
    mean = {seed: fmean(values) for seed, values in sorted(by_seed.items())}
    pooled = interval(
        mean, fmean(spread) / len(datasets) if spread else 0.0
    )  # datasets have their own images
    return (pooled.signed if pooled else "not run"), sum(value < 0 for value in means), len(means)


def dspike(results: Results) -> str:
    """Say where DSpike falls behind LIF in the text's reading, and what clipping its curve changes."""
    behind = [
        f"{NAMES[dataset]} {over.signed}"
        for dataset in HERE
        if (over := paired(results.accuracy("DSpike", dataset, 10), results.accuracy("LIF", dataset, 10)))
    ]
    runs = collect(one_at_a_time(), results.every)
    clipped, detached = (
        _of_reading(runs, "DSpike", reading) for reading in ("curve clipped", "reset not differentiated")
    )
    return wrapped(
        f"In the text's reading DSpike falls behind LIF beyond T=1; at T=10 by: {', '.join(behind)}. Its "
        "curve as printed leaves [0, 1]; in the author's code, and by default in this library, it is "
        f"clipped. Clipping it and nothing else changes T=10 by: {clipped}. Not differentiating the reset, "
        f"and nothing else: {detached}. So an unclipped curve seems to spoil the gradient through the reset.",
        "",
    )


def _of_reading(runs: dict[StudyCell, dict[int, Result]], neuron: str, reading: str) -> str:
    """List by dataset what one changed reading does to a neuron at T=10."""
    found = []
    for dataset in HERE:
        changed, base = (
            scores(runs.get(StudyCell(f"{neuron}, {name}", dataset, 10), {}))
            for name in (reading, "as written")
        )
        found += [f"{NAMES[dataset]} {over.signed}"] if (over := paired(changed, base)) else []
    return ", ".join(found)
