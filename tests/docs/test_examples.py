"""Every example runs, says something, and what it says is right."""

import re
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
FILES = sorted(EXAMPLES.glob("*.py"))

pytestmark = pytest.mark.slow


def example(name: str) -> Callable[..., Any]:
    """Return an example's main function, whose numbers are also what it prints."""
    return runpy.run_path(str(EXAMPLES / f"{name}.py"))["main"]


def test_there_are_six_and_two_for_gpus() -> None:
    assert len(FILES) == 8 and {"large_conv", "speedrun"} < {path.stem for path in FILES}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_an_example_is_one_short_file(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= (330 if path.stem == "speedrun" else 100)
    assert text.startswith('"""') and 'if __name__ == "__main__":' in text
    assert not re.search(r"^(from|import) (examples|tests)", text, re.MULTILINE)


def test_digits() -> None:
    found = example("digits")()
    assert found["UltraLIF"] >= 95 and found["LIF"] > 80


def test_convolution() -> None:
    found = example("convolution")()
    assert found["soft"] > 85 and found["hard"] > 80


def test_timing() -> None:
    """With memory nearly all, without it some of them: chance is 10."""
    found = example("timing")()
    assert found["LIF"] > 95 and found["UltraDLIF"] > 85
    assert 30 < found["UltraLIF"] < found["UltraDLIF"]


def test_own_neuron() -> None:
    found = example("own_neuron")()
    assert found["Resonator"] > 90 > 70 > found["SoftLIF"]


def test_streaming() -> None:
    whole, early, steps = example("streaming")()
    assert whole > 75 and early > whole - 5
    assert 1 <= steps < 8


def test_deploy_to_c(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    found = example("deploy_to_c")(tmp_path)
    assert found["C"] == found["integers"]
    assert found["C"] > found["soft"] - 5 > 70
    assert "no multiplication" in capfd.readouterr().out
    code = re.sub(r"/\*.*?\*/", "", (tmp_path / "model" / "model.c").read_text(), flags=re.DOTALL)
    assert not re.search(r"\b(float|double|malloc)\b", code)
