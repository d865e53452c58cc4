"""The numbers of the page on tasks are those of the committed measurements."""

import json
from pathlib import Path
from statistics import mean

import pytest

RESULTS = Path(__file__).parents[2] / "docs" / "results"
PAGE = (RESULTS / "tasks.md").read_text()


def test_the_swapped_network() -> None:
    rows = json.loads((RESULTS / "csnn.json").read_text())
    assert len(rows) == 5
    for name, seeds in rows.items():
        (line,) = [line for line in PAGE.splitlines() if line.startswith(f"| {name} |")]
        for values in ([seed[mode] for seed in seeds] for mode in seeds[0]):
            assert f" {mean(values):.1f} " in line
    theirs, *_, ours = rows.values()
    reached = mean(seed["hard"] for seed in ours)
    assert reached > mean(seed["own"] for seed in theirs) - 1  # within one point


def test_the_slopes_of_the_surrogate() -> None:
    rows = json.loads((RESULTS / "surrogate-slope.json").read_text())
    lines = PAGE.splitlines()
    for task, slopes in ((name, found) for name, found in rows.items() if isinstance(found, dict)):
        (place,) = [place for place, line in enumerate(lines) if line.startswith(f"| {task} |")]
        means = [mean(found["held_out_percent"]) for found in slopes.values()]
        assert [float(cell) for cell in lines[place].split("|")[2:-1]] == pytest.approx(means, abs=0.011)
        for slope, found in slopes.items():
            gain, half = found["gain_over_2"]
            assert slope == "2" or f"{gain:+.2f} ± {half:.2f}" in lines[place + 1]
            assert gain <= half, "no slope is significantly better than the default"
