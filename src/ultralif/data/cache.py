"""An on-disk array cache: written once and atomically, and verified on every read."""

import contextlib
import errno
import hashlib
import json
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ultralif.errors import JobError
from ultralif.files import digest, inside, read_json, sync_folder

__all__ = ["Arrays", "Pieces", "cached", "staging"]

Pieces = Iterator[tuple[str, NDArray[Any]]]
"""``(name, values)`` pairs: values to append to the named array. The first ones set the array's type."""

_MANIFEST = "manifest.json"
_TEMPORARY = ".tmp-"
_STALE = 24 * 3600
"""Age in seconds after which a temporary folder is assumed to be left over from a killed process."""

_log = logging.getLogger(__name__)


class Arrays(NamedTuple):
    """Memory-mapped arrays from the cache, and one digest over all of them."""

    arrays: dict[str, NDArray[Any]]
    checksum: str


def _write(folder: Path, pieces: Pieces) -> None:
    """Append each piece to its array's file, then write the manifest that makes the files valid."""
    entries: dict[str, dict[str, Any]] = {}
    digests: dict[str, Any] = {}
    with contextlib.ExitStack() as stack:
        files: dict[str, BinaryIO] = {}
        for name, values in pieces:
            if name not in files:
                files[name] = stack.enter_context((folder / f"{name}.bin").open("wb"))
                digests[name] = hashlib.sha256()
                entries[name] = {"dtype": values.dtype.str, "size": 0}
            data = np.ascontiguousarray(values, entries[name]["dtype"]).data
            files[name].write(data)
            digests[name].update(data)
            entries[name]["size"] += values.size
        for file in files.values():
            _sync(file)
    for name, entry in entries.items():
        entry["sha256"] = digests[name].hexdigest()
    with (folder / _MANIFEST).open("wb") as file:
        file.write(json.dumps(entries, indent=1, sort_keys=True).encode())
        _sync(file)


def _sync(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def cached(folder: Path, build: Callable[[], Pieces]) -> Arrays:
    """Return the arrays in a cache folder; build them if they are missing or damaged.

    Args:
        folder: the arrays' cache folder; its name encodes everything that they depend on.
        build: yields ``(name, values)`` pairs, the values to append to the named array.
    """
    found = _read(folder)
    if found is None:
        with staging(folder, mode=0o700) as temporary:  # readable by its owner only
            _write(temporary, build())
        found = _read(folder)
    if found is None:
        raise JobError(
            f"{folder} was damaged while it was being written; check the disk, or set ULTRALIF_CACHE"
        )
    return found


@contextlib.contextmanager
def staging(folder: Path, mode: int = 0o755) -> Iterator[Path]:
    """Yield a temporary folder that becomes ``folder`` on success and is removed on failure.

    Args:
        folder: the final path.
        mode: the finished folder's permissions.
    """
    temporary = None
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        _sweep(folder.parent)
        temporary = Path(tempfile.mkdtemp(prefix=_TEMPORARY, dir=folder.parent))
        yield temporary
        temporary.chmod(mode)
        try:
            temporary.rename(folder)
            sync_folder(folder.parent)
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                raise  # otherwise another process finished first, and its folder is identical
    except OSError as error:
        raise JobError(
            f"{folder} cannot be written: {error.strerror}; free some space or change the permissions, or "
            "choose another place with ULTRALIF_CACHE or, for downloads, --data-dir"
        ) from error
    finally:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)


def _sweep(parent: Path) -> None:
    """Remove temporary folders left over from killed processes."""
    for path in parent.glob(f"{_TEMPORARY}*"):
        with contextlib.suppress(FileNotFoundError):  # its process has just finished
            if time.time() - path.stat().st_mtime > _STALE:
                shutil.rmtree(path, ignore_errors=True)


def _read(folder: Path) -> Arrays | None:
    """Map a folder's arrays; return None if the folder is missing or damaged. Remove a damaged one."""
    if not folder.exists():
        return None
    try:
        entries = read_json(folder / _MANIFEST)
        paths = {name: inside(folder, f"{name}.bin") for name in entries}
        with ThreadPoolExecutor(2) as pool:
            digests = list(pool.map(digest, paths.values()))
        if digests != [entry["sha256"] for entry in entries.values()]:
            raise ValueError("the digest of a file differs from the manifest")
        arrays = {name: _map(paths[name], entry) for name, entry in entries.items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        _log.warning("the cache %s is damaged and will be rebuilt: %s", folder, error)
        shutil.rmtree(folder, ignore_errors=True)
        return None
    return Arrays(arrays, hashlib.sha256(json.dumps(entries, sort_keys=True).encode()).hexdigest())


def _map(path: Path, entry: dict[str, Any]) -> NDArray[Any]:
    kind, size = np.dtype(entry["dtype"]), entry["size"]
    if size == 0:
        return np.empty(0, kind)
    # Copy-on-write, because torch requires writable memory; nothing is ever written.
    return np.memmap(path, kind, "c", shape=(size,))
