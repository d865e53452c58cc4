"""Files that are whole or not there: written aside, flushed, renamed, and vouched for by a manifest.

A folder is valid if its ``manifest.json``, which is written last, names every file with its SHA-256. Neither
safetensors nor JSON would notice a flipped bit.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ultralif.errors import JobError

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Damaged", "newest", "read_folder", "save_checkpoint", "write_file", "write_folder"]

MANIFEST = "manifest.json"
KEEP = 2


class Damaged(JobError):
    """A file is missing, cut short or changed."""


def write_file(path: Path, content: bytes) -> None:
    """Put a file into its place at once: a reader, or a crash, sees the old one or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = path.with_name(f".{path.name}.{os.getpid()}.draft")
    try:
        with draft.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise JobError(
            f"{path} could not be written ({error.strerror}, {len(content)} bytes); make room or choose "
            "another folder with --runs-dir. What was there before is unharmed"
        ) from error
    _flush_folder(path.parent)


def write_folder(folder: Path, tensors: "Mapping[str, Tensor]", documents: Mapping[str, Any]) -> None:
    """Write ``tensors.safetensors`` and JSON documents into a folder, and its manifest last."""
    from safetensors.torch import save

    contents = {f"{name}.json": json.dumps(value, indent=1).encode() for name, value in documents.items()}
    contents["tensors.safetensors"] = save(
        {name: t.detach().cpu().contiguous() for name, t in tensors.items()}
    )
    for name, content in contents.items():
        write_file(folder / name, content)
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    write_file(folder / MANIFEST, json.dumps({"sha256": digests}, indent=1).encode())


def read_folder(folder: Path) -> "tuple[dict[str, Tensor], dict[str, Any]]":
    """Read what `write_folder` wrote, after checking every byte of it."""
    from safetensors.torch import load, save

    try:
        digests: dict[str, str] = json.loads((folder / MANIFEST).read_bytes())["sha256"]
        contents = {name: (folder / name).read_bytes() for name in digests}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Damaged(f"{folder} is incomplete ({error}); it is not used") from error
    for name, content in contents.items():
        if hashlib.sha256(content).hexdigest() != digests[name]:
            raise Damaged(f"{folder / name} is not what was written (its SHA-256 differs); it is not used")
    tensors = load(contents.pop("tensors.safetensors", save({})))
    return tensors, {name.removesuffix(".json"): json.loads(content) for name, content in contents.items()}


def save_checkpoint(
    root: Path, number: int, tensors: "Mapping[str, Tensor]", documents: Mapping[str, Any]
) -> None:
    """Write checkpoint ``number`` and then remove all but the newest two."""
    write_folder(root / f"{number:012d}", tensors, documents)
    for old in sorted(root.glob("[0-9]*"))[:-KEEP]:
        shutil.rmtree(old, ignore_errors=True)


def newest(root: Path) -> "tuple[tuple[dict[str, Tensor], dict[str, Any]] | None, list[str]]":
    """Return the newest checkpoint that is whole, if any, and what is wrong with the newer ones."""
    complaints: list[str] = []
    for folder in sorted(root.glob("[0-9]*"), reverse=True):
        try:
            return read_folder(folder), complaints
        except Damaged as error:
            complaints.append(str(error))
    return None, complaints


def _flush_folder(folder: Path) -> None:
    """Make a rename durable, where the system lets a folder be flushed."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    except OSError:
        pass
    finally:
        os.close(handle)
