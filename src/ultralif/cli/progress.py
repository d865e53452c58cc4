"""Progress of long jobs: a bar on a terminal, now and then a line elsewhere; and how to stop them."""

import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ultralif.training import Progress

__all__ = ["say", "stop_on_signals", "training_progress"]


def say(text: str) -> None:
    """Tell a person something, aside from the command's output."""
    print(text, file=sys.stderr, flush=True)


@contextmanager
def training_progress(epochs: list[int], *, quiet: bool) -> Iterator[Callable[[int, "Progress"], None]]:
    """Show how far stacks are; yield what to call with a stack's number and its progress.

    Args:
        epochs: of each stack.
        quiet: show nothing but surprises.
    """
    if quiet or not sys.stderr.isatty():
        yield _Lines(epochs, quiet).report
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[state]}"),
        TimeRemainingColumn(),
    )
    with Bars(*columns, console=Console(stderr=True)) as bars:
        task = bars.add_task("epochs", total=sum(epochs), state="")

        def report(stack: int, progress: "Progress") -> None:
            if progress.note:
                bars.console.print(progress.note, markup=False, highlight=False)
            done = sum(epochs[:stack]) + progress.epoch
            name = f"stack {stack + 1}/{len(epochs)}" if len(epochs) > 1 else "epochs"
            bars.update(task, completed=done, state=_state(progress), description=name)

        yield report


class _Lines:
    """Progress as plain lines, at most every ten seconds."""

    def __init__(self, epochs: list[int], quiet: bool) -> None:
        self.epochs = epochs
        self.quiet = quiet
        self.began = self.last = time.monotonic()

    def report(self, stack: int, progress: "Progress") -> None:
        if progress.note:
            say(progress.note)
        now = time.monotonic()
        if self.quiet or progress.epoch == 0 or (now - self.last < 10 and progress.epoch < progress.epochs):
            return
        self.last = now
        done = sum(self.epochs[:stack]) + progress.epoch
        left = (now - self.began) / done * (sum(self.epochs) - done)
        name = f"stack {stack + 1}/{len(self.epochs)}, " if len(self.epochs) > 1 else ""
        say(f"{name}epoch {progress.epoch}/{progress.epochs}: {_state(progress)}, about {left:.0f} s left")


def _state(progress: "Progress") -> str:
    if progress.loss is None or progress.accuracy is None:
        return f"{progress.members} networks"
    mean = "mean " if progress.members > 1 else ""
    return f"{mean}loss {progress.loss:.4f}, {mean}training accuracy {progress.accuracy:.1f} %"


@contextmanager
def stop_on_signals() -> Iterator[Callable[[], int]]:
    """Let SIGINT and SIGTERM end a job at its next step; a second SIGINT ends it at once.

    Yields a function that returns 0, or the exit code of the signal that came.
    """
    came = 0

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal came
        if came and number == signal.SIGINT:
            raise KeyboardInterrupt
        came = 128 + number
        say("stopping after this step; everything will be saved (once more to stop at once)")

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
