"""The verdicts on the paper's claims as a Markdown page."""

from collections import Counter
from collections.abc import Sequence

from research.claims import Verdict

__all__ = ["claims_page", "found", "summary"]

PREFACE = """# The paper's claims, tested

This table shows which of the paper's mathematical statements hold. They were tested in float64 on simple,
adversarial and seeded random inputs. `python -m research pages claims` generates this page, and `python -m
research theory --only 23` checks a single claim.

- **holds**: no test violates the statement. The worst case is the closest to a violation.
- **holds as corrected**: the counterexample violates the statement as written, but the corrected statement
  passes all its tests.
- **fails**: the counterexample violates the statement, and no correction preserves its meaning. The true
  statement passes all its tests.

Whether a correction preserves the meaning of a statement is our judgement. The numbering is ours. Statements
16 and 22 are our own and support others, 33 and 37 are the paper's restatements of 2 and 21, and 35 and 42
are two sides of one claim about decision boundaries.

Symbols: L_eps is the log-sum-exp at temperature eps, P the membrane before the reset, V the membrane after
it, and s the spike. Lower-case letters denote the max-plus limit. theta is the threshold, tau_0 the leak,
R(h,n) the largest number of regions of h hyperplanes in R^n, and W, in bounds, Lambert's function.
"""


def summary(verdicts: Sequence[Verdict]) -> str:
    """Summarize the verdicts in one phrase."""
    counts: Counter[str] = Counter(verdict.verdict for verdict in verdicts)
    phrases = [("holds", "hold"), ("holds as corrected", "hold as corrected"), ("fails", "fail")]
    shown = [f"{counts[name]} {phrase}" for name, phrase in phrases]
    if counts["unsettled"]:
        shown.append(f"{counts['unsettled']} unsettled")
    return f"{len(verdicts)} claims: {', '.join(shown)}"


def claims_page(verdicts: Sequence[Verdict]) -> str:
    """Return the verdicts as a Markdown page."""
    lines = [PREFACE, f"{summary(verdicts)}.\n"]
    lines += ["| # | section | claim | verdict | found |", "|---|---|---|---|---|"]
    for v in verdicts:
        claim = f"**{v.label}**: {v.statement}"
        lines.append(f"| {v.claim} | {v.section} | {_cell(claim)} | {v.verdict} | {_cell(found(v))} |")
    return "\n".join(lines) + "\n"


def found(v: Verdict) -> str:
    """Describe what a claim's tests found: counterexample, correction and worst case."""
    parts = []
    if v.counterexample:
        parts.append(f"Counterexample ({v.violations} of {v.cases} tests): {v.counterexample}.")
    if v.truth:
        lead = {"holds": "Sharper", "holds as corrected": "Corrected"}.get(v.verdict, "True instead")
        parts.append(f"{lead}: {v.truth}.")
    parts.append(f"Worst case: {v.worst}.")
    return " ".join(parts)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("](", "] (").replace("*", "\\*").replace("\\*\\*", "**")
