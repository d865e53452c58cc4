"""The site builds without a warning and asks nobody for anything."""

import re
import runpy
import subprocess
import sys
from importlib import import_module, util
from pathlib import Path

import pytest

from ultralif.cli import COMMANDS

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Build the site and return its pages."""
    needed = ("mkdocs", "material", "mkdocstrings", "latex2mathml")
    if not all(map(util.find_spec, needed)):
        pytest.skip("the site needs the docs extra")
    out = tmp_path_factory.mktemp("site")
    environment = {"PYTHONPATH": str(ROOT / "src"), "NO_MKDOCS_2_WARNING": "1", "PATH": ""}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(out)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stdout + done.stderr
    return {str(path.relative_to(out)): path.read_text() for path in out.rglob("*.html")}


@pytest.mark.slow
def test_nothing_is_loaded_from_elsewhere(site: dict[str, str]) -> None:
    assert {"index.html", "tutorials/1-drop-in.html", "reference/nn.html"} <= site.keys()
    for name, page in site.items():
        loaded = re.findall(r"<(?:script|img|iframe|source)[^>]*\bsrc=\"?([^\">\s]+)", page)
        loaded += re.findall(r"<link[^>]*\bhref=\"?([^\">\s]+)", page)
        foreign = [address for address in loaded if re.match(r"(https?:)?//", address)]
        assert not foreign, f"{name}: {foreign}"


@pytest.mark.slow
def test_formulas_are_drawn_by_the_browser(site: dict[str, str]) -> None:
    assert site["reference/functional.html"].count("<math") >= 6
    for page in site.values():
        assert ":math:" not in page and ".. math::" not in page


@pytest.mark.slow
def test_tutorials_show_code_outputs_and_pictures(site: dict[str, str]) -> None:
    page = site["tutorials/1-drop-in.html"]
    assert 'class="output' in page or "output highlight" in page
    assert 'src="data:image/png;base64,' in page and "1-drop-in.ipynb" in page


@pytest.mark.slow
def test_every_command_is_explained(site: dict[str, str]) -> None:
    for command in COMMANDS:
        assert f"usage: ultralif {command}" in site["commands.html"]


def test_formulas_in_sentences_and_blocks() -> None:
    if not (util.find_spec("markdown") and util.find_spec("latex2mathml") and util.find_spec("mkdocs")):
        pytest.skip("the site needs the docs extra")
    formulas = runpy.run_path(str(ROOT / "docs" / "hooks" / "mathml.py"))["Formulas"]
    text = "Take :math:`x^2` here.\n\n.. math:: a + b,\n    c\n\nThe end, `:math:`."
    page = import_module("markdown").markdown(text, extensions=[formulas()])
    assert page.count("<math") == 2 and 'display="block"' in page
    assert "<p>The end, <code>:math:</code>.</p>" in page
