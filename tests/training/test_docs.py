"""What docs/reference/training.md promises has its test, and its commands are understood."""

import re
import shlex
from pathlib import Path

import pytest

from ultralif.cli.arguments import read_arguments
from ultralif.cli.train import Train

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "training.md").read_text()


def test_its_commands_are_understood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = tmp_path / "runs" / "6c0c31e38c43" / "config.json"
    config.parent.mkdir(parents=True)
    config.write_text("{}")
    lines = re.findall(r"^ultralif train\b(.*)$", PAGE, re.MULTILINE)
    assert len(lines) == 3
    for rest in lines:
        assert read_arguments(Train, shlex.split(rest, comments=True), "train")


def test_the_tests_that_it_names_are_there() -> None:
    named = re.findall(r"`((?:cli/)?test_\w+\.py)`", PAGE)
    assert len(named) > 10
    for name in named:
        assert any(ROOT.joinpath("tests", place, name).is_file() for place in ("training", "")), name
