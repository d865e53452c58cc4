"""Read files that may be damaged or hostile, within limits; write files completely or not at all.

Every error names the file. Does not import torch.
"""

import contextlib
import gzip
import hashlib
import io
import json
import os
import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from io import BufferedReader
from pathlib import Path
from typing import Any

from ultralif.errors import InputError, JobError

__all__ = [
    "BadFile",
    "digest",
    "drafted",
    "gunzip",
    "inside",
    "opened",
    "parse_json",
    "read_bytes",
    "read_json",
    "read_text",
    "sync_folder",
    "visible",
    "write_file",
    "write_synced",
]

TEXT = 1 << 26
"""Maximum size of a text or JSON file in bytes: 64 MiB."""
DEPTH = 32
"""Maximum nesting depth of lists and objects in JSON."""


class BadFile(InputError):
    """A file cannot be used: it is missing, of the wrong kind, too large or damaged."""


def inside(root: Path, name: str | Path) -> Path:
    """Resolve a name inside a folder, following links; reject one that leads outside.

    Args:
        root: the folder.
        name: a relative path.
    """
    try:
        top = root.resolve()
        path = (top / name).resolve()
    except (OSError, RuntimeError, ValueError) as error:  # path too long, loop of links, or null character
        raise BadFile(f"{visible(str(name))!r} is not a path in {root}") from error
    if path == top or not path.is_relative_to(top):
        raise BadFile(f"{visible(str(name))!r} points outside {root}; it is not used")
    return path


def opened(path: Path, limit: int | None = None, *, links: bool = True) -> BufferedReader:
    """Open a regular file for reading; pipes, devices and folders are rejected without waiting.

    Args:
        path: the file.
        limit: the maximum size in bytes; None means any size.
        links: whether the file may be a link to another one.
    """
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | (0 if links else getattr(os, "O_NOFOLLOW", 0))
    try:
        _check_kind(path, path.stat(follow_symlinks=links), limit)
        file = os.fdopen(os.open(path, flags), "rb")
    except OSError as error:
        raise _unreadable(path, error) from error
    try:
        _check_kind(path, os.fstat(file.fileno()), limit)  # it may be a different file by now
    except BadFile:
        file.close()
        raise
    return file


def read_bytes(path: Path, limit: int, *, links: bool = True) -> bytes:
    """Return the contents of a regular file.

    Args:
        path: the file.
        limit: the maximum size in bytes.
        links: whether the file may be a link to another one.
    """
    try:
        with opened(path, limit, links=links) as file:
            size = os.fstat(file.fileno()).st_size
            content = file.read(size + 1)
            while size < len(content) <= limit and (more := file.read(1 << 20)):
                content += more  # it grew, or reports no size
    except OSError as error:
        raise _unreadable(path, error) from error
    except BadFile:
        raise
    except ValueError as error:  # a null character in a path
        raise BadFile(f"{shown(path)} cannot be read ({visible(str(error))})") from error
    if len(content) > limit:
        raise BadFile(f"{shown(path)} is larger than {limit:,} bytes, the limit for such files")
    return content


def digest(path: Path, algorithm: str = "sha256") -> str:
    """Return the hex digest of a regular file of any size; only SHA-256 is secure."""
    try:
        with opened(path) as file:
            made = hashlib.file_digest(file, partial(hashlib.new, algorithm, usedforsecurity=False))
            return made.hexdigest()
    except OSError as error:
        raise _unreadable(path, error) from error


def read_text(path: Path, limit: int = TEXT) -> str:
    """Return the contents of a UTF-8 text file."""
    try:
        return read_bytes(path, limit).decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadFile(f"{shown(path)} is not valid UTF-8 text (byte {error.start})") from error


def read_json(path: Path, limit: int = TEXT, *, links: bool = True) -> Any:
    """Return the parsed contents of a JSON file; accepts the arguments of `read_bytes`."""
    return parse_json(read_bytes(path, limit, links=links), shown(path))


def parse_json(content: bytes | str, source: str) -> Any:
    """Parse UTF-8 JSON text; errors name the ``source``."""
    try:
        value = json.loads(content)
    except RecursionError as error:
        raise BadFile(f"{source} is not valid JSON: it has more than {DEPTH} levels") from error
    except ValueError as error:  # bad syntax, bad encoding, or a number with too many digits
        raise BadFile(f"{source} is not valid JSON ({visible(str(error))})") from error
    brackets = ("[", "{") if isinstance(content, str) else (b"[", b"{")
    if sum(map(content.count, brackets)) <= DEPTH:  # type: ignore[arg-type]
        return value
    level = [value]
    for _ in range(DEPTH + 1):
        level = [child for parent in level if isinstance(parent, dict | list) for child in _children(parent)]
        if not level:
            return value
    raise BadFile(f"{source} is not valid JSON: it has more than {DEPTH} levels")


def gunzip(content: bytes, source: str, limit: int) -> bytes:
    """Return the unpacked contents of a gzip file, up to a limit.

    Args:
        content: one or more gzip members.
        source: the name to use in errors.
        limit: the maximum unpacked size in bytes.
    """
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
            unpacked = file.read(limit + 1)
    except EOFError as error:
        raise BadFile(f"{source} is cut off: its gzip data are incomplete") from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise BadFile(f"{source} is not gzip, or is damaged ({error})") from error
    if len(unpacked) > limit:
        raise BadFile(f"{source} unpacks to more than {limit:,} bytes")
    return unpacked


def write_file(path: Path, content: bytes | str) -> None:
    """Replace a file atomically: readers see the old file or the new one, even after a crash."""
    data = content.encode() if isinstance(content, str) else content
    with drafted(path) as draft:
        write_synced(draft, data)


@contextmanager
def drafted(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write to; at the end, the new file replaces the old one atomically.

    After an error, the old file is unchanged and the temporary one is removed.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}{path.suffix}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and not path.is_file():
            raise InputError(f"{shown(path)} is not a regular file; choose another place to write to")
        draft.unlink(missing_ok=True)  # left by a killed process, or a planted link
        yield draft
        draft.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        raise JobError(
            f"{shown(path)} could not be written ({error.strerror}); free some space or choose another place."
            " An existing file was not changed"
        ) from error
    finally:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)


def write_synced(path: Path, content: bytes) -> None:
    """Write a new file, and wait until it is on the disk."""
    with path.open("xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Make a rename durable, if the system allows flushing a folder."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def visible(text: str) -> str:
    r"""Return a text with its control characters escaped, safe to print on a terminal.

    Example:
        >>> print(visible("red \x1b[31m, bell \a"))
        red \x1b[31m, bell \x07
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def shown(path: Path) -> str:
    """Return a path formatted for messages."""
    return visible(str(path))


def _children(parent: dict[str, Any] | list[Any]) -> Iterator[Any]:
    yield from parent.values() if isinstance(parent, dict) else parent


def _unreadable(path: Path, error: OSError) -> BadFile:
    return BadFile(f"{shown(path)} cannot be read ({error.strerror})")


def _check_kind(path: Path, status: os.stat_result, limit: int | None) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise BadFile(f"{shown(path)} is not a regular file; it is not read")
    if limit is not None and status.st_size > limit:
        raise BadFile(
            f"{shown(path)} has {status.st_size:,} bytes, but the limit for such files is {limit:,}"
        )
