"""Other parts of a GPU training step for stacked networks: readout and loss, Adam, bias gradient."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from triton import cdiv, next_power_of_2

from ultralif.ops.triton.launch import counters, on_device
from ultralif.stack import kernels

__all__ = ["MOST_CLASSES", "adam", "readout_loss", "sum_rows"]

MOST_CLASSES = 256
"""Largest number of classes whose scores fit into a program's registers."""
BLOCK = 1024
"""Number of parameters that each Adam program updates."""
PARTS = 8
"""Number of programs that share a member's batch, as long as each has 16 to 64 rows."""
OPTIONS: dict[str, Any] = {"num_stages": 1, "enable_fp_fusion": True}


def readout_loss(
    rates: Tensor,
    weight: Tensor,
    bias: Tensor,
    labels: Tensor,
    sparsity: Tensor,
    smoothing: float = 0.0,
    ones: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return each member's loss, number of hits and mean rate; only the loss is differentiable.

    The loss is the mean cross-entropy of ``rates @ weight.T + bias`` plus sparsity times the mean rate. It
    can be differentiated once; the gradients are computed together with the losses.

    Args:
        rates: ``[B, M, N]``, contiguous.
        weight: ``[M, classes, N]``.
        bias: ``[M, classes]``.
        labels: the labels of each batch that members read, ``[batches, B]``.
        sparsity: ``[M]``.
        smoothing: label smoothing.
        ones: ``[M]``; pass the same tensor as the gradient of the losses to avoid a multiplication.
    """
    return _apply(rates, weight, bias, labels, sparsity, smoothing, ones)


class _Readout(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        rates: Tensor,
        weight: Tensor,
        bias: Tensor,
        labels: Tensor,
        sparsity: Tensor,
        smoothing: float,
        ones: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        given = (rates, weight, bias, labels, sparsity)
        found, ctx.grads = _read_out(given, smoothing, any(ctx.needs_input_grad))
        ctx.save_for_backward(*given)
        ctx.smoothing, ctx.ones = smoothing, ones
        ctx.mark_non_differentiable(*found[1:])
        ctx.set_materialize_grads(False)
        return found

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, *_: None) -> tuple[Any, ...]:
        # Keep no reference to the gradients; otherwise each would be copied on its way to its parameter.
        grads, ctx.grads = ctx.grads or _read_out(ctx.saved_tensors, ctx.smoothing, True)[1], ()
        if ctx.ones is None or grad.data_ptr() != ctx.ones.data_ptr():
            grads = (grads[0] * grad[:, None], grads[1] * grad[:, None, None], grads[2] * grad[:, None])
        return *grads, None, None, None, None


_apply: Callable[..., tuple[Tensor, Tensor, Tensor]] = _Readout.apply
_counters: dict[torch.device, dict[object, Tensor]] = {}


def _read_out(
    given: Sequence[Tensor], smoothing: float, with_grads: bool
) -> tuple[tuple[Tensor, Tensor, Tensor], tuple[Tensor, ...]]:
    """Return losses, hits and rates, and the gradients of the losses for rates, weight and bias."""
    rates, _, bias, labels, _ = given
    (batch, members, neurons), classes = rates.shape, bias.shape[1]
    number: dict[str, Any] = {"dtype": torch.float32, "device": rates.device}
    loss, hits, rate = (torch.empty(members, **number) for _ in range(3))
    grads = tuple(torch.empty_like(x) if with_grads else x for x in given[:3])
    wide = max(16, next_power_of_2(classes))
    rows = min(max(16, next_power_of_2(cdiv(batch, PARTS))), 64, max(16, 2048 // wide))
    tiles = cdiv(batch, rows)
    parts = torch.empty(members * tiles * (classes * (neurons + 1) + 3), **number)
    with on_device(rates.device):
        kernels.readout_kernel[(members, tiles)](
            *given,
            loss,
            hits,
            rate,
            *grads,
            parts,
            counters(_counters.setdefault(rates.device, {}), rates.device, members),
            batch,
            neurons,
            classes,
            members,
            members // labels.shape[0],
            float(smoothing),
            GRADS=with_grads,
            BATCH=rows,
            NEURONS=min(max(16, next_power_of_2(neurons)), 64, 4096 // wide),
            CLASSES=wide,
            PARTS=PARTS,
            AT_ONCE=1024,
            num_warps=4 if wide <= 32 else 8,
            **OPTIONS,
        )
    return (loss, hits, rate), grads if with_grads else ()


def sum_rows(x: Tensor, out: Tensor) -> None:
    """Write the sum over the rows of a contiguous float32 matrix to ``out``."""
    (rows, columns), x = x.shape, x.contiguous()
    tile = 64
    each = tile * cdiv(rows, tile * 2 * PARTS)
    grid = (cdiv(columns, tile), cdiv(rows, each))
    parts = torch.empty(grid[1] * columns, dtype=torch.float32, device=x.device)
    counted = counters(_counters.setdefault(x.device, {}), x.device, grid[0])
    given = (x, out, parts, counted, rows, columns, each)
    with on_device(x.device):
        kernels.rows_kernel[grid](*given, ROWS=tile, COLUMNS=tile, PARTS=PARTS, num_warps=4, **OPTIONS)


def adam(
    tensors: Sequence[Tensor],
    grads: Sequence[Tensor],
    firsts: Sequence[Tensor],
    seconds: Sequence[Tensor],
    steps: Tensor,
    rates: Sequence[Tensor],
    decays: Sequence[float],
) -> None:
    """Take an AdamW step in place, for all tensors in one launch; ``steps`` already counts this step.

    Each tensor has its own learning rate, stored on the device, and its own weight decay.
    """
    starts = [0]
    for tensor in tensors:
        starts.append(starts[-1] + cdiv(tensor.numel(), BLOCK))
    sizes = tuple(tensor.numel() for tensor in tensors)
    columns = (tuple(tensors), tuple(g.contiguous() for g in grads), tuple(firsts), tuple(seconds))
    with on_device(steps.device):
        kernels.adam_kernel[(starts[-1],)](
            *columns,
            sizes,
            tuple(starts),
            steps,
            tuple(rates),
            tuple(map(float, decays)),
            COUNT=len(sizes),
            BLOCK=BLOCK,
            num_warps=4,
            **OPTIONS,
        )
