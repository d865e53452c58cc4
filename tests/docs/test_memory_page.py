"""The page on memory shows what was measured."""

import importlib.util
import json
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_its_tables_are_those_of_the_data():
    spec = importlib.util.spec_from_file_location("memory_study", ROOT / "benchmarks" / "memory_page.py")
    study = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(study)
    rows = [json.loads(line) for line in (ROOT / "results" / "memory.jsonl").read_text().splitlines()]
    page = (ROOT / "docs" / "memory.md").read_text()
    assert study.table(rows) in page
    assert study.speeds("cpu") in page
    assert study.speeds("h200") in page
    goal = [
        row["hard"] for row in rows if (row["task"], row["method"], row["held"]) == ("randman", "none", False)
    ]
    assert len(goal) == 5 and min(goal) >= 99
