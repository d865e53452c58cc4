"""The command, end to end, on recordings in SHD's published format."""

import hashlib
import json
import runpy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from data import dataset_files
from report.made_runs import made_result
from research.__main__ import main
from research.paper import archive, grids, published, results
from ultralif.data import DATASETS
from ultralif.training import Store


@pytest.fixture
def shd(tmp_path, monkeypatch):
    """Put a small SHD where the library looks, and shorten the recipe."""
    rng = np.random.default_rng(0)
    (tmp_path / "data" / "SHD").mkdir(parents=True)
    for name, count in (("train", 40), ("test", 20)):
        labels = [i % 20 for i in range(count)]
        dataset_files.shd(
            tmp_path / "data" / "SHD" / f"shd_{name}.h5", dataset_files.shd_spikes(rng, count), labels
        )
    monkeypatch.setitem(DATASETS, "shd", replace(DATASETS["shd"], sizes=(40, 20)))
    monkeypatch.setenv("ULTRALIF_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(grids, "BASE", grids.BASE.with_(epochs=2))
    monkeypatch.chdir(tmp_path)
    grids._meanings.cache_clear()  # it knows the runs of the whole recipe
    yield tmp_path
    grids._meanings.cache_clear()


def test_shd_runs_as_soon_as_its_files_are_there(shd, capsys):
    code = main(
        [
            "reproduce",
            "shd",
            "--seeds",
            "1",
            "--train",
            "--data-dir",
            str(shd / "data"),
            "--quiet",
            "--out",
            "tables",
        ]
    )
    assert code == 0
    printed = capsys.readouterr().out
    assert "Test accuracy (%) on shd" in printed
    assert "not run" not in printed and "not at hand" not in printed
    for suffix in ("md", "csv", "tex"):
        assert (shd / "tables" / f"shd.{suffix}").stat().st_size > 500

    main(
        ["reproduce", "shd", "--seeds", "1", "--train", "--data-dir", str(shd / "data"), "--json"]
    )  # nothing is trained again
    table = json.loads(capsys.readouterr().out)["shd"]
    assert len(table["rows"]) == 12 * 3 and all(float(r[3]) <= 100 for r in table["rows"])


def test_data_that_is_not_there_is_said_to_be(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("ULTRALIF_DATA", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", "dvs-gesture", "--train", "--seeds", "1", "--quiet"]) == 0
    out = capsys.readouterr()
    assert "no data here" in out.out and "not on this machine: dvs-gesture" in out.err
    assert main(["reproduce", "dvs-gesture", "--train", "--seeds", "1"]) == 0
    assert "finished" not in capsys.readouterr().err


def test_verdicts_as_json(tmp_path, monkeypatch, capsys):
    archive.write(tmp_path / "none.jsonl.gz", [])
    assert main(["verdicts", "--json", "--results", str(tmp_path / "none.jsonl.gz")]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {"claim", "verdict"} <= found[0].keys() and {entry["verdict"] for entry in found} == {"not tested"}


@pytest.mark.parametrize("argv", [["nothing"], ["mnist", "--seeds", "0"], ["mnist", "--results", "none.gz"]])
def test_bad_input(argv, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", *argv]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_table_that_is_none_is_refused(capsys):
    assert main(["reproduce", "foo", "--results", "none.jsonl.gz"]) == 2
    assert "the table must be one of all, list, mnist" in capsys.readouterr().err
    assert main(["reproduce", "list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == grids.TABLES


def test_seeds_of_a_file_are_counted_from_the_first(tmp_path, capsys):
    rows = [
        made_result(config, {"hard": 90.0 + config.seed}, {"hard": 0.1})
        for config in grids.runs_of("mnist", 3)
        if config.neuron == "UnscaledPLIF" and config.timesteps == 1
    ]
    archive.write(tmp_path / "paper.jsonl.gz", rows)
    words = ["reproduce", "mnist", "--results", str(tmp_path / "paper.jsonl.gz"), "--json", "--seeds"]
    for seeds in (1, 2, 3):
        assert main([*words, str(seeds)]) == 0
        (row,) = [r for r in json.loads(capsys.readouterr().out)["mnist"]["rows"] if r[:2] == ["PLIF", "1"]]
        assert row[-1] == str(seeds)


def test_the_zoo_is_chosen_from_the_runs(shd, capsys, monkeypatch):
    words = ["reproduce", "shd", "--seeds", "1", "--train", "--data-dir", str(shd / "data"), "--quiet"]
    assert main([*words, "--runs-dir", "runs"]) == 0
    monkeypatch.setattr("sys.argv", ["zoo.py", "runs", "zoo"])
    runpy.run_path(str(Path(__file__).parents[2] / "tools" / "zoo.py"), run_name="__main__")
    cards = json.loads((shd / "zoo" / "index.json").read_text())
    assert len(cards) == 2 * 3  # the best Ultra neuron and the best baseline for each T
    best = results.from_store(Store(shd / "runs")).best("shd", published.ULTRA, 10)[0]
    card = cards[f"shd/{best.lower()}-t10"]
    assert f"--neuron {best} --timesteps 10" in card["command"]
    assert hashlib.sha256((shd / "zoo" / card["file"]).read_bytes()).hexdigest() == card["sha256"]
