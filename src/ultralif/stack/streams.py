"""Run independent work in parallel branches of a recorded graph, and define a linear layer that uses them."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from ultralif.ops.triton.launch import is_recording

__all__ = ["linear", "side_by_side"]

_streams: dict[torch.device, list[torch.cuda.Stream]] = {}
"""The streams of each device that no open context is using."""


@contextmanager
def side_by_side(device: torch.device) -> Iterator[Callable[[], AbstractContextManager[object]]]:
    """Yield a function that returns a context for each independent work item.

    While a graph is recorded, each work item gets its own stream, so the graph branches; the branches join
    when the outer context ends. Otherwise the items are launched one by one on the current stream.

    Memory is safe without `record_stream`: memory allocated before a branch lives until the branches end, and
    memory that a branch frees is reused only on the same stream.
    """
    if not is_recording(device):
        yield nullcontext
        return
    main = torch.cuda.current_stream(device)
    start = main.record_event()
    used: list[torch.cuda.Stream] = []
    free = _streams.setdefault(device, [])
    make: Callable[..., Any] = torch.cuda.Stream

    def branch() -> AbstractContextManager[object]:
        used.append(free.pop() if free else make(device))
        used[-1].wait_event(start)
        return torch.cuda.stream(used[-1])

    yield branch
    for stream in used:
        main.wait_stream(stream)
    free += reversed(used)


def linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return ``x @ weight.T + bias``; a recorded graph computes both gradients in parallel."""
    if x.requires_grad or not is_recording(x.device) or torch.is_autocast_enabled(x.device.type):
        return functional.linear(x, weight, bias)
    return _apply(x, weight, bias)


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return functional.linear(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor, Tensor]:
        x, grad = (part.flatten(0, -2) for part in (*ctx.saved_tensors, grad))
        g_weight, g_bias = grad.new_empty(grad.shape[1], x.shape[1]), grad.new_empty(grad.shape[1])
        with side_by_side(grad.device) as branch:
            with branch():
                _sum_rows(grad, g_bias)
            torch.mm(grad.T, x, out=g_weight)
        return None, g_weight, g_bias


_apply: Callable[..., Tensor] = _Linear.apply


def _sum_rows(x: Tensor, out: Tensor) -> None:
    if x.is_cuda and x.dtype == torch.float32:  # torch.sum would take as long as the parallel matrix product
        from ultralif.stack.fused_step import sum_rows

        sum_rows(x, out)
    else:
        torch.sum(x, 0, out=out)
