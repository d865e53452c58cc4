"""A claim of the paper, and the judgement on a measured difference."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from ultralif.paper.results import Interval, Results

__all__ = ["NOT_TESTED", "Claim", "Judgement", "best", "compared", "sign", "signed"]

Judgement = Literal["holds", "holds weaker", "does not hold", "not tested"]
NOT_TESTED = "the runs are not there"


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, and how it is judged."""

    text: str
    section: str
    judge: Callable[[Results], tuple[Judgement, str]]


def best(results: Results, dataset: str, labels: Sequence[str], timesteps: int) -> str | None:
    """Return the label with the best mean accuracy."""
    found = results.best(dataset, labels, timesteps)
    return None if found is None else found[0]


def sign(difference: Interval | None) -> Judgement:
    """A difference holds if its interval is above 0, and holds weaker if only its mean does."""
    if difference is None:
        return "not tested"
    if difference.mean - (difference.half or 0) > 0:
        return "holds"
    return "holds weaker" if difference.mean > 0 else "does not hold"


def compared(difference: Interval | None, published: float) -> Judgement:
    """A gain holds if the published one is in its interval or below it."""
    found = sign(difference)
    if difference is None or found != "holds":
        return found
    return "holds" if difference.mean + (difference.half or 0) >= published else "holds weaker"


def signed(value: Interval | None) -> str:
    """Return a difference as text."""
    return "?" if value is None else value.signed
