"""Max-plus matrices against brute force: walks and circuits enumerated one by one."""

from itertools import pairwise, permutations, product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ultralif import maxplus
from ultralif.errors import InputError

INF = float("inf")


@st.composite
def matrices(draw: st.DrawFn, low: int = -6, high: int = 6) -> Tensor:
    """Square matrices of small integers (sums are exact) in which edges may be missing."""
    n = draw(st.integers(1, 5))
    entry = st.one_of(st.just(-INF), st.integers(low, high).map(float))
    rows = draw(st.lists(st.lists(entry, min_size=n, max_size=n), min_size=n, max_size=n))
    return torch.tensor(rows, dtype=torch.float64)


def walk_weight(a: Tensor, walk: tuple[int, ...]) -> float:
    return sum(float(a[i, j]) for i, j in pairwise(walk))


def circuit_means(a: Tensor) -> list[float]:
    """The mean weight of every elementary circuit."""
    n = len(a)
    circuits = (c for k in range(1, n + 1) for c in permutations(range(n), k))
    means = [walk_weight(a, (*c, c[0])) / len(c) for c in circuits]
    return [mean for mean in means if mean > -INF]


@given(matrices(), st.integers(0, 4))
@settings(max_examples=40, deadline=None)
def test_power_is_the_best_walk_of_that_length(a: Tensor, k: int) -> None:
    n = len(a)
    got = maxplus.power(a, k)
    for i, j in product(range(n), repeat=2):
        if k == 0:
            assert got[i, j] == (0.0 if i == j else -INF)
            continue
        middles = product(range(n), repeat=k - 1)
        assert got[i, j] == max(walk_weight(a, (i, *middle, j)) for middle in middles)


@given(matrices())
@settings(max_examples=100, deadline=None)
def test_eigenvalue_is_the_greatest_circuit_mean(a: Tensor) -> None:
    expected = max(circuit_means(a), default=-INF)
    assert float(maxplus.eigenvalue(a)) == pytest.approx(expected, abs=1e-12)


@given(matrices())
@settings(max_examples=100, deadline=None)
def test_eigenvector_solves_its_equation(a: Tensor) -> None:
    rate = maxplus.eigenvalue(a)
    if rate == -INF:
        with pytest.raises(InputError, match="no circuit"):
            maxplus.eigenvector(a)
        return
    x = maxplus.eigenvector(a)
    assert x.max() == 0
    torch.testing.assert_close(maxplus.matmul(a, x[:, None])[:, 0], rate + x, rtol=0, atol=1e-12)


@given(matrices(low=-6, high=3))
@settings(max_examples=150, deadline=None)
def test_star_is_the_sum_of_all_powers_or_diverges(a: Tensor) -> None:
    if max(circuit_means(a), default=-INF) > 0:
        with pytest.raises(InputError, match="diverges"):
            maxplus.star(a)
        return
    powers = torch.stack([maxplus.power(a, k) for k in range(2 * len(a))])
    assert torch.equal(maxplus.star(a), powers.amax(0))


def test_star_survives_rounding_at_weight_zero() -> None:
    a = torch.tensor([[-INF, 0.1 + 0.2], [-0.3, -INF]], dtype=torch.float64)  # 5.6e-17 above zero
    assert maxplus.star(a)[0, 0] == pytest.approx(0.0, abs=1e-15)


@given(matrices(), matrices(), matrices())
@settings(max_examples=60, deadline=None)
def test_product_is_associative_with_its_unit(a: Tensor, b: Tensor, c: Tensor) -> None:
    n = min(len(a), len(b), len(c))
    a, b, c = a[:n, :n], b[:n, :n], c[:n, :n]
    left = maxplus.matmul(maxplus.matmul(a, b), c)
    assert torch.equal(left, maxplus.matmul(a, maxplus.matmul(b, c)))
    unit = maxplus.identity(n, torch.float64)
    assert torch.equal(maxplus.matmul(a, unit), a)
    assert torch.equal(maxplus.matmul(unit, a), a)


@pytest.mark.parametrize("eps", [0.05, 0.5, 3.0])
def test_homomorphism_carries_the_matrix_product(eps: float) -> None:
    generator = torch.Generator().manual_seed(0)
    a, b = torch.rand(2, 4, 4, generator=generator, dtype=torch.float64) * 5
    a[0, 1] = 0.0  # becomes -inf, the zero of the algebra
    want = maxplus.ultradiscretize(a @ b, eps)
    got = maxplus.matmul(maxplus.ultradiscretize(a, eps), maxplus.ultradiscretize(b, eps), eps)
    torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(maxplus.exponentiate(maxplus.ultradiscretize(a, eps), eps), a)
    want = maxplus.ultradiscretize(torch.linalg.matrix_power(a, 5), eps)
    got = maxplus.power(maxplus.ultradiscretize(a, eps), 5, eps)
    torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)


def test_large_products_are_computed_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = torch.randn(2, 3, 20, 20, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    whole, soft = maxplus.matmul(a, b), maxplus.matmul(a, b, 0.3)
    monkeypatch.setattr(maxplus, "MAX_TERMS", 5000)
    assert torch.equal(maxplus.matmul(a, b), whole)
    assert torch.equal(maxplus.matmul(a, b, 0.3), soft)


def test_powers_become_periodic_with_the_eigenvalue() -> None:
    a = torch.tensor([[-INF, 2.0, -INF], [-INF, -INF, 3.0], [1.0, -5.0, -INF]], dtype=torch.float64)
    assert float(maxplus.eigenvalue(a)) == 2.0
    assert torch.equal(maxplus.power(a, 33), maxplus.power(a, 30) + 3 * 2.0)


def test_bad_matrices_are_named() -> None:
    with pytest.raises(InputError, match="square"):
        maxplus.eigenvalue(torch.zeros(2, 3))
    with pytest.raises(InputError, match=r"\+inf"):
        maxplus.star(torch.tensor([[INF]]))
    with pytest.raises(InputError, match="exponent"):
        maxplus.power(torch.zeros(2, 2), -1)
    with pytest.raises(InputError, match="match the inner size"):
        maxplus.matmul(torch.zeros(2, 3), torch.zeros(2, 3))
