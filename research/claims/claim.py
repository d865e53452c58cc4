"""A claim of the paper: its statement, its tests and the resulting verdict."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from research.claims.evidence import Draw, Evidence
from ultralif.errors import InputError

__all__ = ["CLAIMS", "Claim", "Outcome", "Verdict", "check", "check_all", "claim"]

Outcome = Literal["holds", "holds as corrected", "fails", "unsettled"]
Test = Callable[[Evidence, Evidence, Draw], None]


@dataclass(frozen=True)
class Claim:
    """One claim of the paper.

    ``correction`` repairs the claim, ``instead`` states what is true if it cannot be repaired, and ``remark``
    sharpens a claim that holds. At most one of them is given; the test's second `Evidence` checks it.
    """

    number: int
    label: str
    section: str
    statement: str
    test: Test
    correction: str = ""
    instead: str = ""
    remark: str = ""


@dataclass(frozen=True)
class Verdict:
    """Outcome of a claim's tests."""

    claim: int
    label: str
    section: str
    statement: str
    verdict: Outcome
    counterexample: str
    """The first violation of the claim as written; empty if it holds."""
    truth: str
    """The correction, the true statement or the sharper form."""
    worst: str
    """The worst case of the claim if it holds, otherwise of the corrected statement."""
    cases: int
    """Number of tests of the claim as written."""
    violations: int
    """Number of those tests that the claim failed."""
    truth_cases: int
    """Number of tests of the true statement."""


CLAIMS: dict[int, Claim] = {}
"""All claims by number."""


def claim(
    number: int,
    label: str,
    section: str,
    statement: str,
    *,
    correction: str = "",
    instead: str = "",
    remark: str = "",
) -> Callable[[Test], Test]:
    """Register a test ``(written, truth, draw)`` for the claim as written and for the true statement."""

    def register(test: Test) -> Test:
        CLAIMS[number] = Claim(number, label, section, statement, test, correction, instead, remark)
        return test

    return register


def check(claim: Claim) -> Verdict:
    """Test a claim and return the verdict.

    A claim holds if no check violates it as written. Otherwise it holds as corrected if it has a correction
    that passes every test, and fails if it has none. Whether to give a correction is our judgement. A claim
    is unsettled if a check violates the statement that should be true.
    """
    written, truth = Evidence(), Evidence()
    claim.test(written, truth, Draw(claim.number))
    outcome: Outcome
    if truth.violations or not written.cases:
        outcome = "unsettled"
    elif not written.violations:
        outcome = "holds"
    elif claim.correction:
        outcome = "holds as corrected" if truth.cases else "unsettled"
    else:
        outcome = "fails"
    standing = written if outcome == "holds" else truth
    return Verdict(
        claim=claim.number,
        label=claim.label,
        section=claim.section,
        statement=claim.statement,
        verdict=outcome,
        counterexample=written.first,
        truth=claim.correction or claim.instead or claim.remark,
        worst=standing.closest,
        cases=written.cases,
        violations=written.violations,
        truth_cases=truth.cases,
    )


def check_all(numbers: Iterable[int] | None = None) -> Iterator[Verdict]:
    """Test the claims with these numbers, or all claims, in order."""
    chosen = sorted(CLAIMS if numbers is None else set(numbers))
    if unknown := [number for number in chosen if number not in CLAIMS]:
        raise InputError(f"there is no claim {unknown[0]}; claims are numbered from 1 to {max(CLAIMS)}")
    for number in chosen:
        yield check(CLAIMS[number])
