"""Check a neuron's inputs, with a clear error for each kind of bad input."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from ultralif.errors import InputError
from ultralif.nn.parameters import fits

__all__ = ["check_constants", "check_current", "check_shape", "check_state", "check_steps"]


def check_current(current: Tensor, leading: Sequence[str]) -> None:
    """Check the type and the axes of a current.

    Args:
        current: the user's input.
        leading: the names of the axes before the features.
    """
    if not isinstance(current, Tensor) or not current.is_floating_point():
        is_tensor = isinstance(current, Tensor)
        kind = current.dtype if is_tensor else type(current).__name__
        remedy = "call .float() on it" if is_tensor else "convert it with torch.as_tensor(...).float()"
        raise TypeError(f"current must be a floating-point tensor, got {kind}; {remedy}")
    if current.dim() <= len(leading):
        raise InputError(
            f"current must be [{', '.join(leading)}, *features], got shape {tuple(current.shape)}; "
            "add the missing axes with unsqueeze"
        )


def check_shape(argument: str, shape: object) -> None:
    """Check that an argument is None or a sequence of sizes."""
    is_shape = isinstance(shape, Sequence) and all(isinstance(n, int) and n >= 0 for n in shape)
    if shape is not None and not is_shape:
        raise InputError(f"{argument} must be a sequence of sizes, such as (64,), got {shape!r}")


def check_steps(current: Tensor) -> None:
    """Check that a current ``[T, B, *features]`` has at least one time step."""
    if current.shape[0] == 0:
        raise InputError(
            f"current of shape {tuple(current.shape)} has no time steps; pass "
            "[T, B, *features] with at least one"
        )


def check_constants(shapes: Iterable[tuple[str, torch.Size]], features: torch.Size) -> None:
    """Check that constants, given by name and shape, broadcast against the features."""
    for name, size in shapes:
        if not fits(size, features):
            raise InputError(
                f"{name} has shape {tuple(size)}, which does not broadcast against features "
                f"{tuple(features)}; pass a parameter_shape or a tensor that does"
            )


def check_state(state: tuple[Tensor, ...], wanted: type, shape: torch.Size) -> None:
    """Check the type of a state, and its shapes against one step of the current, ``[B, *features]``."""
    if not isinstance(state, wanted):
        raise TypeError(
            f"state must be the {wanted.__name__} that run or step returned, got "
            f"{type(state).__name__}; pass None to start at rest"
        )
    for tensor in state:
        if tensor.shape != shape:
            raise InputError(
                f"state has shape {tuple(tensor.shape)}, but one step of the current has "
                f"{tuple(shape)}; pass state=None to start at rest"
            )
