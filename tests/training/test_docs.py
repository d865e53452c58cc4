"""What docs/training.md shows can be done."""

import re
import shlex
from pathlib import Path

import pytest

from ultralif.cli.arguments import read_arguments
from ultralif.cli.sweep import Sweep
from ultralif.cli.train import Train

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "training.md").read_text()


def test_its_code_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ULTRALIF_RUNS", raising=False)
    (block,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names: dict = {}
    exec(block, names)  # noqa: S102
    assert len(capsys.readouterr().out.splitlines()) == len(names["configs"]) == 16
    assert len(names["plan"](names["configs"], names["store"])) == 0
    assert names["net"].sizes == (64, 32, 10)


def test_its_commands_are_understood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = tmp_path / "runs" / "6c0c31e38c43" / "config.json"
    config.parent.mkdir(parents=True)
    config.write_text("{}")
    lines = re.findall(r"^ultralif (train|sweep)\b(.*)$", PAGE, re.MULTILINE)
    assert len(lines) == 5
    for command, rest in lines:
        kind = {"train": Train, "sweep": Sweep}[command]
        assert read_arguments(kind, shlex.split(rest, comments=True), command)


def test_the_tests_that_it_names_are_there() -> None:
    for name in re.findall(r"`((?:cli/)?test_\w+\.py)`", PAGE):
        assert any(ROOT.joinpath("tests", place, name).is_file() for place in ("training", "")), name
