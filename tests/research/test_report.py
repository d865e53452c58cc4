"""A report of the paper's runs has its tables and verdicts as sections."""

from pathlib import Path

import pytest

from paper_runs import paper_rows
from research.claims import check_all
from research.pages.report import paper_sections, published_accuracies, write_paper_report
from research.paper.archive import write
from research.paper.results import Results
from research.paper.verdicts import CLAIMS
from ultralif.names import NEURON_NAMES


def test_results_of_the_paper_bring_tables_and_verdicts() -> None:
    tables, verdicts = paper_sections(Results(paper_rows("mnist", 2)), check_all((1,)))
    names = [table.name for table in tables.tables]
    assert {"mnist", "t1-summary"} <= set(names) and "shd" not in names
    experiments, theory = verdicts.tables
    assert len(experiments.rows) == len(CLAIMS) and len(theory.rows) == 1
    tested = [row[0] for row in experiments.rows if row[2] != "not tested"]
    assert {claim.partition(",")[0] for claim in tested if "," in claim} >= {"mnist"}
    assert published_accuracies(["mnist", "digits"])["mnist"]["UltraDLIF"][1] == 95.67


def test_timings_of_a_file_are_judged_without_those_of_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("research.paper.verdicts._on_gpu", dict)
    steps = dict.fromkeys(NEURON_NAMES, 1.0) | {"UltraLIF": 1.04}
    _, verdicts = paper_sections(Results(paper_rows("mnist", 1), {"T=10 auto": steps}))
    (row,) = [row for row in verdicts.tables[0].rows if "wall time" in row[0]]
    assert row[2] == "holds" and "+0 to +4 %" in row[3]


def test_recipes_of_other_precision_are_in_the_paper() -> None:
    rows = paper_rows("binary", 1)
    found = Results(rows)
    assert found.by_id.keys() == {row.id for row in rows}
    assert [*found.accuracy("binary", "mnist", 10)] == [42]


def test_the_page_is_written_from_a_file(tmp_path: Path) -> None:
    write(tmp_path / "paper.jsonl.gz", paper_rows("mnist", 1))
    page = write_paper_report(tmp_path / "paper.html", tmp_path / "paper.jsonl.gz", theory=False)
    assert "Published and measured numbers side by side." in page.read_text()
