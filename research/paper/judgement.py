"""The paper's claims, and how measured differences are judged."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from research.paper.results import Results
from research.paper.statistics import Interval, holm

__all__ = [
    "MARGIN",
    "NOT_TESTED",
    "Judgement",
    "MeasuredClaim",
    "Ruling",
    "best",
    "compared",
    "corrected",
    "kept",
    "of_many",
    "sign",
    "signed",
    "together",
]

Judgement = Literal["holds", "holds weaker", "does not hold", "inconclusive", "not tested"]
MARGIN = 0.5
"""The largest negligible loss in points: "no loss" means that a larger one is excluded."""


class Ruling(NamedTuple):
    """The verdict on a claim, with the measurement and its p-value, if known."""

    verdict: Judgement
    measured: str
    p: float | None = None
    by_chance: Judgement = "inconclusive"
    """The verdict if the measurement may be due to chance."""


NOT_TESTED = Ruling("not tested", "the runs are not there")


@dataclass(frozen=True)
class MeasuredClaim:
    """A claim of the paper and the function that judges it."""

    text: str
    section: str
    judge: Callable[[Results], Ruling]


def best(results: Results, dataset: str, labels: Sequence[str], timesteps: int) -> str | None:
    """Return the label with the best mean accuracy."""
    found = results.best(dataset, labels, timesteps)
    return None if found is None else found[0]


def sign(difference: Interval | None) -> Judgement:
    """A claim holds if its interval is above 0, fails if it is below 0, and is inconclusive otherwise."""
    if difference is None:
        return "not tested"
    if difference.low > 0:
        return "holds"
    return "does not hold" if difference.high <= 0 else "inconclusive"


def compared(difference: Interval | None, published: float) -> Judgement:
    """A gain holds if its interval is above 0 and reaches the published one.

    A significantly smaller gain holds weaker if it is above 0, and does not hold otherwise.
    """
    found = sign(difference)
    if difference is None or difference.high >= published:
        return found
    return "holds weaker" if found == "holds" else "does not hold"


def kept(difference: Interval | None, margin: float = MARGIN) -> Judgement:
    """Accuracy is preserved if the interval excludes a loss beyond the margin."""
    if difference is None:
        return "not tested"
    if difference.low > -margin:
        return "holds"
    return "does not hold" if difference.high < -margin else "inconclusive"


def of_many(cases: int, every: int) -> Judgement:
    """A claim about many cases holds if more than nine of ten do, and holds weaker if more than half do."""
    if 10 * cases > 9 * every:
        return "holds"
    return "holds weaker" if 2 * cases > every else "does not hold"


def corrected(findings: Sequence[Ruling]) -> list[Ruling]:
    """Apply Holm's correction to findings and judge again those that may be due to chance."""
    known = [place for place, finding in enumerate(findings) if finding.p is not None]
    chances = dict(zip(known, holm([findings[place].p or 0.0 for place in known]), strict=True))
    out = []
    for place, finding in enumerate(findings):
        decided = finding.verdict in ("holds", "holds weaker", "does not hold")
        if decided and chances.get(place, 0.0) >= 0.05:
            note = f"{finding.measured}; not significant among {len(known)} comparisons"
            finding = Ruling(finding.by_chance, note, finding.p)
        out.append(finding)
    return out


def together(parts: Sequence[tuple[str, Interval]], word: str) -> Ruling:
    """Judge a claim that several differences are all above 0, corrected for their number.

    If `of_many` rejects the claim, it is inconclusive unless a difference is significantly below 0.

    Args:
        parts: the names and values of the differences.
        word: the word for a difference above 0.
    """
    if not parts:
        return NOT_TESTED
    chances = holm([1.0 if part.p is None else part.p for _, part in parts])
    sure = [chance < 0.05 for chance in chances]
    wins = sum(known and part.mean > 0 for known, (_, part) in zip(sure, parts, strict=True))
    losses = sum(known and part.mean < 0 for known, (_, part) in zip(sure, parts, strict=True))
    verdict = of_many(wins, len(parts))
    if losses:
        verdict = "does not hold"
    elif verdict == "does not hold":
        verdict = "inconclusive"
    text = f"{word} in {wins} of {len(parts)}, the reverse in {losses} (corrected for their number): "
    return Ruling(verdict, text + "; ".join(f"{name}: {signed(part)}" for name, part in parts))


def signed(value: Interval | None) -> str:
    """Return a difference as text."""
    return "?" if value is None else value.signed
