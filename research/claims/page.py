"""The verdicts on the paper's claims as a Markdown page."""

from collections import Counter
from collections.abc import Sequence

from research.claims import Verdict

__all__ = ["claims_page", "found", "summary"]

PREFACE = """# The paper's claims, tested

The mathematical statements of the paper, tested in float64 on simple, adversarial and seeded random inputs.
This page was written by `python -m research pages claims`; `python -m research theory --only 23` runs one
claim.

- **holds**: nothing violates it. The worst case is the one with the least room.
- **holds as corrected**: the counterexample violates it as written; the corrected statement passes all its
  tests.
- **fails**: the counterexample violates it, and no correction keeps it; what is true instead passes all its
  tests.

Whether a violated statement has a correction that keeps its sense is our judgement. The list is not the
paper's own: 16 and 22 are statements of ours that others need, 33 and 37 repeat 2 and 21 in the paper's
second wording, and 35 and 42 are two sides of one claim about decision boundaries.

Symbols: L_eps is log-sum-exp at temperature eps, P the membrane before reset, V after it, s the spike; lower
case is the max-plus limit; theta the threshold, tau_0 the leak, R(h,n) the greatest number of regions of h
hyperplanes in R^n, W in bounds Lambert's function.
"""


def summary(verdicts: Sequence[Verdict]) -> str:
    """Count the verdicts in a phrase."""
    counts: Counter[str] = Counter(verdict.verdict for verdict in verdicts)
    phrases = [("holds", "hold"), ("holds as corrected", "hold as corrected"), ("fails", "fail")]
    shown = [f"{counts[name]} {phrase}" for name, phrase in phrases]
    if counts["unsettled"]:
        shown.append(f"{counts['unsettled']} unsettled")
    return f"{len(verdicts)} claims: {', '.join(shown)}"


def claims_page(verdicts: Sequence[Verdict]) -> str:
    """Return the Markdown page of verdicts."""
    lines = [PREFACE, f"{summary(verdicts)}.\n"]
    lines += ["| # | section | claim | verdict | found |", "|---|---|---|---|---|"]
    for v in verdicts:
        claim = f"**{v.label}**: {v.statement}"
        lines.append(f"| {v.claim} | {v.section} | {_cell(claim)} | {v.verdict} | {_cell(found(v))} |")
    return "\n".join(lines) + "\n"


def found(v: Verdict) -> str:
    """Write what the tests of a claim found: counterexample, correction, worst case."""
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
