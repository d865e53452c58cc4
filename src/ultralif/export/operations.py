"""Express a module as an operation of a graph, or say why it is not possible."""

from dataclasses import dataclass
from typing import Any

from torch import nn

from ultralif.export.graph import Geometry, Norm, Op, Pool, PoolKind, Spikes, Synapses
from ultralif.nn import DelayedLinear, Neuron, Recurrent

__all__ = ["Unknown", "operation"]


@dataclass(frozen=True)
class Unknown:
    """A module that a graph cannot express."""

    reason: str


def operation(module: nn.Module, shape: tuple[int, ...]) -> Op | Unknown:
    """Return the operation of a module."""
    if isinstance(module, nn.Linear):
        return Synapses(module, None)
    if isinstance(module, nn.Conv2d):
        return _convolution(module)
    if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d) and module.running_mean is not None:
        return Norm(module)
    if isinstance(module, Neuron):
        return Unknown("has batch_first=True") if module.batch_first else Spikes(module)
    if isinstance(module, nn.AvgPool2d | nn.MaxPool2d):
        return _pool(module)
    if isinstance(module, nn.AdaptiveAvgPool2d | nn.AdaptiveMaxPool2d):
        wanted = _pair(module.output_size)
        sizes = [(have, want or have) for have, want in zip(shape[1:], wanted, strict=True)]
        if any(have % want for have, want in sizes):
            return Unknown(f"pools {shape[1:]} to {wanted}, which no one window divides")
        rows, columns = (have // want for have, want in sizes)
        kind: PoolKind = "mean" if isinstance(module, nn.AdaptiveAvgPool2d) else "max"
        return Pool(kind, (rows, columns), (rows, columns))
    if isinstance(module, Recurrent | DelayedLinear):
        return Unknown(f"is {type(module).__name__}, whose state no export of this library can express")
    return Unknown(f"is {type(module).__name__}")


def _convolution(module: nn.Conv2d) -> Op | Unknown:
    if module.padding_mode != "zeros":
        return Unknown(f"is a Conv2d with padding_mode={module.padding_mode!r}")
    dilation, stride, kernel = (_pair(part) for part in (module.dilation, module.stride, module.kernel_size))
    padding = module.padding
    if padding == "same":
        reach = [step * (size - 1) for step, size in zip(dilation, kernel, strict=True)]
        if any(part % 2 for part in reach):
            return Unknown("is a Conv2d with padding='same' and an even kernel")
        padding = (reach[0] // 2, reach[1] // 2)
    padding = (0, 0) if isinstance(padding, str) else _pair(padding)
    return Synapses(module, Geometry(stride, padding, dilation, module.groups))


def _pool(module: nn.AvgPool2d | nn.MaxPool2d) -> Op | Unknown:
    size, stride = _pair(module.kernel_size), _pair(module.stride)
    other = getattr(module, "divisor_override", None), getattr(module, "dilation", 1)
    if _pair(module.padding) != (0, 0) or module.ceil_mode or other != (None, 1):
        return Unknown(f"is {type(module).__name__} with padding, dilation, ceil_mode or divisor_override")
    return Pool("mean" if isinstance(module, nn.AvgPool2d) else "max", size, stride)


def _pair(value: Any) -> tuple[int, int]:
    return (value[0], value[1]) if isinstance(value, tuple | list) else (value, value)
