"""The readings of the paper: the run fields of each, and the neuron class behind each name."""

from typing import Any

from research.readings.neurons import register_neurons
from ultralif.training import RunConfig

__all__ = ["READINGS", "reading_config"]

_PAPER = {"detach_reset": False}
"""The text differentiates every reset; the library detaches the resets of binary spikes."""
_WRITTEN: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (f"Unscaled{name}", _PAPER) for name in ("LIF", "PLIF", "AdaLIF", "FullPLIF")},
    "DSpike": ("UnclippedDSpike", _PAPER),
    "DSpikePlus": ("UnclippedDSpikePlus", _PAPER),
    **{
        name: (name, {"eps": 1.0}) for name in ("SoftLIF", "UltraLIF", "UltraPLIF", "UltraDLIF", "UltraDPLIF")
    },
}
_FROM_0_9 = {"leak": 0.7109495026250039}  # sigmoid(0.9): in that code, 0.9 is the initial parameter
_RELEASED: dict[str, tuple[str, dict[str, Any]]] = {
    "LIF": ("UnscaledLIF", {}),
    "AdaLIF": ("UnscaledAdaLIF", {}),
    "PLIF": ("UnscaledPLIF", _FROM_0_9),
    "FullPLIF": ("UnscaledFullPLIF", _FROM_0_9 | {"threshold": 0.6224593312018546}),  # sigmoid(0.5)
    "DSpike": ("ReleasedDSpike", {}),
    "DSpikePlus": ("ReleasedDSpikePlus", {}),
    "SoftLIF": ("ReleasedSoftLIF", {}),
    "UltraLIF": ("ReleasedUltraLIF", {}),
    "UltraPLIF": ("ReleasedUltraPLIF", {}),
    "UltraDLIF": ("ReleasedUltraDLIF", {}),
    "UltraDPLIF": ("ReleasedUltraDPLIF", {}),
}
_ABLATION = _RELEASED | {
    "UltraLIF": ("ReleasedUltraLIF", {"threshold": 1.0}),
    "UltraPLIF": ("ReleasedUltraPLIF", {"threshold": 1.0}),
    "UltraDLIF": ("ClampedUltraDLIF", {"threshold": 1.0}),
    "UltraDPLIF": ("ClampedUltraDPLIF", {"threshold": 1.0}),
}
READINGS: dict[str, tuple[dict[str, Any], dict[str, tuple[str, dict[str, Any]]]]] = {
    "written": ({}, _WRITTEN),
    "released": ({"mode": "soft", "encoding": "rate-clipped", "track_test": True}, _RELEASED),
    "ablation": (
        {
            "mode": "soft",
            "encoding": "constant-normalized",
            "readout": "spiking",
            "schedule": "constant",
            "track_test": True,
        },
        _ABLATION,
    ),
}
"""The text, the author's code and its temperature study: run fields, and each neuron with its options."""


def reading_config(reading: str, neuron: str, **fields: Any) -> RunConfig:
    """Return the config for training a neuron in one reading of the paper.

    Args:
        reading: ``written``, ``released`` or ``ablation``.
        neuron: the neuron's name in the paper, such as ``UltraDLIF``.
        fields: other config fields, such as ``dataset``, and neuron options.
    """
    register_neurons()
    recipe, neurons = READINGS[reading]
    name, options = neurons[neuron]
    if fields.get("learn_slope"):  # needs a surrogate gradient that is multiplied by the slope
        name, options = neuron, options | {"surrogate": "sigmoid"}
    detached = {} if reading == "written" else _PAPER
    return RunConfig(neuron=name, neuron_options=detached | options, **{**recipe, **fields})
