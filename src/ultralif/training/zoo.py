"""The zoo: trained networks, shipped with the library or fetched, each with its config, numbers and hash."""

import hashlib
import json
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ultralif.data.find import cache_folder
from ultralif.errors import InputError, JobError
from ultralif.files import BadFile, inside, read_bytes, read_json, write_file
from ultralif.training.config import RunConfig

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["add_model", "cards", "get_model", "read_model"]

_FOLDER = Path(str(files("ultralif"))) / "zoo"
_MOST = 1 << 28
"""Bytes that a network may have."""


def _folders() -> tuple[Path, Path]:
    """Return the folders of the networks that are shipped, and of those that `get_model` fetched."""
    return _FOLDER, cache_folder() / "models"


def cards() -> dict[str, dict[str, Any]]:
    """Return the card of every network by its name, such as ``n-mnist/ultradlif-t1``."""
    shipped, fetched = (_read_index(folder) for folder in _folders())
    return fetched | shipped


def _read_index(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the cards of a zoo; without an index there are none."""
    path = folder / "index.json"
    if not path.is_file():
        return {}
    found = read_json(path)
    if not isinstance(found, dict) or not all(isinstance(card, dict) for card in found.values()):
        raise BadFile(f"{path} is not an index of networks; install it again")
    return found


def _read(folder: Path, card: dict[str, Any]) -> bytes:
    """Return the file of a network, after checking its hash."""
    content = read_bytes(inside(folder, str(card.get("file"))), _MOST)
    if hashlib.sha256(content).hexdigest() != card.get("sha256"):
        raise JobError(f"{card['file']} in {folder} is not what was shipped (its SHA-256 differs)")
    return content


def read_model(name: str) -> "tuple[RunConfig, dict[str, Tensor]]":
    """Return config and parameters of a network, after checking its hash."""
    from safetensors.torch import load

    for folder in _folders():
        if card := _read_index(folder).get(name):
            tensors = {key: value.float() for key, value in load(_read(folder, card)).items()}
            return RunConfig.from_dict(card["config"]), tensors
    raise InputError(f"there is no network {name!r} on this machine; see: ultralif models list")


def get_model(name: str, folder: Path) -> Path:
    """Copy a network from another zoo to this machine, where `ultralif.load` finds it, and return its file.

    Args:
        name: such as ``cifar10/vgg7-t4``.
        folder: the other zoo, with its ``index.json``.
    """
    known = _read_index(folder)
    if name not in known:
        there = ", ".join(sorted(known)) or "none"
        raise InputError(f"there is no network {name!r} in {folder}; there are: {there}")
    return _keep(_folders()[1], name, _read(folder, known[name]), known[name])


def add_model(folder: Path, name: str, tensors: "dict[str, Tensor]", card: dict[str, Any]) -> None:
    """Put a network into a zoo: its parameters in half precision, and its card into the index."""
    from safetensors.torch import save

    _keep(folder, name, save({key: value.half().contiguous() for key, value in tensors.items()}), card)


def _keep(folder: Path, name: str, content: bytes, card: dict[str, Any]) -> Path:
    file = f"{name.replace('/', '-')}.safetensors"
    path = inside(folder, file)
    write_file(path, content)
    known = _read_index(folder)
    known[name] = {**card, "file": file, "sha256": hashlib.sha256(content).hexdigest()}
    write_file(folder / "index.json", json.dumps(known, indent=1, sort_keys=True).encode())
    return path
