"""The paper next door: its published numbers, its tables, its claims, and the studies around them.

Everything here uses the library by its public names; nothing in the library knows it.
"""

from pathlib import Path

__all__ = ["DOCS", "RESULTS", "ROOT"]

ROOT = Path(__file__).parents[1]
"""The repository."""
RESULTS = ROOT / "research" / "results"
"""The committed results of all runs."""
DOCS = ROOT / "research" / "docs"
"""The pages, tables and figures that are made from them."""
