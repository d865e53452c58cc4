"""The rest of a training step of stacked networks on a GPU: one kernel for readout and loss, one for Adam."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from triton import cdiv, next_power_of_2

from ultralif.ops import triton_step

__all__ = ["adam", "readout_loss"]

BLOCK = 1024
"""Number of parameters that a program of Adam updates."""
OPTIONS: dict[str, Any] = {"num_stages": 1, "enable_fp_fusion": True}


def readout_loss(
    rates: Tensor, weight: Tensor, bias: Tensor, labels: Tensor, sparsity: Tensor, smoothing: float = 0.0
) -> tuple[Tensor, Tensor, Tensor]:
    """Return each member's loss, and its hits and mean rate, which have no derivatives.

    A loss is the mean cross-entropy of ``rates @ weight.T + bias`` plus sparsity times the mean rate. It can
    be differentiated once.

    Args:
        rates: ``[B, M, N]``, contiguous.
        weight: ``[M, classes, N]``.
        bias: ``[M, classes]``.
        labels: classes for each of the batches that members read, ``[batches, B]``.
        sparsity: ``[M]``.
        smoothing: label smoothing.
    """
    return _apply(rates, weight, bias, labels, sparsity, smoothing)


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
    ) -> tuple[Tensor, Tensor, Tensor]:
        batch, members, neurons = rates.shape
        loss, hits, rate = (torch.empty(members, dtype=torch.float32, device=rates.device) for _ in range(3))
        sizes = (batch, neurons, bias.shape[1], members, members // labels.shape[0], float(smoothing))
        choices = _choices(batch, neurons, bias.shape[1])
        given = (rates, weight, bias, labels, sparsity)
        triton_step.readout_kernel[(members,)](*given, loss, hits, rate, *sizes, **choices)
        ctx.save_for_backward(*given)
        ctx.sizes, ctx.choices = sizes, choices
        ctx.mark_non_differentiable(hits, rate)
        ctx.set_materialize_grads(False)
        return loss, hits, rate

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, *_: None) -> tuple[Any, ...]:
        given = ctx.saved_tensors
        grads = [torch.empty_like(x) for x in given[:3]]
        grid = (ctx.sizes[3], cdiv(ctx.sizes[1], ctx.choices["NEURONS"]))
        triton_step.readout_backward_kernel[grid](
            grad.contiguous(), *given, *grads, *ctx.sizes, **ctx.choices
        )
        return *grads, None, None, None


_apply: Callable[..., tuple[Tensor, Tensor, Tensor]] = _Readout.apply


def _choices(batch: int, neurons: int, classes: int) -> dict[str, Any]:
    """Return the sizes of the tiles of a member, and the warps for them."""
    wide = max(16, next_power_of_2(classes))
    rows = min(64, max(16, next_power_of_2(batch)), max(16, 2048 // wide))
    deep = min(64, max(16, next_power_of_2(neurons)))
    return {"BATCH": rows, "NEURONS": deep, "CLASSES": wide, **OPTIONS, "num_warps": 8}


def adam(
    tensors: Sequence[Tensor],
    grads: Sequence[Tensor],
    firsts: Sequence[Tensor],
    seconds: Sequence[Tensor],
    steps: Tensor,
    rate: Tensor,
    decay: float,
) -> None:
    """Take a step of AdamW in place, all tensors in one launch; ``steps`` already counts this step."""
    starts = [0]
    for tensor in tensors:
        starts.append(starts[-1] + cdiv(tensor.numel(), BLOCK))
    sizes = tuple(tensor.numel() for tensor in tensors)
    columns = (tuple(tensors), tuple(g.contiguous() for g in grads), tuple(firsts), tuple(seconds))
    triton_step.adam_kernel[(starts[-1],)](
        *columns,
        sizes,
        tuple(starts),
        steps,
        rate,
        float(decay),
        COUNT=len(sizes),
        BLOCK=BLOCK,
        num_warps=4,
        **OPTIONS,
    )
