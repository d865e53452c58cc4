"""The code on the pages runs, from the top of each page to its end, and what it claims it asserts."""

import importlib
import re
import warnings
from pathlib import Path

import pytest

from ultralif.cli import COMMANDS

DOCS = Path(__file__).parents[2] / "docs"
PAGES = {str(path.relative_to(DOCS)): path.read_text() for path in sorted(DOCS.rglob("*.md"))}
PEERS = ("norse", "snntorch", "spikingjelly")
ELSEWHERE = {"deployment.md"}
"""Tested in tests/export/test_docs.py."""
STAND_INS = {"data.md": ("n-mnist", "randman")}
"""Data that every machine has, in place of what it may not have."""


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


WITH_CODE = [name for name, text in PAGES.items() if blocks(text, "python") and name not in ELSEWHERE]


@pytest.mark.parametrize("name", WITH_CODE)
def test_a_page_runs(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    code = "\n".join(blocks(PAGES[name], "python")).replace(*STAND_INS.get(name, ("", "")))
    with warnings.catch_warnings():
        peers = [peer for peer in PEERS if re.search(rf"^(import|from) {peer}\b", code, re.MULTILINE)]
        if peers:  # their own warnings are not ours
            warnings.simplefilter("ignore")
        for peer in peers:
            try:
                importlib.import_module(peer)
            except ImportError:
                pytest.skip(f"{peer} is not installed; see tests/peers.txt")
        exec(compile(code, name, "exec"), {})  # noqa: S102


@pytest.mark.parametrize("name", [name for name, text in PAGES.items() if blocks(text, "sh")])
def test_the_commands_of_a_page_are_there(name: str) -> None:
    for block in blocks(PAGES[name], "sh"):
        for command in re.findall(r"^ultralif ([a-z]+)", block, re.MULTILINE):
            assert command in COMMANDS
