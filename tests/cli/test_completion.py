"""Completion, as bash does it."""

import shutil
import subprocess

import pytest

from ultralif.cli import COMMANDS, main

TRY = """
{script}
COMP_WORDS=({line}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _ultralif; echo "${{COMPREPLY[@]}}"
"""


@pytest.fixture(scope="module")
def complete():
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("there is no bash")
    import contextlib
    import io

    script = io.StringIO()
    with contextlib.redirect_stdout(script):
        assert main(["completion", "bash"]) == 0

    def ask(line: str) -> list[str]:
        code = TRY.format(script=script.getvalue(), line=line)
        return subprocess.run([bash, "-c", code], capture_output=True, text=True, check=True).stdout.split()

    return ask


def test_completion(complete) -> None:
    assert complete("ultralif ''") == list(COMMANDS)
    assert complete("ultralif tr") == ["train"]
    assert complete("ultralif train --epo") == ["--epochs"]
    assert complete("ultralif train --eps 0.5 --tim") == ["--timesteps"]
    assert complete("ultralif train --precision ''") == ["float32", "tf32", "bfloat16", "float64"]
    assert complete("ultralif train --neuron UltraD") == ["UltraDLIF", "UltraDPLIF"]
    assert complete("ultralif runs ''") == ["list", "show", "compare", "rm", "export", "rebuild"]
    assert complete("ultralif runs list --stat") == ["--status"]
    assert complete("ultralif runs export --to m") == ["markdown"]


def test_zsh_goes_by_the_same_script(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "bash"]) == 0
    bash = capsys.readouterr().out
    assert main(["completion", "zsh"]) == 0
    assert capsys.readouterr().out == f"autoload -U +X bashcompinit && bashcompinit\n{bash}"
