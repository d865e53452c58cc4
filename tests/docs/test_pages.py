"""The code on the pages runs, from the top of each page to its end, and what it claims it asserts."""

import contextlib
import importlib
import io
import json
import re
import runpy
import shlex
import textwrap
import warnings
from functools import cache
from pathlib import Path

import pytest

from ultralif.cli import COMMANDS
from ultralif.cli import main as ultralif
from ultralif.cli.arguments import option_flags
from ultralif.errors import InputError

DOCS = Path(__file__).parents[2] / "docs"


def text_of(path: Path) -> str:
    """Return a page's text, or that of a notebook, whose code is run in test_tutorials.py."""
    if path.suffix == ".md":
        return path.read_text()
    cells = json.loads(path.read_text())["cells"]
    return "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")


FILES = sorted(path for suffix in ("md", "ipynb") for path in DOCS.rglob(f"*.{suffix}"))
PAGES = {str(path.relative_to(DOCS)): text_of(path) for path in FILES}
PEERS = ("norse", "snntorch", "spikingjelly")
STAND_INS = {"reference/training.md": ("n-mnist", "randman")}
"""Data that every machine has, in place of what it may not have."""


def blocks(text: str, language: str) -> list[str]:
    """Return the blocks of a language, also those in tabs."""
    found = re.findall(rf"^ *```{language}\n(.*?)^ *```", text, re.DOTALL | re.MULTILINE)
    return [textwrap.dedent(block) for block in found]


SECTION_BY_SECTION = "pytorch.md"  # in test_pytorch_page.py
WITH_CODE = [n for n, text in PAGES.items() if blocks(text, "python") and n != SECTION_BY_SECTION]


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


def test_the_examples_of_errors_raise_errors_of_ours_or_of_torch() -> None:
    """They are run in order, as the hook does that puts their messages onto the page."""
    hook = runpy.run_path(str(DOCS / "hooks" / "errors.py"))
    session: dict[str, object] = {}
    raised = []
    for raises, code in hook["BLOCK"].findall(PAGES["errors.md"]):
        if not raises:
            exec(code, session)  # noqa: S102
            continue
        with pytest.raises((InputError, TypeError, RuntimeError)) as error:
            exec(code, session)  # noqa: S102
        raised.append(error.type)
    assert raised.count(InputError) >= 7
    assert "`" * 3 + "python raises" not in hook["on_page_markdown"](PAGES["errors.md"])


def commands(text: str) -> list[list[str]]:
    """Return the calls of our command line in the shell's blocks, as words."""
    lines = "\n".join(blocks(text, "sh")).splitlines()
    return [shlex.split(line, comments=True) for line in lines if line.startswith("ultralif")]


@cache
def explained(*words: str) -> str:
    """Return the help of a command or of one of its actions."""
    with contextlib.redirect_stdout(io.StringIO()) as shown, contextlib.suppress(SystemExit):
        ultralif([*words, "--help-all" if words[0] in ("train", "sweep") else "--help"])
    options = option_flags().values() if words[0] in ("train", "sweep") else ()
    return shown.getvalue() + "".join(f" {flag.written}" for flag in options)


@pytest.mark.parametrize("name", [name for name, text in PAGES.items() if commands(text)])
def test_the_commands_of_a_page_are_there_with_their_flags(name: str) -> None:
    for words in commands(PAGES[name]):
        if len(words) == 1 or words[1].startswith("-"):
            continue
        assert words[1] in COMMANDS, words
        shown = explained(words[1])
        if " ACTION " in shown:
            assert f" {words[2]} " in shown, words
            shown = explained(*words[1:3])
        for flag in words:
            if flag.startswith("--"):
                assert re.search(rf"{flag}\b", shown), words
