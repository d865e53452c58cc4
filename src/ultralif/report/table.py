"""Text tables, and their conversion to Markdown, CSV and LaTeX. Does not need torch."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, field

__all__ = ["Table", "to_csv", "to_latex", "to_markdown"]


@dataclass(frozen=True)
class Table:
    """A table of text cells, with notes for the reader."""

    name: str
    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    notes: list[str] = field(default_factory=list)


def to_markdown(table: Table) -> str:
    """Return a table as Markdown, with its notes below."""

    def line(cells: tuple[str, ...]) -> str:
        return "| " + " | ".join(map(_one_line, cells)) + " |"

    title = [f"### {table.title}", ""] if table.title else []
    lines = [*title, line(table.columns), "|" + "---|" * len(table.columns)]
    lines += map(line, table.rows)
    lines += [f"\n{note}" for note in table.notes]
    return "\n".join(lines) + "\n"


def to_csv(table: Table) -> str:
    """Return a table as CSV."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(table.columns)
    writer.writerows(map(_safe, row) for row in table.rows)
    return out.getvalue()


def to_latex(table: Table) -> str:
    """Return a table as a LaTeX float with booktabs rules."""
    lines = [
        r"\begin{table}[h]",
        rf"\caption{{{_escape(table.title)}}}",
        r"\begin{center}\begin{small}",
        rf"\begin{{tabular}}{{{'l' * len(table.columns)}}}",
        r"\toprule",
        " & ".join(map(_escape, table.columns)) + r" \\",
        r"\midrule",
        *(" & ".join(map(_escape, row)) + r" \\" for row in table.rows),
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{small}\end{center}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _one_line(cell: str) -> str:
    """Escape a cell for Markdown and HTML, as one line."""
    return "".join(_IN_MARKDOWN.get(char, char) for char in " ".join(cell.split()))


def _safe(cell: str) -> str:
    """Escape a name that a spreadsheet would read as a formula; leave numbers unchanged."""
    signed = cell[:1] in ("+", "-") and (len(cell) == 1 or cell[1:2].isdigit())
    return f"'{cell}" if cell[:1] in tuple("=+-@\t\r\n") and not signed else cell


def _escape(text: str) -> str:
    text = "".join(_IN_LATEX.get(char, char) for char in " ".join(text.split()))
    return text.replace("±", r"$\pm$").replace("lambda", r"$\lambda$")


_IN_MARKDOWN = {char: f"\\{char}" for char in "\\`*_[]|"} | {"<": "&lt;", ">": "&gt;", "&": "&amp;"}
_IN_LATEX = {char: f"\\{char}" for char in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
}
