"""Write the generated parts of research/docs/paper.md from the results files.

    python -m research pages paper

The function NAME generates the text between ``<!-- NAME -->`` and ``<!-- end -->``, so that no measured
number is typed by hand. Tables are in paper_parts.py and paper_reproduced.py, sentences in paper_words.py,
paper_studies.py and paper_time.py. paper_figure.py draws the figure of tuned neurons.
"""

import re
from collections.abc import Callable

from research import DOCS, RESULTS
from research.pages import paper_parts, paper_reproduced, paper_studies, paper_time, paper_words
from research.pages.paper_figure import tuned_figure
from research.paper.archive import read
from research.paper.results import Results
from research.studies.tables import factors_table, readings_table, tuned_table
from ultralif.report import Table, to_markdown

PAGE = DOCS / "paper.md"
PARTS: dict[str, Callable[[Results], str]] = {
    name.replace("_", "-"): getattr(home, name)
    for home in (paper_parts, paper_reproduced, paper_studies, paper_time, paper_words)
    for name in home.__all__
}


def fill(page: str, results: Results) -> str:
    """Return the page with every generated part updated."""

    def made(found: re.Match[str]) -> str:
        return f"<!-- {found[1]} -->\n{PARTS[found[1]](results)}\n<!-- end -->"

    return re.sub(r"<!-- ([a-z-]+) -->\n(?:(?!<!-- end -->).*\n)*<!-- end -->", made, page)


def all_results() -> Results:
    """Return the runs of the paper and of our own studies."""
    results = Results(*read(RESULTS / "paper.jsonl.gz"))
    for name in ("studies", "open-readings"):
        for result in read(RESULTS / f"{name}.jsonl.gz").results:
            results.add(result)
    return results


def studies(results: Results) -> list[Table]:
    """Return the study tables, which are separate files."""
    return [make(results.every) for make in (tuned_table, factors_table, readings_table)]


def write_page() -> str:
    """Write the page and the study tables, and return what was written."""
    results = all_results()
    PAGE.write_text(fill(PAGE.read_text(), results))
    tuned_figure(results, DOCS / "images" / "tuned.png")
    for table in studies(results):
        (DOCS / "tables" / f"{table.name}.md").write_text(to_markdown(table))
    return f"{len(results.by_id)} runs in {PAGE}"
