"""Datasets by name: `load` finds the files, reads and checks them, and puts them on the device."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from ultralif.data import builtin
from ultralif.data.decode import read_frames
from ultralif.data.files import Folder
from ultralif.data.find import Found, find, missing
from ultralif.data.spec import Normalization, Spec
from ultralif.data.split import Events, Images, Split
from ultralif.data.static import read_images
from ultralif.data.table import find_spec
from ultralif.errors import InputError

__all__ = ["Dataset", "Partition", "load"]

Partition = Literal["tonic", "spikingjelly"]


@dataclass(frozen=True, eq=False)
class Dataset:
    """A dataset in memory."""

    name: str
    shape: tuple[int, ...]
    """Shape of a sample at one time step."""
    classes: int
    class_names: tuple[str, ...]
    train: Split
    test: Split
    checksum: str
    """SHA-256 of the loaded data."""
    normalization: Normalization | None
    """Mean and standard deviation of each channel for pixels in [0, 1]."""
    folder: Path | None
    """The folder it was found in; None if it was generated."""


def load(
    name: str,
    timesteps: int | None = None,
    data_dir: str | Path | None = None,
    device: str | torch.device = "cpu",
    split: Partition = "tonic",
) -> Dataset:
    """Load a dataset that is on this machine.

    Args:
        name: one of `ultralif.data.DATASETS`.
        timesteps: the bins T that events are counted in; None, 10 (randman: 30). Images have no time until
            they are encoded.
        data_dir: a folder to search first; `ultralif.data.find.roots` lists the others.
        device: where the samples go.
        split: for dvs-gesture, ``tonic`` (1077 / 264) or ``spikingjelly`` (1176 / 288).

    Example:
        >>> ds = load("randman")
        >>> ds.train.batch([0, 1]).shape
        torch.Size([30, 2, 64])
    """
    spec = find_spec(name)
    steps = spec.timesteps if timesteps is None else timesteps
    if steps < 1:
        raise InputError(f"timesteps must be at least 1, got {steps}")
    if split not in get_args(Partition):
        raise InputError(f"split must be one of {', '.join(get_args(Partition))}, got {split!r}")
    place = _device(device)
    if not spec.forms:
        return _assemble(spec, builtin.ARRAYS[spec.name](spec, steps), steps, place, None, None)
    found = find(spec, data_dir, split)
    if found is None:
        raise missing(spec, data_dir, split)
    return read(spec, found, steps, place)


def read(spec: Spec, found: Found, timesteps: int, device: torch.device) -> Dataset:
    """Read a dataset from where it was found."""
    if spec.is_events:
        arrays, checksum = read_frames(found, spec, timesteps)
        return _assemble(spec, arrays, timesteps, device, found.folder, checksum)
    halves = read_images(Folder(found.folder, found.form.digests), found.form.kind, spec)
    images = {
        f"{half}.{part}": array
        for half, samples in halves.items()
        for part, array in samples._asdict().items()
    }
    return _assemble(spec, images, timesteps, device, found.folder, None)


def _assemble(
    spec: Spec,
    arrays: Mapping[str, NDArray[Any]],
    timesteps: int,
    device: torch.device,
    folder: Path | None,
    checksum: str | None,
) -> Dataset:
    """Put arrays named ``train.*`` and ``test.*`` on the device."""
    halves = {}
    for half in ("train", "test"):
        parts = {
            name.partition(".")[2]: _tensor(array, device)
            for name, array in arrays.items()
            if name.startswith(half)
        }
        labels = parts.pop("labels").long()
        store = Events(**parts, timesteps=timesteps, shape=spec.shape) if spec.is_events else Images(**parts)
        halves[half] = Split(store, labels, torch.arange(len(labels), device=device))
    return Dataset(
        name=spec.name,
        shape=spec.shape,
        classes=spec.classes,
        class_names=spec.class_names,
        checksum=checksum or _checksum(arrays),
        normalization=spec.normalization,
        folder=folder,
        **halves,
    )


def _tensor(array: NDArray[Any], device: torch.device) -> torch.Tensor:
    writable = array if array.flags.writeable else array.copy()
    return torch.from_numpy(np.ascontiguousarray(writable)).to(device)


def _checksum(arrays: Mapping[str, NDArray[Any]]) -> str:
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(array.data)
    return digest.hexdigest()


def _device(device: str | torch.device) -> torch.device:
    try:
        place = torch.device(device)
    except RuntimeError as error:
        raise InputError(f"device must be a name such as cpu or cuda:0, got {device!r}") from error
    if place.type == "cuda" and not torch.cuda.is_available():
        raise InputError(f"device {device!r} is not there: torch sees no GPU; use device='cpu'")
    return place
