"""Regions of layers: thresholds, lines, planes and rasters, against formulas and dense sampling."""

import math
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import ultralif as ul
from ultralif.analysis import (
    Growth,
    Plane,
    count_regions,
    enumerate_regions,
    firing_current,
    growth,
    hyperplanes,
    line_crossings,
    plane_hyperplanes,
    plane_through,
    random_plane,
    raster_bound,
    region_bound,
    sample_regions,
)
from ultralif.errors import InputError
from ultralif.names import NEURON_NAMES

LEAK, THETA = 0.9, 0.5


def layer(n: int, h: int, seed: int = 0) -> nn.Linear:
    torch.manual_seed(seed)
    linear = nn.Linear(n, h, dtype=torch.float64)
    nn.init.normal_(linear.weight)
    return linear


@pytest.mark.parametrize("eps", [0.1, 0.66, 3.0])
@pytest.mark.parametrize("mode", ["soft", "hard", "tropical"])
def test_firing_current_matches_its_formula(mode: Any, eps: float) -> None:
    temporal, spatial = ul.UltraLIF(eps=eps, learn_eps=False), ul.UltraDLIF(eps=eps, learn_eps=False)
    centered = ul.UltraDLIF(eps=eps, learn_eps=False, centered=True)
    wanted = {
        temporal: THETA + eps * math.log(1 - math.exp((math.log(LEAK) - THETA) / eps)),
        spatial: THETA - eps * math.log(3),
        centered: THETA,
    }
    for neuron, want in wanted.items():
        ul.set_mode(neuron, mode)
        want = THETA if mode == "tropical" else want
        assert firing_current(neuron, 4).tolist() == pytest.approx([want] * 4, abs=1e-12)


def test_firing_current_serves_every_neuron_and_each_of_its_thresholds() -> None:
    for name in NEURON_NAMES:
        neuron = ul.NEURONS[name](threshold=0.4)
        ul.set_mode(neuron, "hard")
        at = firing_current(neuron, 3).unsqueeze(0)
        assert not neuron.step(at)[0].any(), name
        assert neuron.step(at + 1e-6)[0].all(), name
    each = ul.LIF(threshold=torch.tensor([0.2, 0.7], dtype=torch.float64))
    torch.testing.assert_close(firing_current(each, 2), torch.tensor([0.2, 0.7], dtype=torch.float64))


@pytest.mark.parametrize("mode", ["hard", "tropical"])
def test_hyperplanes_bound_the_patterns_of_a_network(mode: Any) -> None:
    linear, neuron = layer(3, 6), ul.UltraLIF(eps=0.4)
    ul.set_mode(neuron, mode)
    weight, offset = hyperplanes(linear, neuron)
    regions = enumerate_regions(weight, offset)
    with torch.no_grad():
        fired = neuron(linear(regions.points).unsqueeze(0))[0] > 0.5
    assert torch.equal(fired, regions.patterns)
    assert len(regions.points) == region_bound(6, 3)


def test_line_meets_the_regions_that_dense_sampling_meets() -> None:
    weight, offset = hyperplanes(layer(50, 20), ul.LIF())
    generator = torch.Generator().manual_seed(1)
    start, end = 3 * torch.randn(2, 50, generator=generator, dtype=torch.float64)
    cuts = line_crossings(weight, offset, start, end)
    at = torch.linspace(0, 1, 200_001, dtype=torch.float64)[:, None]
    patterns = (start + at * (end - start)) @ weight.T > offset
    changes = int((patterns[1:] != patterns[:-1]).any(1).sum())
    assert len(cuts) == changes > 3
    assert torch.equal(cuts, cuts.sort().values)
    assert len(line_crossings(weight, offset, start, start)) == 0


def test_plane_meets_the_regions_that_a_dense_grid_meets() -> None:
    weight, offset = hyperplanes(layer(30, 6), ul.LIF())
    plane = random_plane(30, torch.Generator().manual_seed(2))
    lines = plane_hyperplanes(weight, offset, plane)
    regions = enumerate_regions(*lines)
    assert count_regions(*lines) == len(regions.points) == region_bound(6, 2)
    in_space = plane.origin + regions.points @ torch.stack((plane.right, plane.up))
    assert torch.equal(in_space @ weight.T > offset, regions.patterns)
    grid = plane.grid(float(regions.points.abs().max()) + 1, 600).flatten(0, 1)
    assert len(torch.unique(grid @ weight.T > offset, dim=0)) <= region_bound(6, 2)


def test_samples_of_a_real_layer_stay_within_the_bounds() -> None:
    weight, offset = hyperplanes(layer(784, 64), ul.UltraDLIF())
    generator = torch.Generator().manual_seed(0)
    lines, planes = sample_regions(weight, offset, segments=20, planes=3, box=(0.0, 1.0), generator=generator)
    assert len(lines) == 20
    assert max(lines) <= 65
    assert planes == [region_bound(64, 2)] * 3


def test_plane_through_samples_contains_them() -> None:
    samples = torch.randn(3, 10, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    plane = plane_through(samples)
    basis = torch.stack((plane.right, plane.up), 1)
    torch.testing.assert_close(basis.T @ basis, torch.eye(2, dtype=torch.float64))
    torch.testing.assert_close(plane.origin + (samples - plane.origin) @ basis @ basis.T, samples)
    with pytest.raises(InputError, match="one line"):
        plane_through(torch.stack((samples[0], 2 * samples[0], 3 * samples[0])))
    with pytest.raises(InputError, match="three vectors"):
        plane_through(samples[:2])
    with pytest.raises(InputError, match="two inputs"):
        random_plane(1, torch.Generator())


def square(extent: float, resolution: int) -> Tensor:
    origin, right, up = (
        torch.zeros(2).double(),
        torch.tensor([1.0, 0.0]).double(),
        torch.tensor([0.0, 1.0]).double(),
    )
    return Plane(origin, right, up).grid(extent, resolution).flatten(0, 1)


def test_rasters_of_a_constant_input() -> None:
    linear, points, steps = layer(2, 4, seed=1), square(6.0, 300), [1, 2, 4, 8]
    frozen = growth(linear, ul.UltraLIF(), points, steps)
    assert frozen == [Growth(t, 11, 11) for t in steps]  # memoryless: as at T = 1
    spatial = growth(linear, ul.UltraDLIF(), points, steps)
    assert all(row.found <= (row.bound or 0) for row in spatial)
    assert spatial[-1].found > 10 * spatial[0].found  # it integrates
    additive = growth(linear, ul.LIF(), points, steps, spike_mode="hard")
    assert [row.bound for row in additive] == [11, 33, 113, 417]
    assert all(a.found < b.found for a, b in pairwise(additive))
    assert all(row.found <= (row.bound or 0) for row in additive)
    soft = growth(linear, ul.UltraLIF(eps=0.3), points, steps, spike_mode="soft")
    assert soft[0].bound == 11
    assert soft[-1].bound is None
    assert soft[-1].found > 11  # its memory lives in finite eps


def test_one_additive_neuron_attains_its_bound() -> None:
    linear = nn.Linear(1, 1, bias=False, dtype=torch.float64)
    nn.init.ones_(linear.weight)
    points = torch.linspace(-0.2, 1.0, 20_001, dtype=torch.float64)[:, None]
    rows = growth(linear, ul.LIF(leak=0.5), points, [1, 2, 3, 4], spike_mode="hard")
    assert [row.found for row in rows] == [row.bound for row in rows] == [2, 3, 4, 5]


def test_rasters_of_varying_inputs() -> None:
    linear = layer(2, 2, seed=1)
    drawn = 4 * torch.randn(3, 40_000, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    rows = growth(linear, ul.UltraLIF(), drawn, [1, 2, 3])
    assert [row.bound for row in rows] == [4, 16, 64]
    assert [row.found for row in rows[:2]] == [4, 16]
    for neuron in (ul.LIF(), ul.UltraDLIF()):
        assert all(row.found <= (row.bound or 0) for row in growth(linear, neuron, drawn, [1, 2, 3]))


def test_bounds_are_claimed_only_where_they_are_proved() -> None:
    assert raster_bound(ul.UltraLIF(), 4, 2, 1) == 11  # soft: at T = 1 only
    assert raster_bound(ul.UltraLIF(), 4, 2, 2) is None
    assert raster_bound(ul.AdaLIF(), 4, 2, 2) is None
    assert raster_bound(ul.LIF(v_reset=-1.0), 4, 2, 2) is None


def test_bad_requests_are_named() -> None:
    linear = layer(2, 3)
    with pytest.raises(InputError, match="ascending"):
        growth(linear, ul.LIF(), torch.zeros(5, 2), [2, 1])
    with pytest.raises(InputError, match="time steps"):
        growth(linear, ul.LIF(), torch.zeros(2, 5, 2), [3])
    with pytest.raises(InputError, match="up to 66666 samples"):
        growth(linear, ul.LIF(), torch.zeros(100_000, 2), [1000])
