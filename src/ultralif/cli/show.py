"""Print results: one JSON document, or lines and small tables."""

from typing import Any

from ultralif.cli.tables import print_json, print_table
from ultralif.files import visible

__all__ = ["show"]


def show(result: dict[str, Any], json: bool) -> None:
    """Print a result as JSON, or a line for each of its values and a table for each list of dicts."""
    if json:
        print_json(result)
        return
    tables = {name: value for name, value in result.items() if _is_table(value)}
    width = max(map(len, result.keys() - tables.keys()), default=0)
    for name, value in result.items():
        if name in tables:
            print(f"{name}:")
            print_table(list(value[0]), [[_spell(cell) for cell in row.values()] for row in value])
        else:
            print(f"{name:{width}}  {_spell(value)}")


def _is_table(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], dict)


def _spell(value: Any) -> str:
    if value is None:
        return "not known"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float) or (isinstance(value, int) and value >= 10**12):
        return f"{value:.6g}"
    return visible(str(value))
