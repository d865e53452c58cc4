"""Test hyperplanes for general position, and count regions without requiring it."""

from collections.abc import Iterator
from itertools import combinations, islice
from math import comb
from typing import NamedTuple

import torch
from torch import Tensor

from ultralif.analysis.arrangement import TOLERANCE, check_hyperplanes
from ultralif.analysis.limits import largest, refuse_beyond
from ultralif.errors import InputError

__all__ = ["Position", "general_position", "subset_batches", "whitney_count"]


def whitney_count(weight: Tensor, offset: Tensor, tol: float = TOLERANCE) -> Tensor:
    r"""Count regions by Whitney's sum :math:`\sum_B (-1)^{|B| - \mathrm{rank} B}` over central subsets B.

    A subset is central if its hyperplanes share a point. The function computes 2^h ranks, but handles a whole
    batch of small arrangements at once, including degenerate ones. No row may be zero.

    Args:
        weight: ``[..., h, n]``.
        offset: ``[..., h]``.
        tol: singular values below this are treated as zero.

    Example:
        >>> import torch
        >>> whitney_count(torch.eye(2), torch.zeros(2))
        tensor(4)
    """
    h = weight.shape[-2]
    if h > 14:
        raise InputError(f"whitney_count sums over 2^h subsets, got h={h}; use enumerate_regions above 14")
    total = torch.zeros(weight.shape[:-2], dtype=torch.int64)
    augmented = torch.cat((weight, offset.unsqueeze(-1)), -1).double()
    for size in range(h + 1):
        if size == 0:
            total += 1
            continue
        subsets = torch.tensor(list(combinations(range(h), size)))
        chosen = augmented[..., subsets, :]
        rank = torch.linalg.matrix_rank(chosen[..., :-1], atol=tol, rtol=0.0)
        central = torch.linalg.matrix_rank(chosen, atol=tol, rtol=0.0) == rank
        total += (central * (1 - 2 * ((size - rank) % 2))).sum(-1)
    return total


class Position(NamedTuple):
    """How far an arrangement is from a degenerate one.

    Example:
        >>> position = general_position(torch.tensor([[1.0, 0.0], [2.0, 0.0]]), torch.tensor([0.0, 1.0]))
        >>> position.general, position.subset  # these lines are parallel
        (False, (0, 1))
    """

    general: bool
    margin: float
    """The smallest singular value over all subsets of unit normals that must be independent."""
    subset: tuple[int, ...]
    """The hyperplanes in that subset."""


def general_position(
    weight: Tensor, offset: Tensor, *, tol: float = TOLERANCE, limit: int = 2_000_000
) -> Position:
    """Return whether hyperplanes are in general position, in which case there are ``R(h, n)`` regions.

    This means that any ``min(h, n)`` normals are independent, and no ``n + 1`` hyperplanes share a point.

    Args:
        weight: normals ``[h, n]``.
        offset: ``[h]``.
        tol: a subset whose smallest singular value is below this is treated as dependent.
        limit: refuse a job that would test more subsets than this.

    Example:
        >>> general_position(torch.eye(2), torch.zeros(2))
        Position(general=True, margin=1.0, subset=(0, 1))
    """
    check_hyperplanes(weight, offset)
    normals, offsets = weight.detach().double(), offset.detach().double()
    h, n = normals.shape

    def subsets(count: int) -> int:
        return comb(count, min(count, n)) + comb(count, n + 1)

    refuse_beyond(
        limit,
        subsets(h),
        1e-5,
        f"general position of {h} hyperplanes in {n} dimensions requires testing {subsets(h):.3g} subsets",
        f"up to {largest(subsets, limit, h)} hyperplanes are feasible",
    )
    length = normals.norm(dim=1, keepdim=True).clamp_min(1e-300)
    unit = normals / length
    with_offset = torch.cat((unit, offsets[:, None] / length), 1)
    worst = min(_least_singular(unit, min(h, n)), _least_singular(with_offset, n + 1))
    return Position(worst[0] > tol, *worst)


def _least_singular(rows: Tensor, size: int) -> tuple[float, tuple[int, ...]]:
    """Return the smallest singular value over all subsets of ``size`` rows, and that subset."""
    worst = (float("inf"), tuple[int, ...]())
    for batch in subset_batches(len(rows), size):
        values = torch.linalg.svdvals(rows[batch])[..., -1]
        at = int(values.argmin())
        worst = min(worst, (float(values[at]), tuple(batch[at].tolist())))
    return worst


def subset_batches(n: int, size: int, batch: int = 20_000) -> Iterator[Tensor]:
    """Yield all subsets of ``range(n)`` with the given size, in batches ``[batch, size]``."""
    subsets = combinations(range(n), size)
    while chunk := list(islice(subsets, batch)):
        yield torch.tensor(chunk, dtype=torch.int64).reshape(len(chunk), size)
