"""Decode the constants of many kernels with one kernel, into one vector with a row for each program.

A single network decodes its constants in every program; for a stack that would dominate the cost of a short
step. Here they are decoded once, in parallel with the product that computes the currents. In the backward
pass each program writes the sums of its lanes into its row, and one kernel adds them in parallel with the
weight gradient.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from triton import cdiv

from ultralif.ops.constants import Form, Learned
from ultralif.ops.rule import Constants
from ultralif.ops.triton import launch
from ultralif.stack import kernels

if TYPE_CHECKING:
    from ultralif.ops.triton.plan import LaunchPlan

__all__ = ["RowTable", "make_row_table", "rows_of", "write_rows"]

WIDTH = 8
"""Number of values in a row; see `triton.common.HELD`."""
BLOCK = 128
OPTIONS: dict[str, Any] = {"num_warps": 4, "enable_fp_fusion": True}
_recorded: list["RowTable"] = []  # never freed, because a recorded graph may still read it


class RowTable(NamedTuple):
    """The constants of each row and the rows of each constant, as tensors on the device."""

    rows: int
    places: Tensor
    """``int32 [rows, 5]``: positions of four constants in the vector, or -1; then 1 for a sharpness."""
    numbers: Tensor
    """``[rows, 4]``: the constants that are fixed numbers."""
    sums: Tensor
    """``int32 [constants, 4]``: first sum, consecutive rows, period of these runs, number of rows."""


def make_row_table(
    parts: Sequence[tuple["LaunchPlan", Constants, Sequence[bool]]], raw: Tensor
) -> RowTable | None:
    """Describe the kernels' rows; return None while a graph is being recorded, when nothing can be copied.

    Args:
        parts: for each kernel the plan, the constants, and whether each of them has a gradient.
        raw: the raw parameters of all constants.
    """
    kept: dict[object, RowTable] = parts[0][0].row_tables
    key = tuple((plan, tuple(wanted)) for plan, _, wanted in parts)
    if key not in kept and not launch.is_recording(raw.device):
        kept[key] = _write(parts, raw)
    return kept.get(key)


def _write(parts: Sequence[tuple["LaunchPlan", Constants, Sequence[bool]]], raw: Tensor) -> RowTable:
    sums = torch.ones(raw.numel(), 4, dtype=torch.int32)
    sums[:, 3] = 0
    where, numbers, begin = [], [], 0
    for plan, constants, wanted in parts:
        rows, unit = plan.shape_of_rows
        places = torch.full((rows, 5), -1, dtype=torch.int32)
        places[:, 4] = float(plan.rule.sharp)
        values = torch.ones(rows, 4)
        for c, (constant, place) in enumerate(zip(constants, plan.found, strict=True)):
            if not isinstance(constant, Learned):
                values[:, c] = float(constant)
                continue
            first = constant.raw.storage_offset() - raw.storage_offset()
            own_place = [first + row * unit // place.run % place.entries for row in range(rows)]
            places[:, c] = torch.tensor(own_place)
            if wanted[c]:
                side = rows if place.entries == 1 else place.run // unit
                at = torch.arange(place.entries)
                own = sums[first : first + place.entries]
                own[:, 0] = (begin + at * side) * WIDTH + c
                own[:, 1], own[:, 2], own[:, 3] = side, side * place.entries, rows // place.entries
        where.append(places)
        numbers.append(values)
        begin += rows
    return RowTable(begin, *(part.to(raw.device) for part in (torch.cat(where), torch.cat(numbers), sums)))


class _WriteRows(torch.autograd.Function):
    """Decode all raw parameters into the rows of all programs, one after the other."""

    @staticmethod
    def forward(ctx: Any, raw: Tensor, table: Tensor, row_table: RowTable) -> Tensor:
        ctx.save_for_backward(raw, table)
        ctx.row_table = row_table
        rows = torch.empty(row_table.rows * WIDTH, dtype=torch.float32, device=raw.device)
        if launch.is_recording(raw.device) and not any(row_table is kept for kept in _recorded):
            _recorded.append(row_table)
        given = (rows, raw, table, row_table.places, row_table.numbers, row_table.rows)
        grid = (cdiv(row_table.rows, BLOCK),)
        with launch.on_device(raw.device):
            kernels.decode_kernel[grid](*given, BLOCK=BLOCK, **OPTIONS)
        return rows

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grads: Tensor) -> tuple[Tensor, None, None]:
        raw, table = ctx.saved_tensors
        ctx.grads = grads  # on a branch, parallel work must not reuse their memory
        g_raw = torch.empty_like(raw)
        given = (grads, raw, table, ctx.row_table.sums, g_raw)
        with launch.on_device(raw.device):
            kernels.gather_kernel[(raw.numel(),)](*given, BLOCK=BLOCK, **OPTIONS)
        return g_raw, None, None


write_rows: Callable[[Tensor, Tensor, RowTable], Tensor] = _WriteRows.apply


def rows_of(rows: Tensor, plans: Sequence["LaunchPlan"]) -> list[Constants]:
    """Return each kernel's rows in place of its constants."""
    parts = torch.split(rows.detach(), [plan.shape_of_rows[0] * WIDTH for plan in plans])
    return [Constants(*[Learned(part, Form.VALUE)] * 4) for part in parts]
