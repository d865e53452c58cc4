"""The 49 claims of the paper, each tested as written and, where it breaks, as corrected."""

from ultralif.analysis.claims import (  # each registers its claims
    gradients,
    limits,
    preliminaries,
    spatial,
    spikes,
    temporal,
    tropical,
)
from ultralif.analysis.claims.claim import CLAIMS, Claim, Outcome, Verdict, check, check_all

__all__ = [
    "CLAIMS",
    "Claim",
    "Outcome",
    "Verdict",
    "check",
    "check_all",
    "gradients",
    "limits",
    "preliminaries",
    "spatial",
    "spikes",
    "temporal",
    "tropical",
]
