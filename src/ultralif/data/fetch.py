"""Downloads: by https alone, from mirrors, taken up where they broke off, kept only if the digest fits."""

import http.client
import os
import shutil
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ultralif import __version__
from ultralif.data.files import file_digest
from ultralif.data.spec import Remote
from ultralif.errors import JobError
from ultralif.files import opened

__all__ = ["Progress", "download", "https_opener"]

Progress = Callable[[str, int, int | None], None]
"""Called with a file's name, the bytes that are there, and how many there will be, if that is known."""

Opener = urllib.request.OpenerDirector

_CHUNK = 1 << 18
_TIMEOUT = 30
"""Seconds without a byte after which a server counts as dead."""
_ORPHANED = 2 * _TIMEOUT
"""Seconds without a byte after which a partial file counts as abandoned."""
_TRIES = 5
"""Number of attempts to resume a download that broke off."""
_LARGEST = 8 << 30


class _Trouble(Exception):
    """A server did not give the file; another one may."""


class _BrokenOff(Exception):
    """A connection ended early; the rest may come in another one."""


def https_opener(*more: urllib.request.BaseHandler) -> Opener:
    """Return an opener for https alone, which follows no redirect to http, ftp or a file.

    Args:
        more: further handlers, such as one with the user's own certificates.
    """
    opener = Opener()
    opener.addheaders = [("User-Agent", f"ultralif/{__version__}")]
    handlers = [
        urllib.request.ProxyHandler(),
        urllib.request.UnknownHandler(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPRedirectHandler(),
        urllib.request.HTTPErrorProcessor(),
        *more,
    ]
    if not any(isinstance(handler, urllib.request.HTTPSHandler) for handler in more):
        handlers.append(urllib.request.HTTPSHandler())
    for handler in handlers:
        opener.add_handler(handler)
    return opener


def download(
    remote: Remote, folder: Path, progress: Progress | None = None, opener: Opener | None = None
) -> Path:
    """Download a file into a folder, from the first of its addresses that has it, and return its path.

    A download that breaks off leaves ``<file>.part``, with which the next one goes on. What has not the
    published digest is not kept.
    """
    path = folder / remote.file
    if path.exists() and _sound(path, remote):
        return path
    opener = opener or https_opener()
    troubles = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _partial(path) as part:
            for url in remote.urls:
                try:
                    _fetch(url, part, remote, progress or _silent, opener)
                except _Trouble as trouble:
                    troubles.append(f"{url} {trouble}")
                else:
                    part.replace(path)
                    return path
    except OSError as error:
        raise JobError(
            f"{path} cannot be written: {error.strerror}; make room or give permission, or choose another "
            "place with --data-dir"
        ) from error
    raise JobError(
        f"{remote.file} ({remote.digest}) could not be downloaded: {'; '.join(troubles)}; try again later"
    )


def _silent(name: str, done: int, total: int | None) -> None:
    """Show no progress."""


def _sound(path: Path, remote: Remote) -> bool:
    algorithm, _, expected = remote.digest.partition(":")
    return file_digest(path, algorithm) == expected


@contextmanager
def _partial(path: Path) -> Iterator[Path]:
    """Give a partial file that no other process writes to: one that was left, or a new one.

    When a download fails, its bytes are kept as ``<file>.part``; a disk that is full
    gets its space back.
    """
    mine = path.with_name(f"{path.name}.{uuid.uuid4().hex}.part")
    left = path.with_name(f"{path.name}.part")
    for candidate in (left, *path.parent.glob(f"{path.name}.*.part")):
        with suppress(FileNotFoundError):  # another process may be faster
            if candidate == left or time.time() - candidate.stat().st_mtime > _ORPHANED:
                candidate.rename(mine)
                break
    mine.touch()
    try:
        yield mine
    except OSError:
        mine.unlink(missing_ok=True)
        raise
    finally:
        if mine.exists():
            if mine.stat().st_size:
                mine.rename(left)
            else:
                mine.unlink()


def _fetch(url: str, part: Path, remote: Remote, progress: Progress, opener: Opener) -> None:
    """Complete a partial file from one address and check its digest."""
    for _ in range(_TRIES):
        before = part.stat().st_size
        try:
            _transfer(url, part, remote.file, progress, opener)
        except _BrokenOff as error:
            if part.stat().st_size <= before:
                raise _Trouble(f"broke off the connection ({error})") from error
            continue
        if _sound(part, remote):
            return
        trouble = _unsound(part, remote)
        part.write_bytes(b"")
        if not before:
            raise trouble
    raise _Trouble(f"broke off the connection {_TRIES} times")


def _unsound(part: Path, remote: Remote) -> _Trouble:
    algorithm = remote.digest.partition(":")[0]
    with opened(part) as file:
        page = file.read(64).lstrip()[:1] == b"<"
    size = part.stat().st_size
    what = "a web page" if page else f"{size:,} bytes"
    return _Trouble(f"sent {what} with the digest {algorithm}:{file_digest(part, algorithm)}")


def _transfer(url: str, part: Path, name: str, progress: Progress, opener: Opener) -> None:
    """Add to a partial file what a server sends."""
    start = part.stat().st_size
    with _open(url, start, opener) as response:
        if not response.headers.get("Content-Range", "").startswith(f"bytes {start}-"):
            start = 0
        length = response.headers.get("Content-Length", "")
        total = start + int(length) if length.isdecimal() else None
        if (total or 0) > min(_LARGEST, start + shutil.disk_usage(part.parent).free):
            raise _Trouble(f"announced {total:,} bytes, more than there is room for")
        done = start
        with part.open("ab" if start else "wb") as file:
            while chunk := _read(response):
                file.write(chunk)
                done += len(chunk)
                progress(name, done, total)
                if done > _LARGEST:
                    raise _Trouble("sent more bytes than any dataset has")
            file.flush()
            os.fsync(file.fileno())
    if total is not None and done < total:
        raise _BrokenOff(f"{done:,} of {total:,} bytes")


def _open(url: str, start: int, opener: Opener) -> http.client.HTTPResponse:
    """Ask for a file from a byte on; a server that cannot do that sends all of it."""
    headers = {"Range": f"bytes={start}-"} if start else {}
    request = urllib.request.Request(url, headers=headers)  # noqa: S310 (the opener knows https alone)
    try:
        response: http.client.HTTPResponse = opener.open(request, timeout=_TIMEOUT)
    except urllib.error.HTTPError as error:
        if start and error.code == http.client.REQUESTED_RANGE_NOT_SATISFIABLE:
            return _open(url, 0, opener)
        raise _Trouble(f"answered {error.code} {error.reason}") from error
    except (OSError, http.client.HTTPException) as error:
        raise _Trouble(f"gave no answer ({getattr(error, 'reason', error)})") from error
    if response.status not in (http.client.OK, http.client.PARTIAL_CONTENT):
        raise _Trouble(f"answered {response.status} {response.reason}")
    return response


def _read(response: http.client.HTTPResponse) -> bytes:
    try:
        return response.read(_CHUNK)
    except (
        OSError,
        http.client.HTTPException,
    ) as error:  # of the network; errors of the disk are handled elsewhere
        raise _BrokenOff(str(error)) from error
