"""Limits on the size of a job, checked before it starts."""

from collections.abc import Callable

from ultralif.errors import InputError

__all__ = ["duration", "largest", "refuse_beyond"]


def duration(seconds: float) -> str:
    """Format a duration in a suitable unit.

    Example:
        >>> duration(90), duration(7200), duration(1e12)
        ('90 seconds', '2 hours', '3.17e+04 years')
    """
    for unit, size in (("years", 31_557_600), ("days", 86_400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.2g} seconds"


def largest(work: Callable[[int], int], limit: int, size: int) -> int:
    """Return the largest size, up to the given one, whose work is within the limit."""
    return next((smaller for smaller in range(size, 0, -1) if work(smaller) <= limit), 0)


def refuse_beyond(limit: float, work: float, seconds_each: float, what: str, remedy: str) -> None:
    """Raise an InputError with a time estimate if a job has more than ``limit`` work items.

    Args:
        limit: largest allowed number of work items.
        work: number of work items.
        seconds_each: estimated time for one item.
        what: the job, such as ``2 hyperplanes of rank 2 have up to 4 regions``.
        remedy: a size that would work.
    """
    if work > limit:
        raise InputError(f"{what}, about {duration(work * seconds_each)} of work; {remedy}")
