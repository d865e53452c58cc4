"""Datasets that need no download: scikit-learn's digits, and spike times on smooth random manifolds."""

import gzip
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ultralif.data.table import Spec
from ultralif.errors import need

__all__ = ["ARRAYS", "digits", "manifold_times", "randman"]

_HELD_OUT = 36
"""Number of test samples per class in the digits dataset."""


def digits(spec: Spec, timesteps: int) -> dict[str, NDArray[Any]]:
    """Return scikit-learn's digits, 8 x 8, rescaled from 0..16 to 0..255.

    The last 36 of each class, in file order, form the test set: 1437 / 360. The file is sorted by
    writer, so most test digits come from writers who do not appear in the training set.
    """
    table = _digits_table()
    pixels = np.rint(table[:, :-1] * (255 / 16)).astype(np.uint8).reshape(-1, *spec.shape)
    labels = table[:, -1].astype(np.int64)
    held_out = np.concatenate([np.flatnonzero(labels == c)[-_HELD_OUT:] for c in range(spec.classes)])
    is_test = np.isin(np.arange(len(labels)), held_out)
    return {
        "train.pixels": pixels[~is_test],
        "train.labels": labels[~is_test],
        "test.pixels": pixels[is_test],
        "test.labels": labels[is_test],
    }


def _digits_table() -> NDArray[np.float64]:
    """Return each digit's pixels and, in the last column, its class, read from scikit-learn's file.

    Importing scikit-learn would take longer than training on the digits.
    """
    found = find_spec("sklearn")
    package = found.origin if found is not None else need("sklearn", "demo").__file__
    file = Path(str(package)).parent / "datasets" / "data" / "digits.csv.gz"
    with gzip.open(file, "rt") as lines:
        return np.loadtxt(lines, delimiter=",")


def manifold_times(
    points: NDArray[np.float64], units: int, rng: np.random.Generator, smoothness: float = 2.0
) -> NDArray[np.float64]:
    r"""Return the spike time in [0, 1) of each unit at points on a smooth random manifold.

    .. math:: f_i(x) = \prod_d \sum_{k=1}^{K} \frac{a_{idk}}{k^\alpha} \sin(2\pi (k x_d b_{idk} + c_{idk}))

    with a, b, c uniform in [0, 1). Each unit's times are rescaled to [0, 1) over the given points (Zenke and
    Vogels 2021).

    Args:
        points: coordinates on the manifold in [0, 1), ``[N, D]``.
        units: the number of units.
        rng: random number generator for the manifold.
        smoothness: alpha; terms smaller than 0.001 are omitted.
    """
    terms = np.arange(1, int(np.ceil(1e-3 ** (-1 / smoothness))) + 1)
    a, b, c = rng.random((3, units, points.shape[1], len(terms)))
    phase = points[:, None, :, None] * terms * b + c
    values = (np.sin(2 * np.pi * phase) * a / terms**smoothness).sum(-1).prod(-1)
    low, high = values.min(0), values.max(0)
    times: NDArray[np.float64] = (values - low) / (high - low + 1e-7)
    return times


def randman(spec: Spec, timesteps: int, *, seed: int = 0, dimensions: int = 1) -> dict[str, NDArray[Any]]:
    """Generate recordings: each class is a manifold, and each unit fires once, at its coordinate.

    Since every unit fires exactly once, only the spike times distinguish the classes: the sum over time is
    the same for all samples.

    Args:
        spec: sizes, classes and units.
        timesteps: the number of time bins.
        seed: seed for the manifolds and the points on them.
        dimensions: the number of coordinates that determine a sample's spike times.
    """
    rng = np.random.default_rng(seed)
    (units,) = spec.shape
    per_class = sum(spec.sizes) // spec.classes
    points = rng.random((spec.classes, per_class, dimensions))
    times = np.stack([manifold_times(part, units, rng) for part in points])
    keys = np.floor(times * timesteps).astype(np.int64) * units + np.arange(units)
    arrays: dict[str, NDArray[Any]] = {}
    held_out = spec.sizes[1] // spec.classes
    for half, part in (("train", keys[:, held_out:]), ("test", keys[:, :held_out])):
        entries = np.sort(part.reshape(-1, units), axis=1)
        arrays |= {
            f"{half}.keys": entries.reshape(-1).astype(np.int32),
            f"{half}.counts": np.ones(entries.size, np.uint8),
            f"{half}.offsets": np.arange(len(entries) + 1) * units,
            f"{half}.labels": np.repeat(np.arange(spec.classes), part.shape[1]),
        }
    return arrays


ARRAYS: Mapping[str, Callable[[Spec, int], dict[str, NDArray[Any]]]] = {"digits": digits, "randman": randman}
"""The function that returns each built-in dataset's arrays, named as in the frame cache."""
