"""`ultralif runs table` and the filters of `report`."""

import csv
import io
from pathlib import Path
from statistics import mean, stdev

import pytest

from cli.commands import QUICK, Commands
from ultralif.report.gather import gather
from ultralif.training.store import Store


@pytest.fixture
def swept(ultralif: Commands) -> Commands:
    ultralif.done("sweep", "--neurons", "LIF,UltraLIF", "--seeds", "3", *QUICK)
    return ultralif


def test_a_row_has_mean_and_interval_over_its_seeds(swept: Commands) -> None:
    text = swept.done("runs", "table", "--by", "neuron,T", "--to", "csv")
    rows = {row["neuron"]: row for row in csv.DictReader(io.StringIO(text))}
    results = [row for row in Store().rows() if row.neuron == "UltraLIF"]
    soft, hard = ([row.by_mode[mode].accuracy for row in results] for mode in ("soft", "hard"))
    half = 4.302653 * stdev(soft) / 3**0.5  # Student's t for two degrees of freedom
    assert rows["UltraLIF"]["accuracy %"] == f"{mean(soft):.2f} ± {half:.2f}"
    assert rows["UltraLIF"]["hard %"].startswith(f"{mean(hard):.2f} ±")
    assert rows["LIF"]["T"] == "2" and rows["LIF"]["seeds"] == "3"
    assert rows["LIF"]["accuracy %"] == rows["LIF"]["hard %"]  # as trained, though its spikes are binary


def test_runs_that_differ_in_more_are_not_mixed_silently(swept: Commands) -> None:
    swept.done("train", "--neuron", "LIF", *QUICK, "--learning-rate", "0.1")
    said = swept("runs", "table", "--by", "neuron", "--to", "latex")
    assert "mix runs that differ in learning_rate" in said.err
    assert r"\toprule" in said.out and r"95 \% interval over seeds" in said.out and "on digits" in said.out
    rows = {line.split()[0]: line for line in said.out.splitlines() if line.endswith(r"\\")}
    assert r"$\pm$" in rows["UltraLIF"] and r"$\pm$" not in rows["LIF"], "a mixture has no interval"
    said = swept("runs", "table", "--by", "neuron,learning_rate")
    assert "mix runs" not in said.err and said.out.count("LIF") == 3


def test_a_setting_that_is_not_known_is_answered_with_the_nearest(swept: Commands) -> None:
    said = swept("runs", "table", "--by", "learning_rat")
    assert said.code == 2 and "did you mean learning_rate?" in said.err


def test_a_report_is_about_the_runs_that_the_filter_admits(swept: Commands, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    out = swept.done("report", "--neuron", "lif", "--seed", "43", "--out", str(page), "--inside", "0")
    assert out.splitlines()[-1].startswith("1 run;")
    assert len(gather([], None, {"seed": 44}).entries) == 2
    assert swept("report", "--dataset", "mnist", "--out", str(page), "--inside", "0").code == 2
