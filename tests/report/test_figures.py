"""The figures show the numbers of the runs, of neurons and of networks."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import ultralif as ul
from report.made_runs import made_runs
from ultralif.errors import InputError
from ultralif.report import canvas, figures, interval, run_figures
from ultralif.report.draw import draw_figures
from ultralif.report.gather import gather


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The figures that are saved, with their artists."""
    kept: list[Any] = []

    def save(figure: Any, path: Path, **options: Any) -> Path:
        kept.append(figure)
        return canvas.save_figure(figure, path, **options)

    for module in (figures, run_figures):
        monkeypatch.setattr(module, "save_figure", save)
    return kept


def test_events_are_pictures_in_order(drawn: list[Any], tmp_path: Path) -> None:
    frames = torch.zeros(8, 2, 5, 5)
    frames[3, 1, 2, 4], frames[3, 0, 0, 0] = 2.0, 1.0
    figures.events_figure(tmp_path / "events.png", frames)
    shown = np.array(drawn[0].axes[3].images[0].get_array())
    assert (shown[2, 4], shown[0, 0]) == (2.0, -1.0)
    with pytest.raises(InputError, match="select one sample first"):
        figures.events_figure(tmp_path / "events.png", frames.unsqueeze(0))


def test_other_endings_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"\.png, \.svg or \.pdf"):
        canvas.save_figure(canvas.new_figure(1)[0], tmp_path / "spikes.docx")


def test_all_figures_of_some_runs(tmp_path: Path, drawn: list[Any]) -> None:
    for neuron in ("UltraLIF", "LIF"):
        ul.train(ul.RunConfig(neuron=neuron, epochs=2, timesteps=4), runs_dir=tmp_path / "runs")
    entries, *_ = gather([str(tmp_path / "runs")])
    paths, notes = draw_figures(entries, tmp_path / "figures")
    assert [path.name for path in paths] == [
        "accuracy.png",
        "energy-digits.png",
        "network-digits.png",
    ]
    assert notes == []
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths)
    raster, traces, rates, weights = drawn[-1].axes
    assert sum(bar.get_height() for bar in rates.patches) == 64  # every hidden neuron has its rate
    assert len(traces.lines) == 3 * 2 + 1
    assert weights.images[0].get_array().shape == (8 * 9, 8 * 9)
    assert raster.get_xlim() == (-0.5, 3.5)


def test_figures_of_data_that_are_not_here_stay_in_their_folder(tmp_path: Path) -> None:
    ul.train(ul.RunConfig(neuron="LIF", epochs=1, timesteps=4), runs_dir=tmp_path / "runs")
    ((entry,), _) = gather([str(tmp_path / "runs")])
    object.__setattr__(entry.config, "dataset", "own:/../../../$\\frac{\0")
    paths, _ = draw_figures([entry], tmp_path / "a" / "figures")
    assert {path.parent for path in paths} == {tmp_path / "a" / "figures"}
    assert all(path.read_bytes() for path in paths)


def test_every_dataset_has_its_network(tmp_path: Path) -> None:
    runs = [("digits", "UltraLIF"), ("digits", "LIF"), ("randman", "LIF")]
    for dataset, neuron in runs:
        ul.train(ul.RunConfig(dataset=dataset, neuron=neuron, epochs=1, timesteps=4), runs_dir=tmp_path)
    paths, _ = draw_figures(gather([str(tmp_path)])[0], tmp_path / "figures")
    names = [path.name for path in paths if path.name.startswith("network-")]
    assert sorted(names) == ["network-digits.png", "network-randman.png"]


def test_accuracy_over_time_has_means_with_intervals(drawn: list[Any], tmp_path: Path) -> None:
    entries = [entry for entry in made_runs(2000, epochs=1) if entry.config.dataset == "mnist"]
    run_figures.accuracy_figure(tmp_path / "accuracy.png", entries)
    bars = {one.get_label(): one for one in drawn[0].axes[0].containers}
    line, _, (span,) = bars["UltraDLIF"]
    for place, time in enumerate((1, 10, 30)):
        runs = [e for e in entries if (e.config.neuron, e.config.timesteps) == ("UltraDLIF", time)]
        values = {e.config.seed: e.result.own.accuracy for e in runs if not e.config.sparsity}
        assert len(values) > 2
        mean, half, *_ = interval(values)
        assert line.get_ydata()[place] == pytest.approx(mean)
        assert span.get_segments()[place][:, 1] == pytest.approx((mean - half, mean + half))


def test_energy_is_time_times_rate(drawn: list[Any], tmp_path: Path) -> None:
    entries = [e for e in made_runs(300, epochs=1) if (e.config.dataset, e.config.seed) == ("mnist", 42)]
    run_figures.energy_figure(tmp_path / "energy.png", entries, "mnist")
    for axis, time in zip(drawn[0].axes, sorted({e.config.timesteps for e in entries}), strict=True):
        found = {tuple(map(float, line.get_xydata()[0])) for line in axis.lines}
        own = [e.result.own for e in entries if e.config.timesteps == time]
        assert found == {(time * one.spike_rate, one.accuracy) for one in own}
