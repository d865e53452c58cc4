"""The commands of ``python -m research``."""

import argparse
import json
import runpy
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import track

from research import RESULTS
from ultralif.errors import InputError, JobError
from ultralif.report import Table, to_csv, to_latex, to_markdown

if TYPE_CHECKING:
    from research.claims import Verdict
    from research.paper.results import Results

__all__ = ["STUDIES", "list_studies", "pages", "reproduce", "run_study", "theory", "verdicts", "write_table"]

STUDIES = {
    "released": "train the runs behind the paper's tables and the studies around them",
    "contrasts": "controlled comparisons: SHD, soft shares, memory without reset, energy at equal penalty",
    "ablation_rates": "spike rates of hidden and output neurons in the temperature study",
    "deep": "a comparison of training methods for deep networks with binary spikes",
    "deep_gradient": "surrogate gradients of a deep network compared with the true gradient",
    "denoising": "how denoising the N-MNIST recordings changes accuracy",
    "gradient_variance": "bias and variance of gradients by temperature",
    "memory": "tasks that need long memory",
    "overhead": "how much time log-sum-exp adds to a training step",
    "pruning": "pruning by log-volume compared with pruning by magnitude",
    "reading": "train one network as in the author's released code",
    "timing": "classification from spike times alone",
}
"""What each study measures, by name."""


def reproduce(given: argparse.Namespace) -> None:
    """Print the paper's tables, measured beside published, after training missing runs if requested."""
    from research.paper.grids import TABLES
    from research.paper.tables import make_table

    words = [word for word in given.what if word != "table"]  # also accept `reproduce table NAME`
    for name in words:
        if name not in ("all", "list", *TABLES):
            known = ", ".join(("all", "list", *TABLES))
            raise InputError(f"the table must be one of {known}, got {name!r}")
    if "list" in words:
        if given.json:
            _print_json(TABLES)
        else:
            width = max(map(len, TABLES))
            for name, text in TABLES.items():
                print(f"{name:{width}}  {text}")
        return
    if given.seeds < 1:
        raise InputError(f"seeds must be at least 1, got {given.seeds}")
    names = list(TABLES) if "all" in words else words
    if given.train:
        from research.paper.training import train_tables

        if train_tables(names, given):
            return
    found = _results(given)
    tables = [make_table(name, found, given.seeds) for name in names]
    if given.json:
        _print_json({t.name: {"columns": t.columns, "rows": t.rows, "notes": t.notes} for t in tables})
    for table in tables:
        if not given.json:
            _print_table(table)
        if given.out is not None:
            write_table(table, given.out)
    if given.out is not None and not given.json:
        print(f"wrote {len(tables)} tables to {given.out}, each as .md, .csv and .tex")


def verdicts(given: argparse.Namespace) -> None:
    """Print the verdict on each of the paper's claims about its experiments."""
    from research.paper.verdicts import judge, verdict_table

    if given.seeds < 1:
        raise InputError(f"seeds must be at least 1, got {given.seeds}")
    found = judge(_results(given))
    if given.out is not None:
        write_table(verdict_table(found), given.out)
    if given.json:
        _print_json([asdict(verdict) for verdict in found])
        return
    for verdict in found:
        print(f"{verdict.verdict:13}  {verdict.claim} (section {verdict.section})")
        print(f"{'':13}  {verdict.measured}")
        if verdict.released != "not tested":
            print(f"{'':13}  as released, {verdict.released}: {verdict.released_measured}")
    kinds = dict.fromkeys(verdict.verdict for verdict in found)
    print(", ".join(f"{sum(v.verdict == kind for v in found)} {kind}" for kind in kinds))


def _results(given: argparse.Namespace) -> "Results":
    """Return the runs from a results file, from training just done, or from the committed results."""
    from research.paper.archive import read
    from research.paper.results import Results, from_store
    from ultralif.training import Store

    if getattr(given, "train", False) or (given.results is None and getattr(given, "runs_dir", None)):
        found = from_store(Store(given.runs_dir))
    else:
        found = Results(*read(given.results or RESULTS / "paper.jsonl.gz"))
    return found.first(given.seeds)


def theory(given: argparse.Namespace) -> None:
    """Check the paper's mathematical statements and print each verdict with the worst case found."""
    import torch

    from research.claims import CLAIMS, check_all
    from research.claims.page import claims_page, summary

    if given.markdown is not None and not given.markdown.parent.is_dir():
        raise InputError(f"the folder {given.markdown.parent} does not exist; create it first")
    torch.set_num_threads(1)  # the tensors are so small that more threads would be slower
    numbers = given.only or tuple(CLAIMS)
    console = Console(stderr=True)
    found = list(
        track(
            check_all(numbers),
            "checking",
            total=len(set(numbers)),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
    )
    if given.markdown is not None:
        given.markdown.write_text(claims_page(found))
    if given.figures is not None:
        from research.pages.theory_figures import FIGURES

        for name, draw in FIGURES.items():
            draw(given.figures / f"{name}.png")
    if given.json:
        _print_json([asdict(verdict) for verdict in found])
    else:
        for verdict in found:
            print(_line(verdict))
        print(summary(found))
        print(
            "These are the paper's mathematical statements as worded there. Trained networks do not depend "
            "on the ones that fail. --markdown also writes the corrected statements."
        )
    if unsettled := [verdict.claim for verdict in found if verdict.verdict == "unsettled"]:
        raise JobError(
            f"claims {unsettled} are unsettled: a corrected statement failed a test; see the worst case"
        )


def _line(verdict: "Verdict") -> str:
    found = verdict.counterexample
    why = f"counterexample: {found}" if found else f"worst case: {verdict.worst}"
    return f"{verdict.claim:2}  {verdict.verdict:18}  {verdict.label}: {verdict.statement}; {why}"


def list_studies(given: argparse.Namespace) -> None:
    """Print the studies and how to run one."""
    width = max(map(len, STUDIES))
    for name, text in STUDIES.items():
        print(f"{name:{width}}  {text}")
    print("Run one with: python -m research studies NAME --help")


def run_study(name: str, words: Sequence[str]) -> int:
    """Run a study with its own arguments, and return its exit code."""
    if name not in STUDIES:
        print(f"research: unknown study {name!r}; choose one of {', '.join(STUDIES)}", file=sys.stderr)
        return 2
    before = sys.argv
    sys.argv = [f"python -m research studies {name}", *words]
    sys.modules.pop(f"research.studies.{name}", None)  # run_module warns if the module is already imported
    try:
        runpy.run_module(f"research.studies.{name}", run_name="__main__", alter_sys=True)
    except (InputError, JobError) as error:
        print(f"research: {error}", file=sys.stderr)
        return 2 if isinstance(error, InputError) else 1
    except SystemExit as exit_:
        if isinstance(exit_.code, str):
            print(exit_.code, file=sys.stderr)
            return 1
        return exit_.code or 0
    finally:
        sys.argv = before
    return 0


def pages(given: argparse.Namespace) -> None:
    """Write pages, tables and figures from the committed results."""
    from research.pages import PAGES

    for name in given.names:
        if name not in PAGES:
            raise InputError(f"unknown page {name!r}; choose one of {', '.join(PAGES)}")
    for name in given.names or PAGES:
        print(f"{name}: {PAGES[name]()}", flush=True)


def write_table(table: Table, folder: Path) -> None:
    """Write a table to a folder as Markdown, CSV and LaTeX."""
    folder.mkdir(parents=True, exist_ok=True)
    for suffix, form in (("md", to_markdown), ("csv", to_csv), ("tex", to_latex)):
        (folder / f"{table.name}.{suffix}").write_text(form(table))


def _print_json(document: Any) -> None:
    print(json.dumps(document, indent=2))


def _print_table(table: Table) -> None:
    """Print a table with aligned columns, then its notes."""
    rows = [table.columns, *table.rows]
    widths = [max(len(row[i]) for row in rows) for i in range(len(table.columns))]
    print(table.title)
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    for note in table.notes:
        print(note)
    print()
