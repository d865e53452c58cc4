"""`Reader`: values of stored JSON objects in their types, with errors that name the entry. Needs no torch."""

import math
from typing import Any

from ultralif.files import BadFile, visible
from ultralif.training.energy import Operations

__all__ = ["Reader"]

LONGEST = 10**6
"""The most entries of a list or a mapping of a stored result."""


class Reader:
    """Values of a JSON object in their types, or an error that names the object and the entry."""

    def __init__(self, values: Any, source: str) -> None:
        if not isinstance(values, dict) or len(values) > LONGEST:
            raise BadFile(f"{source} is not a JSON object with the numbers of a run")
        self.values: dict[str, Any] = values
        self.source = source

    def part(self, name: str) -> "Reader":
        """Return an object inside; one that is missing is empty."""
        value = self.values.get(name)
        return Reader({} if value is None else value, f"{name} of {self.source}")

    def text(self, name: str, default: str | None = None) -> str:
        """Return a short text."""
        value = self.values.get(name, default)
        if not isinstance(value, str) or len(value) > 4096:
            raise self._wrong(name, "a text")
        return value

    def long_text(self, name: str) -> str | None:
        """Return a text, if there is one."""
        value = self.values.get(name)
        if value is not None and (not isinstance(value, str) or len(value) > LONGEST):
            raise self._wrong(name, "a text")
        return value

    def number(self, name: str) -> float | None:
        """Return a finite number, if there is one."""
        return self._number(name, self.values.get(name))

    def whole(self, name: str, default: int | None = None) -> int:
        """Return a whole number that is not negative."""
        value = self.values.get(name, default)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**63:
            raise self._wrong(name, "a whole number")
        return value

    def numbers(self, name: str) -> tuple[float | None, ...] | None:
        """Return a list of numbers, if there is one."""
        value = self.values.get(name)
        if value is None:
            return None
        if not isinstance(value, list) or len(value) > LONGEST:
            raise self._wrong(name, "a list of numbers")
        return tuple(self._number(name, entry) for entry in value)

    def operations(self) -> Operations | None:
        """Return counted operations, if they are there."""
        macs, acs = self.number("macs"), self.number("acs")
        return None if macs is None or acs is None else Operations(macs, acs)

    def layers(self, name: str) -> dict[str, Operations]:
        """Return counted operations by the name of their layer."""
        value = self.values.get(name, [])
        if not isinstance(value, list) or len(value) > LONGEST:
            raise self._wrong(name, "a list of objects")
        entries = [Reader(entry, f"{name} of {self.source}") for entry in value]
        return {one.text("layer"): found for one in entries if (found := one.operations()) is not None}

    def scalars(self) -> dict[str, Any]:
        """Return the entries that are texts or numbers."""
        return {name: v for name, v in self.values.items() if isinstance(v, str | int | float | None)}

    def _number(self, name: str, value: Any) -> float | None:
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._wrong(name, "a number")
        if isinstance(value, int) and abs(value) > 10**300:
            raise self._wrong(name, "a number")
        return float(value) if math.isfinite(value) else None

    def _wrong(self, name: str, wanted: str) -> BadFile:
        found = visible(repr(self.values.get(name)))[:60]
        return BadFile(f"{name!r} of {self.source} must be {wanted}, got {found}")
