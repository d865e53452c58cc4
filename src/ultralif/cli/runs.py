"""``ultralif runs``: find, show, compare, remove and export trained runs."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ultralif.cli.output import (
    check_place,
    confirm,
    echo,
    number,
    print_json,
    print_json_lines,
    print_result,
    print_table,
    say,
)
from ultralif.cli.parse import Actions
from ultralif.cli.sources import is_path, register_dataset
from ultralif.errors import InputError, JobError
from ultralif.files import write_file
from ultralif.names import MODES
from ultralif.training.config import NEURON_NAMES, spelled
from ultralif.training.progress import spell_count
from ultralif.training.result import Result
from ultralif.training.store import Store

if TYPE_CHECKING:
    from ultralif.report.table import Table

__all__ = ["COMMAND"]


@dataclass(frozen=True)
class Filter:
    """Filters that select runs."""

    dataset: str | None = None
    """Only runs on this dataset."""
    neuron: str | None = None
    """Only runs with this neuron."""
    timesteps: int | None = None
    """Only runs with this T."""
    seed: int | None = None
    """Only runs with this seed."""
    sparsity: float | None = None
    """Only runs with this lambda."""
    status: Literal["done", "diverged"] | None = None
    """Only finished or only diverged runs."""

    def each(self, store: Store, limit: int | None = None) -> Iterator[Result]:
        """Yield the results of the selected runs, newest first."""
        neurons = set()
        for result in store.each(limit, complain=say, **self.values()):
            neurons.add(result.neuron)
            yield result
        if unknown := neurons - set(NEURON_NAMES):
            names = ", ".join(sorted(unknown))
            say(f"neuron {names} is not known here; its runs are listed, but cannot be loaded")

    def values(self) -> dict[str, Any]:
        """Return the required values by field, with the correct spelling; None matches any value."""
        wanted = asdict(self)
        if self.dataset is not None and is_path(self.dataset):
            wanted["dataset"] = register_dataset(self.dataset)
        for field in ("dataset", "neuron"):
            wanted[field] = wanted[field] and spelled(field, wanted[field])
        return wanted


ALL = Filter()


def list_(
    which: Filter = ALL,
    limit: int | None = None,
    runs_dir: Path | None = None,
    json: bool = False,
) -> None:
    """List runs, newest first.

    Args:
        which: filters for the runs.
        limit: the largest number of runs to show.
        runs_dir: runs folder.
        json: print one JSON document.
    """
    store = Store(runs_dir)
    if json:
        print_json_lines(result.to_dict() for result in which.each(store, limit))
        return
    if rows := [_cells(result) for result in which.each(store, limit)]:
        print_table(_COLUMNS, rows)
    elif store.rows(limit=1):
        echo("no run matches; see all with: ultralif runs list")
    else:
        echo(f"no finished runs in {store.root}; train one with: ultralif train")
    for folder in store.unfinished():
        say(f"{folder}: still training or interrupted; run the same command again to resume it")


def show_run(run: str, /, history: bool = False, runs_dir: Path | None = None, json: bool = False) -> None:
    """Show a run: its results, its config, and the code and device that produced it.

    Args:
        run: a run's name or its beginning, or its folder.
        history: also print every epoch.
        runs_dir: runs folder.
        json: print one JSON document.
    """
    store, name = Store.holding(run, runs_dir)
    result, epochs = store.read_result(name)
    if json:
        print_json({**result.to_dict(), "history": epochs})
        return
    changed = {**result.config, **result.config.get("neuron_options", {})}
    words = [f"{key}={value}" for key, value in changed.items() if key not in ("schema", "neuron_options")]
    echo(f"config: {', '.join(words) or '-'}")
    made_by = ", ".join(f"{name} {value}" for name, value in result.environment.items())
    echo(f"made by: {made_by}")
    if history and epochs:
        names = list(dict.fromkeys(name for epoch in epochs for name in epoch))
        rows = [(i, *(_value(epoch.get(name)) for name in names)) for i, epoch in enumerate(epochs, start=1)]
        print_table(("epoch", *names), rows)
    print_result(result)


def _value(value: object) -> object:
    """Format a history value for a table; the file may contain anything."""
    return number(value, 4) if isinstance(value, float) else None if value is None else str(value)


def compare(runs: tuple[str, ...], /, runs_dir: Path | None = None, json: bool = False) -> None:
    """Show runs side by side, with the config fields in which they differ.

    Args:
        runs: names of runs, or their beginnings.
        runs_dir: runs folder.
        json: print one JSON document.
    """
    if len(runs) < 2:
        raise InputError("compare needs at least two runs; see: ultralif runs list")
    store = Store(runs_dir)
    found = [store.read(run) for run in runs]
    configs = [run.config.settings() for run in found]
    names = dict.fromkeys(name for config in configs for name in config)
    differing = [name for name in names if len({str(config.get(name)) for config in configs}) > 1]
    apart = [{name: config.get(name) for name in differing} for config in configs]
    if json:
        print_json([{**each, **run.result.to_dict()} for each, run in zip(apart, found, strict=True)])
        return
    columns = [(*each.values(), *_numbers(run.result)) for each, run in zip(apart, found, strict=True)]
    measured = [f"{name} at the end" if name in differing else name for name in _NUMBERS]
    rows = list(zip((*differing, *measured), *columns, strict=True))
    print_table(("run", *(run.result.id for run in found)), rows)


def remove(runs: tuple[str, ...], /, yes: bool = False, runs_dir: Path | None = None) -> None:
    """Delete runs after asking for confirmation.

    Args:
        runs: names of runs, or their beginnings.
        yes: do not ask.
        runs_dir: runs folder.
    """
    store = Store(runs_dir)
    names = list(dict.fromkeys(store.find(run) for run in runs))  # if a run is not found, nothing is deleted
    if not yes and not confirm(f"delete {', '.join(names)} in {store.root}?"):
        raise JobError("nothing was deleted")
    for name in names:
        echo(f"removed {store.remove(name)}")


def export(
    which: Filter = ALL,
    to: Literal["csv", "json", "markdown"] = "csv",
    out: Path | None = None,
    runs_dir: Path | None = None,
) -> None:
    """Write runs as a table, newest first.

    Args:
        which: filters for the runs.
        to: the format.
        out: output file; by default, the table is printed.
        runs_dir: runs folder.
    """
    check_place(out)
    rows = list(which.each(Store(runs_dir)))
    if to == "json":
        from json import dumps

        text = dumps([row.to_dict() for row in rows], indent=2) + "\n"
    else:
        from ultralif.report.table import Table

        cells = [tuple("-" if cell is None else str(cell) for cell in _cells(row)) for row in rows]
        text = _markup(Table("runs", "", _COLUMNS, cells), to)
    _write(text, out, rows)


def table(
    which: Filter = ALL,
    by: tuple[str, ...] = ("dataset", "neuron", "timesteps", "sparsity"),
    to: Literal["markdown", "latex", "csv"] | None = None,
    out: Path | None = None,
    runs_dir: Path | None = None,
) -> None:
    """Show the mean and the 95 % interval over seeds for each kind of run, in every mode.

    Examples:
      ultralif runs table
      ultralif runs table --by neuron,timesteps --dataset mnist --to latex --out table.tex
      ultralif runs table --by neuron,eps,hidden

    Args:
        which: filters for the runs.
        by: settings of a run; runs with equal settings share a row.
        to: a format for a paper or a spreadsheet; by default, the table is formatted for the terminal.
        out: output file; by default, the table is printed.
        runs_dir: runs folder.
    """
    from ultralif.report.summary import summarize

    check_place(out)
    if out is not None and to is None:
        raise InputError("out needs a format; add --to markdown, latex or csv")
    rows = list(which.each(Store(runs_dir)))
    if not rows:
        raise InputError("no run matches; see all with: ultralif runs list")
    found = summarize(rows, by)
    if to is None:
        print_table(found.columns, found.rows)
    else:
        _write(_markup(found, to), out, rows)
    if to != "markdown":
        for note in found.notes:
            say(note)


def rebuild(runs_dir: Path | None = None) -> None:
    """Rebuild the index of all runs from their folders.

    Args:
        runs_dir: runs folder.
    """
    store = Store(runs_dir)
    count, complaints = store.rebuild()
    for complaint in complaints:
        say(complaint)
    echo(f"{spell_count(count, 'run')} in {store.root}; next: ultralif runs list")


def _markup(found: "Table", to: str) -> str:
    from ultralif.report.table import to_csv, to_latex, to_markdown

    return {"csv": to_csv, "markdown": to_markdown, "latex": to_latex}[to](found)


def _write(text: str, out: Path | None, rows: Sequence[Result]) -> None:
    """Write a table to a file, or print it."""
    if out is None:
        for line in text.splitlines():
            echo(line)
        return
    write_file(out, text.encode())
    echo(f"{spell_count(len(rows), 'run')} in {out}")


COMMAND: Actions = {
    "list": list_,
    "table": table,
    "show": show_run,
    "compare": compare,
    "rm": remove,
    "export": export,
    "rebuild": rebuild,
}

_NUMBERS = ("accuracy %", "soft %", "hard %", "tropical %", "rate", "eps", "leak")
_COLUMNS = ("run", "dataset", "network", "T", "lambda", "seed", *_NUMBERS, "status")


def _numbers(row: Result) -> Sequence[str | None]:
    accuracies = (number(row.accuracy.get(mode), 2) for mode in MODES)
    return (
        number(row.own.accuracy, 2),
        *accuracies,
        *(number(value, 3) for value in (row.own.spike_rate, row.eps, row.leak)),
    )


def _cells(row: Result) -> Sequence[object]:
    kind = (row.id, row.dataset_title, row.network_title, row.timesteps, row.sparsity, row.seed)
    return (*kind, *_numbers(row), row.status)
