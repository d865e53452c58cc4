"""The sentences in research/docs/paper.md about our own studies."""

from collections.abc import Callable, Sequence
from itertools import product
from statistics import fmean

from research.pages.paper_parts import FOUR, HERE, NAMES, listed, wrapped
from research.paper.judgement import MARGIN
from research.paper.published import ULTRA
from research.paper.results import Results, scores
from research.paper.statistics import Interval, images, interval, paired
from research.studies.grids import SMALL, StudyCell, collect, one_at_a_time, tuned
from research.studies.tables import Compared, factors_table, tuned_groups, tuned_summary
from ultralif.training import Result

__all__ = ["dspike", "over_control"]


def of_studies(results: Results) -> list[Callable[[Results], str]]:
    """Return the sentences about the studies that have runs on more than digits."""
    words = ((tuned_summary, _tuned), (factors_table, _factors))
    return [word for table, word in words if {row[0] for row in table(results.every).rows} - {SMALL}]


def _tuned(results: Results) -> str:
    """State whether a tuned Ultra neuron is ahead of its control."""
    past = [(row, row.past) for row in tuned_groups(results.every) if row.past]
    ahead, behind = (sum(_is_sure(each) and sign * each.mean > 0 for _, each in past) for sign in (1, -1))
    apart = [(row, each) for row, each in past if not _is_control_itself(row)]
    left = [(row, each) for row, each in apart if each.high >= MARGIN]
    unsure = listed(dict.fromkeys(f"{NAMES[row.dataset]} at T={row.timesteps}" for row, _ in left))
    return wrapped(
        "**Tuned alike, the best Ultra neuron is significantly ahead of its control, which has no "
        f"log-sum-exp, in {ahead or 'none'} of {len(past)} comparisons**, and behind in {behind or 'none'}. "
        "Each neuron had sixteen settings, compared on held-out data, and Holm's correction is applied. In "
        f"{len(past) - len(apart)} comparisons, at T=1, both are the same network up to the initial bias. In "
        f"{len(apart) - len(left)} of the other {len(apart)}, a lead of more than {MARGIN} points is "
        f"excluded, and {len(left)} are undecided ({unsure})."
    )


def _is_control_itself(row: Compared) -> bool:
    """Return whether a neuron equals its control up to a bias, as UltraDLIF does at T=1."""
    return row.timesteps == 1 and row.name.startswith("UltraD")


def _is_sure(each: Interval) -> bool:
    return each.p is not None and each.p < 0.05


def _factors(results: Results) -> str:
    """State which ingredients show a gain in every cell of the factorial."""
    found: dict[str, list[float]] = {}
    for dataset, _, effect, change, *_ in factors_table(results.every).rows:
        if dataset != SMALL and "perceptron" not in effect:
            mean, _, half = change.split()
            found.setdefault(effect, []).append(float(mean) - float(half))
    always = [effect for effect, lowest in found.items() if min(lowest) > 0]
    never = [effect for effect, lowest in found.items() if max(lowest) <= 0]
    return wrapped(
        "In a factorial experiment on three sets of images at T=1 and 10, one ingredient changes and the "
        f"others are averaged over. Every cell shows a gain for {listed(always or ['none'])}. No cell shows "
        f"a gain for {listed(never or ['any'])}."
    )


def over_control(results: Results) -> str:
    """Compare each tuned Ultra neuron with SoftLIF, as a mean over the datasets at T=1 and 10."""
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
    """Return a tuned neuron minus SoftLIF, pooled over T=1 and 10, and in how many cells it is behind."""
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
    )  # datasets have different images
    return (pooled.signed if pooled else "not run"), sum(value < 0 for value in means), len(means)


def dspike(results: Results) -> str:
    """Describe where DSpike falls behind LIF as written, and the effect of clipping its curve."""
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
        f"As written, DSpike falls behind LIF beyond T=1. The differences at T=10 are: "
        f"{', '.join(behind)}. The printed curve leaves [0, 1], and the author's code and this library clip "
        f"it. Clipping alone changes the accuracy at T=10 by: {clipped}. Detaching the reset alone changes "
        f"it by: {detached}. So an unclipped curve seems to spoil the gradient through the reset.",
        "",
    )


def _of_reading(runs: dict[StudyCell, dict[int, Result]], neuron: str, reading: str) -> str:
    """List the effect of one changed reading on a neuron at T=10, by dataset."""
    found = []
    for dataset in HERE:
        changed, base = (
            scores(runs.get(StudyCell(f"{neuron}, {name}", dataset, 10), {}))
            for name in (reading, "as written")
        )
        found += [f"{NAMES[dataset]} {over.signed}"] if (over := paired(changed, base)) else []
    return ", ".join(found)
