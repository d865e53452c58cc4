"""The verdicts on all 49 claims, and proof that every test behind them can fail."""

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from research.claims import (
    CLAIMS,
    Claim,
    Verdict,
    check,
    check_all,
    convergence,
    gradients,
    spatial,
    spikes,
    undriven,
)
from research.claims.evidence import Draw, Evidence
from ultralif import maxplus
from ultralif.analysis import arrangement, position, zonotope
from ultralif.errors import InputError
from ultralif.functional import baselines, ultra

pytestmark = pytest.mark.slow

HOLDS = {1, 2, 4, 6, 8, 12, 14, 20, 28, 29, 31, 32, 33, 36, 39, 44}
FAILS = {9, 17, 18, 19, 21, 22, 23, 24, 25, 37, 40, 42, 45, 48, 49}
WANTED = {n: "holds" if n in HOLDS else "fails" if n in FAILS else "holds as corrected" for n in range(1, 50)}


@pytest.fixture(scope="module")
def verdicts() -> dict[int, Verdict]:
    return {verdict.claim: verdict for verdict in check_all()}


def test_every_verdict(verdicts: dict[int, Verdict]) -> None:
    assert {number: verdict.verdict for number, verdict in verdicts.items()} == WANTED


def test_a_verdict_comes_with_its_evidence(verdicts: dict[int, Verdict]) -> None:
    for v in verdicts.values():
        assert v.cases > 0
        assert v.worst
        assert v.statement
        assert v.section
        if v.verdict == "holds":
            assert v.violations == 0
            assert not v.counterexample
        else:
            assert v.violations > 0
            assert v.counterexample
            assert v.truth
            assert v.truth_cases > 0


def test_the_committed_page_has_these_verdicts() -> None:
    page = Path(__file__).parents[2] / "research" / "docs" / "claims.md"
    rows = re.findall(
        r"^\| (\d+) \|.*?\| (holds as corrected|holds|fails) \|", page.read_text(), re.MULTILINE
    )
    assert {int(number): verdict for number, verdict in rows} == WANTED


def test_unknown_claims_are_refused() -> None:
    with pytest.raises(InputError, match="no claim 50; claims are numbered from 1 to 49"):
        list(check_all([50]))


def patch_everywhere(monkeypatch: pytest.MonkeyPatch, original: Any, wrong: Any) -> None:
    """Replace a function in every module of the package that has it, under whatever name."""
    for name, module in list(sys.modules.items()):
        if name.startswith(("ultralif", "research")):
            for attribute, value in list(vars(module).items()):
                if value is original:
                    monkeypatch.setattr(module, attribute, wrong)


def shrunk(bounds: convergence.MarginBounds) -> convergence.MarginBounds:
    return bounds._replace(p=bounds.p / 20, v=bounds.v / 20, log_s=bounds.log_s - 5)


Wrong = Callable[[Callable[..., Any]], Callable[..., Any]]
MUTANTS: dict[str, tuple[Any, Wrong, set[int]]] = {
    "log-sum-exp too high": (
        maxplus.lse,
        lambda f: lambda x, eps=1.0, dim=-1: f(x, eps, dim) + 0.1 * eps,
        {2, 4, 5, 8, 9, 13, 32, 33, 34, 36, 38},
    ),
    "log-sum-exp too steep": (
        maxplus.lse,
        lambda f: lambda x, eps=1.0, dim=-1: 1.01 * f(x, eps, dim),
        {3, 39},
    ),
    "minimum for maximum": (maxplus.matmul, lambda f: lambda a, b: -f(-a, -b), {1}),
    "a wrong logarithm": (maxplus.ultradiscretize, lambda f: lambda x, eps=1.0: 1.001 * f(x, eps), {6}),
    "a wrong exponential": (maxplus.exponentiate, lambda f: lambda x, eps=1.0: 1.001 * f(x, eps), {11}),
    "a wrong Euler step": (baselines.lif_step, lambda f: lambda x, v, **k: f(1.1 * x, v, **k), {7}),
    "half the leak": (ultra._log, lambda f: lambda leak: 0.5 * f(leak), {10, 26}),
    "wrong diffusion": (spatial.diffuse, lambda f: lambda v, alpha: f(v, 1.1 * alpha), {12}),
    "a neighbour forgotten": (ultra._neighbors, lambda f: lambda *a: f(*a)[:2], {14, 15}),
    "a low ceiling": (convergence.state_ceiling, lambda f: lambda e, t: 0.99 * f(e, t), {16}),
    "a wrong escape": (undriven.escape_current, lambda f: lambda *a, **k: 0.9 * f(*a, **k), {16}),
    "a soft spike too soft": (maxplus.soft_spike, lambda f: lambda v, t, e: f(v, t, 1.1 * e), {17, 20}),
    "a soft spike too sharp": (maxplus.soft_spike, lambda f: lambda v, t, e: f(v, t, 0.9 * e), {29}),
    "half the gradient": (maxplus.soft_spike, lambda f: lambda v, t, e: f((v + v.detach()) / 2, t, e), {31}),
    "a spike too early": (maxplus.hard_spike, lambda f: lambda v, t: f(v, t - 0.1), {19, 22, 37, 40, 42}),
    "a wrong edge": (spikes.half_current, lambda f: lambda *a: f(*a) + 0.01, {18, 35}),
    "a bound too tight": (
        convergence.margin_theorem,
        lambda f: lambda *a, **k: shrunk(f(*a, **k)),
        {21, 23, 24, 27},
    ),
    "no reset": (ultra.fire, lambda f: lambda p, *a, **k: (f(p, *a, **k)[0], p), {25}),
    "a slope too steep": (gradients.spike_slope, lambda f: lambda z, e: 1.1 * f(z, e), {28, 30}),
    "a region too many": (arrangement.region_bound, lambda f: lambda h, n: f(h, n) + 1, {41, 43, 44, 46, 48}),
    "too few regions": (arrangement.count_regions, lambda f: lambda w, c: f(w, c) - 1, {43, 47, 48}),
    "a volume that never vanishes": (zonotope.zonotope_volume, lambda f: lambda w: f(w) + 1, {45, 49}),
    "everything in general position": (
        position.general_position,
        lambda f: lambda w, c: position.Position(True, 1.0, ()),
        {46},
    ),
    "twice the regions": (position.whitney_count, lambda f: lambda w, c: 2 * f(w, c), {46, 47}),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_wrong_formula_changes_the_verdict(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    original, wrong, claims = MUTANTS[name]
    patch_everywhere(monkeypatch, original, wrong(original))
    kept = {verdict.claim for verdict in check_all(claims) if verdict.verdict == WANTED[verdict.claim]}
    assert not kept


def test_every_claim_has_a_mutant() -> None:
    assert set().union(*(claims for _, _, claims in MUTANTS.values())) == set(CLAIMS)


def judged(test: Callable[[Evidence, Evidence, Draw], None], **texts: str) -> Verdict:
    return check(Claim(1, "label", "1", "statement", test, **texts))


def test_judgement_follows_from_the_evidence() -> None:
    def broken(written: Evidence, truth: Evidence, draw: Draw) -> None:
        written.at_most(2.0, 1.0, "a <= b")
        truth.at_most(1.0, 2.0, "b <= a")

    def broken_truth(written: Evidence, truth: Evidence, draw: Draw) -> None:
        written.at_most(2.0, 1.0, "a <= b")
        truth.at_most(2.0, 1.0, "a <= b")

    def untested(written: Evidence, truth: Evidence, draw: Draw) -> None:
        written.at_most(2.0, 1.0, "a <= b")

    assert judged(broken, correction="c").verdict == "holds as corrected"
    assert judged(broken, instead="c").verdict == "fails"
    assert judged(broken).counterexample == "a <= b: 2 > 1"
    assert judged(broken_truth, correction="c").verdict == "unsettled"
    assert judged(broken_truth, instead="c").verdict == "unsettled"
    assert judged(untested, correction="c").verdict == "unsettled"
    assert judged(lambda written, truth, draw: None).verdict == "unsettled"
    assert judged(lambda written, truth, draw: written.true(True, "so")).verdict == "holds"


def test_evidence_counts_and_names_the_first_and_the_worst() -> None:
    found, x = Evidence(), torch.tensor([0.5, 1.5, 3.0])
    found.at_most(x, 1.0, "x <= 1", x=x, vector=torch.ones(3, 2))
    assert (found.cases, found.violations) == (3, 2)
    assert found.first == "x <= 1: 1.5 > 1 at x=1.5, vector=[1.0, 1.0]"
    assert found.closest.startswith("x <= 1: 3 > 1")


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_evidence_takes_nothing_odd_for_agreement(bad: float) -> None:
    for method in ("equal", "at_most"):
        found = Evidence()
        getattr(found, method)(torch.tensor([1.0, bad]), 1.0, "a check")
        assert found.violations == 1
    with pytest.raises(ValueError, match="nothing to check"):
        Evidence().equal(torch.zeros(0), 0.0, "an empty check")


def test_evidence_tolerances() -> None:
    def violated(check: Callable[[Evidence], None]) -> bool:
        found = Evidence()
        check(found)
        return found.violations > 0

    one: Tensor = torch.tensor(1.0, dtype=torch.float64)
    assert not violated(lambda e: e.equal(one + 1e-12, one, "x"))
    assert violated(lambda e: e.equal(one + 1e-11, one, "x"))
    assert violated(lambda e: e.equal(0.1, torch.tensor(0.1), "float32 is not float64"))
    assert not violated(lambda e: e.equal(-torch.inf, -torch.inf, "x"))
    assert not violated(lambda e: e.at_most(one + 1e-9, one, "x"))
    assert violated(lambda e: e.at_most(one + 1e-8, one, "x"))
    assert violated(lambda e: e.at_most(2e-40, 1e-40, "tiny numbers are compared too"))
