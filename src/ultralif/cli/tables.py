"""Results as a person wants to see them, or as a script does."""

import json
import sys
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

__all__ = ["print_json", "print_result", "print_table"]

MODES = ("soft", "hard", "tropical")


def print_json(document: Any) -> None:
    """Print one JSON document on standard output."""
    print(json.dumps(document, indent=2))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]], title: str | None = None) -> None:
    """Print a table; numbers stand at the right."""
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    numeric = [all(_is_number(row[i]) for row in rows) for i in range(len(columns))]
    for name, right in zip(columns, numeric, strict=True):
        table.add_column(name, justify="right" if right else "left", no_wrap=True)
    for row in rows:
        table.add_row(*(_spell(value) for value in row))
    width = None if sys.stdout.isatty() else 10_000
    Console(width=width, soft_wrap=not sys.stdout.isatty()).print(table, markup=False, highlight=False)


def print_result(result: dict[str, Any], as_json: bool) -> None:
    """Print a run: a row for each mode, then what was learned and where it is."""
    if as_json:
        print_json(result)
        return
    energy = result["energy"]
    rows = [
        (
            mode,
            f"{result['accuracy'][mode]:.2f}",
            f"{result['spike_rate'][mode]:.3f}",
            f"{energy['relative_sops'][mode]:.2f}",
            f"{energy['snn_picojoules'][mode] / 1e3:.1f}",
            f"{energy['operations'][mode]['macs']:,.0f}",
            f"{energy['operations'][mode]['acs']:,.0f}",
            f"{energy['operations'][mode]['picojoules'] / 1e3:.1f}",
        )
        for mode in MODES
        if mode in result["accuracy"]
    ]
    title = f"{result['neuron']} on {result['dataset']}, T={result['timesteps']}, seed {result['seed']}"
    columns = ("spikes", "accuracy %", "rate", "T*rate", "paper nJ", "MACs", "ACs", "counted nJ")
    print_table(columns, rows, title)
    print(f"without spikes the paper counts {energy['ann_picojoules'] / 1e3:.1f} nJ; all is per sample")
    learned = [f"{name} {result[name]:.4f}" for name in ("eps", "leak") if result[name] is not None]
    if learned:
        print(", ".join(learned))
    if result["status"] == "diverged":
        print("the loss diverged; these are the numbers of the last good epoch")
    best = max(result["accuracy"].values())
    print(f"{best:.2f} % in {result['path']}; next: ultralif eval {result['id']}")


def _is_number(value: object) -> bool:
    try:
        float(str(value).replace(",", ""))
    except ValueError:
        return value in ("", "-", None)
    return True


def _spell(value: object) -> str:
    return "-" if value is None else str(value)
