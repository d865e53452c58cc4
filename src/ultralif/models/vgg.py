"""A spiking VGG: a chain of convolutions with spikes between them. Copy this file to change it.

The residual version, ``vgg11r``, is the network in ``examples/speedrun.py``. It adds currents before the
neuron wherever a convolution preserves the shape. Spikes stay binary, and the gradient can bypass neurons.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from ultralif.errors import InputError
from ultralif.nn import TimeDistributed, find_neuron

__all__ = ["VGG", "vgg"]

STAGES: dict[str, tuple[tuple[int, ...], ...]] = {
    "vgg5": ((16,), (32, 32), (64,)),
    "vgg7": ((128, 128), (256, 256), (512, 512)),
    "vgg9": ((64, 64), (128, 128), (256, 256), (512, 512)),
    "vgg11": ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512)),
    "vgg11r": ((64, 256), (256, 256, 512), (512, 512, 512), (512, 512)),
}
"""Channels of each 3x3 convolution, by stage; the number in a name counts the convolutions and the head."""


class VGG(nn.Module):
    """Layers of convolution, batch norm and neuron; see `vgg` for the arguments.

    Each stage ends with a max-pooling that halves the image. It pools currents, before the neuron, so that
    the next convolution receives spikes. Batch norm computes its statistics over time and batch. A residual
    network does not halve the last stage, and starts with a linear 2x2 convolution that can whiten patches.

    Example:
        >>> import torch
        >>> vgg("vgg5", channels=1, timesteps=2)(torch.rand(2, 1, 8, 8)).shape
        torch.Size([2, 10])
    """

    by_step = False
    """Return the scores of every step instead of their mean; the TET loss needs them."""

    def __init__(
        self,
        stages: Sequence[Sequence[int]],
        classes: int,
        channels: int,
        timesteps: int,
        neuron: Callable[[], nn.Module],
        residual: bool = False,
    ) -> None:
        super().__init__()
        self.timesteps = timesteps
        self.smallest = 2 ** len(stages)
        self.sums: list[bool] = []
        before: list[nn.Module] = []
        if residual:
            patches = 8 * math.ceil(channels / 2)  # a multiple of 8 is fast on a GPU
            before, channels = [nn.Conv2d(channels, patches, 2)], patches
        layers: list[nn.Module] = []
        for number, stage in enumerate(stages, start=1):
            for i, width in enumerate(stage, start=1):
                conv = nn.Conv2d(channels, width, 3, padding=1, bias=False)
                halved = i == len(stage) and not (residual and number == len(stages))
                parts = [*before, conv, *[nn.MaxPool2d(2)] * halved, nn.BatchNorm2d(width)]
                layers += [TimeDistributed(nn.Sequential(*parts)), neuron()]
                self.sums.append(residual and width == channels and not halved)
                before, channels = [], width
        self.first = layers[0]
        self.layers = nn.Sequential(*layers[1:])
        self.head = nn.Linear(channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return scores ``[B, classes]`` for images ``[B, C, H, W]`` or events ``[T, B, C, H, W]``.

        With `by_step`, return the scores of every step, ``[T, B, classes]``.
        """
        if x.dim() not in (4, 5) or min(x.shape[-2:]) < self.smallest:
            raise InputError(
                f"x must be images [B, C, H, W] or events [T, B, C, H, W] with H and W at least "
                f"{self.smallest}, because each stage halves them, got shape {tuple(x.shape)}; reshape it, "
                "or build the network with fewer stages"
            )
        if x.dim() == 4:  # an image is a constant current: computed once, repeated over time
            current = self.first(x.unsqueeze(0))
            current = current.expand(self.timesteps, *current.shape[1:])
        else:
            current = self.first(x)
        *layers, last = self.layers
        for fire, layer, add in zip(layers[::2], layers[1::2], self.sums[1:], strict=True):
            current = current + layer(fire(current)) if add else layer(fire(current))
        scores: Tensor = self.head(last(current).mean((3, 4) if self.by_step else (0, 3, 4)))
        return scores


def vgg(
    stages: str | Sequence[Sequence[int]] = "vgg9",
    *,
    classes: int = 10,
    channels: int = 3,
    timesteps: int = 4,
    neuron: str | Callable[..., nn.Module] = "UltraLIF",
    neuron_options: Mapping[str, Any] | None = None,
    width: float = 1.0,
    residual: bool = False,
) -> VGG:
    """Return a spiking VGG.

    Args:
        stages: ``vgg5``, ``vgg7``, ``vgg9``, ``vgg11``, ``vgg11r``, or the channels of each convolution of
            each stage, such as ``((64, 64), (128, 128))``.
        classes: number of classes; a linear head computes their scores from the mean spikes.
        channels: input channels: 3 for colour images, 2 for events of both polarities.
        timesteps: number of steps for which an image is shown; events have their own time axis.
        neuron: a neuron's name or class, or any callable that returns a module.
        neuron_options: its arguments; every layer has its own neurons.
        width: factor applied to every channel count.
        residual: add the previous current to each convolution's output if the shapes match; see `VGG`.
            ``vgg11r`` is always residual.

    Example:
        >>> import torch
        >>> vgg("vgg5", channels=1, width=0.25)(torch.rand(2, 1, 28, 28)).shape
        torch.Size([2, 10])
    """
    if isinstance(stages, str) and stages not in STAGES:
        raise InputError(
            f"stages {stages!r} is not known; choose one of {', '.join(STAGES)}, or pass channels"
        )
    plan = STAGES[stages] if isinstance(stages, str) else stages
    if not plan or not all(plan) or timesteps < 1 or not 0 < width < math.inf:
        raise InputError(
            "stages must be channels such as ((64, 64), (128,)), timesteps at least 1 and width "
            f"positive, got {stages!r}, {timesteps}, {width}; correct them"
        )
    scaled = [[max(1, round(n * width)) for n in stage] for stage in plan]
    make = find_neuron(neuron) if isinstance(neuron, str) else neuron
    options = dict(neuron_options or {})
    residual = residual or stages == "vgg11r"
    return VGG(scaled, classes, channels, timesteps, lambda: make(**options), residual)
