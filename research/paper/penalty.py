"""Judge the paper's claims about the sparsity penalty (section 6, appendix E.3)."""

from statistics import fmean
from typing import NamedTuple

from research.paper.grids import plain
from research.paper.judgement import (
    MARGIN,
    NOT_TESTED,
    Judgement,
    MeasuredClaim,
    Ruling,
    kept,
    of_many,
    sign,
    signed,
    together,
)
from research.paper.published import BASELINES, DATASETS, TIMESTEPS, ULTRA
from research.paper.results import Results
from research.paper.statistics import Interval, interval, paired

__all__ = ["best_with_penalty", "consistent", "improves", "most_spikes", "penalty", "temporal_is_cheapest"]


class Cut(NamedTuple):
    """The percentage by which lambda = 0.1 lowers the spike rate, and the change in accuracy."""

    cut: float
    cost: Interval


def _cut(results: Results, dataset: str, timesteps: int, neuron: str) -> Cut | None:
    label = plain(neuron, 0.1).label
    before = interval(results.spike_rate(neuron, dataset, timesteps))
    after = interval(results.spike_rate(label, dataset, timesteps))
    cost = paired(results.accuracy(label, dataset, timesteps), results.accuracy(neuron, dataset, timesteps))
    if before is None or after is None or cost is None:
        return None
    return Cut(100 * (1 - after.mean / before.mean), cost)


def penalty(dataset: str, timesteps: int, neuron: str, published: float) -> MeasuredClaim:
    """Lambda = 0.1 lowers the spike rate by a published percentage and preserves accuracy."""

    def decide(results: Results) -> Ruling:
        found = _cut(results, dataset, timesteps, neuron)
        if found is None:
            return NOT_TESTED
        lossless = kept(found.cost)
        if found.cut < published / 2 or lossless == "does not hold":
            verdict: Judgement = "does not hold"
        elif lossless == "inconclusive":
            verdict = "inconclusive"
        else:
            verdict = "holds" if found.cut >= published - 5 else "holds weaker"
        return Ruling(verdict, f"spike rate {-found.cut:+.0f} %, accuracy {signed(found.cost)}")

    text = f"{dataset}, T={timesteps}: lambda=0.1 cuts {neuron}'s spikes by {published:.0f} % at no loss"
    return MeasuredClaim(text, "6", decide)


def consistent(results: Results) -> Ruling:
    """Lambda = 0.1 cuts spike rates by 40 to 50 % with little loss, for every dataset, T and Ultra neuron."""
    found = [
        value
        for dataset in DATASETS
        for timesteps in TIMESTEPS
        for neuron in ULTRA
        if (value := _cut(results, dataset, timesteps, neuron)) is not None
    ]
    if not found:
        return NOT_TESTED
    cuts = [each.cut for each in found]
    inside = sum(40 <= cut <= 50 for cut in cuts)
    halved = sum(cut >= 40 for cut in cuts)
    safe = [each for each in found if kept(each.cost) == "holds"]
    both = sum(each.cut >= 40 for each in safe)
    lost = sum(kept(each.cost) == "does not hold" for each in found)
    return Ruling(
        of_many(both, len(found)),
        f"of {len(found)} cases {inside} are cut by 40 to 50 %, {halved} by 40 % or more (from "
        f"{min(cuts):.0f} to {max(cuts):.0f} %); a loss beyond {MARGIN} points is excluded in {len(safe)}, "
        f"sure in {lost}; cut by 40 % or more without such a loss: {both}",
    )


def improves(results: Results) -> Ruling:
    """Lambda = 0.1 improves accuracy on MNIST and Fashion-MNIST at T=1 and on CIFAR-10 at T=30."""
    parts = [
        (f"{neuron} on {dataset}", found.cost)
        for dataset, timesteps in (("mnist", 1), ("fashion-mnist", 1), ("cifar10", 30))
        for neuron in ULTRA
        if (found := _cut(results, dataset, timesteps, neuron)) is not None
    ]
    return together(parts, "better")


def best_with_penalty(results: Results) -> Ruling:
    """CIFAR-10 at T=30: UltraPLIF with lambda = 0.1 is the best of all, penalised or not."""
    ours = plain("UltraPLIF", 0.1).label
    others = [plain(n, v).label for n in ULTRA for v in (0.0, 0.01, 0.1)] + list(BASELINES)
    rival = results.best("cifar10", [label for label in others if label != ours], 30)
    mine = results.accuracy(ours, "cifar10", 30)
    if rival is None or not mine:
        return NOT_TESTED
    difference = paired(mine, results.accuracy(rival[0], "cifar10", 30))
    text = f"against the best other (chosen on the test set), {rival[0]}: {signed(difference)}"
    return Ruling(sign(difference), text, None if difference is None else difference.p)


def temporal_is_cheapest(results: Results) -> Ruling:
    """UltraPLIF has the lowest T * rate at lambda = 0.1, with an accuracy within the margin of the best."""
    cheapest = competitive = known = 0
    for dataset in DATASETS:
        for timesteps in TIMESTEPS:
            labels = {neuron: plain(neuron, 0.1).label for neuron in ULTRA}
            rates = {n: results.spike_rate(label, dataset, timesteps) for n, label in labels.items()}
            best = results.best(dataset, list(labels.values()), timesteps)
            if not all(rates.values()) or best is None:
                continue
            known += 1
            lowest = min(rates, key=lambda n: fmean(rates[n].values())) == "UltraPLIF"
            ours = results.accuracy(labels["UltraPLIF"], dataset, timesteps)
            level = kept(paired(ours, results.accuracy(best[0], dataset, timesteps))) == "holds"
            cheapest += lowest
            competitive += lowest and level
    if not known:
        return NOT_TESTED
    return Ruling(
        of_many(competitive, known),
        f"UltraPLIF spikes least in {cheapest} of {known} cells, and is within {MARGIN} of the best there "
        f"in {competitive}",
    )


def most_spikes(results: Results) -> Ruling:
    """Without a penalty, Ultra neurons spike more than baselines: all pairs on CIFAR-10 at T=1."""
    rates = {n: interval(results.spike_rate(n, "cifar10", 1)) for n in (*BASELINES, *ULTRA)}
    known = {name: rate.mean for name, rate in rates.items() if rate is not None}
    if len(known) < len(rates):
        return NOT_TESTED
    above = sum(known[u] > known[b] for u in ULTRA for b in BASELINES)
    count = len(ULTRA) * len(BASELINES)
    verdict: Judgement = (
        "holds" if above == count else "holds weaker" if 2 * above > count else "does not hold"
    )
    shown = ", ".join(f"{name} {rate:.3f}" for name, rate in known.items())
    return Ruling(verdict, f"in {above} of {count} pairs: {shown}")
