"""The paper's figures show the numbers of the runs, beside the published ones."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paper_runs import paper_rows
from research.pages import figures as paper_figures
from research.pages import mechanisms
from research.paper import published
from research.paper.results import Results
from ultralif.report import interval, save_figure


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The figures that are saved, with their artists."""
    kept: list[Any] = []

    def save(figure: Any, path: Path) -> Path:
        kept.append(figure)
        return save_figure(figure, path)

    for module in (paper_figures, mechanisms):
        monkeypatch.setattr(module, "save_figure", save)
    return kept


@pytest.fixture(scope="module")
def results() -> Results:
    return Results([*paper_rows("mnist-sparsity", 2), *paper_rows("eps-ablation", 2)])


def lines_of(axis: Any) -> dict[str, np.ndarray]:
    return {line.get_label(): np.array(line.get_xydata()) for line in axis.lines}


def test_accuracy_has_differences_from_the_published_means_with_intervals(
    drawn: list[Any], results: Results, tmp_path: Path
) -> None:
    paper_figures.accuracy_figure(tmp_path / "accuracy.png", results, ["mnist"])
    (axis,) = drawn[0].axes
    bars = [one.lines for one in axis.containers if one.get_label() == "Ultra neurons"]
    assert len(bars) == len(published.ULTRA) * len(published.TIMESTEPS)
    (line, _, (span,)), name, time = bars[2], published.ULTRA[2], published.TIMESTEPS[0]
    mean, half, *_ = interval(results.accuracy(name, "mnist", time))
    theirs = published.accuracy("mnist", name, time)
    assert line.get_xdata()[0] == pytest.approx(mean - theirs)
    ends = span.get_segments()[0][:, 0]
    assert tuple(ends) == pytest.approx((mean - half - theirs, mean + half - theirs))


def test_ablation_draws_every_epoch_of_every_seed(drawn: list[Any], results: Results, tmp_path: Path) -> None:
    paper_figures.ablation_figure(tmp_path / "ablation.png", results)
    _, right = drawn[0].axes
    paths = [line for line in right.lines if len(line.get_xdata()) == 100]
    assert len(paths) == 2 * len(published.ULTRA)
    ends = {round(float(line.get_ydata()[-1]), 6) for line in paths}
    wanted = {round(eps, 6) for neuron in published.ULTRA for eps in results.eps(neuron, "mnist", 1).values()}
    assert ends == wanted


def test_spikes_and_their_slopes_belong_together(drawn: list[Any], tmp_path: Path) -> None:
    mechanisms.spike_figure(tmp_path / "spikes.png")
    left, right = drawn[0].axes
    for eps in mechanisms.TEMPERATURES:
        spike, slope = lines_of(left)[f"soft, eps {eps:g}"], lines_of(right)[f"exact, eps {eps:g}"]
        measured = np.gradient(spike[:, 1], spike[:, 0])
        np.testing.assert_allclose(slope[1:-1, 1], measured[1:-1], atol=2e-3)
    step = lines_of(left)["Heaviside"]
    assert set(step[:, 1]) == {0.0, 1.0}
    assert lines_of(right)["LIF's surrogate, slope 10"][:, 1].max() == pytest.approx(0.25)  # sigmoid' at 0


def test_mechanisms_write_their_number_of_spikes(drawn: list[Any], tmp_path: Path) -> None:
    mechanisms.mechanism_figure(tmp_path / "mechanisms.svg")
    assert len(drawn[0].axes) == 6
    for axis in drawn[0].axes:
        heights = [segment[1, 1] - segment[0, 1] for segment in axis.collections[-1].get_segments()]
        assert axis.texts[0].get_text() == f"{sum(heights) / 0.3:.1f} spikes"
    lif = drawn[0].axes[0]
    assert lif.texts[0].get_text() == "3.0 spikes"  # 3 x 0.22, 2 x 0.45 and 0.9 pass 0.5; 0.3 does not
