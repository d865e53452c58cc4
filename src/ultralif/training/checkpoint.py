"""Crash-safe folders: written under a temporary name, flushed, renamed, and verified with a manifest.

A folder is valid if its ``manifest.json``, which is written last, lists every file with its SHA-256. The
digests are needed because neither safetensors nor JSON detects a flipped bit.
"""

import contextlib
import errno
import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ultralif import __version__
from ultralif.errors import JobError
from ultralif.files import BadFile, parse_json, read_bytes, read_json, sync_folder, visible, write_synced

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Contents", "Damaged", "newest", "read_folder", "save_checkpoint", "write_folder"]

MANIFEST = "manifest.json"
FORMAT = 1
"""Version of a folder's layout, written to every manifest."""
TENSORS = ".safetensors"
MOST_TENSORS, MOST_TEXT = 1 << 33, 1 << 28
"""Maximum sizes of a tensor file and of a JSON document in bytes: 8 GiB and 256 MiB."""
KEEP = 2
"""Number of checkpoints kept: one more than needed, in case the newest is damaged."""


class Damaged(JobError):
    """A file is missing, cut short or changed."""


class Contents(NamedTuple):
    """Contents of a folder: its documents by name, and its tensor file, which only torch can read."""

    documents: dict[str, Any]
    file: bytes

    def tensors(self) -> "dict[str, Tensor]":
        """Return the tensors by name."""
        from safetensors import SafetensorError
        from safetensors.torch import load

        try:
            return load(self.file)
        except SafetensorError as error:
            raise Damaged(f"a tensor file cannot be read ({error}); it is not used") from error


def _separate(tensors: "Mapping[str, Tensor]") -> "dict[str, Tensor]":
    """Return tensors on the CPU, copying those that share memory, such as tied weights."""
    found, places = {}, set()
    for name, tensor in tensors.items():
        one = tensor.detach().cpu().contiguous()
        place = one.untyped_storage().data_ptr()
        found[name] = one.clone() if place in places else one
        places.add(place)
    return found


def write_folder(
    folder: Path,
    name: str,
    tensors: "Mapping[str, Tensor]",
    documents: Mapping[str, Any],
    aside: Path | None = None,
) -> None:
    """Write a folder with ``<name>.safetensors``, JSON documents and their manifest atomically.

    Args:
        folder: the folder to write; an existing one is replaced.
        name: the name of the tensor file, without its suffix.
        tensors: the contents of that file.
        documents: the JSON documents, one file each.
        aside: the folder in which the new one is prepared, on the same disk; None means the parent folder.
    """
    from safetensors.torch import save

    contents = {f"{name}.safetensors": save(_separate(tensors))}
    contents |= {f"{key}.json": json.dumps(value, indent=1).encode() for key, value in documents.items()}
    digests = {file: hashlib.sha256(content).hexdigest() for file, content in contents.items()}
    manifest = {"format": FORMAT, "ultralif": __version__, "sha256": digests}
    contents[MANIFEST] = json.dumps(manifest, indent=1).encode()
    draft = (aside or folder.parent) / f".{folder.name}.{os.getpid()}"
    try:
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True, mode=0o700)
        for file, content in contents.items():
            write_synced(draft / file, content)
        sync_folder(draft)
        _replace(draft, folder)
        sync_folder(folder.parent)
    except OSError as error:
        shutil.rmtree(draft, ignore_errors=True)
        raise JobError(
            f"{folder} could not be written ({error.strerror}, {sum(map(len, contents.values()))} bytes); "
            "free some space or choose another folder with --runs-dir. Existing files were not changed"
        ) from error


def read_folder(folder: Path) -> Contents:
    """Read what `write_folder` wrote, after checking every byte of it."""
    try:
        digests = _digests(folder)
        files = {file: _checked(folder, file, digest) for file, digest in digests.items()}
        named = [file for file in files if file.endswith(TENSORS)]
        tensors = files.pop(named[0]) if named else b""
        documents = {
            file.removesuffix(".json"): parse_json(text, f"{folder / file}") for file, text in files.items()
        }
        return Contents(documents, tensors)
    except BadFile as error:
        raise Damaged(f"{folder} is incomplete: {error}; it is not used") from error


def _digests(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of every file listed in a folder's manifest."""
    manifest = read_json(folder / MANIFEST, 1 << 20, links=False)
    if not isinstance(manifest, dict) or not isinstance(manifest.get("sha256"), dict):
        raise Damaged(f"{folder / MANIFEST} is not a manifest; the folder is not used")
    if manifest.get("format") != FORMAT:
        raise Damaged(
            f"{folder} has format {visible(str(manifest.get('format')))}, written by ultralif "
            f"{visible(str(manifest.get('ultralif')))}, but this version reads {FORMAT}; it is not used"
        )
    return dict(manifest["sha256"])


def _checked(folder: Path, file: str, digest: str) -> bytes:
    """Return the contents of a file, or raise an error if they have changed."""
    if not file or file != Path(file).name:
        raise Damaged(f"{folder / MANIFEST} lists {visible(file)!r}, which is not a file in the folder")
    content = read_bytes(folder / file, MOST_TENSORS if file.endswith(TENSORS) else MOST_TEXT, links=False)
    if hashlib.sha256(content).hexdigest() != digest:
        raise Damaged(
            f"{folder / file} has changed since it was written (its SHA-256 differs); it is not used. Delete "
            f"a damaged run with: ultralif runs rm {folder.name}"
        )
    return content


def save_checkpoint(
    root: Path, number: int, tensors: "Mapping[str, Tensor]", documents: Mapping[str, Any]
) -> None:
    """Write checkpoint ``number``, then remove all others except the one before it.

    Checkpoints with higher numbers were skipped as damaged; any other files were left behind by a crash.
    """
    written = root / f"{number:012d}"
    write_folder(written, "checkpoint", tensors, documents)
    kept = sorted(folder for folder in root.glob("[0-9]*") if folder <= written)[-KEEP:]
    for folder in root.iterdir():
        if folder not in kept:
            shutil.rmtree(folder, ignore_errors=True)


def newest(root: Path) -> tuple[Contents | None, list[str]]:
    """Return the newest undamaged checkpoint, if any, and the errors of newer ones."""
    complaints: list[str] = []
    for folder in sorted(root.glob("[0-9]*"), reverse=True):
        try:
            return read_folder(folder), complaints
        except Damaged as error:
            complaints.append(str(error))
    return None, complaints


def _replace(draft: Path, folder: Path) -> None:
    """Rename a folder to its final name, moving any existing one away; another process may do the same."""
    while True:
        try:
            draft.rename(folder)
            return
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
        old = draft.with_name(f"{draft.name}.old")
        with contextlib.suppress(FileNotFoundError):
            folder.rename(old)
        shutil.rmtree(old, ignore_errors=True)
