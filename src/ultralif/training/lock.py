"""File lock: one process per run."""

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
    """Hold the lock of a file, and remove the file at the end; a crash releases the lock.

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
        file = _opened(path)
        try:
            if sys.platform != "win32":
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(file, path):
                os.truncate(file.fileno(), 0)
                os.write(file.fileno(), str(os.getpid()).encode())
                return file
        except BlockingIOError:
            file.seek(0)
            owner = file.read() or "?"
            file.close()
            raise Busy(f"process {owner} is training this already; wait for its end") from None
        except OSError as error:
            file.close()
            raise _unusable(path, error) from error
        file.close()


def _opened(path: Path) -> IO[str]:
    try:
        for folder in (path.parent.parent, path.parent):  # both are for their owner alone
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0)  # it is cut below
        return os.fdopen(os.open(path, flags, 0o600), "a+")
    except OSError as error:
        raise _unusable(path, error) from error


def _unusable(path: Path, error: OSError) -> JobError:
    return JobError(
        f"{path.parent} cannot be used for checkpoints ({error.strerror}); choose another folder with "
        "--runs-dir"
    )


def _is_at(file: IO[str], path: Path) -> bool:
    """Tell whether a file still has its name: its last owner may have removed it after it was opened here."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False
