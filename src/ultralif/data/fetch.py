"""Download a dataset over https, verify its digest, unpack it safely and move it into place."""

import gzip
import hashlib
import http.client
import io
import os
import shutil
import struct
import tarfile
import time
import unicodedata
import urllib.error
import urllib.request
import uuid
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

from ultralif import __version__
from ultralif.data.cache import staging
from ultralif.data.files import SUMS, Found, damaged, file_digest, find, home, installed, without_network
from ultralif.data.table import Remote, Spec
from ultralif.errors import InputError, JobError
from ultralif.files import opened

__all__ = ["LIMITS", "Limits", "Progress", "download", "extract", "get", "https_opener"]

Progress = Callable[[str, int, int | None], None]
"""Called with a file's name, the number of bytes received, and the total if it is known."""
Opener = urllib.request.OpenerDirector
_PACKED = (".zip", ".tar", ".tar.gz")


def get(
    spec: Spec,
    data_dir: str | Path | None = None,
    progress: Progress | None = None,
    opener: urllib.request.OpenerDirector | None = None,
) -> Found:
    """Return the location of a dataset; download it if it is not on this machine.

    Args:
        spec: a dataset that is distributed as files.
        data_dir: folder to write to; for None, see `ultralif.data.files.home`.
        progress: called whenever a chunk arrives.
        opener: opens URLs; None allows https only.
    """
    split = spec.forms[0].split  # the only form that programs can download
    found = find(spec, data_dir, split)
    if found is not None:
        return found
    target = home(data_dir) / spec.name
    downloads = target.parent / "downloads" / spec.name
    if target.exists():
        found = find(spec, data_dir, split)
        if found is not None:  # another process has put it there in the meantime
            return found
        raise JobError(f"{target} exists, but is not a complete {spec.name}; move it away and run this again")
    try:
        return _install(spec, target, downloads, progress, opener)
    except (InputError, JobError) as error:
        found = find(spec, data_dir, split)
        if found is not None:  # another process downloaded it in the meantime and removed the partial file
            shutil.rmtree(downloads, ignore_errors=True)
            _drop_empty(downloads.parent)
            return found
        if isinstance(error, JobError):
            raise JobError(f"{error}; {without_network(spec, data_dir, split)}") from error
        raise


def _install(
    spec: Spec,
    target: Path,
    downloads: Path,
    progress: Progress | None,
    opener: urllib.request.OpenerDirector | None,
) -> Found:
    """Download the files, unpack them and move them into place."""
    paths = []
    try:
        for remote in spec.remotes:
            paths.append(download(remote, downloads, progress, opener))
        with staging(target) as temporary:
            for path in paths:
                if path.name.endswith(_PACKED):
                    extract(path, temporary)
                else:
                    shutil.copyfile(path, temporary / path.name)
            found = installed(spec, temporary)
            if found is None:
                raise damaged(downloads, f"is missing files of {spec.name}")
        for path in paths:
            path.unlink(missing_ok=True)
        return Found(target / found.folder.relative_to(temporary), found.form)
    finally:
        _drop_empty(downloads, downloads.parent)


def _drop_empty(*folders: Path) -> None:
    """Remove empty folders; a folder with a partial download is kept."""
    for folder in folders:
        with suppress(OSError):
            folder.rmdir()


_CHUNK = 1 << 18
_TIMEOUT = 30
"""Seconds without a byte after which a server is considered dead."""
_ORPHANED = 2 * _TIMEOUT
"""Seconds without a byte after which a partial file is considered abandoned."""
_TRIES = 5
"""Number of attempts to resume an interrupted download."""
_LARGEST = 8 << 30


class _Trouble(Exception):
    """A server did not deliver the file; another one may."""


class _BrokenOff(Exception):
    """A connection ended early; the rest may arrive over another one."""


def https_opener(*more: urllib.request.BaseHandler) -> Opener:
    """Return an https-only opener, which refuses redirects to http, ftp or a file.

    Args:
        more: additional handlers, for example one with the user's own certificates.
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
    """Download a file into a folder, from the first of its URLs that works, and return its path.

    An interrupted download leaves ``<file>.part``, from which the next one resumes. A file whose digest
    differs from the published one is discarded.
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
            f"{path} cannot be written: {error.strerror}; free some space or change the permissions, or "
            "choose another folder with --data-dir"
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
    """Yield a partial file that no other process writes to: an abandoned one or a new one.

    When a download fails, its bytes are kept as ``<file>.part``, unless the disk is full.
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
    """Complete a partial file from one URL and check its digest."""
    for _ in range(_TRIES):
        before = part.stat().st_size
        try:
            _transfer(url, part, remote.file, progress, opener)
        except _BrokenOff as error:
            if part.stat().st_size <= before:
                raise _Trouble(f"dropped the connection ({error})") from error
            continue
        if _sound(part, remote):
            return
        trouble = _unsound(part, remote)
        part.write_bytes(b"")
        if not before:
            raise trouble
    raise _Trouble(f"dropped the connection {_TRIES} times")


def _unsound(part: Path, remote: Remote) -> _Trouble:
    algorithm = remote.digest.partition(":")[0]
    with opened(part) as file:
        page = file.read(64).lstrip()[:1] == b"<"
    size = part.stat().st_size
    what = "a web page" if page else f"{size:,} bytes"
    return _Trouble(f"sent {what} with the digest {algorithm}:{file_digest(part, algorithm)}")


def _transfer(url: str, part: Path, name: str, progress: Progress, opener: Opener) -> None:
    """Append the bytes that a server sends to a partial file."""
    start = part.stat().st_size
    with _open(url, start, opener) as response:
        if not response.headers.get("Content-Range", "").startswith(f"bytes {start}-"):
            start = 0
        length = response.headers.get("Content-Length", "")
        total = start + int(length) if length.isdecimal() else None
        if (total or 0) > min(_LARGEST, start + shutil.disk_usage(part.parent).free):
            raise _Trouble(f"announced {total:,} bytes, more than the disk has room for")
        done = start
        with part.open("ab" if start else "wb") as file:
            while chunk := _read(response):
                file.write(chunk)
                done += len(chunk)
                progress(name, done, total)
                if done > _LARGEST:
                    raise _Trouble("sent more bytes than any known dataset contains")
            file.flush()
            os.fsync(file.fileno())
    if total is not None and done < total:
        raise _BrokenOff(f"{done:,} of {total:,} bytes")


def _open(url: str, start: int, opener: Opener) -> http.client.HTTPResponse:
    """Request a file starting at a given byte; a server without range support sends the whole file."""
    headers = {"Range": f"bytes={start}-"} if start else {}
    request = urllib.request.Request(url, headers=headers)  # noqa: S310 (the opener only supports https)
    try:
        response: http.client.HTTPResponse = opener.open(request, timeout=_TIMEOUT)
    except urllib.error.HTTPError as error:
        if start and error.code == http.client.REQUESTED_RANGE_NOT_SATISFIABLE:
            return _open(url, 0, opener)
        raise _Trouble(f"answered {error.code} {error.reason}") from error
    except (OSError, http.client.HTTPException) as error:
        raise _Trouble(f"did not answer ({getattr(error, 'reason', error)})") from error
    if response.status not in (http.client.OK, http.client.PARTIAL_CONTENT):
        raise _Trouble(f"answered {response.status} {response.reason}")
    return response


def _read(response: http.client.HTTPResponse) -> bytes:
    try:
        return response.read(_CHUNK)
    except (
        OSError,
        http.client.HTTPException,
    ) as error:  # network errors; disk errors are handled elsewhere
        raise _BrokenOff(str(error)) from error


@dataclass(frozen=True)
class Limits:
    """Limits on an archive's contents."""

    size: int = 16 << 30
    """Total size in bytes."""
    count: int = 200_000
    """Number of files and folders."""
    ratio: int = 200
    """Largest allowed expansion ratio: unpacked bytes for each byte of the archive."""


LIMITS = Limits()

_HEADERS = 1 << 20
"""Limit in bytes for one member's headers and padding."""
_Member = tuple[str, IO[bytes] | None]
"""A name, and the file's contents or None for a folder."""


def extract(archive: Path, folder: Path, limits: Limits = LIMITS) -> None:
    """Unpack a ``.zip``, ``.tar`` or ``.tar.gz`` into a folder, and add its files to the folder's `SUMS`.

    Links, devices, absolute paths, ``..``, names that clash on some systems, and archives that exceed the
    limits raise errors. Nothing is ever written outside the folder.
    """
    try:
        sums = list(_unpack(archive, folder, limits))
    except InputError as error:
        raise InputError(f"{archive} {error}; do not use it: delete it and download it again") from error
    except (tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise InputError(
            f"{archive} is not a valid archive ({error}); delete it and download it again"
        ) from error
    except (struct.error, ValueError, OverflowError, RuntimeError) as error:
        raise InputError(
            f"{archive} is not a valid archive ({error}); delete it and download it again"
        ) from error
    with (folder / SUMS).open("a", encoding="utf-8") as file:
        file.writelines(f"{digest}  {name}\n" for name, digest in sums)


def _unpack(archive: Path, folder: Path, limits: Limits) -> Iterator[tuple[PurePosixPath, str]]:
    """Write all members, and yield the files' names and digests."""
    members = _zip_members if archive.suffix == ".zip" else _tar_members
    allowed = min(limits.size, limits.ratio * archive.stat().st_size)
    taken = {SUMS.casefold(): True}
    for name, content in members(archive, allowed):
        path = _safe(name)
        _claim(path, content is not None, taken)
        if len(taken) > limits.count:
            raise InputError(f"contains more than {limits.count:,} files")
        if content is None:
            (folder / path).mkdir(parents=True, exist_ok=True)
            continue
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        digest, size = _copy(content, folder / path, allowed)
        allowed -= size
        if allowed < 0:
            raise InputError("unpacks to far more bytes than expected")
        yield path, digest


def _safe(name: str) -> PurePosixPath:
    """Return a member's name as a path inside the target, or reject it."""
    path = PurePosixPath(name)
    strange = "\\" in name or ":" in name or len(name) > 1000 or not name.isprintable()
    if strange or path.is_absolute() or ".." in path.parts:
        raise InputError(f"contains {name!r}, which would be written outside its folder")
    return path


def _claim(path: PurePosixPath, is_file: bool, taken: dict[str, bool]) -> None:
    """Record a name and whether it is a file; reject it if it clashes with an earlier one."""
    places = [unicodedata.normalize("NFC", place.as_posix()).casefold() for place in (path, *path.parents)]
    own, above = places[0], places[1:]
    if any(taken.get(place) for place in above) or taken.get(own) or (is_file and own in taken):
        raise InputError(f"contains {path.as_posix()!r} twice, or in two spellings")
    taken.update(dict.fromkeys(above, False))
    taken[own] = is_file


def _copy(content: IO[bytes], place: Path, allowed: int) -> tuple[str, int]:
    """Write a member's contents, stopping soon after the limit, and return its digest and size."""
    digest, size = hashlib.sha256(), 0
    with place.open("xb") as file:
        while size <= allowed and (chunk := content.read(_CHUNK)):
            file.write(chunk)
            digest.update(chunk)
            size += len(chunk)
    return digest.hexdigest(), size


def _zip_members(archive: Path, allowed: int) -> Iterator[_Member]:
    with opened(archive) as file, zipfile.ZipFile(file) as zipped:
        for info in zipped.infolist():
            kind = info.external_attr >> 28  # type of a Unix file: 8 plain, 4 folder, 0 unknown
            if kind not in (0, 4, 8) or info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise InputError(f"contains {info.filename!r}, which is not a plain file or folder")
            if info.is_dir():
                yield info.filename, None
            else:
                with zipped.open(info) as content:
                    yield info.filename, content


class _Bounded(io.RawIOBase):
    """A stream that limits how many bytes may be read."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.stream = stream
        self.left = 0

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes."""
        data = self.stream.read(size)
        self.left -= len(data)
        if self.left < 0:
            raise InputError("has headers far larger than a name requires")
        return data


def _tar_members(archive: Path, allowed: int) -> Iterator[_Member]:
    with opened(archive) as file:
        packed = archive.suffix == ".gz"  # tarfile's own gzip raises unrelated errors for bad files
        bounded = _Bounded(cast(IO[bytes], gzip.GzipFile(fileobj=file)) if packed else file)
        bounded.left = _HEADERS
        with tarfile.open(fileobj=bounded, mode="r|") as tar:
            kept: Any = tar  # its members and attributes are untyped
            while (info := tar.next()) is not None:
                bounded.left = allowed + _HEADERS
                if info.isdir():
                    yield info.name, None
                elif info.isreg() and not info.issparse():
                    yield info.name, tar.extractfile(info)
                else:
                    raise InputError(f"contains {info.name!r}, which is not a plain file or folder")
                bounded.left = _HEADERS  # long names, attributes and sparse maps are read into memory
                kept.members.clear()  # or they would stay in memory
                kept.pax_headers.clear()
