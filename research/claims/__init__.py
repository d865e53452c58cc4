"""The 49 claims of the paper, each tested as written and, if that fails, as corrected.

The modules follow the paper's sections. Importing them registers their claims in `CLAIMS`.
"""

from research.claims import (
    arrangements,
    convergence,
    gradients,
    preliminaries,
    spatial,
    spikes,
    temporal,
    tropical,
    volumes,
)
from research.claims.claim import CLAIMS, Claim, Outcome, Verdict, check, check_all

__all__ = [
    "CLAIMS",
    "Claim",
    "Outcome",
    "Verdict",
    "arrangements",
    "check",
    "check_all",
    "convergence",
    "gradients",
    "preliminaries",
    "spatial",
    "spikes",
    "temporal",
    "tropical",
    "volumes",
]
