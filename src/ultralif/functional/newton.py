r"""Solve spike resets in parallel over time, with Newton's method on the whole sequence.

The membranes :math:`V_t = f(V_{t-1}, I_t)` are the solution of T equations. Around a guess :math:`W` each
equation is approximately the line :math:`V_t = f(W_{t-1}, I_t) + f'(W_{t-1}, I_t) (V_{t-1} - W_{t-1})`. The
composition of two lines is a line, so one scan solves them all and yields the next guess. Each sweep solves
at least one more step. If f is smooth and its memory fades, as with soft spikes, a few sweeps are enough.
"""

from collections.abc import Callable

import torch
from torch import Tensor

__all__ = ["affine_scan", "newton"]

Step = Callable[[Tensor, Tensor], Tensor]


def newton(
    step: Step, current: Tensor, v0: Tensor, *, tolerance: float, most: int = 200
) -> tuple[Tensor, int]:
    """Return the membrane after every step, ``[T, ...]``, and the number of sweeps.

    The gradients with respect to the current and to everything else the step reads are exact. Computing them
    takes one more scan.

    Args:
        step: maps the membrane and the current of a step to the next membrane, element by element. It is
            called with all time steps at once.
        current: ``[T, ...]``.
        v0: the membrane before the first step.
        tolerance: stop once no membrane changes by more than this in a sweep.
        most: the maximum number of sweeps, after which the membranes are returned even if they still change.

    Example:
        >>> halve = lambda v, i: v / 2 + torch.tanh(i)
        >>> newton(halve, torch.zeros(3, 1), torch.ones(1), tolerance=1e-6)[0].flatten()
        tensor([0.5000, 0.2500, 0.1250])
    """
    guess, sweeps, moved = torch.zeros_like(current), 0, float("inf")
    while moved > tolerance and sweeps < most:
        slope, following = _lines(step, current.detach(), guess, v0.detach())
        moved, sweeps, guess = float((following - guess).abs().amax()), sweeps + 1, following
    slope, _ = _lines(step, current.detach(), guess, v0.detach())
    before = torch.cat((v0.detach().expand_as(guess[:1]), guess[:-1]))
    value = step(before, current)
    offset = value - slope * before
    return affine_scan(slope, offset, v0), sweeps


def affine_scan(slope: Tensor, offset: Tensor, start: Tensor) -> Tensor:
    """Compute every ``y[t] = slope[t] y[t - 1] + offset[t]`` in 2 log2(T) rounds.

    Args:
        slope: ``[T, ...]``.
        offset: ``[T, ...]``.
        start: y before the first step.
    """
    slopes, offsets = _compose(slope, offset)
    return slopes * start + offsets


def _lines(step: Step, current: Tensor, guess: Tensor, v0: Tensor) -> tuple[Tensor, Tensor]:
    """Return the slope of every step at the guess, and the membranes that solve these linear steps."""
    with torch.enable_grad():
        before = torch.cat((v0.expand_as(guess[:1]), guess[:-1])).requires_grad_()
        value = step(before, current)
        (slope,) = torch.autograd.grad(value.sum(), before)
    with torch.no_grad():
        return slope, affine_scan(slope, value - slope * before, v0)


def _compose(slope: Tensor, offset: Tensor) -> tuple[Tensor, Tensor]:
    """Return the line from the start to each step: compose neighbours, then fill in the steps between."""
    time = len(slope)
    if time == 1:
        return slope, offset
    first, second = slice(0, time - 1, 2), slice(1, None, 2)
    odd = _compose(slope[second] * slope[first], slope[second] * offset[first] + offset[second])
    inner, left = slice(2, None, 2), [part[: (time - 1) // 2] for part in odd]
    between = slope[inner] * left[0], slope[inner] * left[1] + offset[inner]
    even = [torch.cat((part[:1], filled)) for part, filled in zip((slope, offset), between, strict=True)]
    whole = [torch.stack((e[: len(o)], o), 1).flatten(0, 1) for e, o in zip(even, odd, strict=True)]
    if time % 2:
        whole = [torch.cat((w, e[-1:])) for w, e in zip(whole, even, strict=True)]
    return whole[0], whole[1]
