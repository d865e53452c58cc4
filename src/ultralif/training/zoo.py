"""Trained networks that come with the library: small, with the config, the numbers and the hash of each."""

import hashlib
import json
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ultralif.errors import InputError, JobError
from ultralif.training.checkpoint import write_file
from ultralif.training.config import RunConfig

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["add_model", "cards", "read_model"]

_FOLDER = files("ultralif").joinpath("zoo")


@cache
def cards() -> dict[str, dict[str, Any]]:
    """Return the card of every network by its name, such as ``n-mnist/ultradlif-t1``."""
    index = _FOLDER.joinpath("index.json")
    found: dict[str, dict[str, Any]] = json.loads(index.read_text()) if index.is_file() else {}
    return found


def read_model(name: str) -> "tuple[RunConfig, dict[str, Tensor]]":
    """Return config and parameters of a network, after checking its hash."""
    from safetensors.torch import load

    card = cards().get(name)
    if card is None:
        raise InputError(f"there is no network {name!r} in the library; see: ultralif models list")
    content = _FOLDER.joinpath(card["file"]).read_bytes()
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
    known = json.loads(index.read_text()) if index.is_file() else {}
    known[name] = {"file": file, "sha256": hashlib.sha256(content).hexdigest(), **card}
    write_file(index, json.dumps(known, indent=1, sort_keys=True).encode())
