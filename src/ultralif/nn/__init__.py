"""Modules: neurons, networks, and how to switch their mode."""

from ultralif.nn.fused import State, Stepped
from ultralif.nn.layers import TimeDistributed
from ultralif.nn.modes import mode, set_mode
from ultralif.nn.network import NEURONS, Network, Output, find_neuron, register
from ultralif.nn.neuron import Neuron
from ultralif.nn.neurons import (
    LIF,
    PLIF,
    AdaLIF,
    DSpike,
    DSpikePlus,
    FullPLIF,
    SoftLIF,
    UltraDLIF,
    UltraDPLIF,
    UltraLIF,
    UltraPLIF,
)
from ultralif.nn.parameters import LOG, LOGIT
from ultralif.nn.stack import Stack

__all__ = [
    "LIF",
    "LOG",
    "LOGIT",
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
    "Stepped",
    "TimeDistributed",
    "UltraDLIF",
    "UltraDPLIF",
    "UltraLIF",
    "UltraPLIF",
    "find_neuron",
    "mode",
    "register",
    "set_mode",
]
