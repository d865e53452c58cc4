"""Commands as processes: what they import, what a terminal shows, and what a signal does."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ultralif.training.progress import stop_on_signals

LONG = ("--epochs", "100000", "--hidden", "6", "--timesteps", "1", "--checkpoint-seconds", "0.05")
ENDLESS = 90.0
"""Seconds after which a process that should have said something is given up."""


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["train", "--help"],
        ["sweep", "--help"],
        ["eval", "--help"],
        ["runs", "list"],
        ["--version"],
    ],
    ids=" ".join,
)
def test_no_torch_is_imported(words: list[str], python, tmp_path: Path) -> None:
    code = (
        "import contextlib, sys; from ultralif.cli import main\n"
        f"with contextlib.suppress(SystemExit): main({words!r})\n"
        "print([name for name in ('torch', 'numpy.linalg', 'h5py') if name in sys.modules], file=sys.stderr)"
    )
    assert python.run("-c", code).stderr == "[]\n"


def test_the_package_is_imported_in_a_moment(python) -> None:
    code = "import sys, ultralif, ultralif.training; print('torch' in sys.modules)"
    assert python.run("-c", code).stdout == "False\n"


@pytest.mark.skipif(sys.platform == "win32", reason="there is no count of processor time")
@pytest.mark.slow
def test_the_first_command_of_all(python, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without arguments, in half a minute: of the processor, which other work does not lengthen."""
    import resource

    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(python.environment, "ULTRALIF_RUNS", raising=False)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    process = python.start("-m", "ultralif", "train")
    out, err = process.communicate(timeout=280)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert process.returncode == 0, err
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 30
    lines = out.splitlines()
    assert lines[0] == "vgg5 (UltraLIF) on digits, T=4, seed 42"
    assert lines[3].split()[0] == "hard" and float(lines[3].split()[1]) >= 95, "percent of the test set"
    assert "epoch 24/24" in err


def wait_for(condition) -> None:
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < ENDLESS, "nothing happened"
        time.sleep(0.02)


@pytest.mark.parametrize(
    "number",
    [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)],
    ids=lambda number: number.name,
)
def test_a_signal_stops_and_the_same_command_goes_on(number: signal.Signals, python, tmp_path: Path) -> None:
    command = ("-m", "ultralif", "train", *LONG, "--runs-dir", str(tmp_path))
    for attempt in range(2 if number == signal.SIGINT else 1):
        before = {path.name for path in tmp_path.glob(".training/*/[0-9]*")}
        process = python.start(*command)
        wait_for(lambda b=before: {p.name for p in tmp_path.glob(".training/*/[0-9]*")} - b)
        process.send_signal(number)
        out, err = process.communicate(timeout=ENDLESS)
        assert process.returncode == 128 + number and out == ""
        lines = err.splitlines()
        if attempt:
            assert lines[0].startswith("resuming from epoch ")
        assert lines[-2].startswith("stopping after this step; everything will be saved (press again")
        assert lines[-1].startswith("ultralif: stopped in epoch ")
        assert lines[-1].endswith("everything is saved. The same command resumes from there")
        assert "Traceback" not in err
    listed = python.run("-m", "ultralif", "runs", "list", "--runs-dir", str(tmp_path))
    assert "no finished runs" in listed.stdout and "interrupted" in listed.stderr


class TestStopping:
    """What the handlers do, without a process of their own."""

    def test_the_first_signal_is_noted_and_the_second_ends_at_once(self, capsys) -> None:
        with stop_on_signals() as stopping:
            assert stopping() == 0
            os.kill(os.getpid(), signal.SIGINT)
            assert stopping() == 130
            with pytest.raises(KeyboardInterrupt):
                os.kill(os.getpid(), signal.SIGINT)
        assert "stopping after this step" in capsys.readouterr().err

    def test_before_training_there_is_nothing_to_save(self) -> None:
        with stop_on_signals(), pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
        with stop_on_signals(), pytest.raises(SystemExit) as left:
            os.kill(os.getpid(), signal.SIGTERM)
        assert left.value.code == 143

    def test_handlers_are_put_back(self) -> None:
        before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
        with stop_on_signals():
            assert signal.getsignal(signal.SIGINT) != before[0]
        assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such terminals")
def test_a_bar_on_a_terminal(tmp_path: Path, python) -> None:
    """The bar goes to the terminal, the table to the file."""
    import pty

    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "ultralif", "train", "--epochs", "3", "--hidden", "6"]
    process = subprocess.Popen(
        [*command, "--runs-dir", str(tmp_path)],
        env={**python.environment, "TERM": "xterm"},
        stdout=subprocess.PIPE,
        stderr=theirs,
    )
    os.close(theirs)
    shown = b""
    while True:
        try:
            part = os.read(ours, 4096)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        shown += part
    os.close(ours)
    out, _ = process.communicate(timeout=ENDLESS)
    assert process.returncode == 0
    assert b"epoch 3/3" in shown and b"\x1b[" in shown and "━".encode() in shown
    assert b"\x1b" not in out and b"accuracy %" in out
