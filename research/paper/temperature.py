"""Judge the paper's claims about the temperature (section 6, appendix E)."""

from collections.abc import Callable
from statistics import fmean

from research.paper.grids import ABLATED, CONSTANT
from research.paper.judgement import NOT_TESTED, Judgement, Ruling, together
from research.paper.published import ULTRA
from research.paper.results import Results
from research.paper.statistics import Interval, interval, paired

__all__ = ["final_eps", "learned_is_best", "small_beats_large", "spatial_spikes_least", "u_shape"]

ENCODINGS = ("rate", "rate-normalized", CONSTANT)
"""The systems with fixed temperatures: two readings of the text, and the author's separate system."""


def _system(results: Results) -> str:
    """Return the system for the temperature study: the author's separate one, if it was run."""
    return CONSTANT if any(results.eps(neuron, "mnist", 1, CONSTANT) for neuron in ULTRA) else "rate"


def _differences(
    results: Results, find: Callable[[str, str], tuple[str, Interval | None]]
) -> list[tuple[str, Interval]]:
    """Return a difference for each Ultra neuron in each system, with its name."""
    found = []
    for encoding in ENCODINGS:
        for neuron in ULTRA:
            name, difference = find(neuron, encoding)
            if difference is not None:
                found.append((f"{neuron} ({encoding}) {name}", difference))
    return found


def learned_is_best(results: Results) -> Ruling:
    """A learned temperature beats the best of 0.5, 1 and 2, chosen on the test set, for each Ultra neuron."""

    def against_best(neuron: str, encoding: str) -> tuple[str, Interval | None]:
        learned = results.accuracy(neuron, "mnist", 1, encoding=encoding)
        fixed = {
            eps: results.accuracy(f"{neuron} eps={eps:g}", "mnist", 1, encoding=encoding) for eps in ABLATED
        }
        if not learned or not all(fixed.values()):
            return "", None
        best = max(ABLATED, key=lambda eps: fmean(fixed[eps].values()))
        return f"against eps={best:g}", paired(learned, fixed[best])

    return together(_differences(results, against_best), "better")


def small_beats_large(results: Results) -> Ruling:
    """A fixed temperature of 0.5 beats one of 2."""

    def small(neuron: str, encoding: str) -> tuple[str, Interval | None]:
        low, high = (
            results.accuracy(f"{neuron} eps={eps}", "mnist", 1, encoding=encoding) for eps in ("0.5", "2")
        )
        return "0.5 over 2", paired(low, high)

    return together(_differences(results, small), "better")


def final_eps(results: Results) -> Ruling:
    """Learned temperatures end between 0.66 and 1.08."""
    ends = {neuron: interval(results.eps(neuron, "mnist", 1, _system(results))) for neuron in ULTRA}
    known = {neuron: end for neuron, end in ends.items() if end is not None}
    if not known:
        return NOT_TESTED
    inside = sum(0.6 <= end.mean <= 1.15 for end in known.values())
    verdict: Judgement = "holds" if inside == len(known) else "holds weaker" if inside else "does not hold"
    return Ruling(verdict, ", ".join(f"{neuron} {end.mean:.2f}" for neuron, end in known.items()))


def u_shape(results: Results) -> Ruling:
    """The temperature falls to about 0.42 (0.35 to 0.5), then recovers by 15 %."""
    lows, both, recovered = [], 0, 0
    for neuron in ULTRA:
        for path in results.trajectories(neuron, _system(results)).values():
            low = min(path)
            lows.append(low)
            back = path[-1] > 1.15 * low
            recovered += back
            both += back and 0.35 <= low <= 0.5
    if not lows:
        return NOT_TESTED
    verdict: Judgement = "holds" if both == len(lows) else "holds weaker" if both else "does not hold"
    return Ruling(
        verdict,
        f"lowest {min(lows):.2f} to {max(lows):.2f} in {len(lows)} runs; recovers by 15 % in {recovered}, "
        f"from about 0.42 in {both}",
    )


def spatial_spikes_least(results: Results) -> Ruling:
    """With a learned temperature UltraDLIF and UltraDPLIF spike less than UltraLIF and UltraPLIF."""
    parts = []
    for encoding in ENCODINGS:
        rates = {n: interval(results.spike_rate(n, "mnist", 1, encoding=encoding)) for n in ULTRA}
        known = {name: rate.mean for name, rate in rates.items() if rate is not None}
        if len(known) == len(ULTRA):
            lower = max(known["UltraDLIF"], known["UltraDPLIF"]) < min(known["UltraLIF"], known["UltraPLIF"])
            parts.append((lower, f"{encoding}: " + ", ".join(f"{n} {r:.3f}" for n, r in known.items())))
    if not parts:
        return NOT_TESTED
    count = sum(lower for lower, _ in parts)
    verdict: Judgement = "holds" if count == len(parts) else "holds weaker" if count else "does not hold"
    return Ruling(verdict, "; ".join(text for _, text in parts))
