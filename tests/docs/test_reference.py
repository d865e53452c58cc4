"""The reference lists every public name once, and nothing that is not there."""

import inspect
import re
from importlib import import_module
from pathlib import Path

import pytest

import ultralif as ul

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
TEXT = "\n".join(path.read_text() for path in REFERENCE.glob("*.md"))
ENTRIES = re.findall(r"^::: (\S+)$", TEXT, re.MULTILINE)
PACKAGES = (
    *("analysis", "conversion", "data", "export", "functional", "maxplus", "models", "nn", "ops", "plot"),
    "training",
)


def test_the_packages_are_those_of_the_top_level() -> None:
    assert set(PACKAGES) == {name for name in dir(ul) if hasattr(getattr(ul, name), "__file__")}


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_is_documented_once(package: str) -> None:
    """A function that is made from another, a constant or a module is named in a sentence instead."""
    module = import_module(f"ultralif.{package}")
    for name in module.__all__:
        count = ENTRIES.count(f"ultralif.{package}.{name}")
        named = re.search(rf"`[^`\n]*\b{name}\b[^`\n]*`", TEXT)
        assert count == 1 or (count == 0 and named), name


def test_the_names_of_the_top_level_are_documented() -> None:
    shown = {entry.rpartition(".")[2] for entry in ENTRIES}
    named = {name for name in dir(ul) if name not in (*PACKAGES, "NEURONS") and not name.startswith("_")}
    assert named <= shown
    assert ENTRIES.count("ultralif.loading.load") == 1


@pytest.mark.parametrize("entry", ENTRIES)
def test_an_entry_is_public(entry: str) -> None:
    package, _, name = entry.rpartition(".")
    assert name in import_module(package).__all__
    assert ENTRIES.count(entry) == 1


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_docstring_has_an_example(package: str) -> None:
    """Doctest runs them. A function over time is made from a step, which has the example."""
    module = import_module(f"ultralif.{package}")
    for name in module.__all__:
        thing = getattr(module, name)
        made = hasattr(ul.functional, f"{name}_step")
        if not made and (inspect.isclass(thing) or inspect.isfunction(thing)):
            assert ">>> " in (inspect.getdoc(thing) or ""), name
