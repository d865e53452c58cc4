"""Volumes against convex hulls and closed forms; the regularizer's gradient and what it does."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial import ConvexHull
from torch import Tensor, nn

from ultralif.analysis import log_volume, log_volume_gap, orthogonal_, volume_regularizer, zonotope_volume
from ultralif.errors import InputError


def weights(h: int, n: int, seed: int = 0) -> Tensor:
    return torch.randn(h, n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize(("h", "n"), [(2, 2), (5, 2), (4, 3), (7, 3), (6, 4)])
def test_volume_is_that_of_the_convex_hull(h: int, n: int) -> None:
    weight = weights(h, n, h + n)
    corners = torch.cartesian_prod(*[torch.tensor([0.0, 1.0], dtype=torch.float64)] * h) @ weight
    hull = ConvexHull(corners.numpy()).volume
    assert float(zonotope_volume(weight)) == pytest.approx(hull, rel=1e-9)


def test_volume_is_zero_below_full_rank() -> None:
    assert float(zonotope_volume(weights(3, 5))) == 0.0
    flat = torch.cat((weights(6, 2), torch.zeros(6, 1)), 1)
    assert float(zonotope_volume(flat)) == pytest.approx(0.0, abs=1e-12)


@given(st.integers(1, 5), st.integers(0, 4), st.integers(0, 10**6))
@settings(max_examples=60, deadline=None)
def test_log_volume_bounds_the_exact_volume(n: int, more: int, seed: int) -> None:
    weight = weights(n + more, n, seed)
    exact, low = math.log(float(zonotope_volume(weight))), float(log_volume(weight))
    assert low <= exact + 1e-9
    assert exact <= low + log_volume_gap(n + more, n) + 1e-9


def test_log_volume_of_few_rows_is_their_volume() -> None:
    weight = torch.tensor([[3.0, 0.0, 4.0], [0.0, 2.0, 0.0]])
    assert float(log_volume(weight).exp()) == pytest.approx(10.0, rel=1e-6)
    assert float(log_volume(torch.ones(2, 3))) == -math.inf


def test_large_volumes_are_refused_with_an_estimate() -> None:
    with pytest.raises(
        InputError, match=r"1.83e\+18 determinants, about .* years of work; up to 38 generators"
    ):
        zonotope_volume(torch.zeros(64, 32))
    with pytest.raises(InputError, match="floating-point matrix"):
        log_volume(torch.zeros(3))


@pytest.mark.parametrize(("h", "n"), [(3, 5), (5, 3), (4, 4)])
def test_regularizer_is_minus_log_volume_with_exact_gradient(h: int, n: int) -> None:
    weight = weights(h, n)
    value = float(volume_regularizer(weight))
    assert value == pytest.approx(-float(log_volume(weight)), abs=1e-4)
    assert float(volume_regularizer(2 * weight)) == pytest.approx(value - min(h, n) * math.log(2), abs=1e-9)
    assert torch.autograd.gradcheck(volume_regularizer, weight.requires_grad_())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "weight",
    [torch.zeros(3, 4), torch.ones(3, 4), 1e-20 * torch.ones(2, 3), 1e15 * torch.eye(3), torch.zeros(1, 1)],
)
def test_regularizer_is_finite_where_the_rank_is_not_full(weight: Tensor, dtype: torch.dtype) -> None:
    weight = weight.to(dtype, copy=True).requires_grad_()
    value = volume_regularizer(weight)
    value.backward()
    assert value.isfinite()
    assert weight.grad is not None
    assert weight.grad.isfinite().all()


def effective_rank(weight: Tensor) -> int:
    values = torch.linalg.svdvals(weight.detach())
    return int((values > 0.05 * values[0]).sum())


def collapsed(alpha: float) -> Tensor:
    """Fit a target that asks for one direction only, from nearly equal rows, with weight decay."""
    generator = torch.Generator().manual_seed(0)
    layer = nn.Linear(12, 6, bias=False)
    with torch.no_grad():
        layer.weight.copy_(
            torch.randn(1, 12, generator=generator) + 1e-3 * torch.randn(6, 12, generator=generator)
        )
    x = torch.randn(200, 12, generator=generator)
    target = x[:, :1].expand(-1, 6)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1, weight_decay=1e-2)
    for _ in range(150):
        loss = (layer(x) - target).square().mean() + alpha * volume_regularizer(layer.weight)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return layer.weight


def test_regularizer_raises_the_rank_of_a_collapsing_layer() -> None:
    assert effective_rank(collapsed(0.0)) == 1
    assert effective_rank(collapsed(0.01)) == 6


@pytest.mark.parametrize("shape", [(4, 9), (9, 4), (5, 5)])
def test_orthogonal_weights_have_the_greatest_log_volume_of_their_norm(shape: tuple[int, int]) -> None:
    layer = nn.Linear(shape[1], shape[0], dtype=torch.float64)
    before = layer.weight.detach().clone()
    orthogonal_(layer, torch.Generator().manual_seed(1))
    after = layer.weight.detach()
    torch.testing.assert_close(after.norm(), before.norm())
    small = after @ after.T if shape[0] <= shape[1] else after.T @ after
    torch.testing.assert_close(small, small[0, 0] * torch.eye(len(small), dtype=torch.float64))
    rivals = (weights(*shape, seed) for seed in range(20))
    best = max(float(log_volume(w * before.norm() / w.norm())) for w in rivals)
    assert float(log_volume(after)) > best
    assert torch.equal(orthogonal_(layer, torch.Generator().manual_seed(1)).weight, layer.weight)
