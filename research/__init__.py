"""The accompanying research: the paper's published numbers, tables and claims, and our own studies.

Everything here uses only the library's public names, and the library does not depend on it.
"""

from pathlib import Path

__all__ = ["DOCS", "RESULTS", "ROOT"]

ROOT = Path(__file__).parents[1]
"""The root of the repository."""
RESULTS = ROOT / "research" / "results"
"""The committed results of all runs."""
DOCS = ROOT / "research" / "docs"
"""The pages, tables and figures generated from the results."""
