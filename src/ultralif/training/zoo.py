"""The zoo: small trained networks shipped with the library, each with its config, numbers and hash."""

import hashlib
import json
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ultralif.errors import InputError, JobError
from ultralif.files import BadFile, inside, read_bytes, read_json, write_file
from ultralif.training.config import RunConfig

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["add_model", "cards", "read_model"]

_FOLDER = Path(str(files("ultralif"))) / "zoo"
_MOST = 1 << 28
"""Bytes that a network may have."""


@cache
def cards() -> dict[str, dict[str, Any]]:
    """Return the card of every network by its name, such as ``n-mnist/ultradlif-t1``."""
    return _read_index(_FOLDER / "index.json")


def _read_index(path: Path) -> dict[str, dict[str, Any]]:
    """Return the cards of an index; without one there are none."""
    if not path.is_file():
        return {}
    found = read_json(path)
    if not isinstance(found, dict) or not all(isinstance(card, dict) for card in found.values()):
        raise BadFile(f"{path} is not an index of networks; install ultralif again")
    return found


def read_model(name: str) -> "tuple[RunConfig, dict[str, Tensor]]":
    """Return config and parameters of a network, after checking its hash."""
    from safetensors.torch import load

    card = cards().get(name)
    if card is None:
        raise InputError(f"there is no network {name!r} in the library; see: ultralif models list")
    content = read_bytes(inside(_FOLDER, card["file"]), _MOST)
    if hashlib.sha256(content).hexdigest() != card["sha256"]:
        raise JobError(
            f"{card['file']} is not what was shipped (its SHA-256 differs); install ultralif again"
        )
    tensors = {key: value.float() for key, value in load(content).items()}
    return RunConfig.from_dict(card["config"]), tensors


def add_model(folder: Path, name: str, tensors: "dict[str, Tensor]", card: dict[str, Any]) -> None:
    """Put a network into a zoo: its parameters in half precision, and its card into the index."""
    from safetensors.torch import save

    content = save({key: value.half().contiguous() for key, value in tensors.items()})
    file = f"{name.replace('/', '-')}.safetensors"
    write_file(folder / file, content)
    index = folder / "index.json"
    known = _read_index(index)
    known[name] = {"file": file, "sha256": hashlib.sha256(content).hexdigest(), **card}
    write_file(index, json.dumps(known, indent=1, sort_keys=True).encode())
