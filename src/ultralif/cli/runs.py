"""``ultralif runs``: find, show, compare, remove and export what was trained."""

import csv
import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

from ultralif.cli.parse import dispatch
from ultralif.cli.tables import print_json, print_result, print_table
from ultralif.errors import InputError

__all__ = ["main"]


def main(argv: list[str]) -> None:
    """Look after runs."""
    actions: dict[str, Callable[..., None]] = {
        "list": list_,
        "show": show,
        "compare": compare,
        "rm": remove,
        "export": export,
        "rebuild": rebuild,
    }
    dispatch(actions, argv, "runs")


def list_(
    dataset: str | None = None,
    neuron: str | None = None,
    timesteps: int | None = None,
    seed: int | None = None,
    sparsity: float | None = None,
    limit: int | None = None,
    runs_dir: Path | None = None,
    json: bool = False,
) -> None:
    """List runs, newest first.

    Args:
        dataset: only those on this dataset.
        neuron: only those with this neuron.
        timesteps: only those with this T.
        seed: only those with this seed.
        sparsity: only those with this lambda.
        limit: at most so many.
        runs_dir: where runs are kept.
        json: print one JSON document.
    """
    rows = _store(runs_dir).rows(
        limit, dataset=dataset, neuron=neuron, timesteps=timesteps, seed=seed, sparsity=sparsity
    )
    if json:
        print_json(rows)
        return
    if not rows:
        print("no runs; make one with: ultralif train")
        return
    print_table(_COLUMNS, [_cells(row) for row in rows])


def show(run: str, /, history: bool = False, runs_dir: Path | None = None, json: bool = False) -> None:
    """Show a run: its numbers, its config and what made it.

    Args:
        run: its name, or the beginning of it.
        history: also print every epoch.
        runs_dir: where runs are kept.
        json: print one JSON document.
    """
    config, _, result, epochs = _store(runs_dir).read(run)
    if json:
        print_json({**result, "config": config.to_dict(), "history": epochs})
        return
    print_result(result, False)
    changed = {k: v for k, v in config.to_dict().items() if v != type(config)().to_dict()[k]}
    print("config, where it is not the default:", ", ".join(f"{k}={v}" for k, v in changed.items()) or "-")
    print("made by:", ", ".join(f"{k} {v}" for k, v in result["environment"].items()))
    if history and epochs:
        rows = [(i, *(_number(v) for v in epoch.values())) for i, epoch in enumerate(epochs, start=1)]
        print_table(("epoch", *epochs[0]), rows)


def compare(runs: tuple[str, ...], /, runs_dir: Path | None = None, json: bool = False) -> None:
    """Show runs side by side, with the fields of their configs that differ.

    Args:
        runs: their names, or the beginnings of them.
        runs_dir: where runs are kept.
        json: print one JSON document.
    """
    if len(runs) < 2:
        raise InputError("compare needs at least two runs; see: ultralif runs list")
    found = [_store(runs_dir).read(run) for run in runs]
    configs = [config.to_dict() for config, *_ in found]
    differing = [name for name in configs[0] if len({str(config[name]) for config in configs}) > 1]
    rows = [
        {
            "id": config.id,
            **{name: config.to_dict()[name] for name in differing},
            "accuracy": result["accuracy"],
        }
        for config, _, result, _ in found
    ]
    if json:
        print_json(rows)
        return
    table = [(row["id"], *(row[name] for name in differing), _accuracies(row["accuracy"])) for row in rows]
    print_table(("run", *differing, "accuracy %"), table)


def remove(runs: tuple[str, ...], /, runs_dir: Path | None = None) -> None:
    """Delete runs.

    Args:
        runs: their names, or the beginnings of them.
        runs_dir: where runs are kept.
    """
    store = _store(runs_dir)
    names = [store.find(run) for run in runs]  # all of them are there, or none is deleted
    for name in names:
        print(f"removed {store.remove(name)}")


def export(
    to: Literal["csv", "json", "markdown"] = "csv", out: Path | None = None, runs_dir: Path | None = None
) -> None:
    """Write all runs as a table.

    Args:
        to: the format.
        out: a file; without it the table is printed.
        runs_dir: where runs are kept.
    """
    rows = _store(runs_dir).rows()
    if to == "json":
        from json import dumps

        text = dumps(rows, indent=2) + "\n"
    else:
        text = _delimited(rows) if to == "csv" else _markdown(rows)
    if out is None:
        print(text, end="")
        return
    from ultralif.training.checkpoint import write_file

    write_file(out, text.encode())
    print(f"{len(rows)} runs in {out}")


def rebuild(runs_dir: Path | None = None) -> None:
    """Make the index of all runs again from their folders.

    Args:
        runs_dir: where runs are kept.
    """
    print(f"{_store(runs_dir).rebuild()} runs")


_COLUMNS = (
    "run",
    "dataset",
    "neuron",
    "T",
    "lambda",
    "seed",
    "soft %",
    "hard %",
    "tropical %",
    "rate",
    "eps",
)


def _cells(row: dict[str, Any]) -> Sequence[Any]:
    accuracy = row["accuracy"]
    rate = row["spike_rate"].get("soft", row["spike_rate"].get("hard"))
    return (
        row["id"] if row["status"] == "done" else f"{row['id']} ({row['status']})",
        row["dataset"],
        row["neuron"],
        row["timesteps"],
        row["sparsity"],
        row["seed"],
        *(_number(accuracy.get(mode), 2) for mode in ("soft", "hard", "tropical")),
        _number(rate),
        _number(row["eps"]),
    )


def _number(value: float | None, digits: int = 3) -> str | None:
    return None if value is None else f"{value:.{digits}f}"


def _accuracies(accuracy: dict[str, float]) -> str:
    return ", ".join(f"{mode} {value:.2f}" for mode, value in accuracy.items())


def _delimited(rows: list[dict[str, Any]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(_COLUMNS)
    writer.writerows([_safe(cell) for cell in _cells(row)] for row in rows)
    return out.getvalue()


def _safe(cell: Any) -> Any:
    """Keep a spreadsheet from reading a name as a formula."""
    return f"'{cell}" if isinstance(cell, str) and cell[:1] in "=+-@" else cell


def _markdown(rows: list[dict[str, Any]]) -> str:
    lines = ["| " + " | ".join(_COLUMNS) + " |", "|" + "---|" * len(_COLUMNS)]
    for row in rows:
        cells = ("-" if cell is None else str(cell).replace("|", "\\|") for cell in _cells(row))
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _store(runs_dir: Path | None) -> Any:
    from ultralif.training.store import Store

    return Store(runs_dir)
