"""Gradients of constants: the tensors for them, and for the partial sums that kernels reduce."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ultralif.ops.constants import Form, Learned
from ultralif.ops.launch import is_recording
from ultralif.ops.layout import Place
from ultralif.ops.recurrence import Constants

if TYPE_CHECKING:
    from ultralif.ops.plan import Plan

__all__ = ["EACH", "LEFT", "READY", "ROW", "SHARED", "begin", "counters", "end", "table_of", "way_of"]

SHARED, EACH, LEFT = 1, 2, 3  # ways to reduce a gradient: see `triton_constants`
READY = SHARED + 256  # the constants have a row for each program, and so have their gradients
ROW = 7  # numbers in a row of a table


def way_of(place: Place, block: int) -> int:
    """Return how programs with this number of lanes reduce the gradient of a constant."""
    if place.entries == 1 or place.run % block == 0:
        return SHARED
    return EACH if place.run == 1 and place.entries % block == 0 else LEFT


def begin(
    plan: "Plan",
    constants: Constants,
    learned: Sequence[bool],
    ways: tuple[int, ...],
    where: tuple[int, ...],
    region: int,
    spans: int = 1,
) -> tuple[list[Any], Tensor, Tensor, int]:
    """Return tensors for gradients, partial sums ``[spans, 4 * region]``, counters, and their groups."""
    raws = plan.raws(constants)
    if True not in learned:
        return list(raws), plan.tables[0].reshape(1, -1).expand(spans, -1), plan.tables[0], 0
    grads = [
        _place_of_grad(c, raw) if wanted else raw
        for c, raw, wanted in zip(constants, raws, learned, strict=True)
    ]
    partials = torch.empty((spans, 4 * region), dtype=torch.float32, device=plan.device)
    groups = plan.groups.get((ways, where))
    if groups is None:
        groups = plan.groups[ways, where] = max(
            plan.found[i].entries if way == SHARED else where[4 * i + 3] if way == EACH else 1
            for i, way in enumerate(ways)
        )
    return grads, partials, counters(plan.counters, plan.device, 4 * groups), groups


def end(
    plan: "Plan",
    constants: Constants,
    grads: list[Any],
    partials: Tensor,
    learned: Sequence[bool],
    ways: Sequence[int],
    size: int,
) -> list[Any]:
    """Return the gradients of the constants, after adding up the sums that the kernel left."""
    if LEFT not in ways:
        return [g if wanted else None for g, wanted in zip(grads, learned, strict=True)]
    for i, (constant, place) in enumerate(zip(constants, plan.found, strict=True)):
        if ways[i] == LEFT:
            lanes = partials.view(len(partials), 4, -1)[:, i, :size]
            total = lanes.reshape(-1, place.entries, place.run if place.entries > 1 else size).sum((0, 2))
            if isinstance(constant, Learned):
                grads[i] = constant.pull(total.view(constant.raw.shape))
            elif isinstance(constant, Tensor):
                grads[i] = total.view(constant.shape).to(constant.dtype)
    return [g if wanted else None for g, wanted in zip(grads, learned, strict=True)]


def _place_of_grad(constant: Tensor | Learned | float, raw: Tensor) -> Tensor:
    given = constant.grad if isinstance(constant, Learned) else None
    return torch.empty_like(raw) if given is None else given


_kept_tables: dict[Any, Tensor] = {}


def table_of(constant: Tensor | Learned | float, device: torch.device) -> Tensor:
    """Return the table by which a constant is read: form, number, low, high, inward, inverse, speed."""
    if isinstance(constant, Learned):
        if constant.rows is not None:
            return constant.rows
        row = (float(constant.form), 0.0, *map(float, constant[2:6]), 1.0)
    elif isinstance(constant, Tensor):
        row = (float(Form.VALUE), 0.0, -math.inf, math.inf, 1.0, 0.0, 1.0)
    else:
        row = (0.0, float(constant), -math.inf, math.inf, 1.0, 0.0, 1.0)
    kept = _kept_tables.get((row, device))
    if kept is None:
        host = torch.tensor(row, dtype=torch.float32)
        if not is_recording(device):
            kept = host.to(device)
            if len(_kept_tables) < 4096:  # none is ever freed: a recorded graph may still read it
                _kept_tables[row, device] = kept
        else:
            kept = torch.empty(len(row), dtype=torch.float32, device=device)
            for i, number in enumerate(row):
                kept[i].fill_(number)
    return kept


_pools: dict[torch.device, list[Any]] = {}
POOL = 1 << 18


def counters(kept: dict[Any, Tensor], device: torch.device, size: int) -> Tensor:
    """Return counters at zero for this stream or graph, which no other kernel uses at the same time.

    A kernel leaves them at zero. Those of a stream are kept for its next launch of the same kernel.
    """
    if device.type != "cuda" or is_recording(device):
        return _zeros(device, size)
    stream = torch._C._cuda_getCurrentRawStream(device.index)
    found = kept.get(stream)
    if found is None or found.numel() < size:
        found = kept[stream] = _zeros(device, size)
    return found


def _zeros(device: torch.device, size: int) -> Tensor:
    """Take zeros from a pool that was made outside of any recorded graph; a kernel sets them back to zero."""
    pool = _pools.get(device)
    if pool is None and not is_recording(device):
        pool = _pools[device] = [torch.zeros(POOL, dtype=torch.int32, device=device), 0]
    if pool is None or pool[1] + size > POOL:
        return torch.zeros(size, dtype=torch.int32, device=device)
    pool[1] += size
    taken: Tensor = pool[0][pool[1] - size : pool[1]]
    return taken
