"""The laws of the algebra, for numbers that hypothesis draws."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd import gradcheck

from ultralif.maxplus import hard_spike, lse, matmul, soft_spike

pytestmark = pytest.mark.usefixtures("float64")

INF = math.inf
number = st.floats(-50, 50, allow_subnormal=False)
temperature = st.floats(0.02, 20)


def vectors(min_size: int = 1) -> st.SearchStrategy[Tensor]:
    return st.lists(number, min_size=min_size, max_size=8).map(lambda x: torch.tensor(x, dtype=torch.float64))


def assert_at_most(low: Tensor, high: Tensor | float) -> None:
    """Compare with the rounding of float64 on the side of the law."""
    high = torch.as_tensor(high, dtype=torch.float64)
    assert bool((low <= high + 1e-12 * (1 + high.abs())).all()), f"{low} > {high}"


@given(vectors(), temperature)
def test_lse_lies_between_max_and_max_plus_eps_log_n(x: Tensor, eps: float) -> None:
    assert_at_most(x.max(), lse(x, eps))
    assert_at_most(lse(x, eps), x.max() + eps * math.log(len(x)))


@given(number, temperature, st.integers(1, 8))
def test_lse_of_equal_terms_attains_the_upper_bound(x: float, eps: float, n: int) -> None:
    torch.testing.assert_close(lse(torch.full((n,), x), eps), torch.tensor(x + eps * math.log(n)))


@given(vectors(2), temperature)
def test_lse_of_a_unique_maximum_is_exponentially_close(x: Tensor, eps: float) -> None:
    """With a gap d below the maximum the excess is at most (n - 1) eps exp(-d / eps)."""
    top, runner_up = x.sort(descending=True).values[:2].tolist()
    assert_at_most(lse(x, eps) - top, (len(x) - 1) * eps * math.exp(-(top - runner_up) / eps))


@given(vectors(), temperature, number)
def test_lse_moves_with_a_shift(x: Tensor, eps: float, shift: float) -> None:
    torch.testing.assert_close(lse(x + shift, eps), lse(x, eps) + shift, rtol=1e-12, atol=1e-12)


@given(vectors(), temperature, st.floats(0.1, 10))
def test_lse_scales_with_its_temperature(x: Tensor, eps: float, factor: float) -> None:
    torch.testing.assert_close(lse(factor * x, factor * eps), factor * lse(x, eps), rtol=1e-12, atol=1e-11)


@given(vectors(), temperature, st.floats(0, 50), st.data())
def test_lse_is_monotone(x: Tensor, eps: float, rise: float, data: st.DataObject) -> None:
    higher = x.clone()
    higher[data.draw(st.integers(0, len(x) - 1))] += rise
    assert_at_most(lse(x, eps), lse(higher, eps))
    assert_at_most(lse(x, eps), lse(x, eps + rise))  # in the temperature too


@given(vectors(), temperature, st.data())
def test_lse_is_one_lipschitz(x: Tensor, eps: float, data: st.DataObject) -> None:
    y = torch.tensor(data.draw(st.lists(number, min_size=len(x), max_size=len(x))), dtype=torch.float64)
    assert_at_most((lse(x, eps) - lse(y, eps)).abs(), (x - y).abs().max() + 1e-11)


@given(vectors(), vectors(), temperature, st.floats(0, 1))
def test_lse_is_convex(x: Tensor, y: Tensor, eps: float, weight: float) -> None:
    n = min(len(x), len(y))
    x, y = x[:n], y[:n]
    chord = weight * lse(x, eps) + (1 - weight) * lse(y, eps)
    assert_at_most(lse(weight * x + (1 - weight) * y, eps), chord + 1e-11)


@given(vectors(), vectors(), temperature)
def test_lse_is_associative_and_commutative(x: Tensor, y: Tensor, eps: float) -> None:
    whole = lse(torch.cat([x, y]), eps)
    torch.testing.assert_close(
        lse(torch.stack([lse(x, eps), lse(y, eps)]), eps), whole, rtol=1e-12, atol=1e-11
    )
    torch.testing.assert_close(lse(torch.cat([y, x]).flip(0), eps), whole, rtol=1e-12, atol=1e-11)


@given(st.floats(1e-3, 1e3), st.floats(1e-3, 1e3), temperature)
def test_eps_log_is_a_homomorphism(x: float, y: float, eps: float) -> None:
    """It takes sums to log-sum-exp and products to sums, for every eps: theorem 5.7."""
    a, b = (torch.tensor(eps * math.log(value)) for value in (x, y))
    torch.testing.assert_close(lse(torch.stack([a, b]), eps), torch.tensor(eps * math.log(x + y)))
    torch.testing.assert_close(a + b, torch.tensor(eps * math.log(x * y)))


@given(number, temperature)
def test_softplus_and_its_limit_relu(x: float, eps: float) -> None:
    pair = torch.tensor([0.0, x], dtype=torch.float64)
    softplus = torch.nn.functional.softplus(pair[1], beta=1 / eps, threshold=1000)
    torch.testing.assert_close(lse(pair, eps), softplus, rtol=1e-12, atol=1e-12)
    assert_at_most((lse(pair, eps) - pair[1].relu()).abs(), eps * math.log(2))


@given(vectors(2), temperature)
def test_gradient_is_softmax_and_entropy(x: Tensor, eps: float) -> None:
    x.requires_grad_()
    t = torch.tensor(eps, requires_grad=True)
    lse(x, t).backward()
    weights = torch.softmax(x.detach() / eps, -1)
    torch.testing.assert_close(x.grad, weights, rtol=1e-12, atol=1e-15)
    entropy = torch.special.entr(weights).sum()
    torch.testing.assert_close(t.grad, entropy, rtol=1e-9, atol=1e-13)
    assert 0 <= t.grad <= math.log(len(x)) + 1e-12


@given(vectors(), temperature, st.integers(1, 3))
def test_minus_infinity_is_the_zero(x: Tensor, eps: float, n: int) -> None:
    """Terms of -inf change nothing but the order of a sum, and no gradient becomes NaN."""
    padded = torch.cat([x, torch.full((n,), -INF)]).requires_grad_()
    t = torch.tensor(eps, requires_grad=True)
    value = lse(padded, t)
    torch.testing.assert_close(value, lse(x, t), rtol=1e-15, atol=1e-14)
    value.backward()
    assert torch.isfinite(padded.grad).all() and torch.isfinite(t.grad)
    assert not padded.grad[len(x) :].any()


@pytest.mark.parametrize(
    ("terms", "value"),
    [([-INF], -INF), ([-INF, -INF], -INF), ([INF, 0.0], INF), ([INF, -INF], INF), ([0.0, -1e300], 0.0)],
)
def test_infinite_and_huge_terms(terms: list[float], value: float) -> None:
    x, eps = torch.tensor(terms, requires_grad=True), torch.tensor(0.1, requires_grad=True)
    found = lse(x, eps)
    assert found.item() == value
    found.backward()
    assert torch.isfinite(x.grad).all() and torch.isfinite(eps.grad)


def test_nan_is_not_hidden() -> None:
    assert lse(torch.tensor([math.nan, 1.0])).isnan()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_no_overflow_in_any_precision(dtype: torch.dtype) -> None:
    x = torch.tensor([1e4, -1e4, 9.9e3], dtype=dtype, requires_grad=True)
    value = lse(x, 0.1)
    value.backward()
    assert value.dtype == dtype
    assert value.item() == x.max().item()
    assert x.grad.tolist() == [1.0, 0.0, 0.0]


@pytest.mark.parametrize("dim", [0, 1, 2, -1, -2])
def test_lse_over_any_dimension_with_broadcast_temperature(dim: int) -> None:
    x = torch.randn(3, 4, 5)
    torch.testing.assert_close(lse(x, 1.0, dim), torch.logsumexp(x, dim))
    eps = torch.rand(4, 1) + 0.1
    torch.testing.assert_close(lse(x, eps, 2), eps[:, 0] * torch.logsumexp(x / eps, 2))
    assert gradcheck(lambda x, eps: lse(x, eps, dim), (x[:2, :2, :2].requires_grad_(), torch.tensor(0.3)))


@given(number, st.floats(-5, 5), temperature)
def test_the_slope_of_a_soft_spike_is_bounded(v: float, threshold: float, eps: float) -> None:
    """0 <= ds/dV <= 1 / (4 eps), attained at the threshold (proposition 5.4)."""
    x = torch.tensor([v, threshold], dtype=torch.float64, requires_grad=True)
    soft_spike(x, threshold, eps).sum().backward()
    assert_at_most(x.grad, 1 / (4 * eps))
    assert (x.grad >= 0).all()
    torch.testing.assert_close(x.grad[1], torch.tensor(1 / (4 * eps)))


@given(st.floats(1e-3, 50), st.floats(-5, 5), temperature)
def test_a_soft_spike_tends_to_a_hard_one(distance: float, threshold: float, eps: float) -> None:
    """|sigma(x / eps) - H(x)| <= exp(-|x| / eps) (lemma 5.1), and both sides of the threshold mirror."""
    v = torch.tensor([threshold - distance, threshold + distance], dtype=torch.float64)
    soft, hard = soft_spike(v, threshold, eps), hard_spike(v, threshold)
    assert_at_most((soft - hard).abs(), math.exp(-distance / eps) + 1e-12 / eps)
    torch.testing.assert_close(soft.sum(), torch.tensor(1.0))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_a_hard_spike_is_strict_and_keeps_the_precision(dtype: torch.dtype) -> None:
    threshold = torch.tensor(0.5, dtype=dtype)
    above = torch.nextafter(threshold, torch.tensor(1.0, dtype=dtype))
    spikes = hard_spike(torch.stack([threshold, above, -above]), threshold)
    assert spikes.tolist() == [0.0, 1.0, 0.0] and spikes.dtype == dtype


integers = st.integers(-9, 9).map(float) | st.just(-INF)


def matrices(rows: int, columns: int) -> st.SearchStrategy[Tensor]:
    row = st.lists(integers, min_size=columns, max_size=columns)
    return st.lists(row, min_size=rows, max_size=rows).map(lambda m: torch.tensor(m, dtype=torch.float64))


@given(matrices(2, 3), matrices(3, 4), matrices(4, 2))
def test_max_plus_product_is_associative_and_distributive(a: Tensor, b: Tensor, c: Tensor) -> None:
    """Exactly: integers are added and compared."""
    assert torch.equal(matmul(matmul(a, b), c), matmul(a, matmul(b, c)))
    other = b.flip(0)
    assert torch.equal(matmul(a, torch.maximum(b, other)), torch.maximum(matmul(a, b), matmul(a, other)))


@given(matrices(3, 3))
def test_max_plus_identity_and_zero(a: Tensor) -> None:
    one = torch.full((3, 3), -INF).fill_diagonal_(0.0)
    assert torch.equal(matmul(a, one), a) and torch.equal(matmul(one, a), a)
    zero = torch.full((3, 3), -INF)
    assert torch.equal(matmul(a, zero), zero)


def test_max_plus_product_is_the_limit_of_lse() -> None:
    a, b = torch.randn(2, 5, 3), torch.randn(3, 4)
    brute = np.full((2, 5, 4), -INF)
    for i, j, k, m in np.ndindex(2, 5, 4, 3):
        brute[i, j, k] = max(brute[i, j, k], float(a[i, j, m] + b[m, k]))
    assert np.array_equal(matmul(a, b).numpy(), brute)
    soft = lse(a.unsqueeze(-1) + b.unsqueeze(-3), 1e-3, dim=-2)
    torch.testing.assert_close(soft, matmul(a, b), rtol=0, atol=1e-3 * math.log(3))


@pytest.mark.parametrize("shapes", [((3,), (3, 2)), ((2, 3), (3,)), ((2, 3), (4, 2))])
def test_matrices_that_do_not_fit(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    a, b = (torch.zeros(shape) for shape in shapes)
    with pytest.raises(ValueError, match="matmul needs matrices") as error:
        matmul(a, b)
    for shape in shapes:
        assert str(shape) in str(error.value)
    assert "unsqueeze" in str(error.value)
