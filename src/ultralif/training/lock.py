"""One process at a time."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from ultralif.errors import JobError

if sys.platform != "win32":
    import fcntl

__all__ = ["Busy", "locked"]


class Busy(JobError):
    """Another process has the lock."""


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock that a file stands for, and remove the file at the end; a crash lets go of the lock.

    Windows has no such locks: there nothing keeps two processes apart.
    """
    with _taken(path):
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def _taken(path: Path) -> IO[str]:
    """Open and lock the file, or say which process has it."""
    while True:
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            file = path.open("a+")
            if sys.platform != "win32":
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(file, path):
                os.truncate(file.fileno(), 0)
                os.write(file.fileno(), str(os.getpid()).encode())
                return file
        except BlockingIOError:
            owner = path.read_text() if path.exists() else ""
            raise Busy(f"process {owner or '?'} is training this already; wait for its end") from None
        except OSError as error:
            raise JobError(
                f"{path.parent} cannot be used for checkpoints ({error.strerror}); choose another "
                "folder with --runs-dir"
            ) from error


def _is_at(file: IO[str], path: Path) -> bool:
    """Tell whether a file still has its name: its last owner may have removed it after it was opened here."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False
