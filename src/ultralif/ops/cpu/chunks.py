"""Cut time into chunks that run in parallel, for long sequences of few neurons without spike resets.

Without a reset, or with the saturating one, the map from UltraLIF's membrane at the start of a chunk to that
at its end has only a few parameters (see `ultralif.functional.parallel`). So:

1. find the maps of all chunks at once;
2. scan over the maps, which gives the membrane at the start of each chunk;
3. integrate all chunks at once, as if they were a larger batch.

In the backward pass, the gradient at the start of a chunk is ``a * g + c``: g is the gradient at its end, a
the derivative of its map, and c the contribution of its own spikes. A scan over these linear maps yields the
gradient at the end of each chunk; then all chunks are differentiated at once.

On a CPU the chunks run in the same kernels as other sequences. On a GPU each pass is one kernel: see
`ultralif.ops.triton.chunked`.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ultralif.functional import compute_dtype
from ultralif.ops.constants import value_of
from ultralif.ops.cpu.plan import find_plan
from ultralif.ops.rule import Constants, Membrane, Reset, Rule

__all__ = ["chunks", "run"]

SHORTEST = 8192
"""Sequences with fewer steps are not split."""
GAIN = 8
"""With fewer chunks than this, two passes do not pay off."""


def chunks(current: Tensor, rule: Rule) -> int:
    """Return the best number of chunks on a CPU; 1 means that a sequence is integrated step by step."""
    time, lanes = len(current), math.prod(current.shape[1:])
    if current.is_cuda or time < SHORTEST or lanes == 0 or not rule.linear:
        return 1
    if current.stride(0) < max(s * n for s, n in zip(current.stride()[1:], current.shape[1:], strict=True)):
        return 1
    most = 128 * torch.get_num_threads() // lanes
    return _count(time, min(most, 64)) if most >= GAIN else 1


def _count(time: int, wanted: int) -> int:
    """Return a number of equally long chunks close to the wanted number, or 1 if there is none."""
    for count in range(wanted, wanted // 2, -1):
        if time % count == 0:
            return count
    return 1


class _Chunked(torch.autograd.Function):
    """The recurrence and its derivative, chunk by chunk.

    The first argument is the number of chunks, which must divide the number of time steps. Current, state and
    the tensors of the constants are as in `autograd.run`, with time outermost, and are followed by constants
    and rule.
    """

    @staticmethod
    def forward(
        ctx: Any, count: int, current: Tensor, state: Tensor | None, *rest: Any
    ) -> tuple[Tensor, Tensor]:
        constants, rule = rest[4:]
        view = _cut(current, count)
        matrices, starts = _walk(view, state, constants, rule)
        out, last = _forward(view, starts[:-1].unsqueeze(0), constants, rule)
        ctx.save_for_backward(current, matrices, starts, *rest[:4])
        ctx.count, ctx.constants, ctx.rule = count, constants, rule
        ctx.set_materialize_grads(False)
        return out.mean(0) if rule.rate else _join(out), last[:, -1]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_out: Tensor | None, grad_last: Tensor | None) -> tuple[Tensor | None, ...]:
        current, matrices, starts, *_ = ctx.saved_tensors
        constants, rule = ctx.constants, ctx.rule
        view, begin = _cut(current, ctx.count), starts[:-1].unsqueeze(0)
        plan, own = find_plan(view, constants, rule), None
        if grad_out is not None:
            grad_out = (
                (grad_out / ctx.count).expand(begin.shape[1:]) if rule.rate else _cut(grad_out, ctx.count)
            )
            own = plan.backward(grad_out, None, view, begin, constants, (False,) * 4)[1]
        slopes = _slopes(matrices, starts, value_of(constants.eps), rule.membrane == Membrane.MAX)
        g = torch.zeros_like(starts[0]) if grad_last is None else grad_last[0]
        g_ends, g_state = _walk_back(slopes, g, own)
        learned = ctx.needs_input_grad[3:7]
        g_view, _, grads = plan.backward(grad_out, g_ends, view, begin, constants, learned)
        return None, _join(g_view), g_state if ctx.needs_input_grad[2] else None, *grads, None, None


run: Callable[..., tuple[Tensor, Tensor]] = _Chunked.apply


def _cut(x: Tensor, count: int) -> Tensor:
    """View ``[T, ...]`` as ``[T / count, count, ...]``: chunks side by side."""
    return x.view(count, -1, *x.shape[1:]).transpose(0, 1)


def _join(x: Tensor) -> Tensor:
    return x.transpose(0, 1).flatten(0, 1)


def _forward(view: Tensor, state: Tensor, constants: Constants, rule: Rule) -> tuple[Tensor, Tensor]:
    return find_plan(view, constants, rule).forward(view, state, constants)[:2]


def _walk(view: Tensor, state: Tensor | None, constants: Constants, rule: Rule) -> tuple[Tensor, Tensor]:
    """Return the matrix of every chunk, and the membrane before each and after the last."""
    from ultralif.functional.parallel import follow, prefix_products  # for long sequences only

    eps, leak, _, ceiling = map(value_of, constants)
    tropical = rule.membrane == Membrane.MAX
    first = torch.zeros_like(view[0, 0], dtype=compute_dtype(view.dtype)) if state is None else state[0]
    places = [-1e30] if rule.reset == Reset.NONE else [-1e30, 1e30, ceiling]
    ends = [_end(view, place, first, constants, rule) for place in places]
    decay = (len(view) * torch.log(torch.as_tensor(leak, dtype=first.dtype))).expand_as(ends[0])
    nothing = torch.zeros_like(decay)
    if rule.reset == Reset.NONE:
        rows = ((decay, ends[0]), (nothing - math.inf, nothing))
    elif tropical:
        rows = ((decay, ends[0]), (decay - ends[1], nothing))
    else:
        ratio = eps * _log_ratio(*(end / eps for end in ends)) - ceiling
        rows = ((ends[1] + ratio, ends[0]), (ratio, nothing))
    matrices = torch.stack([torch.stack(row) for row in rows])
    return matrices, follow(prefix_products(matrices, eps, tropical), first, eps, tropical)


def _end(view: Tensor, place: float | Tensor, like: Tensor, constants: Constants, rule: Rule) -> Tensor:
    """Return the membrane at the end of every chunk, for a membrane at its start."""
    start = torch.as_tensor(place, dtype=like.dtype).expand(1, *view.shape[1:])
    return _forward(view, start, constants, rule._replace(rate=True))[1][0]


def _walk_back(slopes: Tensor, g: Tensor, own: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return the gradient at the end of every chunk, ``[1, K, ...]``, and that of the first membrane."""
    at_ends = []
    for k in range(len(slopes) - 1, -1, -1):
        at_ends.append(g)
        g = slopes[k] * g + (own[0, k] if own is not None else 0.0)
    return torch.stack(at_ends[::-1]).unsqueeze(0), g.unsqueeze(0)


def _log_ratio(low: Tensor, high: Tensor, middle: Tensor) -> Tensor:
    """Return log((e^middle - e^low) / (e^high - e^middle)), where 0 / 0 may be any number."""
    tiny = torch.finfo(low.dtype).tiny
    up, down = ((b - a).clamp(min=0) for a, b in ((low, middle), (middle, high)))
    return torch.log(-torch.expm1(-up) + tiny) - torch.log(torch.expm1(down) + tiny)


def _slopes(matrices: Tensor, starts: Tensor, eps: float | Tensor, tropical: bool) -> Tensor:
    """Return the derivative of every chunk's map at its starting membrane."""
    (p, q), (r, s) = matrices
    v = starts[:-1]
    if tropical:
        above, below = p + v - q, s - r - v
        return torch.heaviside(above, torch.full_like(v, 0.5)) * torch.heaviside(
            below, torch.full_like(v, 0.5)
        )
    return torch.sigmoid((p + v - q) / eps) - torch.sigmoid((r + v - s) / eps)
