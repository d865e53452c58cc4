"""Dataset files: the folders to search, size-limited reads, digests, and errors that suggest a fix."""

import hashlib
import io
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from ultralif.data.table import FileForm, Spec
from ultralif.errors import InputError, JobError
from ultralif.files import BadFile, digest, gunzip, opened, read_bytes, read_text

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "SUMS",
    "Folder",
    "Found",
    "available",
    "cache_folder",
    "check_digest",
    "damaged",
    "file_digest",
    "find",
    "hash_of",
    "home",
    "installed",
    "missing",
    "parse_npy",
    "read_file",
    "read_npy",
    "roots",
    "without_network",
]

SUMS = "SHA256SUMS"
"""Written next to an archive's files when it is installed; ``sha256sum -c`` reads it too."""


def damaged(path: Path, what: str) -> InputError:
    """Return the error for an unusable file, with a suggested fix."""
    return InputError(
        f"{path} {what}; delete it and get it again (ultralif data get), or replace it with an intact copy"
    )


def read_file(path: Path, limit: int) -> bytes:
    """Return the contents of a dataset file, at most ``limit`` bytes; ``.gz`` files are decompressed."""
    try:
        data = read_bytes(path, limit)
        return gunzip(data, str(path), limit) if path.suffix == ".gz" else data
    except BadFile as error:
        raise InputError(
            f"{error}; get it again (ultralif data get), or replace it with an intact, readable copy"
        ) from error


def hash_of(data: bytes, algorithm: str = "sha256") -> str:
    """Return ``algorithm:hexdigest``. MD5 is not secure; use it only to compare with published sums."""
    return f"{algorithm}:{hashlib.new(algorithm, data, usedforsecurity=False).hexdigest()}"


def file_digest(path: Path, algorithm: str = "sha256") -> str:
    """Return the hex digest of a file of any size."""
    try:
        return digest(path, algorithm)
    except BadFile as error:
        raise JobError(f"{error}; check that it exists and is readable") from error


def check_digest(data: bytes, expected: str, path: Path) -> None:
    """Raise an InputError unless the digest of the data is ``algorithm:hex``."""
    found = hash_of(data, expected.partition(":")[0])
    if found != expected:
        raise damaged(path, f"has the wrong content: its digest is {found}, not {expected}")


class Folder:
    """A folder of dataset files; a file with a known digest is checked when it is read.

    Args:
        path: the folder.
        digests: each file's digest; digests from a `SUMS` file next to the data are added.
    """

    def __init__(self, path: Path, digests: Mapping[str, str]) -> None:
        self.path = path
        self.digests = _sums(path) | dict(digests)

    def read(self, name: str, limit: int) -> bytes:
        """Return a file's contents, decompressed if only ``name.gz`` exists."""
        path = self.path / name
        packed = path.with_name(f"{path.name}.gz")
        if not path.exists() and packed.exists():
            path = packed
        data = read_file(path, limit)
        if name in self.digests:
            check_digest(data, self.digests[name], path)
        return data

    def check(self, name: str) -> None:
        """Check the digest of a file that is too large to read at once, if its digest is known."""
        if name in self.digests:
            path = self.path / name
            found = f"sha256:{file_digest(path)}"
            if found != self.digests[name]:
                raise damaged(path, f"has the wrong content: its digest is {found}, not {self.digests[name]}")


def _sums(folder: Path) -> dict[str, str]:
    """Read an installed dataset's digests, if it has any."""
    path = folder / SUMS
    if not path.exists():
        return {}
    lines = read_text(path).splitlines()
    pairs = [line.split("  ", 1) for line in lines]
    if any(len(pair) != 2 or len(pair[0]) != 64 for pair in pairs):
        raise damaged(path, "is not a list of SHA-256 sums")
    return {name: f"sha256:{value}" for value, name in pairs}


_MOST = 1 << 34
"""Largest allowed ``.npy`` file, in bytes."""


def read_npy(path: Path) -> "NDArray[Any]":
    """Return the array in a numeric ``.npy`` file."""
    with opened(path, _MOST) as file:
        return _load_npy(file, os.fstat(file.fileno()).st_size, path)


def parse_npy(data: bytes, path: Path) -> "NDArray[Any]":
    """Return the array in a numeric ``.npy`` file, given the file's contents.

    Example:
        >>> import io, numpy as np
        >>> np.save(file := io.BytesIO(), np.arange(3, dtype=np.uint8))
        >>> parse_npy(file.getvalue(), Path("a.npy"))
        array([0, 1, 2], dtype=uint8)
    """
    return _load_npy(io.BytesIO(data), len(data), path)


def _load_npy(file: BinaryIO, size: int, path: Path) -> "NDArray[Any]":
    """Load an array after checking that the file is as large as its header claims.

    numpy allocates the claimed size before it reads, so a forged header could exhaust the memory.
    """
    import numpy as np  # searching for datasets needs no numpy

    form = np.lib.format
    try:
        wide = form.read_magic(file) != (1, 0)
        shape, _, kind = form.read_array_header_2_0(file) if wide else form.read_array_header_1_0(file)
        left = size - file.tell()
        if kind.kind not in "biuf" or math.prod(shape) * kind.itemsize != left:
            raise ValueError(f"its header claims {shape} values of type {kind}, but {left:,} bytes follow")
        file.seek(0)
        array: NDArray[Any] = np.load(file, allow_pickle=False)
    except Exception as error:  # a damaged header makes numpy raise errors of many types
        raise damaged(path, f"is not a numeric .npy file ({' '.join(str(error).split())})") from error
    return array


_SHARED = Path("/usr/share/datasets")
"""The folder in which Debian's packages install datasets."""


class Found(NamedTuple):
    """A dataset on this machine."""

    folder: Path
    form: FileForm


def cache_folder() -> Path:
    """Return the folder for files that can be regenerated: ``ULTRALIF_CACHE``, or the user's cache."""
    given = os.environ.get("ULTRALIF_CACHE")
    if not given:
        import platformdirs

        given = platformdirs.user_cache_dir("ultralif")
    return Path(given).expanduser()


def home(data_dir: str | Path | None = None) -> Path:
    """Return the folder that downloads go to: ``data_dir``, else ``ULTRALIF_DATA``, else the user's cache."""
    given = data_dir or os.environ.get("ULTRALIF_DATA")
    return Path(given).expanduser() if given else cache_folder() / "datasets"


def roots(data_dir: str | Path | None = None) -> list[Path]:
    """Return the searched folders, in order.

    They are ``data_dir``, ``ULTRALIF_DATA``, the user's cache, ``./data`` (the download folder in the
    examples of torchvision and tonic) and Debian's ``/usr/share/datasets``.
    """
    given = [data_dir, os.environ.get("ULTRALIF_DATA"), cache_folder() / "datasets", "data", _SHARED]
    folders = [Path(folder).expanduser().absolute() for folder in given if folder]
    return list(dict.fromkeys(folders))


def available(dataset: str, data_dir: str | Path | None = None) -> bool:
    """Return whether a dataset is on this machine or ships with a package.

    Args:
        dataset: its name, such as ``mnist``.
        data_dir: a folder to search first.

    Example:
        >>> available("digits")
        True
    """
    from ultralif.data.table import find_spec

    spec = find_spec(dataset)
    return not spec.forms or find(spec, data_dir) is not None


def find(spec: Spec, data_dir: str | Path | None = None, split: str | None = None) -> Found | None:
    """Return the location of a dataset, or None.

    Args:
        spec: the dataset.
        data_dir: a folder to search first; the files may be in it or below it.
        split: consider only forms that contain this published split; None considers all.
    """
    forms = [form for form in spec.forms if split is None or form.split in (None, split)]
    return next((found for found in _places(forms, data_dir) if not _lacking(*found)), None)


def _places(forms: Sequence[FileForm], data_dir: str | Path | None) -> Iterator[Found]:
    """Yield every folder that may contain the files."""
    for root in roots(data_dir):
        direct = [""] if data_dir and root == Path(data_dir).expanduser().absolute() else []
        for form in forms:
            for folder in (*form.folders, *direct):
                yield Found(root / folder, form)


def installed(spec: Spec, folder: Path) -> Found | None:
    """Return the location of a dataset that was unpacked into a folder, or None."""
    for form in spec.forms:
        for place in map(PurePosixPath, form.folders):
            inside = folder.joinpath(*place.parts[1:])
            if place.parts[:1] == (spec.name,) and not _lacking(inside, form):
                return Found(inside, form)
    return None


def _lacking(folder: Path, form: FileForm) -> list[str]:
    """Return a form's files that are missing from a folder."""
    try:
        return [
            pattern
            for pattern in form.files
            if not any(folder.glob(pattern)) and not any(folder.glob(f"{pattern}.gz"))
        ]
    except OSError:  # treat a folder without read permission as empty
        return list(form.files)


def missing(spec: Spec, data_dir: str | Path | None, split: str | None) -> InputError | JobError:
    """Return the error for a missing dataset, with a suggested fix."""
    forms = [form for form in spec.forms if form.split in (None, split)]
    if not forms:
        known = sorted({form.split for form in spec.forms if form.split})
        return InputError(f"split must be one of {', '.join(known)} for {spec.name}, got {split!r}")
    by_hand = _by_hand(forms, data_dir)
    other = find(spec, data_dir)
    if other:
        return JobError(
            f"{spec.name} is in {other.folder} only as the split {other.form.split!r}, not {split!r}; load "
            f"it with split={other.form.split!r}, or {by_hand}"
        )
    if not spec.remotes or forms[0].split not in (None, spec.forms[0].split):
        return JobError(
            f"{spec.name} ({split}) is not on this machine and may not be downloaded automatically; get it "
            f"from {spec.source} and {by_hand}"
        )
    for folder, form in _places(forms, data_dir):
        lacking = _lacking(folder, form)
        if len(lacking) < len(form.files):
            return JobError(
                f"{spec.name} is in {folder}, but {', '.join(lacking)} is missing; add it, or get "
                f"everything with: ultralif data get {spec.name}"
            )
    for name, reason in spec.unread.items():
        for root in roots(data_dir):
            if (root / name).is_dir():
                return JobError(
                    f"{root / name} contains {reason}; get the supported form with: "
                    f"ultralif data get {spec.name}"
                )
    return JobError(
        f"{spec.name} is not on this machine; get it with: ultralif data get {spec.name}; if you have its "
        f"files, pass their folder as --data-dir (data_dir=); see: ultralif data info {spec.name}"
    )


def without_network(spec: Spec, data_dir: str | Path | None, split: str | None) -> str:
    """Return instructions for installing the files by hand, for a machine without network access."""
    forms = [form for form in spec.forms if form.split in (None, split)]
    published = ", ".join(f"{remote.file} ({remote.digest})" for remote in spec.remotes)
    return f"without a network, {_by_hand(forms, data_dir)}; the published files are {published}"


def _by_hand(forms: Sequence[FileForm], data_dir: str | Path | None) -> str:
    wanted = " or ".join(f"{form.folders[0]}/ with {', '.join((*form.files, *form.more))}" for form in forms)
    return f"put {wanted} into one of {', '.join(map(str, roots(data_dir)))}"
