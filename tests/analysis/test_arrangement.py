"""Region counts against Zaslavsky's formula, Whitney's sum, linear programs and sampling."""

from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from torch import Tensor

from ultralif.analysis import count_regions, enumerate_regions, general_position, region_bound, whitney_count
from ultralif.errors import InputError, JobError


def random_arrangement(h: int, n: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randn(h, n + 1, generator=generator, dtype=torch.float64)
    return drawn[:, :n], drawn[:, n]


@st.composite
def integer_arrangements(draw: st.DrawFn) -> tuple[Tensor, Tensor]:
    """Small integers: parallel, equal and concurrent hyperplanes are common."""
    n, h = draw(st.integers(1, 4)), draw(st.integers(0, 7))
    row = st.lists(st.integers(-2, 2), min_size=n + 1, max_size=n + 1).filter(lambda r: any(r[:n]))
    rows = torch.tensor(draw(st.lists(row, min_size=h, max_size=h)), dtype=torch.float64).reshape(h, n + 1)
    return rows[:, :n], rows[:, n]


@pytest.mark.parametrize("n", range(1, 7))
@pytest.mark.parametrize("h", [0, 1, 3, 6, 10, 14])
def test_general_position_attains_zaslavskys_number(h: int, n: int) -> None:
    weight, offset = random_arrangement(h, n, seed=10 * h + n)
    want = region_bound(h, n)
    assert count_regions(weight, offset) == want
    found = enumerate_regions(weight, offset)
    assert len(found.points) == want
    assert torch.equal(found.patterns, found.points @ weight.T > offset)
    assert len({tuple(row) for row in found.patterns.tolist()}) == want


@given(integer_arrangements())
@settings(max_examples=300, deadline=None)
def test_degenerate_arrangements_match_whitneys_sum(arrangement: tuple[Tensor, Tensor]) -> None:
    weight, offset = arrangement
    want = int(whitney_count(weight, offset))
    assert count_regions(weight, offset) == want
    found = enumerate_regions(weight, offset)
    assert len(found.points) == want
    assert len({tuple(row) for row in found.patterns.tolist()}) == want


def feasible_patterns(weight: Tensor, offset: Tensor) -> set[tuple[bool, ...]]:
    """Ask a linear program about every sign pattern: the slow and independent way."""
    h, n = weight.shape
    found = set()
    for pattern in product((False, True), repeat=h):
        sign = torch.tensor([1.0 if side else -1.0 for side in pattern], dtype=torch.float64)
        rows = torch.cat((-sign[:, None] * weight, torch.ones(h, 1)), 1)  # sign (w.x - c) >= margin
        result = linprog(
            [0.0] * n + [-1.0],
            A_ub=rows.numpy(),
            b_ub=(-sign * offset).numpy(),
            bounds=[(None, None)] * n + [(None, 1.0)],
        )
        if result.status == 0 and -result.fun > 1e-9:
            found.add(pattern)
    return found


@pytest.mark.parametrize(("h", "n", "seed"), [(5, 2, 0), (6, 3, 1), (7, 2, 2), (4, 5, 3)])
def test_patterns_match_linear_programs(h: int, n: int, seed: int) -> None:
    weight, offset = random_arrangement(h, n, seed)
    found = enumerate_regions(weight, offset).patterns
    assert {tuple(row) for row in found.tolist()} == feasible_patterns(weight, offset)


def test_patterns_match_linear_programs_for_parallel_and_concurrent_lines() -> None:
    weight = torch.tensor([[1, 0], [2, 0], [0, 1], [1, 1], [-1, 0], [1, -1]], dtype=torch.float64)
    offset = torch.tensor([0, 2, 0, 0, 1, 0], dtype=torch.float64)
    found = enumerate_regions(weight, offset).patterns
    assert {tuple(row) for row in found.tolist()} == feasible_patterns(weight, offset)


def test_low_rank_and_zero_rows() -> None:
    weight, offset = random_arrangement(5, 2)
    lifted = torch.cat((weight, torch.zeros(5, 40)), 1) @ torch.linalg.qr(torch.randn(42, 42).double()).Q
    assert count_regions(lifted, offset) == region_bound(5, 2)
    with_zero = torch.cat((weight, torch.zeros(1, 2)))
    found = enumerate_regions(with_zero, torch.cat((offset, torch.tensor([-1.0]))))
    assert len(found.points) == region_bound(5, 2)
    assert found.patterns[:, -1].all()  # 0 > -1 everywhere


def test_nothing_cuts_nothing() -> None:
    assert count_regions(torch.zeros(0, 3), torch.zeros(0)) == 1
    assert enumerate_regions(torch.zeros(2, 3), torch.ones(2)).patterns.tolist() == [[False, False]]


def test_many_lines_are_counted_without_being_listed() -> None:
    weight, offset = random_arrangement(1000, 2)
    assert count_regions(weight, offset) == region_bound(1000, 2)


def test_requests_that_would_not_finish_are_refused_with_a_size() -> None:
    with pytest.raises(InputError, match=r"1.84e\+19 regions, about .* years.*up to 18 hyperplanes"):
        enumerate_regions(*random_arrangement(64, 100))
    with pytest.raises(InputError, match=r"up to 13 hyperplanes of that rank are feasible.* 2-D slices"):
        count_regions(*random_arrangement(64, 10), limit=8000)
    assert count_regions(*random_arrangement(13, 10), limit=8000) == region_bound(13, 10)
    with pytest.raises(InputError, match="subsets"):
        general_position(*random_arrangement(64, 20))
    with pytest.raises(InputError, match="enumerate_regions"):
        whitney_count(*random_arrangement(15, 2))


def test_independent_normals_need_no_enumeration() -> None:
    assert count_regions(*random_arrangement(64, 784)) == 2**64


def test_positions_within_rounding_of_degenerate_are_told_or_merged() -> None:
    """Three lines all but through one point: seven regions, one of them too small for floats."""
    weight = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], dtype=torch.float64)
    for gap, count in ((1e-6, 7), (1e-13, 6)):
        offset = torch.tensor([0.0, 0.0, gap], dtype=torch.float64)
        assert count_regions(weight, offset) == len(enumerate_regions(weight, offset).points) == count
        assert count_regions(weight, offset, tol=1e-4) == 6
    through_a_point = torch.tensor([[1.0, 1.0], [1.0, -1.0], [1.000000001, -1.0]], dtype=torch.float64)
    assert count_regions(through_a_point, torch.tensor([1.0, -1.0, -1.0])) == 6  # two of them nearly parallel
    thin = torch.tensor(
        [[-1 + 2e-10, 1.0, 0.0], [1.0, 0.0, 1.0], [-1.0, 0.0, -1 + 1e-10]], dtype=torch.float64
    )
    offset = torch.tensor([0.0, -1.0, 0.0], dtype=torch.float64)
    with pytest.raises(JobError, match="raise tol"):
        enumerate_regions(thin, offset)
    assert len(enumerate_regions(thin, offset, tol=1e-6).points) == 6


@pytest.mark.parametrize("bad", [torch.full((2, 2), torch.nan), torch.full((2, 2), torch.inf)])
def test_bad_hyperplanes_are_named(bad: Tensor) -> None:
    with pytest.raises(InputError, match="finite"):
        count_regions(bad, torch.zeros(2))
    with pytest.raises(InputError, match=r"\[h, n\]"):
        count_regions(torch.zeros(2, 2), torch.zeros(3))


@given(integer_arrangements())
@settings(max_examples=200, deadline=None)
def test_general_position_is_what_attains_the_bound(arrangement: tuple[Tensor, Tensor]) -> None:
    weight, offset = arrangement
    if len(weight) == 0:
        return
    attained = int(whitney_count(weight, offset)) == region_bound(*weight.shape)
    assert general_position(weight, offset).general == attained


def test_general_position_has_a_tolerance_and_names_the_subset() -> None:
    weight = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1e-5]], dtype=torch.float64)
    offset = torch.tensor([1.0, 1.0, 0.3], dtype=torch.float64)
    position = general_position(weight, offset)
    assert position.general
    assert position.margin == pytest.approx(1e-5 / 2**0.5, rel=1e-3)
    assert position.subset == (0, 2)
    assert not general_position(weight, offset, tol=1e-4).general
