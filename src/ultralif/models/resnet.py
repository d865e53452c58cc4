"""A spiking residual network whose spikes stay binary. Copy this file to change it.

What a convolution receives depends on where the branches are added. After the neurons, the spikes of two
branches would sum to 0, 1 or 2. Here, currents are added before the neuron (as in MS-ResNet, Hu et al. 2021):

    current <- current + norm(conv(spikes(norm(conv(spikes(current))))))

Every convolution except the first therefore receives only 0 or 1. Within a stage, the gradient flows back
along the sum without crossing a neuron, regardless of the number of blocks.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from ultralif.errors import InputError
from ultralif.nn import TimeDistributed, find_neuron

__all__ = ["ResNet", "resnet"]

STAGES: dict[str, tuple[tuple[int, int], ...]] = {
    "resnet10": ((64, 1), (128, 1), (256, 1), (512, 1)),
    "resnet18": ((64, 2), (128, 2), (256, 2), (512, 2)),
    "resnet19": ((128, 3), (256, 3), (512, 2)),
    "resnet20": ((16, 3), (32, 3), (64, 3)),
    "resnet34": ((64, 3), (128, 4), (256, 6), (512, 3)),
}
"""Number of channels and blocks in each stage."""


def convolution(
    inputs: int, outputs: int, size: int = 3, stride: int = 1, weight: float = 1.0
) -> TimeDistributed:
    """Return a convolution followed by a batch norm, whose weight is initialised to the given value."""
    conv = nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False)
    norm = nn.BatchNorm2d(outputs)
    nn.init.constant_(norm.weight, weight)
    return TimeDistributed(nn.Sequential(conv, norm))


class Block(nn.Module):
    """Add the output of two spiking convolutions to a current.

    If the shape changes, the shortcut is a 1x1 convolution of the spikes instead of the current itself.
    """

    def __init__(
        self, inputs: int, outputs: int, stride: int, share: float, neuron: Callable[[], nn.Module]
    ) -> None:
        super().__init__()
        self.enter, self.between = neuron(), neuron()
        self.one = convolution(inputs, outputs, stride=stride)
        self.two = convolution(outputs, outputs, weight=share)
        self.shortcut = None
        if stride > 1 or inputs != outputs:
            self.shortcut = convolution(inputs, outputs, 1, stride)

    def forward(self, current: Tensor) -> Tensor:
        """Return the next current ``[T, B, C, H, W]``."""
        spikes = self.enter(current)
        kept = current if self.shortcut is None else self.shortcut(spikes)
        added: Tensor = self.two(self.between(self.one(spikes)))
        return added + kept


class ResNet(nn.Module):
    """Residual blocks that add to a current, and a final layer of neurons; see `resnet` for the arguments.

    The weight of each block's second norm is initialised to ``blocks ** -0.5``, so that the sum of a stage's
    blocks has about the same variance as its first current, which threshold and temperature are chosen for.

    Example:
        >>> import torch
        >>> resnet("resnet10", channels=1, timesteps=2, width=0.125)(torch.rand(2, 1, 16, 16)).shape
        torch.Size([2, 10])
    """

    by_step = False
    """Return the scores of every step instead of their mean; the TET loss needs them."""

    def __init__(
        self,
        stages: Sequence[tuple[int, int]],
        classes: int,
        channels: int,
        timesteps: int,
        neuron: Callable[[], nn.Module],
    ) -> None:
        super().__init__()
        self.timesteps = timesteps
        width = stages[0][0]
        self.first = convolution(channels, width)
        blocks: list[nn.Module] = []
        for stage, (outputs, count) in enumerate(stages):
            for i in range(count):
                stride = 2 if stage > 0 and i == 0 else 1
                blocks.append(Block(width, outputs, stride, count**-0.5, neuron))
                width = outputs
        self.blocks = nn.Sequential(*blocks)
        self.last = neuron()
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return scores ``[B, classes]`` for images ``[B, C, H, W]`` or events ``[T, B, C, H, W]``.

        With `by_step`, return the scores of every step, ``[T, B, classes]``.
        """
        if x.dim() not in (4, 5):
            raise InputError(
                f"x must be images [B, C, H, W] or events [T, B, C, H, W], got shape {tuple(x.shape)}; "
                "reshape it"
            )
        current = self.first(x if x.dim() == 5 else x.unsqueeze(0))
        if x.dim() == 4:  # an image is a constant current: computed once, repeated over time
            current = current.expand(self.timesteps, *current.shape[1:])
        spikes = self.last(self.blocks(current))
        scores: Tensor = self.head(spikes.mean((3, 4) if self.by_step else (0, 3, 4)))
        return scores


def resnet(
    stages: str | Sequence[tuple[int, int]] = "resnet18",
    *,
    classes: int = 10,
    channels: int = 3,
    timesteps: int = 4,
    neuron: str | Callable[..., nn.Module] = "UltraLIF",
    neuron_options: Mapping[str, Any] | None = None,
    width: float = 1.0,
) -> ResNet:
    """Return a spiking residual network; every convolution except the first receives binary spikes.

    Args:
        stages: ``resnet10``, ``resnet18``, ``resnet19``, ``resnet20``, ``resnet34``, or the channels and
            blocks of each stage, such as ``((64, 2), (128, 2))``. All stages but the first halve the image.
        classes: number of classes; a linear head computes their scores from the mean spikes.
        channels: input channels: 3 for colour images, 2 for events of both polarities.
        timesteps: number of steps for which an image is shown; events have their own time axis.
        neuron: a neuron's name or class, or any callable that returns a module.
        neuron_options: its arguments; every layer has its own neurons.
        width: factor applied to every channel count.

    Example:
        >>> import torch
        >>> resnet(((8, 1), (16, 1)), timesteps=2)(torch.rand(2, 3, 32, 32)).shape
        torch.Size([2, 10])
    """
    if isinstance(stages, str) and stages not in STAGES:
        raise InputError(f"stages {stages!r} is not known; choose one of {', '.join(STAGES)}, or pass pairs")
    plan = STAGES[stages] if isinstance(stages, str) else stages
    if not plan or any(min(pair) < 1 for pair in plan) or timesteps < 1 or not 0 < width < math.inf:
        raise InputError(
            "stages must be pairs of channels and blocks such as ((64, 2), (128, 2)), timesteps at least 1 "
            f"and width positive, got {stages!r}, {timesteps}, {width}; correct them"
        )
    scaled = [(max(1, round(channel * width)), count) for channel, count in plan]
    make = find_neuron(neuron) if isinstance(neuron, str) else neuron
    options = dict(neuron_options or {})
    return ResNet(scaled, classes, channels, timesteps, lambda: make(**options))
