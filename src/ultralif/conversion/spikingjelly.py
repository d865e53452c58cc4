"""Convert SpikingJelly neurons and layers."""

from torch import nn

from ultralif.conversion.neurons import (
    Fire,
    Foreign,
    Replacement,
    SpikingJellyNeuron,
    Surrogate,
    TimeDropout,
    plain,
)
from ultralif.errors import InputError
from ultralif.nn import TimeDistributed

__all__ = ["replace"]

_NEURONS = ("IFNode", "LIFNode", "ParametricLIFNode")


def replace(module: nn.Module, name: str) -> Replacement | None:
    """Return the replacement for a SpikingJelly module; None to convert its children, or for other modules.

    Args:
        module: a layer.
        name: its name, for messages.
    """
    from spikingjelly.activation_based import base, layer

    kind = type(module)
    if not kind.__module__.startswith("spikingjelly."):
        return None
    given: Foreign = module
    sequence = getattr(module, "step_mode", "s") == "m"
    if kind.__name__ in _NEURONS and kind.__module__.startswith("spikingjelly.activation_based.neuron"):
        return Replacement(_neuron(given), alone=True, sequence=sequence)
    if isinstance(module, layer.SeqToANNContainer):
        return Replacement(TimeDistributed(nn.Sequential(*map(_plain, module))), alone=True, sequence=True)
    if kind is layer.Dropout or kind is layer.Dropout2d:
        return Replacement(TimeDropout(given.p, kind is layer.Dropout2d), alone=True, sequence=sequence)
    if kind in (layer.Linear, layer.Flatten):
        made = _plain(module)
        return Replacement(
            made if kind is layer.Linear else TimeDistributed(made), alone=True, sequence=sequence
        )
    wrapped = kind.__module__ in (f"{layer.__name__}.stateless_wrapper", f"{layer.__name__}.bn")
    if wrapped and _is_plain(kind):
        return Replacement(TimeDistributed(_plain(module)), alone=True, sequence=sequence)
    if kind.__name__.startswith("ThresholdDependentBatchNorm"):  # its weights include its scale
        norm = getattr(nn, kind.__name__.removeprefix("ThresholdDependent"))
        return Replacement(TimeDistributed(plain(module, norm)), alone=True, sequence=True)
    if wrapped or isinstance(module, base.MemoryModule) or ".activation_based.neuron." in kind.__module__:
        raise InputError(
            f"layer {name!r} is a {kind.__name__}, which ul.convert does not support; it converts "
            f"{', '.join(_NEURONS)} and plain layers. Write a neuron as a ul.Stepped neuron"
        )
    return None


def _is_plain(kind: type) -> bool:
    return kind.__bases__[0].__module__.startswith("torch.nn.")


def _plain(module: nn.Module) -> nn.Module:
    """Return the PyTorch layer that a SpikingJelly layer derives from."""
    kind = type(module)
    if kind.__module__.startswith("spikingjelly.") and _is_plain(kind):
        return plain(module, kind.__bases__[0])
    return module


def _neuron(node: Foreign) -> SpikingJellyNeuron:
    return SpikingJellyNeuron(
        fire=_surrogate(node.surrogate_function),
        start=0.0 if node.v_reset is None else node.v_reset,
        limit=node.v_threshold,
        v_reset=node.v_reset,
        detach=node.detach_reset,
        tau=getattr(node, "tau", None),
        w=getattr(node, "w", None),
        decay_input=getattr(node, "decay_input", True),
    )


def _surrogate(function: Foreign) -> Fire:
    """Return our equivalent of a SpikingJelly surrogate; unknown ones are kept."""
    curves = {"Sigmoid": "sigmoid", "ATan": "atan", "PiecewiseQuadratic": "triangle"}
    kind = type(function).__name__
    spiking = getattr(function, "spiking", True)
    if kind in curves and spiking:
        alpha = float(function.alpha)
        return Surrogate(curves[kind], alpha, alpha, at_threshold=True)  # type: ignore[arg-type]
    if kind == "SuperSpike" and spiking:
        return Surrogate("superspike", 1.0, float(function.alpha), at_threshold=True)
    fire: Fire = function
    return fire
