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


def lines_of(axis: Any) -> dict[str, np.ndarray]:
    return {line.get_label(): np.array(line.get_xydata()) for line in axis.lines}


def test_spikes_and_their_slopes_belong_together(drawn: list[Any], tmp_path: Path) -> None:
    figures.spike_figure(tmp_path / "spikes.png")
    left, right = drawn[0].axes
    for eps in figures.TEMPERATURES:
        spike, slope = lines_of(left)[f"soft, eps {eps:g}"], lines_of(right)[f"exact, eps {eps:g}"]
        measured = np.gradient(spike[:, 1], spike[:, 0])
        np.testing.assert_allclose(slope[1:-1, 1], measured[1:-1], atol=2e-3)
    step = lines_of(left)["Heaviside"]
    assert set(step[:, 1]) == {0.0, 1.0}
    assert lines_of(right)["LIF's surrogate, slope 10"][:, 1].max() == pytest.approx(0.25)  # sigmoid' at 0


def test_mechanisms_write_their_number_of_spikes(drawn: list[Any], tmp_path: Path) -> None:
    figures.mechanism_figure(tmp_path / "mechanisms.svg")
    assert len(drawn[0].axes) == 6
    for axis in drawn[0].axes:
        heights = [segment[1, 1] - segment[0, 1] for segment in axis.collections[-1].get_segments()]
        assert axis.texts[0].get_text() == f"{sum(heights) / 0.3:.1f} spikes"
    lif = drawn[0].axes[0]
    assert lif.texts[0].get_text() == "3.0 spikes"  # 3 x 0.22, 2 x 0.45 and 0.9 pass 0.5; 0.3 does not


def test_events_are_pictures_in_order(drawn: list[Any], tmp_path: Path) -> None:
    frames = torch.zeros(8, 2, 5, 5)
    frames[3, 1, 2, 4], frames[3, 0, 0, 0] = 2.0, 1.0
    figures.events_figure(tmp_path / "events.png", frames)
    shown = np.array(drawn[0].axes[3].images[0].get_array())
    assert (shown[2, 4], shown[0, 0]) == (2.0, -1.0)
    with pytest.raises(InputError, match="take one sample first"):
        figures.events_figure(tmp_path / "events.png", frames.unsqueeze(0))


def test_other_endings_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"\.png, \.svg or \.pdf"):
        figures.spike_figure(tmp_path / "spikes.docx")


def test_all_figures_of_some_runs(tmp_path: Path, drawn: list[Any]) -> None:
    for neuron in ("UltraLIF", "LIF"):
        ul.train(ul.RunConfig(neuron=neuron, epochs=2, timesteps=4), runs_dir=tmp_path / "runs")
    entries, *_ = gather([str(tmp_path / "runs")])
    paths, notes = draw_figures(entries, tmp_path / "figures")
    assert [path.name for path in paths] == [
        "spikes.png",
        "mechanisms.png",
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
