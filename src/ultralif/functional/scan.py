"""Define every neuron over a sequence by repeating its step."""

import inspect
from collections.abc import Callable
from typing import Concatenate, ParamSpec, Protocol, TypeVar

import torch
from torch import Tensor

from ultralif.errors import InputError

__all__ = ["Constant", "OverTime", "compute_dtype", "over_time", "rest"]

Constant = float | Tensor
"""A neuron's constant: a number, or a tensor that broadcasts against the features from the right."""

S = TypeVar("S")
P = ParamSpec("P")


class OverTime(Protocol[S, P]):
    """A neuron over a sequence of currents."""

    def __call__(
        self, current: Tensor, v0: S | None = None, *args: P.args, **kwargs: P.kwargs
    ) -> tuple[Tensor, S]:
        """Return the spikes, ``[T, B, *features]`` like the current, and the last state."""


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype of the membrane: half precision is integrated in float32.

    Example:
        >>> compute_dtype(torch.bfloat16)
        torch.float32
    """
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def rest(current: Tensor) -> Tensor:
    """Return the membrane of a layer at rest, V(0) = 0, for a current ``[T, B, *features]``.

    Example:
        >>> rest(torch.rand(10, 2, 3)).shape
        torch.Size([2, 3])
    """
    return torch.zeros_like(current[0], dtype=compute_dtype(current.dtype))


def over_time(
    at_rest: Callable[[Tensor], S],
) -> Callable[[Callable[Concatenate[Tensor, S, P], tuple[Tensor, S]]], OverTime[S, P]]:
    """Turn ``step(current, state, **constants)`` into a function of a whole sequence.

    This loop is the reference: every kernel, export and hardware check is compared with it.

    Args:
        at_rest: returns the state before the first step, given the sequence of currents.

    Example:
        >>> def count_step(current, total, *, gain):
        ...     total = total + gain * current
        ...     return (total > 1).float(), total
        >>> spikes, total = over_time(rest)(count_step)(torch.full((3, 1, 1), 0.5), gain=1.0)
        >>> spikes.flatten(), total
        (tensor([0., 0., 1.]), tensor([[1.5000]]))
    """

    def decorate(step: Callable[Concatenate[Tensor, S, P], tuple[Tensor, S]]) -> OverTime[S, P]:
        def run(current: Tensor, v0: S | None = None, *args: P.args, **kwargs: P.kwargs) -> tuple[Tensor, S]:
            if not len(current):
                raise InputError(
                    f"current of shape {tuple(current.shape)} has no time steps; pass "
                    "[T, B, *features] with at least one"
                )
            dtype = compute_dtype(current.dtype)
            for name, value in kwargs.items():
                if isinstance(value, Tensor):
                    kwargs[name] = value.to(dtype)
            state = at_rest(current) if v0 is None else v0
            spikes = []
            for x in current.to(dtype).unbind(0):
                spike, state = step(x, state, *args, **kwargs)
                spikes.append(spike)
            return torch.stack(spikes).to(current.dtype), state

        signature = inspect.signature(run)
        leading = list(signature.parameters.values())[:2]
        constants = list(inspect.signature(step).parameters.values())[2:]
        run.__name__ = run.__qualname__ = step.__name__.removesuffix("_step")
        run.__module__ = step.__module__
        run.__doc__ = (
            f"Run `{step.__name__}` over ``[T, B, *features]``; return spikes and last state.\n\n"
            "``v0=None`` starts at rest; the remaining arguments are the step's constants."
        )
        vars(run)["__signature__"] = signature.replace(parameters=[*leading, *constants])
        return run

    return decorate
