"""Generate pages, tables and figures from the committed results."""

from collections.abc import Callable

from research import DOCS, RESULTS

__all__ = ["PAGES"]


def _tables() -> str:
    """Write the paper's tables and the verdicts."""
    from research.commands import write_table
    from research.paper.archive import read
    from research.paper.grids import TABLES
    from research.paper.results import Results
    from research.paper.tables import make_table
    from research.paper.verdicts import judge, verdict_table

    results = Results(*read(RESULTS / "paper.jsonl.gz"))
    tables = [*(make_table(name, results) for name in TABLES), verdict_table(judge(results))]
    for table in tables:
        write_table(table, DOCS / "tables")
    return f"{len(tables)} tables in {DOCS / 'tables'}"


def _claims() -> str:
    """Write the verdicts on the paper's mathematical statements."""
    from research.claims import check_all
    from research.claims.page import claims_page

    page = DOCS / "claims.md"
    page.write_text(claims_page(list(check_all())))
    return str(page)


def _paper() -> str:
    """Fill in the numbers on the page about the paper, and write the study tables."""
    from research.pages.paper import write_page

    return write_page()


def _figures() -> str:
    """Draw the figures about the paper and the theory."""
    from research.pages.figures import paper_figures
    from research.pages.mechanisms import mechanism_figure, spike_figure
    from research.pages.paper import all_results
    from research.pages.theory_figures import FIGURES

    drawn = paper_figures(all_results(), DOCS / "images")
    drawn += [draw(DOCS / "images" / f"{name}.png") for name, draw in FIGURES.items()]
    drawn += [
        spike_figure(DOCS / "images" / "spikes.png"),
        mechanism_figure(DOCS / "images" / "mechanisms.png"),
    ]
    return f"{len(drawn)} figures in {DOCS / 'images'}"


def _deep() -> str:
    """Fill in the tables on the page about deep networks, and draw its figures."""
    from research.pages.deep import write_page
    from research.pages.deep_figures import draw_figures

    draw_figures()
    return write_page()


def _memory() -> str:
    """Fill in the tables on the page about long memory, and draw its figure."""
    from research.pages.memory import write_page

    return write_page()


def _contrasts() -> str:
    """Fill in the page of controlled comparisons and the front page."""
    from research.pages.contrasts import write_pages

    return write_pages()


def _report() -> str:
    """Write all runs of the paper as one HTML page."""
    from research.pages.report import write_paper_report

    return str(write_paper_report(DOCS.parent / "report.html"))


PAGES: dict[str, Callable[[], str]] = {
    "tables": _tables,
    "claims": _claims,
    "paper": _paper,
    "figures": _figures,
    "deep": _deep,
    "memory": _memory,
    "contrasts": _contrasts,
    "report": _report,
}
"""The function that writes each page, by name."""
