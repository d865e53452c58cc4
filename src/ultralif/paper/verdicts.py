"""Every quantitative claim of the paper's text, as a function of the results."""

from collections.abc import Sequence
from dataclasses import dataclass

from ultralif.paper.grids import plain
from ultralif.paper.judgement import NOT_TESTED, Claim, Judgement, best, compared, sign, signed
from ultralif.paper.published import BASELINES, DATASETS, TIMESTEPS, ULTRA
from ultralif.paper.results import Interval, Results, interval, paired
from ultralif.paper.temperature import final_eps, learned_is_best, small_beats_large, u_shape

__all__ = ["CLAIMS", "Claim", "Verdict", "judge"]


@dataclass(frozen=True)
class Verdict:
    """Verdict of the measurements on a claim."""

    claim: str
    section: str
    verdict: Judgement
    measured: str


def judge(results: Results) -> list[Verdict]:
    """Return the verdict on every claim."""
    return [Verdict(claim.text, claim.section, *claim.judge(results)) for claim in CLAIMS]


def _gain(dataset: str, published: float) -> Claim:
    """At T=1 the best Ultra neuron beats the best baseline by so much."""

    def decide(results: Results) -> tuple[Judgement, str]:
        base, ultra = best(results, dataset, BASELINES, 1), best(results, dataset, ULTRA, 1)
        if base is None or ultra is None:
            return "not tested", NOT_TESTED
        soft = paired(results.accuracy(ultra, dataset, 1), results.accuracy(base, dataset, 1))
        hard = paired(results.accuracy(ultra, dataset, 1, "hard"), results.accuracy(base, dataset, 1))
        text = f"{ultra} over {base}: {signed(soft)} with soft spikes, {signed(hard)} with binary ones"
        return compared(soft, published), text

    return Claim(
        f"{dataset}, T=1: the best Ultra neuron is {published:+.2f} over the best baseline", "1, 6", decide
    )


def _best_is(dataset: str, timesteps: int, wanted: Sequence[str], text: str, section: str = "6") -> Claim:
    """One of the wanted neurons has the best accuracy of all ten."""

    def decide(results: Results) -> tuple[Judgement, str]:
        rest = [label for label in (*BASELINES, *ULTRA) if label not in wanted]
        ours, other = best(results, dataset, wanted, timesteps), best(results, dataset, rest, timesteps)
        if ours is None or other is None:
            return "not tested", NOT_TESTED
        difference = paired(
            results.accuracy(ours, dataset, timesteps), results.accuracy(other, dataset, timesteps)
        )
        tied = difference is not None and abs(difference.mean) <= (difference.half or 0.0)
        text = f"{ours} against the best other, {other}: {signed(difference)}"
        return ("holds weaker", f"{text}, a tie") if tied else (sign(difference), text)

    return Claim(text, section, decide)


def _penalty(dataset: str, timesteps: int, neuron: str, published: float) -> Claim:
    """Lambda = 0.1 lowers the spike rate by a given percentage, and the accuracy is kept."""

    def decide(results: Results) -> tuple[Judgement, str]:
        found = _reduction(results, dataset, timesteps, neuron)
        if found is None:
            return "not tested", NOT_TESTED
        cut, cost = found
        kept = cost.mean + (cost.half or 0.0) >= -0.1
        if cut >= published - 5 and kept:
            verdict: Judgement = "holds"
        else:
            verdict = "holds weaker" if cut >= published / 2 and kept else "does not hold"
        return verdict, f"spike rate {-cut:+.0f} %, accuracy {signed(cost)}"

    text = f"{dataset}, T={timesteps}: lambda=0.1 cuts {neuron}'s spikes by {published:.0f} % at no loss"
    return Claim(text, "6", decide)


def _reduction(results: Results, dataset: str, timesteps: int, neuron: str) -> tuple[float, Interval] | None:
    penalized = plain(neuron, 0.1).label
    before = interval(results.spike_rate(neuron, dataset, timesteps))
    after = interval(results.spike_rate(penalized, dataset, timesteps))
    cost = paired(
        results.accuracy(penalized, dataset, timesteps), results.accuracy(neuron, dataset, timesteps)
    )
    if before is None or after is None or cost is None:
        return None
    return 100 * (1 - after.mean / before.mean), cost


def _always_halved(results: Results) -> tuple[Judgement, str]:
    """In every dataset, T and Ultra neuron."""
    found = [
        value
        for dataset in DATASETS
        for timesteps in TIMESTEPS
        for neuron in ULTRA
        if (value := _reduction(results, dataset, timesteps, neuron)) is not None
    ]
    if not found:
        return "not tested", NOT_TESTED
    cuts = [cut for cut, _ in found]
    within = sum(cut >= 35 for cut in cuts)
    costly = sum(cost.mean + (cost.half or 0) < -0.5 for _, cost in found)
    share = within / len(found)
    verdict: Judgement = "holds" if share > 0.9 else "holds weaker" if share > 0.5 else "does not hold"
    return verdict, (
        f"cut by 35 % or more in {within} of {len(found)} cases, from {min(cuts):.0f} to {max(cuts):.0f} %; "
        f"more than half a point lost in {costly}"
    )


def _shrinks(dataset: str) -> Claim:
    """The gain of the best Ultra neuron at T=1 is smaller at T=10 and 30."""

    def decide(results: Results) -> tuple[Judgement, str]:
        gains = []
        for timesteps in TIMESTEPS:
            base, ultra = (best(results, dataset, group, timesteps) for group in (BASELINES, ULTRA))
            if base is None or ultra is None:
                return "not tested", NOT_TESTED
            gain = paired(
                results.accuracy(ultra, dataset, timesteps), results.accuracy(base, dataset, timesteps)
            )
            gains.append(gain)
        means = [gain.mean if gain else 0.0 for gain in gains]
        verdict: Judgement = "holds" if means[0] > max(means[1:]) else "does not hold"
        return verdict, "T=1, 10, 30: " + ", ".join(map(signed, gains))

    return Claim(f"{dataset}: the advantage at T=1 shrinks at T=10 and T=30", "6, timestep scaling", decide)


def _twins(timesteps: int) -> Claim:
    """UltraDLIF and UltraDPLIF have the same accuracy."""

    def decide(results: Results) -> tuple[Judgement, str]:
        parts, same = [], True
        for dataset in DATASETS:
            difference = paired(
                results.accuracy("UltraDPLIF", dataset, timesteps),
                results.accuracy("UltraDLIF", dataset, timesteps),
            )
            if difference is not None:
                same = same and abs(difference.mean) < 0.02
                parts.append(f"{dataset} {signed(difference)}")
        if not parts:
            return "not tested", NOT_TESTED
        return "holds" if same else "does not hold", ", ".join(parts)

    return Claim(f"T={timesteps}: UltraDLIF and UltraDPLIF give identical results", "7, limitations", decide)


def _robust_to_hard(results: Results) -> tuple[Judgement, str]:
    """The mean spike rate as output makes soft and binary spikes equivalent."""
    losses = []
    for dataset in DATASETS:
        for timesteps in TIMESTEPS:
            for neuron in ULTRA:
                loss = paired(
                    results.accuracy(neuron, dataset, timesteps, "hard"),
                    results.accuracy(neuron, dataset, timesteps),
                )
                if loss is not None:
                    losses.append((loss.mean, f"{neuron} on {dataset}, T={timesteps}"))
    if not losses:
        return "not tested", NOT_TESTED
    worst, where = min(losses)
    small = sum(loss > -0.3 for loss, _ in losses)
    verdict: Judgement = (
        "holds" if worst > -0.3 else "holds weaker" if small > len(losses) / 2 else "does not hold"
    )
    return verdict, f"within 0.3 points in {small} of {len(losses)} cases; worst {worst:+.2f} ({where})"


def _more_spikes(results: Results) -> tuple[Judgement, str]:
    """Without a penalty, CIFAR-10, T=1: UltraPLIF against LIF."""
    ours, theirs = (interval(results.spike_rate(label, "cifar10", 1)) for label in ("UltraPLIF", "LIF"))
    if ours is None or theirs is None:
        return "not tested", NOT_TESTED
    verdict: Judgement = "holds" if ours.mean > theirs.mean else "does not hold"
    return verdict, f"UltraPLIF {ours.mean:.3f}, LIF {theirs.mean:.3f}"


def _overhead(results: Results) -> tuple[Judgement, str]:
    """About 5 % of wall time over LIF."""
    if not results.step_ms:
        return "not tested", NOT_TESTED
    parts, fused = [], []
    for setting, milliseconds in results.step_ms.items():
        over = [100 * (milliseconds[neuron] / milliseconds["LIF"] - 1) for neuron in ULTRA]
        fused += over if setting.endswith("auto") else []
        kind = "fused" if setting.endswith("auto") else "plain loop"
        parts.append(f"{setting.split()[0]} {kind}: {min(over):+.0f} to {max(over):+.0f} %")
    verdict: Judgement = (
        "holds" if max(fused) <= 10 else "holds weaker" if max(fused) <= 25 else "does not hold"
    )
    return verdict, "a step of one network on one CPU thread, over LIF, " + "; ".join(parts)


CLAIMS: tuple[Claim, ...] = (
    _gain("shd", 11.22),
    _gain("dvs-gesture", 7.96),
    _gain("n-mnist", 3.91),
    _gain("cifar10", 3.01),
    _gain("fashion-mnist", 0.35),
    _gain("mnist", 0.09),
    *(
        _best_is("cifar10", t, ("UltraPLIF",), f"cifar10, T={t}: UltraPLIF is the best of all", "table 2")
        for t in TIMESTEPS
    ),
    _best_is("mnist", 1, ("UltraDLIF", "UltraDPLIF"), "mnist, T=1: UltraDLIF is the best of all", "table 4"),
    _best_is("mnist", 30, ("UltraPLIF",), "mnist, T=30: UltraPLIF is the best of all", "table 4"),
    _best_is("n-mnist", 1, ("UltraDLIF", "UltraDPLIF"), "n-mnist, T=1: UltraDLIF is the best of all"),
    _best_is("n-mnist", 10, BASELINES, "n-mnist, T=10: a baseline is the best of all"),
    _best_is("fashion-mnist", 1, ("UltraPLIF",), "fashion-mnist, T=1: UltraPLIF is the best of all", "E.2"),
    *(
        _best_is("fashion-mnist", t, BASELINES, f"fashion-mnist, T={t}: a baseline is the best of all", "E.2")
        for t in TIMESTEPS[1:]
    ),
    *(_shrinks(dataset) for dataset in ("cifar10", "n-mnist", "shd")),
    _penalty("mnist", 1, "UltraDLIF", 40),
    _penalty("mnist", 10, "UltraDPLIF", 50),
    _penalty("cifar10", 1, "UltraPLIF", 48),
    _penalty("cifar10", 30, "UltraPLIF", 50),
    Claim("lambda=0.1 consistently cuts spike rates by 40 to 50 % with minimal loss", "E.3", _always_halved),
    Claim("without a penalty Ultra neurons spike more than baselines (cifar10, T=1)", "6", _more_spikes),
    Claim("a learned temperature is the best or tied for it (mnist, T=1)", "6, E.1", learned_is_best),
    Claim("learned temperatures end between 0.66 and 1.08 (mnist, T=1)", "6, E.1", final_eps),
    Claim("the temperature falls to about 0.42 and then recovers", "E, figure 3", u_shape),
    Claim("a fixed eps of 0.5 beats 2.0 (mnist, T=1)", "E.1", small_beats_large),
    *(_twins(timesteps) for timesteps in TIMESTEPS),
    Claim("with the mean rate as output, binary spikes do as well as soft ones", "4.2", _robust_to_hard),
    Claim("log-sum-exp adds about 5 % of wall time over LIF", "6, computational cost", _overhead),
)
