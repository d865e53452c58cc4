"""Archives unpacked with care: files and folders only, inside of the target, within limits."""

import gzip
import hashlib
import io
import struct
import tarfile
import unicodedata
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

from ultralif.data.files import SUMS
from ultralif.errors import InputError
from ultralif.files import opened

__all__ = ["LIMITS", "Limits", "extract"]


@dataclass(frozen=True)
class Limits:
    """Limits on the content of an archive."""

    size: int = 16 << 30
    """Bytes in all."""
    count: int = 200_000
    """Files and folders."""
    ratio: int = 200
    """Bytes for one byte of the archive."""


LIMITS = Limits()

_CHUNK = 1 << 20
_HEADERS = 1 << 20
"""Bytes that the headers of one member may have, with its padding."""
_Member = tuple[str, IO[bytes] | None]
"""A name, and the content of a file; None for a folder."""


def extract(archive: Path, folder: Path, limits: Limits = LIMITS) -> None:
    """Unpack a ``.zip``, ``.tar`` or ``.tar.gz`` into a folder, and add its files to the folder's `SUMS`.

    Links, devices, absolute names, ``..``, names that are equal on some systems, and anything beyond the
    limits are errors; nothing is ever written outside of the folder.
    """
    try:
        sums = list(_unpack(archive, folder, limits))
    except InputError as error:
        raise InputError(f"{archive} {error}; do not use it: delete it and download it again") from error
    except (tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise InputError(
            f"{archive} is not a sound archive ({error}); delete it and download it again"
        ) from error
    except (struct.error, ValueError, OverflowError, RuntimeError) as error:
        raise InputError(
            f"{archive} is not a sound archive ({error}); delete it and download it again"
        ) from error
    with (folder / SUMS).open("a", encoding="utf-8") as file:
        file.writelines(f"{digest}  {name}\n" for name, digest in sums)


def _unpack(archive: Path, folder: Path, limits: Limits) -> Iterator[tuple[PurePosixPath, str]]:
    """Write every member and yield the names and digests of the files."""
    members = _zip_members if archive.suffix == ".zip" else _tar_members
    allowed = min(limits.size, limits.ratio * archive.stat().st_size)
    taken = {SUMS.casefold(): True}
    for name, content in members(archive, allowed):
        path = _safe(name)
        _claim(path, content is not None, taken)
        if len(taken) > limits.count:
            raise InputError(f"holds more than {limits.count:,} files")
        if content is None:
            (folder / path).mkdir(parents=True, exist_ok=True)
            continue
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        digest, size = _copy(content, folder / path, allowed)
        allowed -= size
        if allowed < 0:
            raise InputError("unpacks to far more bytes than it should")
        yield path, digest


def _safe(name: str) -> PurePosixPath:
    """Return the name of a member as a path inside of the target, or refuse it."""
    path = PurePosixPath(name)
    strange = "\\" in name or ":" in name or len(name) > 1000 or not name.isprintable()
    if strange or path.is_absolute() or ".." in path.parts:
        raise InputError(f"holds {name!r}, which would not stay inside of its folder")
    return path


def _claim(path: PurePosixPath, is_file: bool, taken: dict[str, bool]) -> None:
    """Note a name and whether it is a file; refuse it if it clashes with one that was noted before."""
    places = [unicodedata.normalize("NFC", place.as_posix()).casefold() for place in (path, *path.parents)]
    own, above = places[0], places[1:]
    if any(taken.get(place) for place in above) or taken.get(own) or (is_file and own in taken):
        raise InputError(f"holds {path.as_posix()!r} twice, or under another spelling")
    taken.update(dict.fromkeys(above, False))
    taken[own] = is_file


def _copy(content: IO[bytes], place: Path, allowed: int) -> tuple[str, int]:
    """Write a member's content, stopping soon after the limit, and return its digest and size."""
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
            kind = info.external_attr >> 28  # of a Unix file: 8 plain, 4 folder, 0 not stated
            if kind not in (0, 4, 8) or info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise InputError(f"holds {info.filename!r}, which is no plain file or folder")
            if info.is_dir():
                yield info.filename, None
            else:
                with zipped.open(info) as content:
                    yield info.filename, content


class _Bounded(io.RawIOBase):
    """A stream with a limit on the bytes that may be read."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.stream = stream
        self.left = 0

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes."""
        data = self.stream.read(size)
        self.left -= len(data)
        if self.left < 0:
            raise InputError("holds headers of far more bytes than a name needs")
        return data


def _tar_members(archive: Path, allowed: int) -> Iterator[_Member]:
    with opened(archive) as file:
        packed = archive.suffix == ".gz"  # tarfile's own gzip fails oddly on bad files
        bounded = _Bounded(cast(IO[bytes], gzip.GzipFile(fileobj=file)) if packed else file)
        bounded.left = _HEADERS
        with tarfile.open(fileobj=bounded, mode="r|") as tar:
            kept: Any = tar  # its members and attributes have no types
            while (info := tar.next()) is not None:
                bounded.left = allowed + _HEADERS
                if info.isdir():
                    yield info.name, None
                elif info.isreg() and not info.issparse():
                    yield info.name, tar.extractfile(info)
                else:
                    raise InputError(f"holds {info.name!r}, which is no plain file or folder")
                bounded.left = _HEADERS  # long names, attributes and maps of holes are read into memory
                kept.members.clear()  # and would be kept
                kept.pax_headers.clear()
