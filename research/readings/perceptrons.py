"""Two units without a membrane: the ordinary perceptrons beside the spiking networks of the studies."""

from typing import Any

import torch
from torch import Tensor

from ultralif.nn import State, Stepped, register

__all__ = ["Rectifier", "Sigmoid", "register_units"]


class _Unit(Stepped[State]):
    """A unit without memory: its output is a function of the step's current alone."""

    modes = ("soft",)
    state_type = State


class Rectifier(_Unit):
    """The unit of a ReLU perceptron: max(I - threshold, 0)."""

    @staticmethod
    def formula(current: Tensor, v: Tensor, *, threshold: Any, v_reset: Any) -> tuple[Tensor, Tensor]:
        """Return the output and an untouched membrane."""
        return torch.relu(current - threshold), v


class Sigmoid(_Unit):
    """The unit of a sigmoid perceptron: sigmoid(I - threshold)."""

    @staticmethod
    def formula(current: Tensor, v: Tensor, *, threshold: Any, v_reset: Any) -> tuple[Tensor, Tensor]:
        """Return the output and an untouched membrane."""
        return torch.sigmoid(current - threshold), v


def register_units() -> tuple[type[_Unit], ...]:
    """Make both units known by name, so that configs can name them and runs of them be trained."""
    for unit in (Sigmoid, Rectifier):
        register(unit)
    return Sigmoid, Rectifier
