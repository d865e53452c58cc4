"""Completion, as bash does it."""

import contextlib
import io
import shutil
import subprocess
from collections.abc import Callable

import pytest

from ultralif.cli import COMMANDS, main

TRY = """
{script}
COMP_WORDS=({line}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _tyro_ultralif; echo "${{COMPREPLY[@]}}"
"""


@pytest.fixture(scope="module")
def complete() -> Callable[[str], list[str]]:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("there is no bash")
    with contextlib.redirect_stdout(io.StringIO()) as script:
        assert main(["completion", "bash"]) == 0

    def ask(line: str) -> list[str]:
        code = TRY.format(script=script.getvalue(), line=line)
        return subprocess.run([bash, "-c", code], capture_output=True, text=True, check=True).stdout.split()

    return ask


def test_completion(complete: Callable[[str], list[str]]) -> None:
    assert complete("ultralif ''") == ["-h", "--help", *sorted(COMMANDS)]
    assert complete("ultralif train --epo") == ["--epochs"]
    assert complete("ultralif train --precision ''") == ["float32", "tf32", "bfloat16", "float64"]
    assert complete("ultralif runs list --stat") == ["--status"]
    assert complete("ultralif runs export --to m") == ["markdown"]
