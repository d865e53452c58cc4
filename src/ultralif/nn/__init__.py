"""Modules: neurons, networks, and functions that switch their mode."""

from ultralif.nn.baselines import LIF, PLIF, AdaLIF, DSpike, DSpikePlus, FullPLIF
from ultralif.nn.groups import parameter_groups
from ultralif.nn.integrator import LeakyIntegrator
from ultralif.nn.layers import DelayedLinear, Recurrent, RecurrentState, TimeDistributed, step, truncated
from ultralif.nn.modes import mode, set_mode
from ultralif.nn.network import NEURONS, Network, Output, find_neuron, register
from ultralif.nn.neuron import Neuron
from ultralif.nn.recomputation import recompute
from ultralif.nn.state import AdaptiveSynapticState, State, SynapticState
from ultralif.nn.stepped import Stepped
from ultralif.nn.ultra import SoftLIF, UltraDLIF, UltraDPLIF, UltraLIF, UltraPLIF
from ultralif.ops.constants import LOG, LOGIT, SOFTPLUS

__all__ = [
    "LIF",
    "LOG",
    "LOGIT",
    "NEURONS",
    "PLIF",
    "SOFTPLUS",
    "AdaLIF",
    "AdaptiveSynapticState",
    "DSpike",
    "DSpikePlus",
    "DelayedLinear",
    "FullPLIF",
    "LeakyIntegrator",
    "Network",
    "Neuron",
    "Output",
    "Recurrent",
    "RecurrentState",
    "SoftLIF",
    "State",
    "Stepped",
    "SynapticState",
    "TimeDistributed",
    "UltraDLIF",
    "UltraDPLIF",
    "UltraLIF",
    "UltraPLIF",
    "find_neuron",
    "mode",
    "parameter_groups",
    "recompute",
    "register",
    "set_mode",
    "step",
    "truncated",
]
