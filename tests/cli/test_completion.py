"""Completion, as bash does it."""

import contextlib
import io
import shutil
import subprocess
import sys
from collections.abc import Callable

import pytest

from ultralif.cli import COMMANDS, main

TRY = """
ultralif() {{ {python} -m ultralif "$@"; }}
{script}
COMP_WORDS=({line}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _ultralif; echo "${{COMPREPLY[@]}}"
"""


@pytest.fixture(scope="module")
def complete() -> Callable[[str], list[str]]:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("there is no bash")
    with contextlib.redirect_stdout(io.StringIO()) as script:
        assert main(["completion", "bash"]) == 0

    def ask(line: str) -> list[str]:
        code = TRY.format(python=sys.executable, script=script.getvalue(), line=line)
        return subprocess.run([bash, "-c", code], capture_output=True, text=True, check=True).stdout.split()

    return ask


def test_completion(complete: Callable[[str], list[str]]) -> None:
    assert complete("ultralif ''") == ["--help", "--version", *COMMANDS]
    assert complete("ultralif train --epo") == ["--epochs"]
    assert complete("ultralif train --precision ''") == ["float32", "tf32", "bfloat16", "float64"]
    assert complete("ultralif train --epochs ''") == complete("ultralif nonsense ''") == []
    assert complete("ultralif runs list --stat") == ["--status"]
    assert complete("ultralif runs export --to m") == ["markdown"]
    assert complete("ultralif completion b") == ["bash"]
