"""Results as a person wants to see them, or as a script does."""

import json
import sys
from collections.abc import Sequence
from typing import IO, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ultralif.files import visible

__all__ = ["number", "print_json", "print_result", "print_table"]

MODES = ("soft", "hard", "tropical")


def print_json(document: Any) -> None:
    """Print one JSON document on standard output."""
    print(json.dumps(document, indent=2))


def print_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    title: str | None = None,
    file: IO[str] | None = None,
) -> None:
    """Print a table; numbers stand at the right, and what does not fit goes on in the next line."""
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    numeric = [all(_is_number(row[i]) for row in rows) for i in range(len(columns))]
    for name, right in zip(columns, numeric, strict=True):
        table.add_column(name, justify="right" if right else "left", no_wrap=True)
    for row in rows:
        table.add_row(*(Text(_spell(value)) for value in row))
    Console(file=file or sys.stdout, width=10_000, soft_wrap=True).print(table, highlight=False)


def print_result(result: dict[str, Any], as_json: bool, then: str | None = None) -> None:
    """Print a run: a row for each mode, then what was learned and where it is.

    Args:
        result: what a run's `ultralif.Result` says.
        as_json: print it as one JSON document.
        then: the next command to try.
    """
    if as_json:
        print_json(result)
        return
    energy = result["energy"]
    rows = [
        (
            mode,
            number(result["accuracy"][mode], 2),
            number(result["spike_rate"][mode], 3),
            number(energy["relative_sops"][mode], 2),
            number(energy["snn_picojoules"][mode], 1, 1e-3),
            number(energy["operations"][mode]["macs"], 0),
            number(energy["operations"][mode]["acs"], 0),
            number(energy["operations"][mode]["picojoules"], 1, 1e-3),
        )
        for mode in MODES
        if mode in result["accuracy"]
    ]
    title = f"{result['neuron']} on {result['dataset']}, T={result['timesteps']}, seed {result['seed']}"
    columns = ("spikes", "accuracy %", "rate", "T*rate", "paper nJ", "MACs", "ACs", "counted nJ")
    print_table(columns, rows, title)
    print(f"per sample; without spikes the paper counts {number(energy['ann_picojoules'], 1, 1e-3)} nJ")
    learned = [f"{name} {number(result[name], 4)}" for name in ("eps", "leak") if result[name] is not None]
    if learned:
        print(", ".join(learned))
    if result["validation"] is not None:
        print(f"{number(result['validation'][result['mode']], 2)} % of the held-out part of the training set")
    if result["status"] == "diverged":
        print(f"the loss diverged; these are the numbers after epoch {result['epochs']}")
    best = f"{number(result['accuracy'][result['mode']], 2)} % ({result['mode']} spikes)"
    print(f"{best} in {result['path']}; next: {then or 'ultralif eval ' + result['path'] + ' --modes'}")


def number(value: float | None, digits: int, unit: float = 1.0) -> str | None:
    """Write a number with commas and so many digits, in a unit; what is not known stays so."""
    return None if value is None else f"{value * unit:,.{digits}f}"


def _is_number(value: object) -> bool:
    try:
        float(str(value).replace(",", ""))
    except ValueError:
        return value is None
    return True


def _spell(value: object) -> str:
    """Write a cell as one line without the signs that steer a terminal."""
    return "-" if value is None else visible(str(value))
