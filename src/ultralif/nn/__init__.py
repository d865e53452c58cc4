"""Modules: neurons, networks, and how to switch their mode."""

from ultralif.nn.layers import TimeDistributed
from ultralif.nn.modes import mode, set_mode
from ultralif.nn.network import NEURONS, Network, Output, find_neuron
from ultralif.nn.neuron import Neuron
from ultralif.nn.neurons import (
    LIF,
    PLIF,
    AdaLIF,
    DSpike,
    DSpikePlus,
    FullPLIF,
    SoftLIF,
    State,
    UltraDLIF,
    UltraDPLIF,
    UltraLIF,
    UltraPLIF,
)
from ultralif.nn.stack import Stack

__all__ = [
    "LIF",
    "NEURONS",
    "PLIF",
    "AdaLIF",
    "DSpike",
    "DSpikePlus",
    "FullPLIF",
    "Network",
    "Neuron",
    "Output",
    "SoftLIF",
    "Stack",
    "State",
    "TimeDistributed",
    "UltraDLIF",
    "UltraDPLIF",
    "UltraLIF",
    "UltraPLIF",
    "find_neuron",
    "mode",
    "set_mode",
]
