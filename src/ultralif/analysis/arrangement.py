"""Hyperplane arrangements: bounds, exact enumeration of the regions, general position.

A layer ``W x + b`` whose neurons fire above ``c`` divides the input space along the hyperplanes
``w_j . x = c_j - b_j``; each region between them has its own spike pattern for one time step.
"""

from math import comb
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ultralif.analysis.limits import largest, refuse_beyond
from ultralif.errors import InputError, JobError

__all__ = ["Regions", "check_hyperplanes", "count_regions", "enumerate_regions", "region_bound"]

Array = NDArray[np.float64]

TOLERANCE = 1e-11
"""Unit normals that differ by less than this are treated as equal, as are distances from the origin."""

ROUNDING = 4e-16
"""Relative rounding error of one computation step."""

MAX_REGIONS = 300_000
"""Jobs with a larger bound are refused, because they take minutes or longer."""

SECONDS_PER_REGION = 2e-4
"""Upper estimate of the time per region on one laptop core, in seconds."""


def region_bound(hyperplanes: int, dimension: int) -> int:
    r"""Return Zaslavsky's bound :math:`R(h, n) = \sum_{k \le \min(h, n)} \binom hk` (proposition C.3).

    It is attained in general position. For an arrangement of rank r, the bound is ``R(h, r)``.

    Example:
        >>> region_bound(4, 2), region_bound(64, 784) == 2**64
        (11, True)
    """
    if hyperplanes < 0 or dimension < 0:
        raise InputError(f"hyperplanes and dimension must be >= 0, got {hyperplanes} and {dimension}")
    return sum(comb(hyperplanes, k) for k in range(min(hyperplanes, dimension) + 1))


class Regions(NamedTuple):
    """All regions of an arrangement, each represented by a point inside it.

    Example:
        >>> regions = enumerate_regions(torch.eye(2), torch.zeros(2))
        >>> regions.points.shape, regions.patterns.shape
        (torch.Size([4, 2]), torch.Size([4, 2]))
    """

    points: Tensor
    """``[regions, n]``"""
    patterns: Tensor
    """``[regions, h]``: whether the region is on each hyperplane's positive side, ``w . x > c``."""


def enumerate_regions(
    weight: Tensor, offset: Tensor, *, tol: float = TOLERANCE, limit: int = MAX_REGIONS
) -> Regions:
    """Find all regions of the hyperplanes ``weight @ x = offset``, exactly.

    Hyperplanes are added one by one. A new one splits the regions that it passes through. Their traces on it
    are the regions of a smaller arrangement, of one dimension lower. Moving a point in such a trace to
    either side yields a point in each half. So no region is missed, and a point proves that each one exists.

    Args:
        weight: normals ``[h, n]``; a zero row is not a hyperplane.
        offset: ``[h]``.
        tol: see `TOLERANCE`.
        limit: refuse a job whose bound ``R(h, rank)`` is larger.

    Example:
        >>> lines = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
        >>> len(enumerate_regions(lines, torch.tensor([0.0, 0.0, 1.0])).points)
        7
    """
    planes, basis = _essential(weight, offset, tol)
    _refuse_if_long(len(planes.unit), len(basis), limit, traces=False)
    points = torch.from_numpy(_inner_points(planes, tol) @ basis)
    return Regions(points, points @ weight.detach().double().T > offset.double())


def count_regions(weight: Tensor, offset: Tensor, *, tol: float = TOLERANCE, limit: int = MAX_REGIONS) -> int:
    """Count the regions of the hyperplanes ``weight @ x = offset``, exactly, without listing them.

    Each hyperplane adds as many regions as the earlier ones cut it into (deletion and restriction), so each
    step solves a problem one dimension lower. Thousands of lines in a plane take seconds. For independent
    normals, which are typical of a layer with fewer neurons than inputs, the count is simply 2^h.

    Args:
        weight: normals ``[h, n]``; a zero row is not a hyperplane.
        offset: ``[h]``.
        tol: see `TOLERANCE`.
        limit: refuse a job whose bound ``R(h, rank - 1)`` on the traces is larger.

    Example:
        >>> count_regions(torch.tensor([[1.0, 0.0], [2.0, 0.0]]), torch.tensor([0.5, 0.5]))
        3
    """
    planes, basis = _essential(weight, offset, tol)
    h, rank = len(planes.unit), len(basis)
    if h == rank:  # independent normals: every sign pattern occurs
        return region_bound(h, rank)
    _refuse_if_long(h, rank, limit, traces=True)
    return _count(planes, tol)


class _Planes(NamedTuple):
    """Distinct hyperplanes ``unit @ x = distance`` with unit normals."""

    unit: Array
    distance: Array
    doubt: Array
    """Each one's accumulated rounding error, which is large for traces of nearly parallel hyperplanes."""


def _count(planes: _Planes, tol: float) -> int:
    if planes.unit.shape[1] <= 1:
        return len(planes.unit) + 1
    return 1 + sum(_count(_traces(planes, j, tol)[0], tol) for j in range(len(planes.unit)))


def _essential(weight: Tensor, offset: Tensor, tol: float) -> tuple[_Planes, Array]:
    """Return the distinct hyperplanes in the space spanned by their normals, and a basis of that space.

    The arrangement is constant along all other directions.
    """
    check_hyperplanes(weight, offset)
    normals, offsets = weight.detach().double().numpy(), offset.detach().double().numpy()
    planes = _distinct(normals, offsets, np.zeros_like(offsets), tol)
    if not len(planes.unit):
        return planes._replace(unit=np.zeros((0, 0))), np.zeros((0, weight.shape[1]))
    _, values, rows = np.linalg.svd(planes.unit, full_matrices=False)
    basis = np.asarray(rows[values > tol * values[0]])
    return planes._replace(unit=planes.unit @ basis.T), basis


def check_hyperplanes(weight: Tensor, offset: Tensor) -> None:
    """Raise an InputError unless the arguments are finite normals ``[h, n]`` and offsets ``[h]``."""
    if weight.dim() != 2 or offset.shape != weight.shape[:1]:
        raise InputError(
            f"weight must be [h, n] and offset [h], got {tuple(weight.shape)} and {tuple(offset.shape)}"
        )
    if not bool(torch.isfinite(weight).all() and torch.isfinite(offset).all()):
        raise InputError("weight and offset must be finite, got NaN or infinite entries")


def _distinct(normals: Array, offsets: Array, doubt: Array, tol: float) -> _Planes:
    """Normalise the normals; drop zero normals, and hyperplanes equal to an earlier one."""
    length = np.linalg.norm(normals, axis=1)
    keep = length > tol
    length = length[keep]
    unit, distance = normals[keep] / length[:, None], offsets[keep] / length
    doubt = (doubt[keep] + ROUNDING * (1 + np.abs(offsets[keep]))) / length
    if unit.shape[1] == 1:  # sorting points on a line is fast even for thousands
        cuts = distance * unit[:, 0]
        order = np.argsort(cuts)
        cuts, doubt = cuts[order], doubt[order]
        blur = tol * (1 + np.abs(cuts)) + doubt + np.roll(doubt, 1)
        first = np.diff(cuts, prepend=-np.inf) > blur
        return _Planes(np.ones((int(first.sum()), 1)), cuts[first], doubt[first])
    row, column = _nearly_parallel(unit)
    blur = tol * (1 + np.abs(distance[row])) + doubt[row] + doubt[column]
    sign = np.sign((unit[row] * unit[column]).sum(1))
    near = np.abs(unit[row] - sign[:, None] * unit[column]).max(1, initial=0.0) < blur
    near &= np.abs(distance[row] - sign * distance[column]) < blur
    first = np.ones(len(unit), dtype=bool)
    first[row[near]] = False
    return _Planes(unit[first], distance[first], doubt[first])


def _nearly_parallel(unit: Array) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return pairs of nearly parallel normals, the later one first; work in blocks to save memory."""
    pairs, block = [], 1000
    for start in range(0, max(len(unit), 1), block):
        cosine = unit[start : start + block] @ unit[: start + block].T
        row, column = np.nonzero(np.tril(np.abs(cosine) > 0.999, start - 1))
        pairs.append((row + start, column))
    rows, columns = zip(*pairs, strict=True)
    return np.concatenate(rows), np.concatenate(columns)


def _refuse_if_long(hyperplanes: int, rank: int, limit: int, *, traces: bool) -> None:
    def work(h: int) -> int:
        if not traces:
            return region_bound(h, rank)
        return region_bound(h, rank - 1) if h > rank else 1

    refuse_beyond(
        limit,
        work(hyperplanes),
        SECONDS_PER_REGION,
        f"{hyperplanes} hyperplanes of rank {rank} have up to {region_bound(hyperplanes, rank):.3g} regions",
        f"up to {largest(work, limit, hyperplanes)} hyperplanes of that rank are feasible; "
        "lines and 2-D slices work at any size",
    )


def _inner_points(planes: _Planes, tol: float) -> Array:
    """Return one point inside every region."""
    unit, distance, _ = planes
    h, n = unit.shape
    if n == 1:
        return _between(distance * unit[:, 0])
    salt = np.random.default_rng(0).integers(
        2**62, size=(h,)
    )  # a region is identified by a hash of its signs
    points, key, margin = np.zeros((1, n)), np.zeros(1, np.int64), np.full(1, np.inf)
    for j in range(h):
        traces, along = _traces(planes, j, tol)
        on = distance[j] * unit[j] + _inner_points(traces, tol) @ along
        aside = _room(on, planes, j)[:, None] * unit[j]
        expected = len(points) + len(on)
        fresh = np.vstack((on + aside, on - aside))
        side, sides = points @ unit[j] - distance[j], fresh @ unit[: j + 1].T - distance[: j + 1]
        points = np.vstack((points, fresh))
        key = np.concatenate((key + (side > 0) * salt[j], (sides > 0) @ salt[: j + 1]))
        margin = np.concatenate((np.minimum(margin, np.abs(side)), np.abs(sides).min(1)))
        order = np.argsort(-margin, kind="stable")  # in each region, keep the point farthest from all walls
        kept = order[np.unique(key[order], return_index=True)[1]]
        points, key, margin = points[kept], key[kept], margin[kept]
        if len(points) != expected:
            raise JobError(
                f"hyperplane {j} is within rounding error of a degenerate position (found {len(points)} "
                f"regions, expected {expected}); raise tol (now {tol:g}) to treat near-equal ones as equal"
            )
    return points


def _traces(planes: _Planes, j: int, tol: float) -> tuple[_Planes, Array]:
    """Return the traces of the earlier hyperplanes in hyperplane j, and the basis for them."""
    unit, distance, doubt = planes
    along = np.linalg.svd(unit[j : j + 1])[2][1:]
    cosine = unit[:j] @ unit[j]
    offsets = distance[:j] - cosine * distance[j]
    return _distinct(unit[:j] @ along.T, offsets, doubt[:j] + np.abs(cosine) * doubt[j], tol), along


def _room(on: Array, planes: _Planes, j: int) -> Array:
    """Return how far points can move off hyperplane j: halfway to the nearest earlier hyperplane."""
    gap = np.abs(on @ planes.unit[:j].T - planes.distance[:j])
    slope = np.abs(planes.unit[:j] @ planes.unit[j])
    room: Array = (gap / np.maximum(slope, 1e-30)).min(1, initial=2.0)
    return room / 2


def _between(cuts: Array) -> Array:
    """Return a point in each interval of the divided real line."""
    if not len(cuts):
        return np.zeros((1, 1))
    cuts = np.sort(cuts)
    middles = (cuts[1:] + cuts[:-1]) / 2
    beyond = 1 + np.abs(cuts[[0, -1]]).max()  # far cuts come from nearly parallel hyperplanes
    return np.concatenate((cuts[:1] - beyond, middles, cuts[-1:] + beyond))[:, None]
