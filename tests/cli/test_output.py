"""All that commands print: nothing that steers a terminal, in one place; and places that are refused."""

import ast
import errno
import io
import os
import signal
import stat
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest

from cli.commands import Commands
from ultralif import cli
from ultralif.cli import output
from ultralif.errors import is_out_of_memory

EVIL = "\x1b]0;owned\x07\x1b[2J\r\n\u202e\x9b31m"


def test_one_module_prints() -> None:
    """Every other module of the command line calls ``echo`` or one of its kind."""
    for path in Path(cli.__file__).parent.glob("*.py"):
        calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
        prints = [
            node.lineno for node in calls if isinstance(node.func, ast.Name) and node.func.id == "print"
        ]
        assert not prints or path.name in ("output.py", "__init__.py"), (path.name, prints)


def test_whatever_is_printed_is_made_of_visible_lines(capsys: pytest.CaptureFixture[str]) -> None:
    output.echo(EVIL)
    output.say(EVIL)
    output.print_values({EVIL: EVIL, "table": [{EVIL: EVIL}]}, False)
    output.print_values({EVIL: EVIL}, True)
    output.print_table((EVIL,), [(EVIL,)], EVIL)
    out, err = capsys.readouterr()
    assert out.count("\\x1b]0;owned") >= 5 and err.count("\n") == 1
    assert all(line.isprintable() for line in (out + err).split("\n"))


@pytest.mark.parametrize(
    "words",
    [
        (EVIL,),
        ("train", f"--{EVIL}"),
        ("train", "--neuron", EVIL),
        ("train", "--epochs", EVIL),
        ("train", "--config", EVIL),
        ("runs", EVIL),
        ("runs", "show", EVIL),
        ("runs", "list", "--runs-dir", EVIL.replace("/", "")),
        ("data", "info", EVIL),
        ("eval", EVIL),
        ("analyze", "volume", EVIL),
        ("report", "--out", f"{EVIL}.html"),
        ("runs", "show", "\udcff"),
    ],
    ids=lambda words: words[0] if words[0].isalpha() else "command",
)
def test_arguments_are_shown_with_their_control_characters_spelled_out(
    words: tuple[str, ...], ultralif: Commands
) -> None:
    said = ultralif(*words)
    assert all(line.isprintable() for line in (said.out + said.err).split("\n")), said
    assert said.err.count("\n") <= 1 and "\udcff" not in said.err


def test_a_terminal_that_knows_ascii_alone(python, tmp_path: Path) -> None:
    environment = {**python.environment, "PYTHONIOENCODING": "ascii"}
    words = [sys.executable, "-m", "ultralif", "runs", "show", "±", "--runs-dir", str(tmp_path)]
    done = subprocess.run(words, env=environment, capture_output=True, text=True)
    assert done.returncode == 2 and "\\xb1" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
        RuntimeError(
            "[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory: you tried"
        ),
        RuntimeError("Storage size calculation overflowed with sizes=[1, 2]"),
        RuntimeError("numel: integer multiplication overflow"),
        RuntimeError("std::bad_alloc"),
        RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    ],
    ids=lambda error: str(error)[:30],
)
def test_memory_that_runs_out_in_any_words(error: Exception) -> None:
    assert is_out_of_memory(error)


def test_memory_that_numpy_and_torch_do_not_get() -> None:
    import torch

    for ask in (
        lambda: np.zeros((1 << 31, 1 << 31)),
        lambda: np.zeros(1 << 62, np.uint8),
        lambda: torch.zeros(1 << 60),
        lambda: torch.zeros(1 << 40, 1 << 40),
    ):
        with pytest.raises((MemoryError, RuntimeError, ValueError)) as caught:
            ask()
        assert is_out_of_memory(caught.value), caught.value
    assert not is_out_of_memory(RuntimeError("a bug")) and not is_out_of_memory(OSError(errno.EIO, "bad"))


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("bench", "--threads", "100000"), "threads must be from 1 to"),
        (("bench", "--threads", "2147483648"), "threads must be from 1 to"),
        (("bench", "--batch", "1000000000"), "choose smaller sizes"),
        (("analyze", "boundary", "2-3-2", "--resolution", "1000000"), "resolution must be from 2 to 2,000"),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, tuple) else "",
)
def test_sizes_have_limits(words: tuple[str, ...], part: str, ultralif: Commands) -> None:
    assert part in ultralif.refused(*words)


def test_a_network_that_fits_no_memory_is_one_line(ultralif: Commands) -> None:
    assert "out of memory" in ultralif.refused("analyze", "volume", "100000-100000000-10", code=1)


@pytest.mark.parametrize(
    "words",
    [
        ("report", "--out"),
        ("runs", "export", "--out"),
        ("analyze", "prune", "3-4-2", "--out"),
        ("analyze", "boundary", "2-3-2", "--out"),
        ("data", "show", "digits", "--out"),
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_places_that_are_no_file(words: tuple[str, ...], ultralif: Commands, tmp_path: Path) -> None:
    """A pipe stays a pipe, a folder a folder, and no folder is made."""
    suffix = ".html" if words[0] == "report" else ".png"
    pipe, folder = tmp_path / f"pipe{suffix}", tmp_path / f"folder{suffix}"
    os.mkfifo(pipe)
    folder.mkdir()
    assert "not a regular file" in ultralif.refused(*words, str(pipe))
    assert "not a regular file" in ultralif.refused(*words, str(folder))
    assert "does not exist; create it first" in ultralif.refused(
        *words, str(tmp_path / "none" / f"x{suffix}")
    )
    assert stat.S_ISFIFO(pipe.stat().st_mode) and not (tmp_path / "none").exists()


class TestQuestion:
    """``runs rm`` asks a person, and does nothing where none can answer."""

    def test_nobody_can_answer(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
        with pytest.raises(ValueError, match="add --yes"):
            output.confirm("delete it?")

    @pytest.mark.parametrize(
        ("answer", "meant"), [("y\n", True), ("YES\n", True), ("\n", False), ("", False)]
    )
    def test_an_answer(self, answer: str, meant: bool, monkeypatch: pytest.MonkeyPatch) -> None:
        stdin = io.StringIO(answer)
        stdin.isatty = lambda: True
        monkeypatch.setattr(sys, "stdin", stdin)
        assert output.confirm("delete it?") is meant


@pytest.mark.skipif(sys.platform != "linux", reason="it looks into /proc")
def test_two_interrupts_are_quiet(python) -> None:
    """Whenever they come: while torch is imported, while it works, while it ends."""
    for pause in (0.0, 0.2, 1.0):
        process = python.start("-m", "ultralif", "analyze", "regions", "3-8-2")
        while "torch" not in Path(f"/proc/{process.pid}/maps").read_text():
            time.sleep(0.01)  # before our first line it is the interpreter's to answer
        for _ in range(2):
            time.sleep(pause)
            process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
        assert "Traceback" not in err and "Exception ignored" not in err, err
        assert process.returncode in (0, 130, -signal.SIGINT)  # the last: while the interpreter ends


SWALLOWED = """
    import signal, sys
    from ultralif import cli

    def run(args):
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            pass
        raise ImportError("cannot load module more than once per process")

    cli._run = run
    sys.exit(cli.main())
"""


def test_an_interrupt_that_compiled_code_drops_is_quiet(python) -> None:
    """As numpy does while torch imports it: what fails then is the interrupt's doing."""
    process = python.start("-c", textwrap.dedent(SWALLOWED))
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, "ultralif: interrupted\n")
