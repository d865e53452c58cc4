"""Readers for image sets: idx (MNIST, Fashion-MNIST) and CIFAR-10's binary batches."""

import math
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ultralif.data.files import Folder, damaged
from ultralif.data.table import Kind, Spec

__all__ = ["Samples", "check_labels", "parse_cifar", "parse_idx", "read_images"]

Bytes = NDArray[np.uint8]

_LIMIT = 1 << 28
"""Largest allowed file of an image set, in bytes."""


class Samples(NamedTuple):
    """Images with their labels."""

    pixels: Bytes
    """``[N, *shape]``"""
    labels: Bytes
    """``[N]``"""


def parse_idx(data: bytes, path: Path) -> Bytes:
    """Return the array in an idx file of bytes.

    The format consists of two zero bytes, the type (8: unsigned byte), the number of axes, each axis as a
    big-endian 32-bit integer, and the values in C order.
    """
    if len(data) < 4 or data[:3] != b"\0\0\x08":
        raise damaged(path, f"is not an idx file of bytes: it starts with {data[:4].hex(' ')}")
    axes = data[3]
    start = 4 + 4 * axes
    if len(data) < start:
        raise damaged(path, "is truncated in its header")
    shape = struct.unpack(f">{axes}I", data[4:start])
    if math.prod(shape) != len(data) - start:
        raise damaged(path, f"should contain {shape} values but has {len(data) - start:,}")
    try:
        return np.frombuffer(data, np.uint8, offset=start).reshape(shape)
    except ValueError as error:  # an axis may be too long even if another one is empty
        raise damaged(path, f"should contain {shape} values ({error})") from error


def parse_cifar(data: bytes, path: Path) -> Samples:
    """Return the images and labels of a CIFAR-10 binary batch: one label byte and 3072 pixel bytes each."""
    if len(data) == 0 or len(data) % 3073:
        raise damaged(path, f"has {len(data):,} bytes; an image has 3073, so this must be a multiple of 3073")
    rows = np.frombuffer(data, np.uint8).reshape(-1, 3073)
    return Samples(rows[:, 1:].reshape(-1, 3, 32, 32), rows[:, 0])


def _read_idx(folder: Folder, half: str) -> Samples:
    part = "train" if half == "train" else "t10k"
    arrays = []
    for name in (f"{part}-images-idx3-ubyte", f"{part}-labels-idx1-ubyte"):
        arrays.append(parse_idx(folder.read(name, _LIMIT), folder.path / name))
    pixels, labels = arrays
    if pixels.ndim != 3 or labels.ndim != 1:
        raise damaged(folder.path, f"has {part} images with {pixels.ndim} axes and labels with {labels.ndim}")
    return Samples(pixels[:, None], labels)


def _read_cifar(folder: Folder, half: str) -> Samples:
    batches = [f"data_batch_{i}.bin" for i in range(1, 6)] if half == "train" else ["test_batch.bin"]
    parts = [parse_cifar(folder.read(name, _LIMIT), folder.path / name) for name in batches]
    return Samples(*map(np.concatenate, zip(*parts, strict=True)))


READERS: dict[Kind, Callable[[Folder, str], Samples]] = {
    "idx": _read_idx,
    "cifar-bin": _read_cifar,
}
"""The function that reads ``train`` or ``test`` for each form of an image set."""


def read_images(folder: Folder, kind: Kind, spec: Spec) -> dict[str, Samples]:
    """Read the training and test images, and check their sizes and labels."""
    halves = {}
    for half, size in zip(("train", "test"), spec.sizes, strict=True):
        samples = READERS[kind](folder, half)
        if samples.pixels.shape != (size, *spec.shape) or samples.labels.shape != (size,):
            raise damaged(
                folder.path,
                f"has {half} images {samples.pixels.shape} and labels {samples.labels.shape}, but "
                f"{spec.name} has {(size, *spec.shape)} and {(size,)}",
            )
        check_labels(samples.labels, spec, folder.path)
        halves[half] = samples
    return halves


def check_labels(labels: NDArray[np.integer[Any]], spec: Spec, path: Path) -> None:
    """Raise an InputError if a label is not one of the dataset's classes."""
    if labels.size and not 0 <= int(labels.min()) <= int(labels.max()) < spec.classes:
        raise damaged(
            path,
            f"has labels from {labels.min()} to {labels.max()}, but {spec.name} has 0 to {spec.classes - 1}",
        )
