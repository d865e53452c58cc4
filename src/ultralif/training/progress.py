"""Options that do not affect a run's result, progress reports and stop signals; does not import torch."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, Protocol

from ultralif.errors import InputError, JobError
from ultralif.files import visible

__all__ = [
    "Interrupted",
    "Progress",
    "RunOptions",
    "spell_count",
    "spell_time",
    "stop_on_signals",
    "training_progress",
]


class Callback(Protocol):
    """Called after every epoch with an `ultralif.training.callbacks.EpochState`."""

    def on_epoch_end(self, state: Any) -> bool | None:
        """Return True to end training."""


class Progress(NamedTuple):
    """The state of a stack being trained.

    Example:
        >>> progress = Progress(members=1, epoch=3, epochs=10, loss=0.2, accuracy=95.0)
        >>> f"epoch {progress.epoch} of {progress.epochs}"
        'epoch 3 of 10'
    """

    members: int
    epoch: int
    epochs: int
    loss: float | None
    """Mean over the members in the last epoch."""
    accuracy: float | None
    """Mean training accuracy over the members in the last epoch, in percent."""
    note: str | None = None
    """A message for the user."""
    stack: int = 0
    """The stack's number in the plan."""


class Interrupted(JobError):
    """Training was asked to stop; everything is saved.

    Example:
        >>> error = Interrupted("stopped in epoch 3 of 10", 130)
        >>> error.code
        130
    """

    def __init__(self, where: str, code: int) -> None:
        super().__init__(f"{where}; everything is saved. The same command resumes from there")
        self.where, self.code = where, code


def _silent(progress: Progress) -> None:
    """Report nothing."""


def _never() -> int:
    """Never stop."""
    return 0


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Training options that do not affect the results.

    Example:
        >>> RunOptions(device="cpu", checkpoint_seconds=10.0).device
        'cpu'
    """

    device: str = "auto"
    """``cpu``, ``cuda`` ... or ``auto``: the GPU if there is one."""
    data_dir: Path | None = None
    """A folder to search first for data."""
    report: Callable[[Progress], None] = _silent
    """Called after every epoch, and with a note whenever something unusual happens."""
    stopping: Callable[[], int] = _never
    """Called after every step; it returns 0 to continue, or an exit code to stop."""
    checkpoint_seconds: float = 60.0
    """The maximum number of seconds of work lost if the process is killed."""
    callbacks: Sequence["Callback"] = ()
    """Objects whose ``on_epoch_end(state)`` is called after every epoch."""
    graph: bool = True
    """Record steps on a GPU; False for a network that makes decisions in Python at every step."""

    def __post_init__(self) -> None:
        """Raise an InputError for a negative time."""
        if not self.checkpoint_seconds >= 0:
            raise InputError(f"checkpoint_seconds must be 0 or more, got {self.checkpoint_seconds}")

    def numbered(self, stack: int) -> "RunOptions":
        """Return the same options for one stack of a plan, with its number added to progress reports."""
        return replace(self, report=lambda progress: self.report(progress._replace(stack=stack)))


PAUSE = 10.0
"""Seconds between progress lines."""


def say(text: str) -> None:
    """Print a line for the user to standard error."""
    print(visible(text), file=sys.stderr, flush=True)


def spell_time(seconds: float) -> str:
    """Format a duration for messages.

    Example:
        >>> spell_time(4.2), spell_time(600), spell_time(9000)
        ('4 s', '10 min', '2.5 h')
    """
    if seconds < 120:
        return f"{max(1, seconds):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def spell_count(count: int, noun: str) -> str:
    """Format a count with its noun.

    Example:
        >>> spell_count(1, "run"), spell_count(1200, "run")
        ('1 run', '1,200 runs')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


Report = Callable[[Progress], None]


@contextmanager
def training_progress(seconds: Sequence[float], *, quiet: bool) -> Iterator[Report]:
    """Show the progress of stacks; yield a function to call with one stack's progress.

    Args:
        seconds: the expected time of each stack, in any unit.
        quiet: show only notes.
    """
    work = _Work(seconds)
    if quiet or not (sys.stderr.isatty() or "ipykernel" in sys.modules):
        yield _Lines(work, quiet).report
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[state]}"),
    )
    with Bars(*columns, console=Console(stderr=True)) as bars:
        task = bars.add_task("loading", total=1.0, state="")

        def report(progress: Progress) -> None:
            if progress.note:
                bars.console.print(visible(progress.note), markup=False, highlight=False)
            name = f"{work.name(progress.stack)}epoch {progress.epoch}/{progress.epochs}"
            bars.update(task, completed=work.part(progress), state=_state(progress), description=name)

        yield report


class _Work:
    """All stacks of a job, weighted by their expected time."""

    def __init__(self, seconds: Sequence[float]) -> None:
        total = sum(seconds)
        self.weights = [time / total for time in seconds]
        self.done = [0.0] * len(seconds)

    def name(self, stack: int) -> str:
        """Return the number of the stack as text, if there are several."""
        return f"stack {stack + 1}/{len(self.weights)}, " if len(self.weights) > 1 else ""

    def part(self, progress: Progress) -> float:
        """Record a stack's progress, and return the completed share of all work."""
        self.done[progress.stack] = progress.epoch / progress.epochs
        return sum(weight * done for weight, done in zip(self.weights, self.done, strict=True))


class _Lines:
    """Progress as plain lines."""

    def __init__(self, work: _Work, quiet: bool) -> None:
        self.work = work
        self.quiet = quiet
        self.began: tuple[float, float] | None = None
        """Time of the first report and the share completed by then, which is not 0 for a resumed job."""
        self.last = time.monotonic()

    def report(self, progress: Progress) -> None:
        if progress.note:
            say(progress.note)
            return
        now, part = time.monotonic(), self.work.part(progress)
        if self.began is None:
            self.began = (self.last, part - self.work.weights[progress.stack] / progress.epochs)
        ends = progress.epoch == progress.epochs
        if self.quiet or (now - self.last < PAUSE and not ends):
            return
        self.last = now
        done = part - self.began[1]  # 0 or negative for a job that fell back to an older checkpoint
        left = (now - self.began[0]) / done * (1 - part) if done > 0 else 0.0
        name = f"{self.work.name(progress.stack)}epoch {progress.epoch}/{progress.epochs}"
        say(f"{name}: {_state(progress)}" + (f", about {spell_time(left)} left" if left >= 0.5 else ""))


def _state(progress: Progress) -> str:
    if progress.loss is None:
        return spell_count(progress.members, "network")
    if progress.accuracy is None:
        return f"loss {progress.loss:.4f}"
    mean = "mean " if progress.members > 1 else ""
    return f"{mean}loss {progress.loss:.4f}, {mean}training accuracy {progress.accuracy:.1f} %"


@contextmanager
def stop_on_signals(*numbers: signal.Signals) -> Iterator[Callable[[], int]]:
    """Let signals end a job after its current step; a second SIGINT ends it immediately.

    Args:
        numbers: the signals; by default SIGINT and SIGTERM. Outside the main thread, they are left alone.

    Yields a function that returns 0, or the exit code if a signal arrived. Before the first call of that
    function there is nothing to save, so a signal ends the job at once.
    """
    came, training = 0, False

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal came
        if not training and number == signal.SIGTERM:
            raise SystemExit(128 + number)
        if not training or (came and number == signal.SIGINT):
            signal.signal(signal.SIGINT, lambda number, frame: os._exit(130))  # a third one ends the process
            raise KeyboardInterrupt
        came = 128 + number
        say("stopping after this step; everything will be saved (press again to stop immediately)")

    def asked() -> int:
        nonlocal training
        training = True
        return came

    main = threading.current_thread() is threading.main_thread()
    wanted = (numbers or (signal.SIGINT, signal.SIGTERM)) if main else ()
    before = {number: signal.signal(number, stop) for number in wanted}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
