"""``ultralif reproduce``: the paper's tables, trained, beside the published numbers."""

from pathlib import Path
from typing import TYPE_CHECKING

from ultralif.cli.output import echo, print_json, print_table, say
from ultralif.cli.parse import parse
from ultralif.errors import InputError, check_choice
from ultralif.training.options import RunOptions

if TYPE_CHECKING:
    from ultralif.paper.results import Results
    from ultralif.paper.tables import Table
    from ultralif.training import RunConfig, Store

__all__ = ["COMMAND", "main"]


def main(argv: list[str]) -> None:
    """Reproduce a table, all tables, or the verdicts."""
    if argv[:1] == ["table"]:  # `reproduce table NAME` reads well and means `reproduce NAME`
        argv = argv[1:]
    parse(reproduce, argv, "reproduce")


def reproduce(
    what: str,
    /,
    seeds: int = 5,
    out: Path | None = None,
    results: Path | None = None,
    runs_dir: Path | None = None,
    data_dir: Path | None = None,
    device: str = "auto",
    checkpoint_seconds: float = 60.0,
    dry_run: bool = False,
    quiet: bool = False,
    json: bool = False,
) -> None:
    """Train what a table of the paper needs and print it beside the published numbers.

    Finished runs are not trained again, and stopped ones are resumed. Datasets that are not on this machine
    are left out and named.

    Examples:
      ultralif reproduce mnist --seeds 1
      ultralif reproduce table cifar10-efficiency
      ultralif reproduce all --seeds 5 --out tables
      ultralif reproduce verdicts --results results/paper.jsonl.gz

    Args:
        what: a table's name; all; list, to print the names; verdicts, to judge the paper's claims.
        seeds: number of seeds; the first is the paper's 42.
        out: a folder for the tables as Markdown, CSV and LaTeX.
        results: a file of results to use in place of training.
        runs_dir: where runs are kept.
        data_dir: a folder to search first for the data.
        device: cpu, cuda, or the GPU if there is one.
        checkpoint_seconds: the most work, in seconds, that a killed process loses.
        dry_run: print what would be trained and how long it would take.
        quiet: show no progress.
        json: print one JSON document.
    """
    from ultralif.cli.dry import show_plan
    from ultralif.cli.sweep import run_plan
    from ultralif.paper.grids import TABLES
    from ultralif.training import Store

    check_choice("the table", what, ("all", "list", "verdicts", *TABLES))
    if what == "list":
        if json:
            print_json(TABLES)
        else:
            print_table(("table", "what it shows"), list(TABLES.items()))
        return
    if seeds < 1:
        raise InputError(f"seeds must be at least 1, got {seeds}")
    if what != "verdicts" and results is None:
        store = Store(runs_dir)
        stacks = _plan(what, store, seeds, data_dir, device)
        if dry_run:
            show_plan(stacks or [], device, json)
            return
        if stacks is not None:
            run_plan(
                stacks,
                store,
                RunOptions(device=device, data_dir=data_dir, checkpoint_seconds=checkpoint_seconds),
                quiet=quiet or json,
            )
    found = _results(results, runs_dir).first(seeds)
    if what == "verdicts":
        _print_verdicts(found, out, json)
    else:
        _print_tables(list(TABLES) if what == "all" else [what], found, seeds, out, json)


def _plan(
    what: str, store: "Store", seeds: int, data_dir: Path | None, device: str
) -> "list[list[RunConfig]] | None":
    """Return the stacks that a table still needs, and name missing datasets; None if no data are here."""
    from ultralif.cli.sweep import seeds_together
    from ultralif.paper.reproduce import plan_table

    stacks, absent = plan_table(what, store, seeds, data_dir, seeds_together(device, seeds))
    if absent:
        getting = " && ".join(f"ultralif data get {name}" for name in absent)
        say(f"not on this machine: {', '.join(absent)}; get them with: {getting}")
    return stacks if stacks or not absent else None  # without data nothing is finished


def _results(path: Path | None, runs_dir: Path | None) -> "Results":
    from ultralif.paper.archive import read
    from ultralif.paper.results import Results, from_store
    from ultralif.training import Store

    return from_store(Store(runs_dir)) if path is None else Results(*read(path))


def _print_tables(names: list[str], found: "Results", seeds: int, out: Path | None, as_json: bool) -> None:
    from ultralif.paper.tables import make_table

    tables = [make_table(name, found, seeds) for name in names]
    if as_json:
        print_json(
            {t.name: {"columns": t.columns, "rows": t.rows, "notes": t.notes} for t in tables},
        )
    for table in tables:
        if not as_json:
            print_table(table.columns, table.rows, table.title)
            for note in table.notes:
                echo(note)
            echo()
        if out is not None:
            _write(table, out)
    if out is not None and not as_json:
        echo(f"{len(tables)} tables in {out}, each as .md, .csv and .tex")


def _write(table: "Table", out: Path) -> None:
    from ultralif.files import write_file
    from ultralif.report.markup import to_csv, to_latex, to_markdown

    for suffix, text in (("md", to_markdown), ("csv", to_csv), ("tex", to_latex)):
        write_file(out / f"{table.name}.{suffix}", text(table).encode())


def _print_verdicts(found: "Results", out: Path | None, as_json: bool) -> None:
    from dataclasses import asdict

    from ultralif.paper.tables import Table
    from ultralif.paper.verdicts import judge

    verdicts = judge(found)
    if out is not None:
        rows = [
            (v.claim, v.section, v.verdict, v.measured, v.released, v.released_measured) for v in verdicts
        ]
        columns = ("claim", "section", "as written", "measured", "as released", "measured so")
        _write(Table("verdicts", "What holds of the paper's claims", columns, rows), out)
    if as_json:
        print_json([asdict(verdict) for verdict in verdicts])
        return
    for verdict in verdicts:
        echo(f"{verdict.verdict:13}  {verdict.claim} (section {verdict.section})")
        echo(f"{'':13}  {verdict.measured}")
        if verdict.released != "not tested":
            echo(f"{'':13}  as released, {verdict.released}: {verdict.released_measured}")
    counts = {
        kind: sum(v.verdict == kind for v in verdicts) for kind in dict.fromkeys(v.verdict for v in verdicts)
    }
    echo(", ".join(f"{count} {kind}" for kind, count in counts.items()))


COMMAND = reproduce
