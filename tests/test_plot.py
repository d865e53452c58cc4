"""The one-line plots show the numbers that they were given."""

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib import colors
from matplotlib import pyplot as plt
from torch import nn

import ultralif as ul
from ultralif.errors import InputError, JobError


@pytest.fixture(autouse=True)
def headless() -> Iterator[None]:
    plt.switch_backend("agg")
    yield
    plt.close("all")


@pytest.fixture
def net() -> ul.Network:
    return ul.Network((9, 30, 12, 4), neuron="UltraLIF", neuron_options={"eps": 0.2}).eval()


def test_record_is_what_the_network_computes(net: ul.Network) -> None:
    x = torch.rand(7, 2, 9)
    first, second = ul.plot.record(net, x)
    rates = net.observe(x).rates
    torch.testing.assert_close(first.spikes.mean(0), rates[0])
    torch.testing.assert_close(second.spikes.mean(0), rates[1])
    # after the reset to 0 a membrane is V~ (1 - s), and s = sigmoid((V~ - theta) / eps)
    before = first.membrane / (1 - first.spikes)
    torch.testing.assert_close(torch.sigmoid((before - 0.5) / 0.2), first.spikes, rtol=1e-4, atol=1e-5)


def test_record_reads_any_module_and_batch_first() -> None:
    module = nn.Sequential(nn.Linear(3, 5), ul.LIF(batch_first=True))
    x = torch.rand(2, 7, 3)
    (shown,) = ul.plot.record(module, x)
    torch.testing.assert_close(shown.spikes.transpose(0, 1), module(x))
    with pytest.raises(InputError, match="calls no ultralif neurons"):
        ul.plot.record(nn.Linear(3, 5), x)


def test_raster_has_a_dot_for_every_spike() -> None:
    spikes = (torch.rand(20, 3, 8) > 0.7).float()
    axes = ul.plot.raster(spikes, sample=1)
    (dots,) = axes.collections
    assert {tuple(place) for place in dots.get_offsets()} == {
        (t, n) for t in range(20) for n in range(8) if spikes[t, 1, n]
    }
    assert axes.get_xlim() == (-0.5, 19.5)


def test_raster_draws_soft_spikes_by_their_size() -> None:
    (dots,) = ul.plot.raster(torch.tensor([[1.0, 0.25, 0.0]])).collections
    large, small = dots.properties()["sizes"]
    assert small == pytest.approx(large / 4)


def test_traces_are_the_membranes_with_spikes_and_threshold(net: ul.Network) -> None:
    hidden, _ = ul.plot.record(net, torch.rand(15, 2, 9))
    axes = ul.plot.traces(hidden, neurons=(4, 0), sample=1)
    membrane4, ticks4, membrane0, ticks0, threshold = axes.lines
    np.testing.assert_array_equal(membrane4.get_ydata(), hidden.membrane[:, 1, 4])
    np.testing.assert_array_equal(membrane0.get_ydata(), hidden.membrane[:, 1, 0])
    for ticks, neuron in ((ticks4, 4), (ticks0, 0)):
        fired = torch.nonzero(hidden.spikes[:, 1, neuron] > 0.5).flatten()
        np.testing.assert_array_equal(ticks.get_xdata(), fired)
    assert list(threshold.get_ydata()) == [0.5, 0.5]


def test_traces_refuse_neurons_that_are_not_there() -> None:
    assert len(ul.plot.traces(torch.rand(5, 1)).lines) == 1
    with pytest.raises(InputError, match="neurons \\[7\\] must be from 0 to 1"):
        ul.plot.traces(torch.rand(5, 2), neurons=[7])


def test_animate_shows_on_minus_off_and_writes_all_steps(tmp_path: Path) -> None:
    from PIL import Image

    frames = torch.randint(0, 3, (5, 2, 6, 4)).float()
    _, axes = plt.subplots()
    ul.plot.animate(frames, tmp_path / "film.gif", milliseconds=200, axes=axes)
    (shown,) = axes.images
    np.testing.assert_array_equal(shown.get_array(), frames[-1, 1] - frames[-1, 0])
    assert shown.get_clim()[0] == -shown.get_clim()[1]
    with Image.open(tmp_path / "film.gif") as written:
        assert written.n_frames == 5  # type: ignore[attr-defined]
        assert written.info["duration"] == 200


def test_animate_refuses_batches_and_other_files(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="take one sample out of a batch"):
        ul.plot.animate(torch.rand(5, 8, 2, 6, 6))
    with pytest.raises(InputError, match=r"must end in \.gif"):
        ul.plot.animate(torch.rand(5, 6, 6), tmp_path / "film.mp4")


def test_spike_count_of_a_few_neurons_is_a_bar_for_each() -> None:
    spikes = (torch.rand(20, 3, 4) > 0.5).float()
    axes = ul.plot.spike_count(spikes, labels=["a", "b", "c", "d"])
    np.testing.assert_allclose(
        [bar.properties()["height"] for bar in axes.patches], spikes.sum(0).mean(0), rtol=1e-6
    )
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["a", "b", "c", "d"]
    one = ul.plot.spike_count(spikes, sample=2)
    np.testing.assert_allclose(
        [bar.properties()["height"] for bar in one.patches], spikes[:, 2].sum(0), rtol=1e-6
    )


def test_spike_count_of_many_neurons_is_a_histogram_of_rates() -> None:
    spikes = (torch.rand(20, 3, 50) > 0.5).float()
    axes = ul.plot.spike_count(spikes)
    assert sum(bar.properties()["height"] for bar in axes.patches) == 50
    assert axes.lines[0].get_xdata()[0] == pytest.approx(float(spikes.mean()))


def test_weights_are_tiles_with_their_signs(net: ul.Network) -> None:
    sheet = ul.plot.weights(net, most=7).images[0].get_array()
    first, _ = next(net.layers())
    weight = first.weight.detach()
    assert sheet.shape == (3 * 4, 3 * 4)  # seven tiles of 3x3 with a gap, three by three
    np.testing.assert_allclose(sheet[0:3, 4:7], weight[1].view(3, 3))
    np.testing.assert_allclose(sheet[8:11, 0:3], weight[6].view(3, 3))
    assert np.ma.getmaskarray(sheet)[8:, 4:].all()
    with pytest.raises(InputError, match="pass shape"):
        ul.plot.weights(net, (2, 5))


def test_weights_add_channels_up() -> None:
    rows = torch.rand(1, 2 * 3 * 3)
    sheet = ul.plot.weights(rows, (2, 3, 3)).images[0].get_array()
    np.testing.assert_allclose(sheet[:3, :3], rows.view(2, 3, 3).sum(0), rtol=1e-6)


def test_weights_of_inputs_without_a_picture_are_lines() -> None:
    rows = torch.randn(5, 12)
    np.testing.assert_array_equal(ul.plot.weights(rows, (12,)).images[0].get_array(), rows)


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> ul.Result:
    return ul.train(ul.RunConfig(epochs=2, timesteps=2), runs_dir=tmp_path_factory.mktemp("runs"))


def test_temperature_ends_where_the_run_says(result: ul.Result) -> None:
    line = ul.plot.temperature(result).lines[0]
    assert list(line.get_xdata()) == [1, 2]
    assert line.get_ydata()[-1] == pytest.approx(result.eps)
    by_name = ul.plot.temperature(result.id[:6], runs_dir=Path(result.path).parent)
    np.testing.assert_array_equal(by_name.lines[0].get_ydata(), line.get_ydata())


def test_temperature_needs_runs_that_have_one(tmp_path: Path) -> None:
    cold = ul.train(ul.RunConfig(neuron="LIF", epochs=1, timesteps=1), runs_dir=tmp_path)
    with pytest.raises(InputError, match="has no temperature"):
        ul.plot.temperature(cold)
    with pytest.raises(InputError, match="at least one run"):
        ul.plot.temperature()


def test_given_axes_are_used_and_bad_shapes_refused() -> None:
    _, axes = plt.subplots()
    assert ul.plot.raster(torch.ones(3, 2), axes=axes) is axes
    with pytest.raises(InputError, match="sample 5 must be from 0 to 1"):
        ul.plot.raster(torch.ones(3, 2, 4), sample=5)
    with pytest.raises(InputError, match="expected"):
        ul.plot.raster(torch.ones(3))


def test_lines_take_the_colour_of_a_dark_style() -> None:
    with plt.style.context("dark_background"):
        axes = ul.plot.traces(torch.rand(5, 1), threshold=0.5)
    assert colors.to_rgb(axes.lines[-1].get_color()) == (1.0, 1.0, 1.0)


def test_colours_stay_apart_for_red_green_blind_eyes() -> None:
    """Protanopia and deuteranopia as Machado et al. 2009 simulate them, on linear RGB."""
    views = (
        np.eye(3),
        ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
        ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    )
    linear = np.array([colors.to_rgb(color) for color in ul.plot.COLORS]) ** 2.2
    for view in views:
        seen = (linear @ np.array(view).T).clip(0, 1) ** (1 / 2.2)
        apart = np.linalg.norm(seen[:, None] - seen[None], axis=-1) + np.eye(len(seen))
        assert apart.min() > 0.15


def test_a_machine_without_matplotlib_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(JobError, match=r"pip install 'ultralif\[plot\]'"):
        ul.plot.raster(torch.ones(3, 2))
