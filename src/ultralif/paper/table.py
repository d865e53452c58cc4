"""Text tables and the formatting of their cells."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from ultralif.paper.statistics import Interval

__all__ = ["ABSENT", "NOT_RUN", "Table", "difference", "number"]

ABSENT = "no data here"
NOT_RUN = "not run"


@dataclass(frozen=True)
class Table:
    """A table as text: columns, rows, and notes for the reader."""

    name: str
    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    notes: list[str] = field(default_factory=list)


def number(value: float | None) -> str:
    """Write a number of percent, if there is one."""
    return "-" if value is None else f"{value:.2f}"


def difference(measured: Interval | None, theirs: float | None) -> str:
    """Write the difference between a measurement and a published number."""
    return "-" if measured is None or theirs is None else f"{measured.mean - theirs:+.2f}"
