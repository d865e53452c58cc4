"""Command output: lines, tables and JSON, with control characters escaped."""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from ultralif.errors import InputError
from ultralif.files import visible

if TYPE_CHECKING:
    from ultralif.training.result import Operations, Result

__all__ = [
    "check_place",
    "confirm",
    "echo",
    "number",
    "print_json",
    "print_json_lines",
    "print_result",
    "print_table",
    "print_values",
    "say",
]


def echo(text: str = "", file: IO[str] | None = None) -> None:
    """Print one line, with control characters and line breaks escaped."""
    print(visible(text), file=file or sys.stdout, flush=file is not None)


def say(text: str) -> None:
    """Print one line to standard error."""
    echo(text, sys.stderr)


def confirm(question: str) -> bool:
    """Ask the user for confirmation; without a terminal, raise an error that names the flag to add."""
    if sys.stdin is None or not sys.stdin.isatty():
        raise InputError(f"{question} There is no terminal to confirm on; add --yes to confirm")
    echo(f"{question} [y/N]", sys.stderr)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def check_place(path: Path | None) -> None:
    """Reject a path that cannot be written, before any work is done."""
    if path is None:
        return
    if not path.parent.is_dir():
        raise InputError(f"the folder {path.parent} does not exist; create it first")
    if path.exists() and not path.is_file():
        raise InputError(f"{path} is not a regular file; choose another place to write to")


def print_json(document: object) -> None:
    """Print one JSON document on standard output."""
    print(json.dumps(document, indent=2))


def print_json_lines(documents: Iterable[object]) -> None:
    """Print a JSON list with one entry per line, keeping only one entry in memory."""
    before = "["
    for document in documents:
        print(before, json.dumps(document), sep="\n", end="")
        before = ","
    print("[]" if before == "[" else "\n]")


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    title: str | None = None,
    file: IO[str] | None = None,
) -> None:
    """Print a table with right-aligned number columns and without wrapping lines."""
    cells = [[_spell(cell) for cell in row] for row in rows]
    made = []
    for name, *column in zip([visible(name) for name in columns], *cells, strict=True):
        width = max(map(len, (name, *column)))
        align = str.rjust if all(map(_is_number, column)) else str.ljust
        made.append([align(cell, width) for cell in (name, *column)])
    if title:
        echo(title, file)
    for line in zip(*made, strict=True):
        print("  ".join(line).rstrip(), file=file or sys.stdout)


def print_values(result: Mapping[str, Any], as_json: bool) -> None:
    """Print a result as JSON, or with a line for each value and a table for each list of dicts."""
    if as_json:
        print_json(result)
        return
    tables = {name: value for name, value in result.items() if _is_table(value)}
    width = max(map(len, result.keys() - tables.keys()), default=0)
    for name, value in result.items():
        if name in tables:
            echo(f"{name}:")
            print_table(list(value[0]), [[_spell_value(cell) for cell in row.values()] for row in value])
        else:
            echo(f"{name:{width}}  {_spell_value(value)}")


def print_result(result: "Result", then: str | None = None) -> None:
    """Print a run: a row for each mode, the learned constants and the run's folder.

    Args:
        result: the run's result.
        then: the next command to try.
    """
    counted = ("MACs", "ACs", "counted nJ")
    rows = [
        (
            mode,
            number(one.accuracy, 2),
            number(one.spike_rate, 3),
            number(one.relative_sops, 2),
            number(one.snn_picojoules, 1, 1e-3),
            *_counts(one.operations),
        )
        for mode, one in result.by_mode.items()
    ]
    title = f"{result.network_title} on {result.dataset_title}, T={result.timesteps}, seed {result.seed}"
    print_table(("spikes", "accuracy %", "rate", "T*rate", "paper nJ", *counted), rows, title)
    if layers := result.own.layers:
        by_layer = [(name, *_counts(part)) for name, part in layers.items()]
        print_table(("layer", *counted), by_layer, f"layer by layer, with {result.mode} spikes")
    echo(f"per sample; without spikes the paper counts {number(result.ann_picojoules, 1, 1e-3)} nJ")
    if result.break_even is not None:
        each = {"dense": result.ann_int8_picojoules}
        each |= {mode: one.int8_picojoules for mode, one in result.by_mode.items()}
        costs = ", ".join(f"{name} {number(x, 1, 1e-3)} nJ" for name, x in each.items() if x is not None)
        echo(f"int8 with memory: {costs}; equal at {result.break_even:.3f} spikes per synapse and step")
    constants = asdict(result.constants)
    learned = [f"{name} {number(constants[name], 4)}" for name in constants if constants[name] is not None]
    if learned:
        echo(", ".join(learned))
    if result.own.validation is not None:
        echo(f"{number(result.own.validation, 2)} % on the held-out part of the training set")
    if result.status == "diverged":
        echo(f"the loss diverged; these are the results after epoch {result.epochs}")
    best = f"{number(result.own.accuracy, 2)} % ({result.mode} spikes)"
    echo(f"{best} in {result.path}; next: {then or f'ultralif eval {result.path} --modes'}")


def number(value: float | None, digits: int, unit: float = 1.0) -> str | None:
    """Format a number with commas and the given digits, after scaling it; return None if it is unknown."""
    return None if value is None else f"{value * unit:,.{digits}f}"


def _counts(operations: "Operations | None") -> tuple[str | None, ...]:
    if operations is None:
        return (None, None, None)
    return number(operations.macs, 0), number(operations.acs, 0), number(operations.energy, 1, 1e-3)


def _is_number(cell: str) -> bool:
    try:
        float(cell.replace(",", ""))
    except ValueError:
        return cell == "-"
    return True


def _spell(value: object) -> str:
    """Format a cell as one line without control characters."""
    return "-" if value is None else visible(str(value))


def _is_table(value: object) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], dict)


def _spell_value(value: object) -> str:
    if value is None:
        return "not known"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float) or (isinstance(value, int) and value >= 10**12):
        return f"{value:.6g}"
    return str(value)
