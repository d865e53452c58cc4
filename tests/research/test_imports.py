"""Research uses the library by public names, and the library does not know it."""

import ast
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PUBLIC = {
    "ultralif",
    *(
        f"ultralif.{name}"
        for name in (
            *("analysis", "bench", "data", "data.encoders", "data.loader", "errors", "export", "functional"),
            *("maxplus", "models", "nn", "plot", "report", "training"),
        )
    ),
}
"""The modules whose names in ``__all__`` are for everybody."""
FILES = sorted((ROOT / "research").rglob("*.py"))


def imported(path: Path) -> Iterator[tuple[str, str | None]]:
    """Yield the modules of the library that a file imports, with the names that it takes from them."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((one.name, None) for one in node.names if one.name.startswith("ultralif"))
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("ultralif"):
            yield from ((str(node.module), one.name) for one in node.names)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_only_public_names_are_imported(path: Path) -> None:
    for module, name in imported(path):
        assert module in PUBLIC, f"{module} is not public"
        if name is not None and f"{module}.{name}" not in PUBLIC:
            known = getattr(import_module(module), "__all__", dir(import_module(module)))
            assert not name.startswith("_") and name in known, f"{module}.{name}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_private_attribute_of_the_library_is_used(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "ul":
            assert not node.attr.startswith("_"), node.attr


def test_the_library_does_not_know_research() -> None:
    for path in (ROOT / "src").rglob("*.py"):
        assert not re.search(r"^\s*(from|import) research\b|python -m research", path.read_text(), re.M), path


def test_listing_runs_needs_neither_torch_nor_research(python, tmp_path: Path) -> None:
    script = (
        "import sys; from ultralif.cli import main\n"
        f"main(['runs', 'list', '--runs-dir', {str(tmp_path)!r}])\n"
        "print([name for name in sys.modules if name in ('torch', 'research')])"
    )
    assert python.run("-c", script).stdout.splitlines()[-1] == "[]"
