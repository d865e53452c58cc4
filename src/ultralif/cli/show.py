"""Print results: one JSON document, or lines and small tables."""

from json import dumps
from typing import Any

__all__ = ["show"]


def show(result: dict[str, Any], json: bool) -> None:
    """Print a result as JSON, or a line for each of its values and a table for each list of dicts."""
    if json:
        print(dumps(result, indent=2))
        return
    tables = {name: value for name, value in result.items() if _is_table(value)}
    width = max(map(len, result.keys() - tables.keys()), default=0)
    for name, value in result.items():
        if name in tables:
            print(f"{name}:\n{_table(value)}")
        else:
            print(f"{name:{width}}  {_spell(value)}")


def _is_table(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], dict)


def _table(rows: list[dict[str, Any]]) -> str:
    cells = [list(rows[0]), *([_spell(value) for value in row.values()] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = (zip(row, widths, strict=True) for row in cells)
    return "\n".join("  ".join(f"{cell:>{width}}" for cell, width in line) for line in lines)


def _spell(value: Any) -> str:
    if value is None:
        return "not known"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float) or (isinstance(value, int) and value >= 10**12):
        return f"{value:.6g}"
    return str(value)
