"""Convergence, quiet rings and the activation family, against the library's own neurons and scipy."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import wrightomega
from torch import Tensor
from torch.nn import functional as F

import ultralif as ul
from research.claims.activations import dilation, large_eps_form, soft_step, softplus
from research.claims.convergence import (
    compare_with_limit,
    margin_theorem,
    state_ceiling,
    trajectory,
    wright_omega,
)
from research.claims.undriven import escape_current, ring_matrix, steady_state, undriven_ring
from ultralif import maxplus
from ultralif.errors import InputError
from ultralif.functional import over_time, rest, ultradlif, ultradlif_step, ultralif, ultralif_step


def test_trajectory_is_the_librarys_and_adds_the_membrane_before_reset() -> None:
    current = torch.randn(7, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    run = trajectory(ultralif_step, current, eps=0.3, leak=0.9, threshold=0.5)
    spikes, last = ultralif(current, eps=0.3, leak=0.9, threshold=0.5)
    assert torch.equal(run.s, spikes)
    assert torch.equal(run.v[-1], last)
    torch.testing.assert_close(run.s, torch.sigmoid((run.p - 0.5) / 0.3))
    torch.testing.assert_close(run.v, run.p * (1 - run.s))


def test_wright_omega_matches_scipy() -> None:
    y = torch.linspace(-600, 2000, 5001, dtype=torch.float64)
    torch.testing.assert_close(wright_omega(y), torch.from_numpy(wrightomega(y.numpy())), rtol=1e-13, atol=0)


@pytest.mark.parametrize("eps", [0.01, 0.3, 5.0])
def test_ceiling_is_the_top_of_the_reset(eps: float) -> None:
    x = torch.linspace(-1, 40, 2_000_001, dtype=torch.float64) * max(eps, 0.05)
    after = x * torch.sigmoid(-(x - 0.5) / eps)
    assert float(after.max()) == pytest.approx(float(state_ceiling(eps, 0.5)), rel=1e-6)


def test_convergence_stays_within_its_bounds_where_they_are_proved() -> None:
    generator = torch.Generator().manual_seed(3)
    current = 0.8 * torch.randn(20, generator=generator, dtype=torch.float64)
    current = torch.where((current - 0.5).abs() < 0.12, current - 0.25, current)
    shown = compare_with_limit(current, [1.0, 0.01, 0.001])
    assert shown.proved == [False, True, True]
    assert torch.equal(shown.limit.s, (current > 0.5).double())
    for soft, bounds in zip(shown.soft[1:], shown.bounds[1:], strict=True):
        assert ((soft.p - shown.limit.p).abs() <= bounds.p).all()
        assert ((soft.v - shown.limit.v).abs() <= bounds.v).all()


def test_margin_of_the_theorem_grows_with_its_ingredients() -> None:
    base = margin_theorem(0.01, 10, 2.0)
    assert (margin_theorem(0.02, 10, 2.0).margin > base.margin).all()
    assert (margin_theorem(0.01, 10, 4.0).margin > base.margin).all()
    assert (margin_theorem(0.01, 10, 2.0, terms=3).p > base.p).all()
    torch.testing.assert_close(base.p[2], torch.tensor(0.01 * (math.log(4) + 1)).double(), rtol=1e-6, atol=0)


def decaying_ring(leak: float) -> Any:
    """UltraDLIF whose membrane decays to ``V + log(leak)``."""

    def step(x: Tensor, v: Tensor, **constants: Any) -> tuple[Tensor, Tensor]:
        return ultradlif_step(x, v + math.log(leak), **constants)

    return over_time(rest)(step)


@pytest.mark.parametrize("leak", [1.0, 0.8])
def test_powers_describe_a_quiet_layer(leak: float) -> None:
    v0 = -3 + torch.rand(9, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    silence = torch.zeros(12, 1, 9, dtype=torch.float64)
    ring = decaying_ring(leak)
    limit, soft = undriven_ring(v0, 12, leak=leak), undriven_ring(v0, 12, eps=0.05, leak=leak)
    for t in range(1, 13):
        for rows, eps, mode in ((limit, 1.0, "tropical"), (soft, 0.05, "soft")):
            _, v = ring(silence[:t], v0[None], eps=eps, threshold=50.0, mode=mode)
            torch.testing.assert_close(rows[t], v[0], rtol=0, atol=1e-12)
        power = maxplus.power(ring_matrix(9, leak), t)
        torch.testing.assert_close(maxplus.matmul(power, v0[:, None])[:, 0], limit[t], rtol=0, atol=1e-12)
    rate = float(maxplus.eigenvalue(ring_matrix(9, leak)))
    assert rate == pytest.approx(math.log(leak))
    torch.testing.assert_close(limit[12] - limit[11], torch.full((9,), rate, dtype=torch.float64))
    assert (limit[4:] == limit[4:, :1]).all()  # uniform after n // 2 steps
    drift = undriven_ring(torch.zeros(9), 3, eps=0.05, leak=leak)
    assert drift.diff(dim=0).flatten().tolist() == pytest.approx([rate + 0.05 * math.log(3)] * 27, abs=1e-12)
    centred = undriven_ring(torch.zeros(9), 3, eps=0.05, leak=leak, centered=True)
    assert centred.diff(dim=0).flatten().tolist() == pytest.approx([rate] * 27, abs=1e-12)


@pytest.mark.parametrize("centered", [False, True])
def test_steady_state_is_where_a_quiet_layer_settles(centered: bool) -> None:
    silence = torch.zeros(300, 1, 4, dtype=torch.float64)
    spikes, v = ultradlif(silence, eps=1.0, threshold=0.5, centered=centered)
    quiet = steady_state(1.0, centered=centered)
    assert float(v.mean()) == pytest.approx(quiet.v, abs=1e-9)
    assert float(spikes[-1].mean()) == pytest.approx(quiet.s, abs=1e-9)


@pytest.mark.parametrize(("eps", "centered"), [(1.0, False), (1.0, True), (3.0, False)])
def test_below_the_escape_current_a_layer_sinks(eps: float, centered: bool) -> None:
    limit = escape_current(eps, centered=centered)
    below, above = (
        ultradlif(torch.full((1500, 1, 3), f * limit).double(), eps=eps, threshold=0.5, centered=centered)[1]
        for f in (1.03, 0.97)
    )
    assert float(below.max()) < 4 * float(above.min())
    assert float(above.min()) > -10 * eps


def test_small_rings_are_refused() -> None:
    with pytest.raises(InputError, match="3 to 4096 neurons"):
        ring_matrix(2)


@given(st.floats(0.05, 5.0), st.floats(-4.0, 4.0))
@settings(max_examples=100, deadline=None)
def test_activation_family(eps: float, value: float) -> None:
    x = torch.tensor(value, dtype=torch.float64, requires_grad=True)
    y = softplus(x, eps)
    torch.testing.assert_close(y, F.softplus(x, beta=1 / eps, threshold=1e9), rtol=1e-12, atol=1e-12)
    (slope,) = torch.autograd.grad(y, x)
    torch.testing.assert_close(slope, soft_step(x.detach(), eps))  # the spike is softplus's slope
    plain = x.detach()
    assert torch.equal(softplus(plain, 0.0), torch.relu(plain))
    assert torch.equal(soft_step(plain, 0.0), maxplus.hard_spike(plain, 0.0))
    assert 0 <= float(y.detach()) - float(torch.relu(plain)) <= eps * math.log(2) + 1e-12


def test_dilation_is_max_pooling() -> None:
    v = torch.randn(1, 20, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for radius in (1, 3):
        padded = F.pad(v, (radius, radius), mode="circular")
        assert torch.equal(dilation(v, 0.0, radius), F.max_pool1d(padded, 2 * radius + 1, 1))
    neuron = ul.UltraDLIF(eps=0.2, learn_eps=False, threshold=50.0)
    state = ul.nn.State(v)
    torch.testing.assert_close(neuron.step(torch.zeros_like(v), state)[1].v, dilation(v, 0.2))


def test_large_eps_form_is_the_expansion() -> None:
    x = torch.randn(50, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    far, near = ((maxplus.lse(x, e) - large_eps_form(x, e)).abs().max() for e in (100.0, 10.0))
    assert far < near / 50  # the rest falls like 1 / eps^2
