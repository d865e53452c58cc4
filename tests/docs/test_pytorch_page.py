"""Each section of the page on PyTorch's ecosystem runs by itself, where its library is installed."""

import importlib
import re
import textwrap
import warnings
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "pytorch.md").read_text()
SECTIONS = re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)
LIBRARIES = ("huggingface_hub", "lightning", "optuna", "torchvision")


@pytest.mark.parametrize(("title", "text"), SECTIONS, ids=[title for title, _ in SECTIONS])
def test_a_section_runs(title: str, text: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ULTRALIF_RUNS", str(tmp_path / "runs"))
    (code,) = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    with warnings.catch_warnings():
        for library in LIBRARIES:
            if re.search(rf"^(import|from) {library}\b", code, re.MULTILINE):
                warnings.simplefilter("ignore")  # theirs are not ours
                try:
                    importlib.import_module(library)
                except ImportError:
                    pytest.skip(f"{library} is not installed; see tests/peers.txt")
        exec(compile(textwrap.dedent(code), title, "exec"), {"__name__": "page"})  # noqa: S102


def test_every_section_has_code() -> None:
    assert len(SECTIONS) == 6 and all("```python" in text for _, text in SECTIONS)
