"""Everything that is made from the committed results is what version 0.2.0 made, to the last digit.

``golden/reference.json`` was written once from the pages of 0.2.0: the SHA-256 of the rows of every table in
Markdown, of every table in CSV and LaTeX, and the numbers of each generated part of the page on the paper.
SHD was run later: it is left out here, with the claims and the GPU times that came with it, and what it
joined is named. The table of claims was written again when its worst cases stopped depending on rounding.
"""

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

from research import DOCS, RESULTS
from research.claims import check_all
from research.claims.page import claims_page
from research.commands import write_table
from research.pages import figures, paper
from research.paper import grids, results
from research.paper.archive import read
from research.paper.results import Results
from research.paper.tables import make_table
from research.paper.verdicts import judge, verdict_table
from ultralif.report import to_markdown

REFERENCE = json.loads((Path(__file__).parent / "golden" / "reference.json").read_text())
NUMBER = re.compile(r"[+-]?\d+(?:[.,]\d+)*")


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def rows(text: str) -> str:
    """Return the rows of a table in Markdown, without its title and notes."""
    return "\n".join(line for line in text.splitlines() if line[:1] == "|")


def digests(folder: Path) -> dict[str, str]:
    """Return the digest of every table of a folder, by the name of its file."""
    found = {path: path.read_text() for path in folder.iterdir()}
    return {path.name: digest(rows(text) if path.suffix == ".md" else text) for path, text in found.items()}


JOINED = {"binary", "released-depth", "released-shd", "released-sparsity", "shd", "shd-sparsity"} | {
    *("t1-summary", "tuned", "verdicts")
}
"""The tables that SHD joined, or that a correction over planned contrasts alone changed."""
ADDED = (
    "shd, T=1: UltraDLIF",
    "shd, T=10: a",
    "shd, T=30: a",
    "dvs-gesture, T=1: U",
    "dvs-gesture, T=10",
    "dvs-gesture, T=30",
)
"""How the claims begin that 0.2.0 did not judge."""


def before(found: Results) -> Results:
    """Return the results that 0.2.0 had."""
    return Results((run for run in found.every if run.dataset != "shd"), found.step_ms)


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty cell says whether its data are on this machine; those of 0.2.0 were made without them."""
    monkeypatch.setattr(results, "available", lambda name: name not in ("dvs-gesture", "shd"))


@pytest.fixture(scope="module")
def everything() -> Results:
    return paper.all_results()


def test_every_table_and_verdict_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("research.paper.verdicts._on_gpu", dict)
    found = before(Results(*read(RESULTS / "paper.jsonl.gz")))
    judged = [verdict for verdict in judge(found) if not verdict.claim.startswith(ADDED)]
    for table in (*(make_table(name, found) for name in grids.TABLES), verdict_table(judged)):
        write_table(table, tmp_path)
    made = digests(tmp_path)
    assert len(made) == 84
    assert {name: made[name] for name in made if made[name] != REFERENCE["tables"][name]} == {}


def test_the_tables_of_the_studies_are_the_same(everything: Results) -> None:
    for table in paper.studies(before(everything)):
        assert digest(rows(to_markdown(table))) == REFERENCE["tables"][f"{table.name}.md"]


def test_the_committed_tables_are_the_same() -> None:
    kept = digests(DOCS / "tables")
    apart = {name for name, found in kept.items() if found != REFERENCE["tables"][name]}
    assert kept.keys() == REFERENCE["tables"].keys()
    assert {name.partition(".")[0] for name in apart} == JOINED


def test_the_numbers_of_the_page_are_the_same(everything: Results) -> None:
    made = {name: " ".join(NUMBER.findall(make(everything) + "\n")) for name, make in paper.PARTS.items()}
    apart = {name for name, numbers in made.items() if numbers != REFERENCE["page"].get(name)}
    added = {"gradient-variance", "open-readings", "over-control"}
    assert made.keys() == REFERENCE["page"].keys() - {"remains"} | added
    same = {"again", "draws", "factorial", "noise", "rates", "readings", "time", "timing"}
    assert made.keys() - apart == same  # SHD is part of all others


def test_the_table_of_claims_is_the_same() -> None:
    page = claims_page(list(check_all()))
    assert digest(rows(page)) == REFERENCE["claims"]


def test_the_figure_draws_every_difference_of_the_table(
    everything: Results, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The data of a figure, not its pixels."""
    kept: list[Any] = []
    monkeypatch.setattr(figures, "save_figure", lambda figure, path: kept.append(figure) or path)
    figures.accuracy_figure(tmp_path / "accuracy.png", everything, ["mnist"])
    drawn = {
        f"{float(x):+.2f}"
        for axis in kept[0].axes
        for bars in axis.containers
        for x in bars.lines[0].get_xdata()
    }
    table = make_table("mnist", everything)
    assert {row[4] for row in table.rows if row[2] != "-"} == drawn
