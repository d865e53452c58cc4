"""Calling commands as a user does, and reading what they say."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ultralif.cli import main

QUICK = ("--epochs", "1", "--hidden", "6", "--timesteps", "2", "--batch-size", "512")
"""A run that takes a moment."""


class Said(NamedTuple):
    code: int
    out: str
    err: str


class Commands:
    """The command line in this process, with runs in a folder of the test's own."""

    def __init__(self, capsys: pytest.CaptureFixture[str], folder: Path) -> None:
        self.capsys, self.folder = capsys, folder

    def __call__(self, *words: str) -> Said:
        self.capsys.readouterr()
        try:
            code = main(words)
        except SystemExit as left:  # help
            code = int(left.code or 0)
        return Said(code, *self.capsys.readouterr())

    def done(self, *words: str) -> str:
        """Return what a command prints that must succeed."""
        said = self(*words)
        assert said.code == 0, said.err
        return said.out

    def json(self, *words: str) -> Any:
        """Return the document that a command prints, and nothing else with it."""
        said = self(*words, "--json")
        assert said.code == 0 and said.err == "", said.err
        return json.loads(said.out)

    def refused(self, *words: str, code: int = 2) -> str:
        """Return the one line with which a command is refused."""
        said = self(*words)
        assert said.code == code and said.out == "", (said, words)
        assert said.err.startswith("ultralif: ") and said.err.count("\n") == 1, said.err
        return said.err
