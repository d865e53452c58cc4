"""Victims: children forked from a process that has torch and the data loaded, so that they start at once.

The parent itself never trains: autograd must not have run before a fork.
"""

import ctypes
import json
import os
import signal
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from ultralif.errors import InputError, JobError

CRASHED = 70
"""Exit code of a child that ended by an error which no user should see."""


class Ended(NamedTuple):
    """How a child ended: its exit code, or the negative number of the signal that killed it."""

    code: int
    message: str

    @property
    def is_clear(self) -> bool:
        """Whether it did its work, or said in one sentence why not."""
        return self.code in (0, 1, 2, 130, 143)


class Row(NamedTuple):
    """A line of the table."""

    test: str
    size: str
    bar: str
    found: str
    reached: bool


class Child:
    """A process that does some work and ends."""

    def __init__(self, work: Callable[[], object]) -> None:
        self.reading, writing = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self.reading)
            code, message = done(work)
            os.write(writing, message.encode()[:60_000])
            os._exit(code)
        os.close(writing)

    def kill(self) -> None:
        """Kill it, if it still lives."""
        os.kill(self.pid, signal.SIGKILL)  # one that has ended but was not waited for does not mind

    def wait(self) -> Ended:
        parts = []
        while part := os.read(self.reading, 65536):
            parts.append(part)
        os.close(self.reading)
        _, status = os.waitpid(self.pid, 0)
        return Ended(os.waitstatus_to_exitcode(status), b"".join(parts).decode("utf-8", "replace"))

    def killed_after(self, seconds: float) -> Ended:
        """Let it live so long; if it is not done by then, kill it."""
        until = time.monotonic() + seconds
        while time.monotonic() < until and not os.waitid(os.P_PID, self.pid, _LOOK):
            time.sleep(0.001)
        self.kill()
        return self.wait()


_LOOK = os.WEXITED | os.WNOHANG | os.WNOWAIT


def done(work: Callable[[], object]) -> Ended:
    """Do some work in this process, and tell how a child would end by it."""
    try:
        return Ended(0, str(work()))
    except InputError as error:
        return Ended(2, str(error))
    except JobError as error:
        return Ended(getattr(error, "code", 1), str(error))
    except BaseException:
        return Ended(CRASHED, traceback.format_exc())


def run(work: Callable[[], object]) -> Ended:
    """Do some work in a child."""
    return Child(work).wait()


def lanes(work: Callable[[int], Any], count: int) -> list[Any]:
    """Do the shares of a work side by side, each in a child, and return what they found, by way of JSON.

    Args:
        work: does the share of a number below the count.
        count: the number of shares.
    """
    children = [Child(lambda i=i: json.dumps(work(i))) for i in range(count)]
    ended = [child.wait() for child in children]
    for end in ended:
        if end.code:
            raise RuntimeError(f"a share of the work ended with {end.code}: {end.message}")
    return [json.loads(end.message) for end in ended]


class Faults:
    """The library of faults.c, which must have been loaded before libc."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL(os.environ["LD_PRELOAD"])

    def fail(self, change: int, error: int, *, for_good: bool) -> None:
        """Let a change of the disk fail, counted from 0, or all from it on."""
        self.library.fault_arm(ctypes.c_long(change), error, for_good)

    def kill(self, change: int) -> None:
        """Let the process be killed just before a change of the disk, counted from 0."""
        self.library.fault_arm(ctypes.c_long(change), -1, False)

    def count(self) -> None:
        """Count all changes from now on, removals too, and let none fail."""
        self.library.fault_arm(ctypes.c_long(1 << 60), -1, False)

    def record(self, log: Path, folder: Path) -> None:
        """Write every change below a folder to a file."""
        self.library.fault_record(str(log).encode(), str(folder).encode())

    def changes(self) -> int:
        return int(self.library.fault_changes())

    def jump(self, seconds: int) -> None:
        self.library.fault_jump(ctypes.c_long(seconds))


def files_of(folder: Path) -> dict[str, bytes]:
    """Return the content of all files below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
