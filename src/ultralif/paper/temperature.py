"""Judgement of the paper's claims about the temperature (section 6, appendix E)."""

from statistics import fmean

from ultralif.paper.grids import ABLATED
from ultralif.paper.judgement import NOT_TESTED, Judgement, sign, signed
from ultralif.paper.published import ULTRA
from ultralif.paper.results import Results, interval, paired

__all__ = ["final_eps", "learned_is_best", "small_beats_large", "u_shape"]


def learned_is_best(results: Results) -> tuple[Judgement, str]:
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
            best = max(ABLATED, key=lambda eps: fmean(fixed[eps].values()))
            difference = paired(learned, fixed[best])
            if difference is not None:
                wins += sign(difference) == "holds"
                losses += difference.mean + (difference.half or 0) < 0
                lines.append(f"{neuron} ({encoding}) against eps={best:g}: {signed(difference)}")
    if not lines:
        return "not tested", NOT_TESTED
    verdict: Judgement = "holds" if wins == len(lines) else "does not hold" if losses else "holds weaker"
    return verdict, "; ".join(lines)


def final_eps(results: Results) -> tuple[Judgement, str]:
    """0.66 to 1.08."""
    ends = {neuron: interval(results.eps(neuron, "mnist", 1)) for neuron in ULTRA}
    known = {neuron: end for neuron, end in ends.items() if end is not None}
    if not known:
        return "not tested", NOT_TESTED
    inside = sum(0.6 <= end.mean <= 1.15 for end in known.values())
    verdict: Judgement = "holds" if inside == len(known) else "holds weaker" if inside else "does not hold"
    return verdict, ", ".join(f"{neuron} {end.mean:.2f}" for neuron, end in known.items())


def u_shape(results: Results) -> tuple[Judgement, str]:
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


def small_beats_large(results: Results) -> tuple[Judgement, str]:
    """Eps = 0.5 against eps = 2."""
    lines, signs = [], []
    for neuron in ULTRA:
        difference = paired(
            results.accuracy(f"{neuron} eps=0.5", "mnist", 1), results.accuracy(f"{neuron} eps=2", "mnist", 1)
        )
        if difference is not None:
            signs.append(sign(difference))
            lines.append(f"{neuron} {signed(difference)}")
    if not lines:
        return "not tested", NOT_TESTED
    verdict: Judgement = "holds" if all(sign == "holds" for sign in signs) else "does not hold"
    return verdict, ", ".join(lines)
