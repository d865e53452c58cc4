"""``ultralif theory``: test every claim of the paper."""

import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from ultralif.cli.output import check_place, echo, print_json
from ultralif.cli.parse import parse

if TYPE_CHECKING:
    from ultralif.analysis.claims import Verdict

__all__ = ["COMMAND", "main"]


def main(argv: list[str]) -> None:
    """Run the command."""
    parse(theory, argv, "theory")


def theory(*, only: tuple[int, ...] = (), json: bool = False, markdown: Path | None = None) -> None:
    """Test the paper's mathematical claims and print a verdict on each, with the worst case found.

    Args:
        only: numbers of the claims to test; all 49 if not given.
        json: print one JSON list of verdicts and nothing else.
        markdown: also write the table to this file.
    """
    import torch

    from ultralif.analysis.claims import CLAIMS, check_all
    from ultralif.errors import JobError
    from ultralif.files import write_file
    from ultralif.report.claims import claims_page, summary

    check_place(markdown)
    torch.set_num_threads(1)  # the tensors are small: more threads would be slower
    numbers = only or tuple(CLAIMS)
    verdicts = list(_with_progress(check_all(numbers), len(set(numbers))))
    if markdown is not None:
        write_file(markdown, claims_page(verdicts))
    if json:
        print_json([asdict(verdict) for verdict in verdicts])
    else:
        _print_table(verdicts)
        echo(summary(verdicts))
        echo(
            "They are the paper's statements about its algebra, as it words them; trained networks do not "
            "depend on those that fail. --markdown writes what is true in their place."
        )
    if unsettled := [verdict.claim for verdict in verdicts if verdict.verdict == "unsettled"]:
        raise JobError(
            f"claims {unsettled} are unsettled: a test of what should be true failed; see their worst case"
        )


def _with_progress(verdicts: "Iterable[Verdict]", total: int) -> "Iterator[Verdict]":
    """Show the progress of the tests on a terminal, as a bar on standard error that is removed at the end."""
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    yield from track(
        verdicts,
        "testing claims",
        total=total,
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )


def _print_table(verdicts: "list[Verdict]") -> None:
    """Print a table on a terminal, one line a claim elsewhere."""
    if not sys.stdout.isatty():
        for v in verdicts:
            why = f"counterexample: {v.counterexample}" if v.counterexample else f"worst case: {v.worst}"
            echo(f"{v.claim:2}  {v.verdict:18}  {v.label}: {v.statement}; {why}")
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    colors = {"holds": "green", "holds as corrected": "yellow", "fails": "red"}
    table = Table("#", "claim", "verdict", "found", show_lines=True)
    for v in verdicts:
        found = Text("\n").join(
            Text.assemble((f"{lead}: ", "bold"), text)
            for lead, text in (("counterexample", v.counterexample), ("true", v.truth), ("worst", v.worst))
            if text
        )
        claim = Text.assemble((f"{v.label} ({v.section})\n", "dim"), v.statement)
        table.add_row(str(v.claim), claim, Text(v.verdict, colors.get(v.verdict, "magenta")), found)
    Console().print(table)


COMMAND = theory
