"""``ultralif analyze`` from its arguments to its output and exit code."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import ultralif as ul
from ultralif.analysis import region_bound
from ultralif.cli import main
from ultralif.cli.sources import load_network, save_network


def run(capsys: pytest.CaptureFixture[str], *args: str) -> Any:
    assert main(["analyze", *args, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def refused(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    assert main(["analyze", *args]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    return captured.err


def test_regions(capsys: pytest.CaptureFixture[str]) -> None:
    found = run(capsys, "regions", "3-8-2")
    assert found["regions"] == found["bound"] == region_bound(8, 3)
    assert found["general_position"] is True
    assert run(capsys, "regions", "784-64-10")["regions"] == 2**64
    assert "up to" in refused(capsys, "regions", "20-64-10")


def test_slices_of_a_real_size(capsys: pytest.CaptureFixture[str]) -> None:
    found = run(capsys, "slice", "784-64-10", "--segments", "5", "--planes", "2")
    assert [row["through"] for row in found["regions"]] == ["segment", "plane"]
    assert found["regions"][1]["mean"] == region_bound(64, 2)
    assert found == run(capsys, "slice", "784-64-10", "--segments", "5", "--planes", "2")
    assert "positive" in refused(capsys, "slice", "784-64-10", "--planes", "0")


def test_growth(capsys: pytest.CaptureFixture[str]) -> None:
    found = run(capsys, "growth", "2-4-2", "--steps", "1", "3", "--resolution", "60")
    first, last = found["rasters"]
    assert first["found"] == last["found"] <= last["bound"]
    varying = run(capsys, "growth", "2-2-2", "--steps", "1", "2", "--varying", "--resolution", "60")
    assert [row["bound"] for row in varying["rasters"]] == [4, 16]
    assert "ascending" in refused(capsys, "growth", "2-4-2", "--steps", "3", "1")


def test_volume(capsys: pytest.CaptureFixture[str]) -> None:
    wide, tall = run(capsys, "volume", "784-64-10"), run(capsys, "volume", "3-6-2")
    assert wide["zonotope_volume"] == 0.0  # as for every layer with fewer neurons than inputs
    assert tall["zonotope_volume"] > 0
    for found in (wide, tall):
        assert found["log_volume"] < found["log_volume_if_orthogonal"]


def test_a_pruned_network_can_be_read_again(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = str(tmp_path / "small.safetensors")
    found = run(capsys, "prune", "20-12-3", "--keep", "5", "--neuron", "UltraDLIF", "--out", out)
    assert (found["neurons_before"], found["neurons_after"]) == (12, 5)
    again = run(capsys, "volume", out)
    assert again["neurons"] == 5
    assert again["log_volume"] == pytest.approx(found["log_volume_after"], abs=1e-4)
    assert "keep must be" in refused(capsys, "prune", "20-12-3", "--keep", "13")


@pytest.mark.parametrize("options", [{"anneal": (2.0, 0.1)}, {"mode": "hard"}, {"per_neuron": True}], ids=str)
def test_a_pruned_run_is_the_run(
    options: dict[str, Any], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """What training changed beside the weights is kept: a temperature that was led, and the mode."""
    done = ul.train(ul.RunConfig(epochs=1, timesteps=2, hidden=(12,), **options), runs_dir=tmp_path)
    out = tmp_path / "small.safetensors"
    run(capsys, "prune", done.id, "--keep", "12", "--out", str(out), "--runs-dir", str(tmp_path))
    x = torch.rand(2, 3, 64)
    assert torch.equal(load_network(str(out)).network(x), ul.load(done.path)(x))
    run(capsys, "prune", str(done.path), "--keep", "5", "--out", str(out))
    assert load_network(str(out)).network(x).shape == (3, 10)


@pytest.mark.parametrize("command", ["regions", "slice", "growth", "volume", "prune", "boundary"])
def test_a_network_that_is_not_finite(
    command: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    network = ul.Network((4, 5, 3))
    network.linears[0].weight.data[1, 2] = torch.nan
    save_network(network, {"neuron": "UltraLIF"}, tmp_path / "nan.safetensors")
    assert "NaN or infinite" in refused(capsys, command, str(tmp_path / "nan.safetensors"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("slice", "4-5-3", "--segments", "100000000"), "would take hours"),
        (("growth", "2-4-2", "--extent", "nan"), "extent=nan"),
    ],
)
def test_numbers_that_lead_nowhere(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said in refused(capsys, *words)


def test_samples_that_are_not_finite(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    np.save(tmp_path / "samples.npy", np.full((3, 4), np.nan))
    said = refused(capsys, "boundary", "4-10-3", "--samples", str(tmp_path / "samples.npy"))
    assert "NaN or infinite" in said
    assert "No such file" in refused(capsys, "boundary", "4-10-3", "--samples", "nothing.npy")


def test_boundary(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    samples, picture = tmp_path / "samples.npy", tmp_path / "slices.png"
    np.save(samples, np.random.default_rng(0).random((3, 4)))
    options = ("--samples", str(samples), "--out", str(picture), "--resolution", "30")
    found = run(capsys, "boundary", "4-10-3", *options)
    assert [row["mode"] for row in found["slices"]] == ["soft", "hard", "tropical"]
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert "inputs, got 4" in refused(capsys, "boundary", "5-10-3", *options)
    (tmp_path / "text").write_text("no numbers")
    assert "not a .npy file" in refused(capsys, "boundary", "4-10-3", "--samples", str(tmp_path / "text"))


@pytest.mark.parametrize("source", ["2-2", "nowhere", "2-0-3", __file__])
def test_bad_sources_are_one_line(capsys: pytest.CaptureFixture[str], source: str) -> None:
    refused(capsys, "regions", source)
    refused(capsys, "regions", "2-3-4", "--layer", "1")
    refused(capsys, "regions", "2-3-4", "--neuron", "Cortex")


def test_plain_output_is_lines_and_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", "growth", "2-3-2", "--steps", "1", "--resolution", "20"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["neurons", "3"]
    assert lines[2:4] == ["rasters:", lines[3]]
    assert lines[3].split() == ["steps", "found", "bound"]
