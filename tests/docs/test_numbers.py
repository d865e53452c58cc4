"""The numbers that the first page quotes are those of the tables it links to."""

import csv
import importlib
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
INDEX = " ".join((DOCS / "index.md").read_text().split())
DATASETS = ("mnist", "fashion-mnist", "cifar10", "n-mnist")


def rows(table: str) -> list[dict[str, str]]:
    with (DOCS / "results" / "paper" / f"{table}.csv").open() as file:
        return list(csv.DictReader(file))


def mean(cell: str) -> float:
    return float(cell.split()[0])


def test_the_gains_at_one_time_step() -> None:
    measured = [row for row in rows("t1-summary") if row[""] == "measured" and row["dataset"] in DATASETS]
    soft = sorted(mean(row["gain"]) for row in measured)
    binary = sorted(mean(row["gain, binary"]) for row in measured)
    assert len(measured) == len(DATASETS)
    assert f"by {soft[0]:.1f} to {soft[-1]:.1f} points with soft spikes" in INDEX
    assert f"between {-binary[0]:.1f} below and {binary[-1]:.1f} above it" in INDEX


def test_the_control_at_one_time_step() -> None:
    differences = []
    for dataset in DATASETS:
        found = {row["neuron"]: mean(row["measured"]) for row in rows(dataset) if row["T"] == "1"}
        differences.append(abs(found["SoftLIF"] - found["UltraDLIF"]))
    assert f"within {max(differences):.1f} points of UltraDLIF at T = 1 on all four" in INDEX


def test_the_page_on_the_paper_is_made_from_the_files_of_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(DOCS.parent / "tools"))
    page = importlib.import_module("paper_page")
    results = page.all_results()
    text = page.PAGE.read_text()
    assert page.fill(text, results) == text, "python tools/paper_page.py"
    assert set(re.findall(r"<!-- ([a-z-]+) -->", text)) - {"end"} == set(page.PARTS)
    tuned = DOCS / "results" / "paper" / "tuned.md"
    assert page.to_markdown(page.tuned_table(results.every)) == tuned.read_text()
