"""Every tutorial runs from its first cell to its last, and finds what its text says."""

import importlib.util
import json
import re
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

TUTORIALS = Path(__file__).parents[2] / "docs" / "tutorials"
NOTEBOOKS = {path.stem: json.loads(path.read_text()) for path in sorted(TUTORIALS.glob("*.ipynb"))}
RUNNER = runpy.run_path(str(TUTORIALS / "run.py"))

pytestmark = pytest.mark.slow


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], dict[str, Any]]:
    """Run a notebook in a folder of the test's, where it stays."""
    monkeypatch.setenv("MPLBACKEND", "Agg")
    monkeypatch.chdir(tmp_path)
    return lambda name: RUNNER["run"](NOTEBOOKS[name], str(tmp_path))


def text_of(notebook: dict[str, Any], kind: str) -> str:
    return "\n".join("".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == kind)


def test_there_are_six() -> None:
    assert [name[0] for name in NOTEBOOKS] == ["1", "2", "3", "4", "5", "6"]


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_is_valid_and_light(name: str) -> None:
    assert (TUTORIALS / f"{name}.ipynb").stat().st_size < 100_000
    notebook = NOTEBOOKS[name]
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert len({cell["id"] for cell in notebook["cells"]}) == len(notebook["cells"])
    outputs = [output for cell in notebook["cells"] for output in cell.get("outputs", [])]
    assert outputs and not any(output["output_type"] == "error" for output in outputs)
    if importlib.util.find_spec("nbformat"):
        importlib.import_module("nbformat").validate(notebook)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_the_links_of_a_notebook_lead_somewhere(name: str) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", text_of(NOTEBOOKS[name], "markdown")):
        page = TUTORIALS / target
        assert page.exists() or page.with_suffix(".ipynb").exists(), target


def test_drop_in(run: Callable[[str], dict[str, Any]]) -> None:
    names = run("1-drop-in")
    assert min(names["accuracy"].values()) > 70
    assert names["temperatures"][-1] != names["temperatures"][0]  # it is trained
    assert names["convolutional"](names["test_x"]).shape == (10, 360, 10)


def test_your_data(run: Callable[[str], dict[str, Any]]) -> None:
    names = run("2-your-data")
    assert names["result"].own.accuracy > 85 and names["result"].mode == "hard"
    assert len(names["history"]) == names["options"]["epochs"]
    assert names["history"][-1]["loss"] < names["history"][0]["loss"]
    assert set(names["hidden"].spikes.unique().tolist()) == {0.0, 1.0}
    assert Path("report.html").stat().st_size > 10_000


def test_a_deep_network(run: Callable[[str], dict[str, Any]]) -> None:
    names = run("3-deep-network")
    assert names["curves"]["hard"][-1] > 90
    assert all(0.02 < rate < 0.9 for rate in names["rates"])


def test_reproduce(run: Callable[[str], dict[str, Any]]) -> None:
    names = run("6-reproduce")
    assert all(run.dataset == "mnist" and run.timesteps == 1 for run in names["runs"])
    assert len(names["ul"].Store().rows()) == 40
    assert 10 < names["interval"](names["accuracies"]("UltraLIF", 1.0)).mean < 100


def test_deploy(run: Callable[[str], dict[str, Any]]) -> None:
    names = run("4-to-hardware")
    assert torch.equal(names["classes"], names["found"][8])
    assert names["accuracy"] > 90
    assert names["additions"] < names["dense"] / 2
    assert abs(names["calibrated_accuracy"] - names["gaps"]["soft"].accuracy) < 5


def test_own_neuron(run: Callable[[str], dict[str, Any]]) -> None:
    names = run("5-own-neuron")
    assert names["exact"] and names["agree"]
    assert names["found"]["Resonator"]["hard"] > 90 > 70 > names["found"]["SoftLIF"]["hard"]
    assert names["difference"] < 1e-4


def test_a_cell_is_run_as_in_jupyter() -> None:
    names: dict[str, Any] = {}
    outputs = RUNNER["run_cell"]("a = 2\nprint('hello')\na + 1", names)
    assert [output["output_type"] for output in outputs] == ["stream", "display_data"]
    assert outputs[0]["text"] == ["hello\n"] and outputs[1]["data"] == {"text/plain": ["3"]}
    (listed,) = RUNNER["run_cell"]("word = 'list'\n!ultralif data {word}", names)
    assert any("fashion-mnist" in line for line in listed["text"])
    assert RUNNER["run_cell"]("import sys", names) == []


@pytest.mark.skipif(not importlib.util.find_spec("mkdocs"), reason="mkdocs is in the docs extra")
def test_a_notebook_becomes_a_page() -> None:
    hook = runpy.run_path(str(TUTORIALS.parent / "hooks" / "notebooks.py"))
    blocks = list(hook["_blocks"](NOTEBOOKS["1-drop-in"]["cells"]))
    assert blocks[0].startswith("# ")
    assert any(block.startswith("<img alt=") for block in blocks)
    fences = [block for block in blocks if block.startswith("```python")]
    assert len(fences) == sum(cell["cell_type"] == "code" for cell in NOTEBOOKS["1-drop-in"]["cells"])
