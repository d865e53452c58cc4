"""The files of a dataset: bounded reads, digests, and errors that name the file and the remedy."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

from ultralif.errors import InputError, JobError
from ultralif.files import BadFile, digest, gunzip, read_bytes, read_text

__all__ = ["SUMS", "Folder", "check_digest", "damaged", "file_digest", "hash_of", "read_file"]

SUMS = "SHA256SUMS"
"""Written beside the files of an archive when it is installed; ``sha256sum -c`` reads it too."""


def damaged(path: Path, what: str) -> InputError:
    """Return the error for a file that cannot be used, with its remedy."""
    return InputError(
        f"{path} {what}; delete it and get it again (ultralif data get), or put a sound copy there"
    )


def read_file(path: Path, limit: int) -> bytes:
    """Return the content of a file of a dataset, of at most ``limit`` bytes; ``.gz`` is unpacked."""
    try:
        data = read_bytes(path, limit)
        return gunzip(data, str(path), limit) if path.suffix == ".gz" else data
    except BadFile as error:
        raise InputError(
            f"{error}; get it again (ultralif data get), or put a sound copy there that you may read"
        ) from error


def hash_of(data: bytes, algorithm: str = "sha256") -> str:
    """Return ``algorithm:hexdigest``; MD5 serves to compare with published sums, not for trust."""
    return f"{algorithm}:{hashlib.new(algorithm, data, usedforsecurity=False).hexdigest()}"


def file_digest(path: Path, algorithm: str = "sha256") -> str:
    """Return the hex digest of a file of any size."""
    try:
        return digest(path, algorithm)
    except BadFile as error:
        raise JobError(f"{error}; check that it exists and its permissions") from error


def check_digest(data: bytes, expected: str, path: Path) -> None:
    """Raise an InputError unless the data have the digest ``algorithm:hex``."""
    found = hash_of(data, expected.partition(":")[0])
    if found != expected:
        raise damaged(path, f"has the wrong content: its digest is {found}, not {expected}")


class Folder:
    """A folder with the files of a dataset; a file with a known digest is checked when it is read.

    Args:
        path: the folder.
        digests: content digests by file; those in a `SUMS` file beside the data are added.
    """

    def __init__(self, path: Path, digests: Mapping[str, str]) -> None:
        self.path = path
        self.digests = _sums(path) | dict(digests)

    def read(self, name: str, limit: int) -> bytes:
        """Return the content of a file, unpacked if only ``name.gz`` is there."""
        path = self.path / name
        packed = path.with_name(f"{path.name}.gz")
        if not path.exists() and packed.exists():
            path = packed
        data = read_file(path, limit)
        if name in self.digests:
            check_digest(data, self.digests[name], path)
        return data

    def check(self, name: str) -> None:
        """Check a file that is too large to be read at once, if its digest is known."""
        if name in self.digests:
            path = self.path / name
            found = f"sha256:{file_digest(path)}"
            if found != self.digests[name]:
                raise damaged(path, f"has the wrong content: its digest is {found}, not {self.digests[name]}")


def _sums(folder: Path) -> dict[str, str]:
    """Read the digests of an installed dataset, if it has them."""
    path = folder / SUMS
    if not path.exists():
        return {}
    lines = read_text(path).splitlines()
    pairs = [line.split("  ", 1) for line in lines]
    if any(len(pair) != 2 or len(pair[0]) != 64 for pair in pairs):
        raise damaged(path, "is not a list of SHA-256 sums")
    return {name: f"sha256:{value}" for value, name in pairs}
