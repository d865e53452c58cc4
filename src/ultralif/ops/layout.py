"""Memory layouts: the neurons of a time step in memory order, whatever the order of the axes.

Neurons without neighbours can be integrated in any order, so a dense tensor of any layout, such as
channels-last, is read and written as it is. ``pos`` counts the neurons of a step in the output's order.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from ultralif.ops.constants import Learned, Value

__all__ = [
    "Place",
    "Steps",
    "axes_by_memory",
    "contiguous_strides",
    "dense_strides",
    "find_place",
    "find_steps",
    "has_gap",
    "like_strides",
    "shape_of",
]


class Steps(NamedTuple):
    """The address of a neuron: ``pos // size * outer + pos % size * inner``, plus ``time`` for each step."""

    time: int
    outer: int
    inner: int
    size: int


class Place(NamedTuple):
    """The index of a constant's entry for a neuron: ``pos // run % entries``."""

    run: int
    entries: int


def like_strides(shape: Sequence[int], strides: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of the result of `torch.empty_like`: the same strides, if they are dense.

    `torch.empty_like` itself would allocate a tensor or, on the meta device, import sympy.
    """
    expected = 1
    for stride, size in sorted((t, n) for t, n in zip(strides, shape, strict=True) if n != 1):
        if stride != expected:
            break
        expected *= size
    else:
        return tuple(strides)
    inner = list(reversed(range(len(shape))))  # axes from the innermost outwards, sorted as in PyTorch
    for last in range(1, len(shape)):
        at = last
        for i in reversed(range(last)):
            (a, b), (m, n) = ((x[inner[i]], x[inner[at]]) for x in (strides, shape))
            if a and b and (a, m) > (b, n):
                inner[i], inner[at], at = inner[at], inner[i], i
            elif a and b and a < b:
                break
    found, step = [0] * len(shape), 1
    for axis in inner:
        found[axis] = step
        step *= shape[axis]
    return tuple(found)


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of a contiguous tensor."""
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def shape_of(constant: Value) -> tuple[int, ...]:
    """Return the shape of a constant."""
    tensor = constant.raw if isinstance(constant, Learned) else constant
    return tuple(tensor.shape) if isinstance(tensor, Tensor) else ()


def axes_by_memory(shape: Sequence[int], strides: Sequence[int]) -> tuple[int, ...]:
    """Return the axes after the first that are longer than 1, the outermost in memory first."""
    axes = [axis for axis in range(1, len(shape)) if shape[axis] != 1]
    return tuple(sorted(axes, key=lambda axis: -strides[axis]))


def dense_strides(shape: Sequence[int], order: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of one dense step, for the axes after the first."""
    strides = [1] * len(shape)
    step = 1
    for axis in reversed(order):
        strides[axis] = step
        step *= shape[axis]
    return tuple(strides[1:])


def has_gap(constant: Sequence[int]) -> bool:
    """Return whether a constant repeats along an inner axis, so that no run of neurons shares an entry."""
    axes = [i for i, size in enumerate(constant) if size != 1]
    return bool(axes) and axes[-1] - axes[0] + 1 != len(axes)


def find_steps(shape: Sequence[int], strides: Sequence[int], order: Sequence[int]) -> Steps | None:
    """Return the addresses of the neurons of a step, or None if two strides cannot describe them."""
    groups: list[tuple[int, int]] = []
    for axis in order:
        size, stride = shape[axis], strides[axis]
        if groups and groups[-1][1] == size * stride:
            groups[-1] = groups[-1][0] * size, stride
        else:
            groups.append((size, stride))
    if len(groups) > 2:
        return None
    size, inner = groups[-1] if groups else (1, 1)
    return Steps(strides[0], groups[0][1] if len(groups) == 2 else 0, inner, size)


def find_place(constant: Sequence[int], shape: Sequence[int], order: Sequence[int]) -> Place | None:
    """Return which entry of a constant each neuron uses, or None if no run of neurons shares one."""
    first = len(shape) - len(constant)
    axes = [first + i for i, size in enumerate(constant) if size != 1]
    if not axes:
        return Place(1, 1)
    at = [order.index(axis) for axis in axes]
    if at != list(range(at[0], at[0] + len(at))):
        return None
    run = math.prod(shape[axis] for axis in order[at[-1] + 1 :])
    return Place(run, math.prod(constant))
