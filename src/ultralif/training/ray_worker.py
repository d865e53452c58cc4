"""The part of a sweep on Ray that runs on the workers: one stack a task."""

import os
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ultralif.errors import InputError, JobError, is_out_of_memory, need
from ultralif.training.config import RunConfig
from ultralif.training.lock import Busy
from ultralif.training.loop import train_stack
from ultralif.training.options import Interrupted, Progress, RunOptions
from ultralif.training.store import Finished, Store

__all__ = ["PATIENCE", "PAUSE", "Board", "Order", "Outcome", "Task", "train_task"]

PAUSE = 0.2
"""Seconds between two looks at the cluster."""
PATIENCE = 60.0
"""Seconds to wait for a free node, and for a lost worker to release its stack."""


class _Folders(Store):
    """The store as a worker sees it: it writes the folders of runs and leaves the index to the driver."""

    def write(self, runs: Iterable[Finished], aside: Path | None = None) -> None:
        """Write the folders of finished runs."""
        self.write_folders(runs, aside)


class Order(NamedTuple):
    """Settings of a worker."""

    root: Path
    token: str
    device: str
    data_dir: Path | None
    checkpoint_seconds: float


class Outcome(NamedTuple):
    """The outcome of a task: ``done``, ``stopped``, ``too large``, ``bad input``, ``failed`` or ``lost``."""

    kind: str
    message: str = ""


@dataclass
class Task:
    """A stack that is not finished, and its number in the plan."""

    number: int
    stack: list[RunConfig]
    crashes: int = 0


class Board:
    """Actor to which workers report progress, and which tells them whether to stop."""

    def __init__(self) -> None:
        self.news: list[Progress] = []
        self.code = 0

    def tell(self, progress: Progress) -> None:
        """Take the progress of a stack."""
        self.news.append(progress)

    def take(self) -> list[Progress]:
        """Hand over the news since the last call."""
        news, self.news = self.news, []
        return news

    def stop(self, code: int) -> None:
        """Ask all workers to stop."""
        self.code = code

    def stopping(self) -> int:
        """Return 0, or the exit code to stop with."""
        return self.code


def train_task(task: Task, order: Order, board: Any) -> Outcome:
    """Train a stack on a worker; an error comes back as a message for the user."""
    ray = need("ray", "ray")
    store, asked = _Folders(order.root), _asking(ray, board)
    try:
        if not (order.root / order.token).exists():
            raise InputError(
                f"{order.root} on node {os.uname().nodename} is not the folder that the driver sees; choose "
                "one that all nodes share with --runs-dir"
            )
        if asked():
            return Outcome("stopped")
        options = RunOptions(
            device=order.device,
            data_dir=order.data_dir,
            report=board.tell.remote,
            stopping=asked,
            checkpoint_seconds=order.checkpoint_seconds,
        )
        _patiently(lambda: train_stack(task.stack, store, options.numbered(task.number)))
    except Interrupted:
        return Outcome("stopped")
    except InputError as error:
        return Outcome("bad input", str(error))
    except JobError as error:
        return Outcome("failed", str(error))
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        if len(task.stack) > 1:
            return Outcome("too large")
        return Outcome("failed", f"{task.stack[0].id} alone does not fit the device; choose smaller sizes")
    return Outcome("done")


def _patiently(work: Callable[[], object]) -> None:
    """Run a function whose lock a dying process may still hold."""
    began = time.monotonic()
    while True:
        try:
            work()
            return
        except Busy:
            if time.monotonic() - began > PATIENCE:
                raise
            time.sleep(PAUSE)


def _asking(ray: Any, board: Any) -> Callable[[], int]:
    """Return a function that asks the board once a second whether to stop."""
    code, last = 0, -1.0

    def asked() -> int:
        nonlocal code, last
        now = time.monotonic()
        if now - last > 1.0:
            with suppress(ray.exceptions.RayError):
                code = ray.get(board.stopping.remote(), timeout=10)
            last = time.monotonic()
        return code

    return asked
