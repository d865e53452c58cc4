"""Options of training that do not change a run's result, and the progress that it reports. Needs no torch."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from ultralif.errors import InputError, JobError

__all__ = ["Interrupted", "Progress", "RunOptions"]


class Progress(NamedTuple):
    """The state of a stack in training."""

    members: int
    epoch: int
    epochs: int
    loss: float | None
    """Mean over the members and the last epoch."""
    accuracy: float | None
    """The same for the training accuracy in percent."""
    note: str | None = None
    """Something that a person should know."""
    stack: int = 0
    """The stack's number in its plan."""


class Interrupted(JobError):
    """Training was asked to stop; everything is saved."""

    def __init__(self, where: str, code: int) -> None:
        super().__init__(f"{where}; everything is saved. The same command goes on from there")
        self.where, self.code = where, code


def _silent(progress: Progress) -> None:
    """Report nothing."""


def _never() -> int:
    """Never stop."""
    return 0


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Options of training that do not change its results."""

    device: str = "auto"
    """``cpu``, ``cuda`` ... or ``auto``: the GPU if there is one."""
    data_dir: Path | None = None
    """The folder that is searched first for data."""
    report: Callable[[Progress], None] = _silent
    """Called after every epoch, and with a note whenever something unusual happens."""
    stopping: Callable[[], int] = _never
    """Called after every step; it returns 0 to continue, or an exit code to stop."""
    checkpoint_seconds: float = 60.0
    """The most work, in seconds, that is lost if the process is killed."""
    graph: bool = True
    """Record steps on a GPU; False for a network that decides in Python from step to step."""

    def __post_init__(self) -> None:
        """Raise an InputError for a time that is not positive."""
        if not self.checkpoint_seconds >= 0:
            raise InputError(f"checkpoint_seconds must be 0 or more, got {self.checkpoint_seconds}")

    def numbered(self, stack: int) -> "RunOptions":
        """Return the same options for one stack of a plan: its progress carries its number."""
        return replace(self, report=lambda progress: self.report(progress._replace(stack=stack)))
