"""Tensors of any layout for an implementation that takes ``[T, B, F]`` and returns contiguous tensors.

A dense layout with time outermost is only viewed in another shape; any other is copied.
"""

import math
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ultralif.functional import compute_dtype
from ultralif.ops.constants import Learned
from ultralif.ops.layout import Steps, axes_by_memory, dense_strides, find_place, find_steps, strides_like
from ultralif.ops.recurrence import Constants, Flat, Rule

__all__ = ["backward", "forward"]


class View(NamedTuple):
    """A layer as ``[T, B, F]``: neurons in the order of memory; a constant serves consecutive neurons."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    """The strides of an output with the layout of the current."""
    step: tuple[int, ...]
    """The strides of one dense step in the same order."""
    order: tuple[int, ...]
    size: tuple[int, int, int]
    constants: Constants

    def flat(self, x: Tensor) -> Tensor:
        """Return a sequence as ``[T, B, F]``; it is copied only if three strides cannot describe it."""
        at, (_, batch, features) = find_steps(self.shape, x.stride(), self.order), self.size
        if at is None or at.size not in (batch * features, features):
            x = torch.empty_strided(self.shape, (batch * features, *self.step), dtype=x.dtype).copy_(x)
            at = Steps(x.stride(0), 0, 1, batch * features)
        outer = at.inner * features if at.size == batch * features else at.outer
        return x.as_strided(self.size, (at.time, outer, at.inner))

    def flat_step(self, x: Tensor) -> Tensor:
        """Return tensors of one step, ``[S, B, *features]``, as ``[S, B, F]``."""
        strides = (math.prod(self.size[1:]), *self.step)
        if x.stride() != strides:
            x = torch.empty_strided(x.shape, strides, dtype=x.dtype).copy_(x)
        return x.as_strided((len(x), *self.size[1:]), (strides[0], self.size[2], 1))

    def full(self, x: Tensor) -> Tensor:
        """Return contiguous ``[T, B, F]`` in the layout of the current."""
        # `.data`, because autograd forbids changing one of several views in place.
        found = x.as_strided(self.shape, (math.prod(self.size[1:]), *self.step)).data
        if found.stride() == self.strides or self.shape[0] == 1:
            return found
        return torch.empty_strided(self.shape, self.strides, dtype=x.dtype).copy_(found)

    def full_step(self, x: Tensor) -> Tensor:
        """Return contiguous ``[S, B, F]`` as ``[S, B, *features]``."""
        return x.as_strided((len(x), *self.shape[1:]), (math.prod(self.size[1:]), *self.step))


@lru_cache(maxsize=512)
def _geometry(
    shape: tuple[int, ...], current: tuple[int, ...], shapes: tuple[tuple[int, ...], ...], ring: int
) -> tuple[Any, ...]:
    """Return the fields of a view, and whether constants have to be expanded over all features."""
    strides = strides_like(torch.empty_strided(shape, current, device="meta"))
    order = axes_by_memory(shape, strides)
    total = math.prod(shape[1:])
    places = [find_place(size, shape, order) for size in shapes]
    periods = {place.run * place.entries for place in places if place and place.entries > 1}
    ring_last = ring <= 1 or order[-1] == len(shape) - 1
    spread = None in places or len(periods) > 1 or not ring_last
    if spread:
        order = axes_by_memory(shape, torch.empty(shape, device="meta").stride())
        features = math.prod(shape[2:])
    else:
        at = find_steps(shape, current, order)
        features = max([*periods, ring]) if periods or ring else at.size if at else total
    return strides, dense_strides(shape, order), order, (shape[0], total // features, features), spread


def _view(current: Tensor, constants: Constants, rule: Rule) -> View:
    shape = tuple(current.shape)
    raws = [c.raw if isinstance(c, Learned) else c for c in constants]
    shapes = tuple([tuple(r.shape) if isinstance(r, Tensor) and r.numel() > 1 else () for r in raws])
    strides, step, order, size, spread = _geometry(shape, current.stride(), shapes, rule.ring)
    given = [_given(c, shape[2:] if spread else ()) for c in constants]
    return View(shape, strides, step, order, size, Constants(*given))


def _given(constant: Tensor | Learned | float, features: tuple[int, ...]) -> Tensor | Learned | float:
    """Return a constant that serves consecutive neurons, or its value expanded over all features."""
    if isinstance(constant, Learned):
        if not features or constant.raw.numel() == 1:
            return constant._replace(raw=constant.raw.reshape(-1))
        constant = constant.value()
    if not isinstance(constant, Tensor):
        return constant
    return (
        constant.expand(features).reshape(-1) if features and constant.numel() > 1 else constant.reshape(-1)
    )


def forward(
    flat: Flat, current: Tensor, state: Tensor | None, constants: Constants, rule: Rule
) -> tuple[Tensor, Tensor]:
    """Return the spikes and the last state."""
    view = _view(current, constants, rule)
    start = None if state is None else view.flat_step(state)
    out, last = flat.forward(view.flat(current), start, view.constants, rule)
    whole = view.full_step(out.unsqueeze(0))[0] if rule.rate else view.full(out)
    return whole, view.full_step(last)


def backward(
    flat: Flat,
    grad_out: Tensor | None,
    grad_state: Tensor | None,
    current: Tensor,
    state: Tensor | None,
    constants: Constants,
    rule: Rule,
    learned: tuple[bool, ...],
    spikes: Tensor | None = None,
) -> tuple[Tensor, Tensor | None, list[Tensor | None]]:
    """Return the gradients for current, state and constants."""
    view = _view(current, constants, rule)
    dtype = compute_dtype(current.dtype)
    if grad_out is not None:
        grad_out = view.flat_step(grad_out.unsqueeze(0))[0] if rule.rate else view.flat(grad_out)
    g_current, g_state, sums = flat.backward(
        grad_out,
        None if grad_state is None else view.flat_step(grad_state.to(dtype)),
        view.flat(current),
        None if state is None else view.flat_step(state),
        view.constants,
        rule,
        any(learned),
        None if spikes is None else view.flat(spikes),
    )
    grads: list[Tensor | None] = [None] * len(constants)
    for i, (constant, given) in enumerate(zip(constants, view.constants, strict=True)):
        if not learned[i]:
            continue
        raw = constant.raw if isinstance(constant, Learned) else constant
        if isinstance(given, Learned):
            grads[i] = sums[i, : raw.numel()].view(raw.shape).clone()  # of its own
        elif isinstance(given, Tensor):
            total = sums[i, : given.numel()]
            shape = raw.shape if total.numel() == raw.numel() else current.shape[2:]
            total = total.view(shape).sum_to_size(raw.shape).clone()
            grads[i] = constant.pull(total) if isinstance(constant, Learned) else total
    return view.full(g_current), None if state is None else view.full_step(g_state), grads
