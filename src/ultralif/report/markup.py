"""Tables as Markdown, CSV and LaTeX."""

import csv
import io

from ultralif.paper.tables import Table

__all__ = ["to_csv", "to_latex", "to_markdown"]


def to_markdown(table: Table) -> str:
    """Return a table as Markdown, with its notes below."""

    def line(cells: tuple[str, ...]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    lines = [f"### {table.title}", "", line(table.columns), "|" + "---|" * len(table.columns)]
    lines += map(line, table.rows)
    lines += [f"\n{note}" for note in table.notes]
    return "\n".join(lines) + "\n"


def to_csv(table: Table) -> str:
    """Return a table as CSV."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(table.columns)
    writer.writerows(table.rows)
    return out.getvalue()


def to_latex(table: Table) -> str:
    """Return a table as a LaTeX float in the style of the paper (booktabs)."""
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


def _escape(text: str) -> str:
    for char in "&%$#_{}":
        text = text.replace(char, f"\\{char}")
    return text.replace("±", r"$\pm$").replace("lambda=", r"$\lambda$=")
