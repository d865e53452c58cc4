"""Time in chunks that run side by side, for long sequences of few neurons that no spike resets.

Without a reset, or with the saturating one, UltraLIF takes the membrane at the start of a chunk to that at
its end by a map that a few numbers define (see `ultralif.functional.parallel`). So:

1. find the map of every chunk, all chunks at once;
2. walk over the maps, which gives the membrane at the start of each chunk;
3. integrate all chunks at once, as if they were a larger batch, by the kernel that integrates a sequence.

In the backward pass, the gradient at the start of a chunk is ``a * g + c``: g is the gradient at its end, a
the derivative of its map, and c the gradient of its own spikes. So all chunks are differentiated, a walk back
gives the gradient at the end of each, and with it they are differentiated again. The spikes come from the
same kernel as for other sequences, so that a formula has one place.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ultralif.functional.parallel import follow, prefix_products
from ultralif.ops import cpu, flat
from ultralif.ops.constants import Learned
from ultralif.ops.recurrence import Constants, Membrane, Reset, Rule

__all__ = ["chunks", "run"]

LANES = 8192
"""Layers with more neurons, over all samples, keep a GPU busy without chunks."""
SHORTEST = 4096
"""Sequences with fewer steps are faster on a GPU without chunks, because of the kernels' launches; in a
recorded graph, which has no such cost, chunks pay from 256 steps on."""
MOST = 1 << 17
"""The most neurons, over all chunks, that a GPU runs at once."""
CPU_SHORTEST = 8192
CPU_GAIN = 8
"""With fewer chunks than this, two passes in place of one do not pay on a CPU."""


def chunks(current: Tensor, rule: Rule) -> int:
    """Return the best number of chunks for a sequence; 1 means that it is integrated step by step."""
    if rule.reset not in (Reset.NONE, Reset.SATURATE) or rule.membrane == Membrane.ADD or rule.ring:
        return 1
    time, lanes = len(current), math.prod(current.shape[1:])
    if lanes == 0 or current.stride(0) < max(
        s * n for s, n in zip(current.stride()[1:], current.shape[1:], strict=True)
    ):
        return 1
    if current.is_cuda or not cpu.available():
        if lanes > LANES or time < SHORTEST:
            return 1
        return _count(time, min(MOST // lanes, math.isqrt(time)))
    most = 128 * torch.get_num_threads() // lanes
    return _count(time, min(most, 64)) if time >= CPU_SHORTEST and most >= CPU_GAIN else 1


def _count(time: int, wanted: int) -> int:
    """Return a number of chunks of equal length near to the wanted one, or 1 if there is none."""
    for count in range(wanted, wanted // 2, -1):
        if time % count == 0:
            return count
    return 1


def run(
    gpu: Any, count: int, current: Tensor, state: Tensor | None, constants: Constants, rule: Rule
) -> tuple[Tensor, Tensor]:
    """Return the spikes (or their mean over time) and the last state, as `autograd.run` does.

    Args:
        gpu: the implementation for a GPU, if that is where the current is.
        count: the number of chunks, which divides the time steps.
        current: ``[T, B, *features]``, time outermost.
        state: ``[1, B, *features]``; None, rest.
        constants: tensors, raw parameters or numbers.
        rule: what to compute.
    """
    tensors = [c.raw if isinstance(c, Learned) else c if isinstance(c, Tensor) else None for c in constants]
    return _apply(gpu, count, current, state, *tensors, constants, rule)


class _Chunked(torch.autograd.Function):
    """The recurrence and its derivative, chunk by chunk."""

    @staticmethod
    def forward(
        ctx: Any, gpu: Any, count: int, current: Tensor, state: Tensor | None, *rest: Any
    ) -> tuple[Tensor, Tensor]:
        constants, rule = rest[4:]
        steps = _Plain() if gpu is None else gpu
        view = _cut(current, count)
        ends, starts = steps.walk(view, current, state, constants, rule)
        out, last = steps.forward(view, starts[:-1].unsqueeze(0), constants, rule)[:2]
        ctx.save_for_backward(current, ends, starts, *rest[:4])
        ctx.steps, ctx.count, ctx.constants, ctx.rule = steps, count, constants, rule
        ctx.set_materialize_grads(False)
        return out.mean(0) if rule.rate else _join(out), last[:, -1]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_out: Tensor | None, grad_last: Tensor | None) -> tuple[Any, ...]:
        current, ends, starts, *_ = ctx.saved_tensors
        steps, constants, rule = ctx.steps, ctx.constants, ctx.rule
        view, begin = _cut(current, ctx.count), starts[:-1].unsqueeze(0)
        own = None
        if grad_out is not None:
            grad_out = (
                (grad_out / ctx.count).expand(begin.shape[1:]) if rule.rate else _cut(grad_out, ctx.count)
            )
            own = steps.backward(grad_out, None, view, begin, constants, rule, (False,) * 4)[1]
        g_ends, g_state = steps.walk_back(ends, starts, grad_last, own, view, current, constants, rule)
        learned = ctx.needs_input_grad[4:8]
        g_view, _, grads = steps.backward(grad_out, g_ends, view, begin, constants, rule, learned)
        return None, None, _join(g_view), g_state if ctx.needs_input_grad[3] else None, *grads, None, None


_apply: Callable[..., tuple[Tensor, Tensor]] = _Chunked.apply


def _cut(x: Tensor, count: int) -> Tensor:
    """Show ``[T, ...]`` as ``[T / count, count, ...]``: chunks side by side."""
    return x.view(count, -1, *x.shape[1:]).transpose(0, 1)


def _join(x: Tensor) -> Tensor:
    return x.transpose(0, 1).flatten(0, 1)


class _Plain:
    """The walk by PyTorch's operators, and the kernels for the CPU: in place of `ultralif.ops.gpu`."""

    def forward(self, view: Tensor, state: Tensor, constants: Constants, rule: Rule) -> tuple[Tensor, Tensor]:
        return flat.forward(cpu, cpu.stored(view), state, constants, rule)

    def backward(self, grad_out: Tensor | None, grad_state: Tensor | None, view: Tensor, *rest: Any) -> Any:
        g_out, g_state = (None if g is None else cpu.stored(g) for g in (grad_out, grad_state))
        return flat.backward(cpu, g_out, g_state, cpu.stored(view), *rest)

    def walk(
        self, view: Tensor, current: Tensor, state: Tensor | None, constants: Constants, rule: Rule
    ) -> tuple[Tensor, Tensor]:
        eps = constants.eps
        first = torch.zeros_like(view[0, 0], dtype=self._dtype(view)) if state is None else state[0]
        places = [-1e30] if rule.reset == Reset.NONE else [-1e30, 1e30, constants.amplitude]
        ends = [self._end(view, place, first, constants, rule) for place in places]
        tropical = rule.membrane == Membrane.MAX
        decay = (len(view) * torch.log(torch.as_tensor(constants.leak, dtype=first.dtype))).expand_as(ends[0])
        nothing = torch.zeros_like(decay)
        if rule.reset == Reset.NONE:
            rows = ((decay, ends[0]), (nothing - math.inf, nothing))
        elif tropical:
            rows = ((decay, ends[0]), (decay - ends[1], nothing))
        else:
            ratio = eps * _log_ratio(*(end / eps for end in ends)) - constants.amplitude
            rows = ((ends[1] + ratio, ends[0]), (ratio, nothing))
        matrices = torch.stack([torch.stack(row) for row in rows])
        starts = follow(prefix_products(matrices, eps, tropical), first, eps, tropical)
        return matrices, starts

    def _dtype(self, view: Tensor) -> torch.dtype:
        return torch.float64 if view.dtype == torch.float64 else torch.float32

    def _end(self, view: Tensor, place: Any, like: Tensor, constants: Constants, rule: Rule) -> Tensor:
        """Return the membrane at the end of every chunk, for a membrane at its start."""
        start = torch.as_tensor(place, dtype=like.dtype).expand(1, *view.shape[1:])
        return self.forward(view, start, constants, rule._replace(rate=True))[1][0]

    def walk_back(
        self,
        matrices: Tensor,
        starts: Tensor,
        grad_last: Tensor | None,
        own: Tensor | None,
        view: Tensor,
        current: Tensor,
        constants: Constants,
        rule: Rule,
    ) -> tuple[Tensor, Tensor]:
        slopes = _slopes(matrices, starts, constants.eps, rule.membrane == Membrane.MAX)
        g = torch.zeros_like(starts[0]) if grad_last is None else grad_last[0]
        at_ends = []
        for k in range(len(slopes) - 1, -1, -1):
            at_ends.append(g)
            g = slopes[k] * g + (own[0, k] if own is not None else 0.0)
        return torch.stack(at_ends[::-1]).unsqueeze(0), g.unsqueeze(0)


def _log_ratio(low: Tensor, high: Tensor, middle: Tensor) -> Tensor:
    """Return log((e^middle - e^low) / (e^high - e^middle)), 0 / 0 being any number."""
    tiny = torch.finfo(low.dtype).tiny
    up, down = ((b - a).clamp(min=0) for a, b in ((low, middle), (middle, high)))
    return torch.log(-torch.expm1(-up) + tiny) - torch.log(torch.expm1(down) + tiny)


def _slopes(matrices: Tensor, starts: Tensor, eps: Any, tropical: bool) -> Tensor:
    """Return the derivative of every chunk's map at the membrane with which it started."""
    (p, q), (r, s) = matrices
    v = starts[:-1]
    if tropical:
        above, below = p + v - q, s - r - v
        return torch.heaviside(above, torch.full_like(v, 0.5)) * torch.heaviside(
            below, torch.full_like(v, 0.5)
        )
    return torch.sigmoid((p + v - q) / eps) - torch.sigmoid((r + v - s) / eps)
