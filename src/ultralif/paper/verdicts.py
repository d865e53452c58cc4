"""Every quantitative claim of the paper's text, as a function of the results."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from ultralif.paper.grids import ABLATED, plain
from ultralif.paper.published import BASELINES, DATASETS, TIMESTEPS, ULTRA
from ultralif.paper.results import Interval, Results, interval, paired

__all__ = ["CLAIMS", "Claim", "Verdict", "judge"]

Judgement = Literal["holds", "holds weaker", "does not hold", "not tested"]
NOT_TESTED = "the runs are not there"


@dataclass(frozen=True)
class Verdict:
    """What the measurements say about a claim."""

    claim: str
    section: str
    verdict: Judgement
    measured: str


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, and how it is judged."""

    text: str
    section: str
    judge: Callable[[Results], tuple[Judgement, str]]


def judge(results: Results) -> list[Verdict]:
    """Return the verdict on every claim."""
    return [Verdict(claim.text, claim.section, *claim.judge(results)) for claim in CLAIMS]


def _gain(dataset: str, published: float) -> Claim:
    """At T=1 the best Ultra neuron beats the best baseline by so much."""

    def decide(results: Results) -> tuple[Judgement, str]:
        base, ultra = _best(results, dataset, BASELINES, 1), _best(results, dataset, ULTRA, 1)
        if base is None or ultra is None:
            return "not tested", NOT_TESTED
        soft = paired(results.accuracy(ultra, dataset, 1), results.accuracy(base, dataset, 1))
        hard = paired(results.accuracy(ultra, dataset, 1, "hard"), results.accuracy(base, dataset, 1))
        text = f"{ultra} over {base}: {_signed(soft)} with soft spikes, {_signed(hard)} with binary ones"
        return _compared(soft, published), text

    return Claim(
        f"{dataset}, T=1: the best Ultra neuron is {published:+.2f} over the best baseline", "1, 6", decide
    )


def _best_is(dataset: str, timesteps: int, wanted: Sequence[str], text: str, section: str = "6") -> Claim:
    """One of the wanted neurons has the best accuracy of all ten."""

    def decide(results: Results) -> tuple[Judgement, str]:
        rest = [label for label in (*BASELINES, *ULTRA) if label not in wanted]
        ours, other = _best(results, dataset, wanted, timesteps), _best(results, dataset, rest, timesteps)
        if ours is None or other is None:
            return "not tested", NOT_TESTED
        difference = paired(
            results.accuracy(ours, dataset, timesteps), results.accuracy(other, dataset, timesteps)
        )
        tied = difference is not None and abs(difference.mean) <= (difference.half or 0.0)
        text = f"{ours} against the best other, {other}: {_signed(difference)}"
        return ("holds weaker", f"{text}, a tie") if tied else (_sign(difference), text)

    return Claim(text, section, decide)


def _penalty(dataset: str, timesteps: int, neuron: str, published: float) -> Claim:
    """Lambda = 0.1 lowers the spike rate by so many percent, and the accuracy is kept."""

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
        return verdict, f"spike rate {-cut:+.0f} %, accuracy {_signed(cost)}"

    text = f"{dataset}, T={timesteps}: lambda=0.1 cuts {neuron}'s spikes by {published:.0f} % at no loss"
    return Claim(text, "6", decide)


def _reduction(results: Results, dataset: str, timesteps: int, neuron: str) -> tuple[float, Interval] | None:
    penalized = plain(neuron, 0.1).label
    before = interval(list(results.spike_rate(neuron, dataset, timesteps).values()))
    after = interval(list(results.spike_rate(penalized, dataset, timesteps).values()))
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
            base, ultra = (_best(results, dataset, group, timesteps) for group in (BASELINES, ULTRA))
            if base is None or ultra is None:
                return "not tested", NOT_TESTED
            gain = paired(
                results.accuracy(ultra, dataset, timesteps), results.accuracy(base, dataset, timesteps)
            )
            gains.append(gain)
        means = [gain.mean if gain else 0.0 for gain in gains]
        verdict: Judgement = "holds" if means[0] > max(means[1:]) else "does not hold"
        return verdict, "T=1, 10, 30: " + ", ".join(map(_signed, gains))

    return Claim(f"{dataset}: the advantage at T=1 shrinks at T=10 and T=30", "6, timestep scaling", decide)


def _learned_is_best(results: Results) -> tuple[Judgement, str]:
    """Learned eps against the best of 0.5, 1 and 2, for every Ultra neuron, under both encodings."""
    lines, wins, losses = [], 0, 0
    for encoding in ("rate", "rate-normalized"):
        for neuron in ULTRA:
            learned = results.accuracy(neuron, "mnist", 1, encoding=encoding)
            fixed = {
                eps: results.accuracy(f"{neuron} eps={eps:g}", "mnist", 1, encoding=encoding)
                for eps in ABLATED
            }
            if not learned or not all(fixed.values()):
                continue
            best = max(ABLATED, key=lambda eps: interval(list(fixed[eps].values())) or (0,))
            difference = paired(learned, fixed[best])
            if difference is not None:
                wins += _sign(difference) == "holds"
                losses += difference.mean + (difference.half or 0) < 0
                lines.append(f"{neuron} ({encoding}) against eps={best:g}: {_signed(difference)}")
    if not lines:
        return "not tested", NOT_TESTED
    verdict: Judgement = "holds" if wins == len(lines) else "does not hold" if losses else "holds weaker"
    return verdict, "; ".join(lines)


def _final_eps(results: Results) -> tuple[Judgement, str]:
    """0.66 to 1.08."""
    ends = {neuron: interval(list(results.eps(neuron, "mnist", 1).values())) for neuron in ULTRA}
    known = {neuron: end for neuron, end in ends.items() if end is not None}
    if not known:
        return "not tested", NOT_TESTED
    inside = sum(0.6 <= end.mean <= 1.15 for end in known.values())
    verdict: Judgement = "holds" if inside == len(known) else "holds weaker" if inside else "does not hold"
    return verdict, ", ".join(f"{neuron} {end.mean:.2f}" for neuron, end in known.items())


def _u_shape(results: Results) -> tuple[Judgement, str]:
    """Drop to about 0.42, then recovery."""
    parts, recovered = [], 0
    for neuron in ULTRA:
        for path in results.trajectories(neuron).values():
            low = min(path)
            recovered += path[-1] > 1.15 * low
            parts.append(f"{neuron} {low:.2f} to {path[-1]:.2f}")
    if not parts:
        return "not tested", NOT_TESTED
    verdict: Judgement = (
        "holds" if recovered == len(parts) else "holds weaker" if recovered else "does not hold"
    )
    return verdict, f"recovers by 15 % in {recovered} of {len(parts)} runs (lowest to last: {parts[0]} ...)"


def _small_beats_large(results: Results) -> tuple[Judgement, str]:
    """Eps = 0.5 against eps = 2."""
    lines, signs = [], []
    for neuron in ULTRA:
        difference = paired(
            results.accuracy(f"{neuron} eps=0.5", "mnist", 1), results.accuracy(f"{neuron} eps=2", "mnist", 1)
        )
        if difference is not None:
            signs.append(_sign(difference))
            lines.append(f"{neuron} {_signed(difference)}")
    if not lines:
        return "not tested", NOT_TESTED
    verdict: Judgement = "holds" if all(sign == "holds" for sign in signs) else "does not hold"
    return verdict, ", ".join(lines)


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
                parts.append(f"{dataset} {_signed(difference)}")
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
    ours, theirs = (
        interval(list(results.spike_rate(label, "cifar10", 1).values())) for label in ("UltraPLIF", "LIF")
    )
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


def _best(results: Results, dataset: str, labels: Sequence[str], timesteps: int) -> str | None:
    means = {
        label: value.mean
        for label in labels
        if (value := interval(list(results.accuracy(label, dataset, timesteps).values()))) is not None
    }
    return max(means, key=lambda label: means[label]) if means else None


def _sign(difference: Interval | None) -> Judgement:
    """A difference holds if its interval lies above 0, and holds weaker if only its mean does."""
    if difference is None:
        return "not tested"
    if difference.mean - (difference.half or 0) > 0:
        return "holds"
    return "holds weaker" if difference.mean > 0 else "does not hold"


def _compared(difference: Interval | None, published: float) -> Judgement:
    """A gain holds if the published one lies in its interval or below it."""
    sign = _sign(difference)
    if difference is None or sign != "holds":
        return sign
    return "holds" if difference.mean + (difference.half or 0) >= published else "holds weaker"


def _signed(value: Interval | None) -> str:
    if value is None:
        return "?"
    return f"{value.mean:+.2f}" + ("" if value.half is None else f" ± {value.half:.2f}")


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
    Claim("a learned temperature is the best or tied for it (mnist, T=1)", "6, E.1", _learned_is_best),
    Claim("learned temperatures end between 0.66 and 1.08 (mnist, T=1)", "6, E.1", _final_eps),
    Claim("the temperature falls to about 0.42 and then recovers", "E, figure 3", _u_shape),
    Claim("a fixed eps of 0.5 beats 2.0 (mnist, T=1)", "E.1", _small_beats_large),
    *(_twins(timesteps) for timesteps in TIMESTEPS),
    Claim("with the mean rate as output, binary spikes do as well as soft ones", "4.2", _robust_to_hard),
    Claim("log-sum-exp adds about 5 % of wall time over LIF", "6, computational cost", _overhead),
)
