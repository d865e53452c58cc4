"""The frame of the command line: help without torch, suggestions, one-line errors, exit codes."""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import ultralif
from ultralif import cli
from ultralif.cli.parse import dispatch, parse
from ultralif.errors import InputError, JobError


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[list[str]], None]], None]:
    """Register a command ``probe`` that does what the test wants."""

    def register(main: Callable[[list[str]], None]) -> None:
        module = ModuleType("ultralif.cli.probe")
        vars(module)["main"] = main
        monkeypatch.setitem(sys.modules, "ultralif.cli.probe", module)
        monkeypatch.setitem(cli.COMMANDS, "probe", "Do what a test wants.")

    return register


def raising(error: BaseException) -> Callable[[list[str]], None]:
    def main(argv: list[str]) -> None:
        raise error

    return main


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(28, "No space left on device", "/a/picture.png"), "/a/picture.png cannot be used (No space"),
        (MemoryError(), "out of memory"),
        (RuntimeError("DefaultCPUAllocator: not enough memory: you tried"), "out of memory"),
    ],
    ids=str,
)
def test_what_the_system_refuses_is_one_line(
    error: Exception, said: str, command, capsys: pytest.CaptureFixture[str]
) -> None:
    command(raising(error))
    assert cli.main(["probe"]) == 1
    err = capsys.readouterr().err
    assert said in err and err.count("\n") == 1


def test_other_errors_are_bugs(command) -> None:
    command(raising(RuntimeError("a bug")))
    with pytest.raises(RuntimeError, match="a bug"):
        cli.main(["probe"])


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("output", ["> /dev/full", ">&-"])
def test_output_that_goes_nowhere(output: str) -> None:
    script = "from ultralif.cli import main; raise SystemExit(main(['--help']))"
    done = subprocess.run(
        ["sh", "-c", f'"{sys.executable}" -c "{script}" {output}'], capture_output=True, text=True
    )
    assert "Traceback" not in done.stderr
    assert done.returncode == (1 if "full" in output else 0)


@pytest.mark.parametrize("argv", [[], ["-h"], ["--help"]])
def test_help_lists_every_command(argv: list[str], command, capsys: pytest.CaptureFixture[str]) -> None:
    command(lambda argv: None)
    assert cli.main(argv) == 0
    out, err = capsys.readouterr()
    assert not err and "usage: ultralif" in out
    for name, text in cli.COMMANDS.items():
        assert name in out and text in out


@pytest.mark.parametrize("flag", ["-V", "--version"])
def test_version(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([flag]) == 0
    assert capsys.readouterr().out.strip() == f"ultralif {ultralif.__version__}"


def test_every_command_has_a_module_with_its_functions() -> None:
    for name in cli.COMMANDS:
        command = import_module(f"ultralif.cli.{name}").COMMAND
        assert all(map(callable, command.values() if isinstance(command, dict) else [command]))


def test_a_command_gets_the_rest_of_the_line(command) -> None:
    seen: list[list[str]] = []
    command(seen.append)
    assert cli.main(["probe", "--deep", "3"]) == 0
    assert seen == [["--deep", "3"]]


@pytest.mark.parametrize(("typed", "hint"), [("prob", "did you mean 'probe'?"), ("zzzz", "choose one of")])
def test_an_unknown_command(typed: str, hint: str, command, capsys: pytest.CaptureFixture[str]) -> None:
    command(lambda argv: None)
    assert cli.main([typed]) == 2
    out, err = capsys.readouterr()
    assert not out
    assert err.startswith("ultralif: ") and f"'{typed}'" in err and hint in err and "probe" in err


@pytest.mark.parametrize(
    ("error", "code"), [(InputError("eps is bad;\n  pass another"), 2), (JobError("the disk is full"), 1)]
)
def test_errors_are_one_line_and_an_exit_code(
    error: Exception, code: int, command, capsys: pytest.CaptureFixture[str]
) -> None:
    command(raising(error))
    assert cli.main(["probe"]) == code
    out, err = capsys.readouterr()
    assert not out and err == f"ultralif: {' '.join(str(error).split())}\n"


def test_an_interrupt(command, capsys: pytest.CaptureFixture[str]) -> None:
    command(raising(KeyboardInterrupt()))
    assert cli.main(["probe"]) == 130
    assert capsys.readouterr().err == "ultralif: interrupted\n"


def test_a_mistake_of_ours_is_not_dressed_up(command) -> None:
    command(raising(ZeroDivisionError()))
    with pytest.raises(ZeroDivisionError):
        cli.main(["probe"])


def test_a_bad_constant_is_bad_input(command, capsys: pytest.CaptureFixture[str]) -> None:
    """What the neurons refuse reaches the terminal as one line."""
    command(lambda argv: ultralif.UltraLIF(eps=-1.0) and None)
    assert cli.main(["probe"]) == 2
    assert "eps" in capsys.readouterr().err


def train(*, neuron: str = "UltraLIF", epochs: int = 3, fast: bool = False) -> tuple[str, int, bool]:
    """Train a network.

    Args:
        neuron: its neuron.
        epochs: how often the data is seen.
        fast: take fewer steps.
    """
    return neuron, epochs, fast


@dataclass
class Config:
    """What is trained."""

    epochs: int = 3
    """How often the data is seen."""


def test_arguments_from_a_function_and_a_dataclass() -> None:
    assert parse(train, [], "train") == ("UltraLIF", 3, False)
    assert parse(train, ["--epochs", "5", "--fast"], "train") == ("UltraLIF", 5, True)
    assert parse(Config, ["--epochs", "7"], "train") == Config(7)


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--epochs", "many"], ("epochs", "many")),
        (["--epoch", "3"], ("epoch",)),
        (["stray"], ("stray",)),
        (["--epochs"], ("epochs",)),
    ],
)
def test_arguments_that_cannot_be_parsed(
    argv: list[str], words: tuple[str, ...], command, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2 and one line that names them, whether a function or a dataclass is the target."""
    for target in (train, Config):
        command(lambda rest, target=target: parse(target, rest, "probe") and None)
        assert cli.main(["probe", *argv]) == 2
        out, err = capsys.readouterr()
        assert not out and err.count("\n") == 1 and err.startswith("ultralif: ")
        assert all(word in err for word in words), err
        assert not set(err) & set("│╭╮╰╯─")


def test_an_error_in_the_work_is_not_taken_for_bad_arguments() -> None:
    """Parsing ends before the work begins: what the work prints or raises is its own."""

    def work(*, code: int = 3) -> None:
        """Leave with a code."""
        print("from the work", file=sys.stderr)
        raise SystemExit(code)

    with pytest.raises(SystemExit) as left:
        parse(work, [], "probe")
    assert left.value.code == 3


def test_help_of_a_command(command, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        parse(train, ["--help"], "train")
    assert left.value.code == 0
    out = capsys.readouterr().out
    assert "ultralif train" in out and "--epochs" in out and "how often the data is seen" in out.lower()


def test_dispatch_to_one_of_several_actions(capsys: pytest.CaptureFixture[str]) -> None:
    done = []

    def show(name: str) -> None:
        """Show one."""
        done.append(("show", name))

    def clean(*, hard: bool = False) -> None:
        """Remove what is not needed."""
        done.append(("clean", hard))

    actions = {"show": show, "clean": clean}
    dispatch(actions, ["clean", "--hard"], "runs")
    assert done == [("clean", True)]
    for bad in (["shew"], [], ["clean", "--soft"]):
        with pytest.raises(InputError) as error:
            dispatch(actions, bad, "runs")
        assert "\n" not in str(error.value) and str(error.value)
    assert done == [("clean", True)]
    with pytest.raises(SystemExit):
        dispatch(actions, ["--help"], "runs")
    assert "Show one." in capsys.readouterr().out


class TestProcess:
    """As a user meets it."""

    def test_help_is_quick_and_needs_no_torch(self, python) -> None:
        before = os.times()
        shown = python.run("-m", "ultralif", "--help")
        after = os.times()
        assert "usage: ultralif" in shown.stdout
        spent = after.children_user + after.children_system - before.children_user - before.children_system
        assert spent < 0.3  # seconds of the processor: other work on the machine does not count
        loaded = python.run(
            "-c", "import sys; from ultralif.cli import main; main(['--help']); print('torch' in sys.modules)"
        )
        assert loaded.stdout.splitlines()[-1] == "False"

    def test_exit_codes(self, python) -> None:
        assert python.run("-m", "ultralif").returncode == 0
        wrong = python.run("-m", "ultralif", "nonsense", check=False)
        assert wrong.returncode == 2 and wrong.stderr.count("\n") == 1 and "nonsense" in wrong.stderr


def test_a_reader_that_leaves_is_no_error() -> None:
    """As ``head`` does: what the command still wants to say has nowhere to go."""
    command = [sys.executable, "-m", "ultralif", "--help"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    with process.stderr as complaints:
        assert complaints.read() == b"" and process.wait() == 0
