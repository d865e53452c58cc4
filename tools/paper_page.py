"""Write the numbers of docs/results/paper.md from the files of results: whatever is between its marks.

    python tools/paper_page.py

A part of the page between ``<!-- NAME -->`` and ``<!-- end -->`` is made by the function of that name, so
that no measured number is typed by hand: tables in paper_parts.py and paper_reproduced.py, sentences in
paper_words.py, paper_studies.py and paper_time.py. The figure of tuned neurons is by paper_figure.py.
"""

import re
from collections.abc import Callable
from pathlib import Path

import paper_parts
import paper_reproduced
import paper_studies
import paper_time
import paper_words
from paper_figure import tuned_figure

from ultralif.paper.archive import read
from ultralif.paper.results import Results
from ultralif.paper.studied import factors_table, readings_table, tuned_table
from ultralif.paper.table import Table
from ultralif.report.markup import to_markdown

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "results" / "paper.md"
PARTS: dict[str, Callable[[Results], str]] = {
    name.replace("_", "-"): getattr(home, name)
    for home in (paper_parts, paper_reproduced, paper_studies, paper_time, paper_words)
    for name in home.__all__
}


def fill(page: str, results: Results) -> str:
    """Return the page with every part made anew."""

    def made(found: re.Match[str]) -> str:
        return f"<!-- {found[1]} -->\n{PARTS[found[1]](results)}\n<!-- end -->"

    return re.sub(r"<!-- ([a-z-]+) -->\n(?:(?!<!-- end -->).*\n)*<!-- end -->", made, page)


def all_results() -> Results:
    """Return the runs of the paper and of the studies around it."""
    results = Results(*read(ROOT / "results" / "paper.jsonl.gz"))
    for result in read(ROOT / "results" / "studies.jsonl.gz").results:
        results.add(result)
    return results


def studies(results: Results) -> list[Table]:
    """Return the tables of the studies, which are files of their own."""
    return [make(results.every) for make in (tuned_table, factors_table, readings_table)]


def main() -> None:
    """Write the page."""
    results = all_results()
    PAGE.write_text(fill(PAGE.read_text(), results))
    tuned_figure(results, ROOT / "docs" / "images" / "paper" / "tuned.png")
    for table in studies(results):
        (PAGE.parent / "paper" / f"{table.name}.md").write_text(to_markdown(table))
    print(f"{len(results.by_id)} runs in {PAGE}")


if __name__ == "__main__":
    main()
