"""Linear layer with a learned delay for each synapse."""

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import conv1d

from ultralif.errors import InputError
from ultralif.nn.parameters import bounded

__all__ = ["DelayedLinear"]


class DelayedLinear(nn.Module):
    r"""A linear layer in which every synapse has a delay.

    .. math:: y_o(t) = \sum_i w_{oi}\, x_i(t - d_{oi}) + b_o

    A delay is any number of steps from 0 to ``max_delay``. Between two steps x is interpolated linearly, so
    that the gradient by the delay is exact: :math:`w\,(x^{(t-k-1)} - x^{(t-k)})` for a delay between k and
    k + 1. Before the first step x is 0. For hardware with whole delays, round them once trained:
    ``layer.delay.data.round_()``.

    Args:
        inputs: input features of a step.
        outputs: output features of a step.
        max_delay: the longest delay, in steps.
        bias: add a bias.

    Example:
        >>> DelayedLinear(8, 4, max_delay=5)(torch.rand(20, 2, 8)).shape
        torch.Size([20, 2, 4])
    """

    def __init__(self, inputs: int, outputs: int, *, max_delay: int, bias: bool = True) -> None:
        super().__init__()
        if inputs < 1 or outputs < 1 or max_delay < 1:
            raise InputError(
                f"inputs, outputs and max_delay must be at least 1, got {inputs}, {outputs}, {max_delay}; "
                "without delays use nn.Linear"
            )
        self.inputs, self.outputs, self.max_delay = inputs, outputs, max_delay
        reach = 1 / math.sqrt(inputs)
        self.weight = nn.Parameter(torch.empty(outputs, inputs).uniform_(-reach, reach))
        self.delay = nn.Parameter(torch.empty(outputs, inputs).uniform_(0, max_delay))
        self.bias = nn.Parameter(torch.empty(outputs).uniform_(-reach, reach)) if bias else None

    @property
    def taps(self) -> Tensor:
        """The weight of every synapse at every whole delay, ``[outputs, inputs, max_delay + 1]``."""
        delay = bounded(self.delay, 0.0, float(self.max_delay))
        step = torch.arange(self.max_delay + 1, dtype=delay.dtype, device=delay.device)
        share = (1 - (delay.unsqueeze(-1) - step).abs()).clamp(min=0)
        return self.weight.unsqueeze(-1) * share

    def forward(self, x: Tensor) -> Tensor:
        """Return ``[T, B, outputs]`` for ``[T, B, inputs]``, with inputs of 0 before the first step."""
        return self.run(x)[0]

    def run(self, x: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return the output for ``[T, B, inputs]`` and the state to continue from, the last inputs."""
        if x.dim() != 3 or x.shape[-1] != self.inputs or not len(x):
            raise InputError(
                f"x must be [T, B, {self.inputs}] with at least one time step, got shape {tuple(x.shape)}; "
                "flatten its features"
            )
        past = x.new_zeros(self.max_delay, *x.shape[1:]) if state is None else state
        if past.shape != (self.max_delay, *x.shape[1:]):
            raise InputError(
                f"state has shape {tuple(past.shape)}, but must be {(self.max_delay, *x.shape[1:])}; pass "
                "state=None to start at rest"
            )
        signal = torch.cat([past, x])
        out = conv1d(signal.permute(1, 2, 0), self.taps.flip(-1), self.bias)
        return out.permute(2, 0, 1), signal[len(signal) - self.max_delay :]

    def step(self, x: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return the output for one time step ``[B, inputs]`` and the state to continue from."""
        out, state = self.run(x.unsqueeze(0), state)
        return out[0], state

    def extra_repr(self) -> str:
        """Show the sizes."""
        return f"{self.inputs}, {self.outputs}, max_delay={self.max_delay}, bias={self.bias is not None}"
