"""Reproduce the paper's tables, judge its claims, run the studies and write the pages."""

import argparse
import sys
from pathlib import Path

from research import commands
from ultralif.errors import InputError, JobError

__all__ = ["main"]


def main(argv: list[str] | None = None) -> int:
    """Run a command and return its exit code: 0 for success, 1 for a failed job, 2 for bad input."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] == ["studies"] and len(words) > 1 and not words[1].startswith("-"):
        return commands.run_study(words[1], words[2:])  # each study parses its own arguments
    try:
        given = _parser().parse_args(words)
        given.run(given)
    except (InputError, JobError) as error:
        print(f"research: {' '.join(str(error).split())}", file=sys.stderr)
        return 2 if isinstance(error, InputError) else getattr(error, "code", 1)
    except SystemExit as exit_:
        return exit_.code if isinstance(exit_.code, int) else 0
    except BrokenPipeError:  # the reading program, such as `head`, closed the pipe
        sys.stdout = None
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m research", description=__doc__)
    actions = parser.add_subparsers(required=True, metavar="COMMAND")

    reproduce = actions.add_parser("reproduce", help="print the paper's tables, measured beside published")
    reproduce.add_argument("what", nargs="+", help="a table name, all, or list to print the names")
    _add_results(reproduce)
    reproduce.add_argument("--train", action="store_true", help="train the missing runs first")
    reproduce.add_argument("--runs-dir", type=Path, help="the folder for trained runs")
    reproduce.add_argument("--data-dir", type=Path, help="a folder to search for the data first")
    reproduce.add_argument("--device", default="auto", help="cpu, cuda, or the GPU if there is one")
    reproduce.add_argument("--dry-run", action="store_true", help="with --train: print what would be trained")
    reproduce.add_argument("--quiet", action="store_true", help="show no progress")
    reproduce.set_defaults(run=commands.reproduce)

    verdicts = actions.add_parser("verdicts", help="judge the paper's claims about its experiments")
    _add_results(verdicts)
    verdicts.set_defaults(run=commands.verdicts)

    theory = actions.add_parser("theory", help="check the paper's mathematical statements")
    theory.add_argument("--only", type=int, nargs="+", default=(), help="the statement numbers to check")
    theory.add_argument("--json", action="store_true", help="print the verdicts as a JSON list")
    theory.add_argument("--markdown", type=Path, help="also write the table to this file")
    theory.add_argument("--figures", type=Path, help="also draw the theory figures into this folder")
    theory.set_defaults(run=commands.theory)

    studies = actions.add_parser("studies", help="run a study, or list the studies if no name is given")
    studies.set_defaults(run=commands.list_studies)

    pages = actions.add_parser("pages", help="write the tables, pages and figures from the committed results")
    pages.add_argument(
        "names", nargs="*", help="any of tables, claims, paper, figures, deep, memory, contrasts, report"
    )
    pages.set_defaults(run=commands.pages)
    return parser


def _add_results(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seeds", type=int, default=5, help="number of seeds; the first is the paper's, 42")
    parser.add_argument("--results", type=Path, help="the results file; defaults to the committed one")
    parser.add_argument("--out", type=Path, help="a folder to write the tables to as Markdown, CSV and LaTeX")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


if __name__ == "__main__":
    sys.exit(main())
