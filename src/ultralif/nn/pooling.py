"""Max pooling for CPU inference, computed as vectorised maxima of slices."""

import torch
from torch import Tensor, nn

from ultralif.ops.autograd import is_plain

__all__ = ["pools_by_slices", "window_maxima"]


def pools_by_slices(module: nn.MaxPool2d, x: Tensor) -> bool:
    """Return whether `window_maxima` can replace a call: windows do not overlap, no gradient is needed."""
    if type(module) is not nn.MaxPool2d or x.device.type != "cpu" or x.dim() != 4 or not is_plain(x):
        return False
    window = _pair(module.kernel_size)
    separate = window == _pair(module.stride) != (1, 1) and _pair(module.padding) == (0, 0)
    usual = _pair(module.dilation) == (1, 1) and not module.ceil_mode and not module.return_indices
    fits = 0 < window[0] <= x.shape[2] and 0 < window[1] <= x.shape[3]
    differentiated = torch.is_grad_enabled() and x.requires_grad
    return separate and usual and fits and x.is_floating_point() and not differentiated


def window_maxima(x: Tensor, window: int | tuple[int, int]) -> Tensor:
    """Return the maximum of every window ``[height, width]`` of ``[B, C, H, W]``.

    PyTorch compares value by value and records positions, which is much slower for spikes.
    """
    for axis, size in zip((2, 3), _pair(window), strict=True):
        steps = x.unfold(axis, size, size).unbind(-1)
        x = steps[0]
        for step in steps[1:]:
            x = torch.maximum(x, step)
    return x


def _pair(value: int | tuple[int, ...]) -> tuple[int, ...]:
    values = tuple(value) if isinstance(value, tuple | list) else (value,)
    return values if len(values) == 2 else values * 2
