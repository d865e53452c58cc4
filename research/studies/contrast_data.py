"""Pack the data for `contrasts` into small files, for machines without datasets.

    python -m research.studies.contrast_data FOLDER_OF_DATASETS FOLDER_OF_PACKED_SHD FOLDER

The files contain SHD in steps of 10 ms with sums over five neighbouring channels: the training and test sets
regenerated from the original recordings, and the official test set. They also contain the first images of
Fashion-MNIST, MNIST and CIFAR-10, and `_IMAGES` lists how many are used for training and testing. The
regenerated spikes are converted to the official format: at most one spike per channel and step, and no unit
0.
"""

import io
import lzma
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import ultralif as ul

__all__ = ["HELD_SPEAKERS", "load", "official_test", "pack", "unpack_units"]

CHANNELS = 140
STEPS = 99
HELD_SPEAKERS = (2, 9)
"""Speakers held out to choose the settings: one from each half of the training speakers."""
_IMAGES = {"fashion-mnist": (10_000, 10_000), "mnist": (20_000, 10_000), "cifar10": (6_500, 2_500)}


def unpack_units(file: Any) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the time index of each spike, counted across all samples, and the unit that fired."""
    counts = file["counts"].astype(np.int64).ravel()
    delta = file["low"].astype(np.int64) | file["high"].astype(np.int64) << 8
    total = np.cumsum(delta)
    busy = counts[counts > 0]
    starts = (np.cumsum(counts) - counts)[counts > 0]
    unit = total - np.repeat(total[starts] - delta[starts], busy)
    return np.repeat(np.arange(len(counts)), counts), unit


def _open(path: Path) -> Any:
    return np.load(io.BytesIO(lzma.decompress(path.read_bytes())), allow_pickle=False)


def official_test(folder: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return the official test set in 10 ms steps, ``[2264, 99, 700]`` of 0 and 1, and its labels."""
    file = _open(folder / "official-test-10ms.npz.xz")
    step, unit = unpack_units(file)
    x = np.zeros((len(file["labels"]), STEPS, 700), np.uint8)
    x.reshape(-1, 700)[step, unit] = 1
    return x, file["labels"].astype(np.int64)


def _regenerated(folder: Path, half: str) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]]:
    """Return the training or test half in the format of `official_test`, with its labels and speakers."""
    parts = []
    for path in sorted(folder.glob(f"{half}-*.npz.xz")):
        file = _open(path)
        clock, unit = unpack_units(file)
        duration = file["duration_ms"].astype(np.int64)
        first = np.cumsum(duration) - duration
        sample = np.searchsorted(first, clock, side="right") - 1
        step = (clock - first[sample] + 10) // 10  # official steps are (10 (k - 1), 10 k] ms
        x = np.zeros((len(duration), STEPS, 700), np.uint8)
        keep = (step < STEPS) & (unit > 0)
        x[sample[keep], step[keep], unit[keep]] = 1
        parts.append((_summed(x), file["labels"].astype(np.int64), file["speaker"].astype(np.int64)))
    x, labels, speakers = (np.concatenate(part) for part in zip(*parts, strict=True))
    return x, labels, speakers


def _summed(x: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return x.reshape(*x.shape[:2], CHANNELS, -1).sum(3, dtype=np.uint8)


def pack(datasets: Path, spoken: Path, out: Path) -> None:
    """Write one file for each dataset."""
    arrays: dict[str, Any] = {}
    for half in ("train", "test"):
        x, arrays[f"{half}.labels"], arrays[f"{half}.speakers"] = _regenerated(spoken, half)
        arrays[f"{half}.x"] = x
    x, arrays["official.labels"] = official_test(spoken)
    arrays["official.x"] = _summed(x)
    _write(out / "shd.npz.xz", arrays)
    for name, counts in _IMAGES.items():
        found, arrays = ul.data.load(name, data_dir=datasets), {}
        for half, split, most in zip(("train", "test"), (found.train, found.test), counts, strict=True):
            index = torch.arange(most)
            arrays[f"{half}.x"] = split.batch(index).numpy()
            arrays[f"{half}.labels"] = split.labels[index].numpy()
        _write(out / f"{name}.npz.xz", arrays)


def _write(path: Path, arrays: dict[str, Any]) -> None:
    file = io.BytesIO()
    np.savez(file, **arrays)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(lzma.compress(file.getvalue(), preset=6))


@cache
def load(folder: str, name: str, device: str, most: int | None = None) -> dict[str, Tensor]:
    """Return a dataset's arrays on a device, named ``train.x``, ``train.labels`` and so on.

    Args:
        folder: the folder with the packed files.
        name: ``shd``, ``fashion-mnist``, ``mnist`` or ``cifar10``.
        device: the device for the tensors.
        most: maximum number of samples, counted from the start, for a quick trial.
    """
    with _open(Path(folder) / f"{name}.npz.xz") as file:
        return {key: torch.from_numpy(file[key][:most]).to(device) for key in file.files}


if __name__ == "__main__":
    pack(*map(Path, sys.argv[1:]))
