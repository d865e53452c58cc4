"""The training methods compared in the study of depth, including neurons outside the library."""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

import ultralif as ul
from ultralif.functional import straight_through


class Method(NamedTuple):
    """A neuron and its training method."""

    neuron: str
    key: str = "eps"
    """The option that sets the width of the derivative, and its candidate values."""
    values: tuple[float, ...] = (0.3, 0.6, 1.0)
    soft: float = 0.7
    """Fraction of the epochs with soft spikes."""
    options: dict[str, Any] = {}  # noqa: RUF012


def surrogate(*values: float, **options: Any) -> Method:
    options = {"surrogate": "sigmoid"} | options
    return Method("LIF", "surrogate_slope", values, 0.0, options)


METHODS = {
    "UltraLIF": Method("UltraLIF"),
    "SoftLIF": Method("SoftLIF"),
    "sigmoid": Method("Sigmoid"),
    "LIF, learned width": surrogate(2, 5, 10, learn_slope=True),
    "LIF, atan": surrogate(1, 2, 4, surrogate="atan"),
    "ASGL-like mix": Method("Mixed"),
    "LIF, triangle": surrogate(0.5, 1, 2, surrogate="triangle"),
    "DSpike": Method("DSpike", "sharpness", (1, 2, 4), 0.0),
    "ReLU": Method("relu", values=(1.0,), soft=0.0),
    "UltraLIF as a sigmoid": Method("Matched"),
    "UltraLIF, binary throughout": Method("UltraLIF", soft=0.0),
    "LIF, sigmoid": surrogate(1, 2, 4),
    "UltraDLIF along channels": Method("UltraDLIF", options={"centered": True, "coupled_axis": -3}),
    "UltraDLIF along rows": Method("UltraDLIF", options={"centered": True}),
    "UltraPLIF": Method("UltraPLIF"),
}
RIVALS = [*METHODS][:5]


def sigmoid_step(
    current: Tensor, v: Tensor, *, eps: Tensor, threshold: float, mode: str, **unused: Any
) -> tuple[Tensor, Tensor]:
    """A unit without membrane and threshold that returns the sigmoid of its current, or its sign."""
    soft = torch.sigmoid(current / eps)
    return (soft if mode == "soft" else straight_through((current > 0).to(soft.dtype), soft)), v


def matched_step(
    current: Tensor, v: Tensor, *, eps: Tensor, threshold: float, mode: str, **unused: Any
) -> tuple[Tensor, Tensor]:
    """One UltraLIF step from rest as a sigmoid with its midpoint and binary threshold, but without s0."""
    past, limit = math.log(0.9) / eps, threshold / eps
    soft = torch.sigmoid(current / eps - torch.logaddexp(past, limit))
    fires = current / eps > limit + torch.log1p(-torch.exp(past - limit))
    return (soft if mode == "soft" else straight_through(fires.to(soft.dtype), soft)), v


class SigmoidNeuron(ul.nn.Stepped[ul.nn.State]):
    modes = ("soft", "hard")
    learns = frozenset({"eps"})
    state_type = ul.nn.State
    formula = staticmethod(sigmoid_step)
    choices = ("mode",)

    def __init__(self, *, eps: float = 0.3, **options: Any) -> None:
        super().__init__(**options)
        self.learnable("eps", eps, ul.nn.LOG, bounds=(0.1, 20.0))


class Matched(SigmoidNeuron):
    formula = staticmethod(matched_step)


class Mixed(nn.Module):
    """SoftLIF with a growing random fraction of binary units, as in adaptive smoothing (Wang et al. 2023)."""

    step: Tensor

    def __init__(self, steps: int, **options: Any) -> None:
        super().__init__()
        self.soft, self.hard = ul.SoftLIF(**options), ul.SoftLIF(**options)
        self.hard.log_eps = self.soft.log_eps
        self.hard.mode = "hard"
        self.steps = steps
        self.register_buffer("step", torch.zeros(()))

    def forward(self, current: Tensor) -> Tensor:
        if not self.training:
            return self.hard(current)
        self.step += 1
        binary = torch.rand_like(current[0]) < self.step / self.steps  # after the last step, all units
        return torch.where(binary, self.hard(current), self.soft(current))
