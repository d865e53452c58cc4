"""The page about plots and the report says what works."""

import re
from pathlib import Path

import pytest
from matplotlib import pyplot as plt

from ultralif.cli import main

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "report.md").read_text()


def test_its_code_runs() -> None:
    plt.switch_backend("agg")
    plt.close("all")  # whatever other tests have left open
    session: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL):
        exec(compile(block, "docs/report.md", "exec"), session)  # noqa: S102
    assert len(plt.get_fignums()) == 4
    plt.close("all")


def test_its_pictures_are_there() -> None:
    pictures = re.findall(r"!\[.*?\]\((.*?)\)", TEXT)
    assert len(pictures) == 5
    for picture in pictures:
        assert (ROOT / "docs" / picture).is_file()


def test_its_flags_are_known(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["report", "--help"])
    said = capsys.readouterr().out
    for flag in set(
        re.findall(r"(--[a-z]+)", "\n".join(re.findall(r"```sh\n(.*?)```", TEXT, flags=re.DOTALL)))
    ):
        assert flag in said
