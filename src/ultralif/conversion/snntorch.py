"""Convert snnTorch neurons."""

import torch
from torch import Tensor, nn

from ultralif.conversion.neurons import (
    Fire,
    Foreign,
    Replacement,
    SnnTorchNeuron,
    SnnTorchSynaptic,
    Surrogate,
)
from ultralif.errors import InputError
from ultralif.nn import Recurrent

__all__ = ["replace"]

_STATES = {
    "Leaky": ("v",),
    "Lapicque": ("v",),
    "Synaptic": ("i", "v"),
    "RLeaky": ("v",),
    "RSynaptic": ("i", "v"),
}
"""Our names for the states that each snnTorch neuron returns after its spike."""


def replace(module: nn.Module, name: str) -> Replacement | None:
    """Return the replacement for an snnTorch module; None if it is not an snnTorch neuron.

    Args:
        module: a layer.
        name: its name, for messages.
    """
    from snntorch import SpikingNeuron

    if not isinstance(module, SpikingNeuron):
        return None
    kind = type(module).__name__
    if kind not in _STATES or not type(module).__module__.startswith("snntorch."):
        raise InputError(
            f"layer {name!r} is a {kind}, which ul.convert does not support; it converts "
            f"{', '.join(_STATES)}. Write it as a ul.Stepped neuron"
        )
    layer: Foreign = module
    for option in ("inhibition", "state_quant", "surrogate_disable"):
        if getattr(layer, option):
            raise InputError(
                f"layer {name!r}, {kind}, has {option}={getattr(layer, option)!r}, which has no equivalent; "
                f"convert the network with {option}=False"
            )
    if layer.graded_spikes_factor.requires_grad or not bool((layer.graded_spikes_factor == 1).all()):
        raise InputError(
            f"layer {name!r}, {kind}, has graded spikes, which are not binary; multiply by "
            "graded_spikes_factor in the next layer"
        )
    neuron = _neuron(layer, kind)
    made: nn.Module = neuron
    if kind in ("RLeaky", "RSynaptic"):
        made = Recurrent(neuron, layer.recurrent if layer.all_to_all else _OneToOne(layer.V))
    return Replacement(made, states=_STATES[kind], alone=bool(layer.init_hidden and not layer.output))


def _neuron(layer: Foreign, kind: str) -> SnnTorchNeuron | SnnTorchSynaptic:
    fire, reset, delayed = _surrogate(layer.spike_grad), layer.reset_mechanism, True
    if hasattr(layer, "reset_delay") and kind != "RSynaptic":  # RSynaptic ignores reset_delay=False
        delayed = bool(layer.reset_delay)
    given = {"fire": fire, "limit": layer.threshold, "reset": reset, "delayed": delayed}
    if kind == "Lapicque":
        r, c, step = layer.R, layer.C, layer.time_step  # any of them may be an integer
        beta = 1 - step / (r * c)
        factors = torch.stack([each.expand_as(beta).to(beta) for each in (r, 1 / (r * c), step)])
        return SnnTorchNeuron(beta=beta, factors=factors, reset_first=False, **given)
    if kind in ("Synaptic", "RSynaptic"):
        return SnnTorchSynaptic(beta=layer.beta, alpha=layer.alpha, **given)
    return SnnTorchNeuron(beta=layer.beta, factors=None, reset_first=kind == "Leaky", **given)


def _surrogate(spike_grad: Foreign) -> Fire:
    """Return our equivalent of an snnTorch surrogate; unknown ones are kept."""
    kind = getattr(spike_grad, "__qualname__", "").split(".")[0]
    names = getattr(getattr(spike_grad, "__code__", None), "co_freevars", ())
    cells = getattr(spike_grad, "__closure__", None) or ()
    values = dict(zip(names, (cell.cell_contents for cell in cells), strict=False))
    if getattr(spike_grad, "__module__", "") == "snntorch.surrogate":
        if kind == "atan":
            return Surrogate("atan", float(values["alpha"]), float(values["alpha"]))
        if kind == "sigmoid":
            return Surrogate("sigmoid", float(values["slope"]), float(values["slope"]))
        if kind == "fast_sigmoid":
            return Surrogate("superspike", float(values["slope"]))
    fire: Fire = spike_grad
    return fire


class _OneToOne(nn.Module):
    """Feedback from each neuron only to itself."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        if isinstance(weight, nn.Parameter):
            self.weight = weight
        else:
            self.register_buffer("weight", weight)

    def forward(self, spikes: Tensor) -> Tensor:
        """Return spikes times their weights."""
        return torch.mul(spikes, self.weight)
