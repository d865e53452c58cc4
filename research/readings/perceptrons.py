"""Two units without a membrane, for ordinary perceptrons that the studies compare with spiking networks."""

from typing import Any

import torch
from torch import Tensor

from ultralif.nn import State, Stepped, register

__all__ = ["Rectifier", "Sigmoid", "register_units"]


class _Unit(Stepped[State]):
    """A unit without memory, whose output depends only on the current of the same step."""

    modes = ("soft",)
    state_type = State


class Rectifier(_Unit):
    """The unit of a ReLU perceptron: max(I - threshold, 0)."""

    @staticmethod
    def formula(current: Tensor, v: Tensor, *, threshold: Any, v_reset: Any) -> tuple[Tensor, Tensor]:
        """Return the output and the unchanged membrane."""
        return torch.relu(current - threshold), v


class Sigmoid(_Unit):
    """The unit of a sigmoid perceptron: sigmoid(I - threshold)."""

    @staticmethod
    def formula(current: Tensor, v: Tensor, *, threshold: Any, v_reset: Any) -> tuple[Tensor, Tensor]:
        """Return the output and the unchanged membrane."""
        return torch.sigmoid(current - threshold), v


def register_units() -> tuple[type[_Unit], ...]:
    """Register both units, so that configs can refer to them by name."""
    for unit in (Sigmoid, Rectifier):
        register(unit)
    return Sigmoid, Rectifier
