"""The zoo: trained networks, shipped with the library or fetched, each with its config, numbers and hash."""

import hashlib
import json
from importlib.resources import files
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ultralif.data.files import cache_folder
from ultralif.errors import InputError, JobError
from ultralif.files import BadFile, inside, read_bytes, read_json, visible, write_file
from ultralif.names import similar
from ultralif.training.config import RunConfig

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["add_model", "cards", "get_model", "is_model", "read_model"]

_FOLDER = Path(str(files("ultralif"))) / "zoo"
_MOST = 1 << 28
"""Maximum size of a network file in bytes."""


def _folders() -> tuple[Path, Path]:
    """Return the folders of the shipped networks and of the networks fetched by `get_model`."""
    return _FOLDER, cache_folder() / "models"


def cards() -> dict[str, dict[str, Any]]:
    """Return every network's card by name, such as ``n-mnist/ultradlif-t1``."""
    shipped, fetched = (_read_index(folder) for folder in _folders())
    return fetched | shipped


def is_model(source: str) -> bool:
    """Return whether a network of that name comes with the library; a misspelled name raises an error."""
    known = cards()
    near = similar(source, known) if "/" in source and not Path(source).exists() else None
    if source not in known and near is not None:
        raise InputError(f"{source!r} is not known; did you mean {near}? see: ultralif models list")
    return source in known


def _read_index(folder: Path) -> dict[str, dict[str, Any]]:
    """Return a zoo's cards, or none if it has no index."""
    path = folder / "index.json"
    if not path.is_file():
        return {}
    found = read_json(path)
    if not isinstance(found, dict) or not all(isinstance(card, dict) for card in found.values()):
        raise BadFile(f"{path} is not an index of networks; install it again")
    return found


def _read(folder: Path, card: dict[str, Any]) -> bytes:
    """Return a network's file, after checking its hash."""
    content = read_bytes(inside(folder, str(card.get("file"))), _MOST)
    if hashlib.sha256(content).hexdigest() != card.get("sha256"):
        raise JobError(f"{card['file']} in {folder} differs from the file that was shipped (SHA-256)")
    return content


def read_model(name: str) -> "tuple[RunConfig, dict[str, Tensor]]":
    """Return a network's config and parameters, after checking its hash."""
    from safetensors.torch import load

    for folder in _folders():
        if card := _read_index(folder).get(name):
            return RunConfig.from_dict(card["config"]), unpacked(load(_read(folder, card)))
    raise InputError(f"there is no network {name!r} on this machine; see: ultralif models list")


def get_model(name: str, folder: Path) -> Path:
    """Copy a network from another zoo to this machine, where `ultralif.load` finds it, and return its file.

    Args:
        name: the network's name, such as ``cifar10/vgg11r-t4``.
        folder: the other zoo, with its ``index.json``.
    """
    known = _read_index(folder)
    if name not in known:
        there = ", ".join(sorted(known)) or "none"
        raise InputError(f"there is no network {name!r} in {folder}; choose from: {there}")
    content = _read(folder, known[name])
    _check(name, known[name], content)
    return _keep(_folders()[1], name, content, known[name])


def _check(name: str, card: dict[str, Any], content: bytes) -> None:
    """Reject an unusable card or network before it is kept, because commands list everything that is kept."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        RunConfig.from_dict(card["config"])
        numbers = {mode: float(card["accuracy"][mode]) for mode in card["accuracy"]}
        if not isinstance(card["run"], str) or not all(map(isfinite, numbers.values())):
            raise ValueError("its card has an invalid run or accuracy")
        unpacked(load(content))
    except (InputError, SafetensorError, KeyError, TypeError, ValueError, RuntimeError) as error:
        reason = visible(" ".join(f"{type(error).__name__}: {error}".split()))
        raise BadFile(f"network {visible(name)!r} is damaged and was not kept ({reason})") from error


def add_model(
    folder: Path, name: str, tensors: "dict[str, Tensor]", card: dict[str, Any], *, int8: bool = False
) -> None:
    """Add a network to a zoo: its packed parameters as a file, and its card to the index."""
    from safetensors.torch import save

    _keep(folder, name, save(packed(tensors, int8=int8)), card)


def packed(tensors: "dict[str, Tensor]", *, int8: bool = False) -> "dict[str, Tensor]":
    """Return tensors in half precision, or large weights as int8 with one scale per output."""
    import torch

    if not int8:
        halved = {key: value.half() if value.is_floating_point() else value for key, value in tensors.items()}
        return {key: value.contiguous() for key, value in halved.items()}
    found = {}
    for key, value in tensors.items():
        if value.dim() < 2 or value.numel() < 1 << 11:
            found[key] = value.float().contiguous()
            continue
        scale = (value.float().abs().flatten(1).amax(1) / 127).clamp(min=1e-7).half()
        steps = value.float() / _across(scale, value)
        found[key] = steps.round().clamp(-127, 127).to(torch.int8).contiguous()
        found[f"{key}.scale"] = scale
    return found


def unpacked(tensors: "dict[str, Tensor]") -> "dict[str, Tensor]":
    """Return packed tensors in float32."""
    scales = {key: tensors[f"{key}.scale"] for key in tensors if f"{key}.scale" in tensors}
    found = {key: value.float() for key, value in tensors.items() if key.removesuffix(".scale") == key}
    return found | {key: found[key] * _across(scale, found[key]) for key, scale in scales.items()}


def _across(scale: "Tensor", value: "Tensor") -> "Tensor":
    """Return the scales of the outputs in a shape that broadcasts over the weights."""
    return scale.float().view(-1, *[1] * (value.dim() - 1))


def _keep(folder: Path, name: str, content: bytes, card: dict[str, Any]) -> Path:
    file = f"{name.replace('/', '-')}.safetensors"
    path = inside(folder, file)
    write_file(path, content)
    known = _read_index(folder)
    known[name] = {**card, "file": file, "sha256": hashlib.sha256(content).hexdigest()}
    write_file(folder / "index.json", json.dumps(known, indent=1, sort_keys=True).encode())
    return path
