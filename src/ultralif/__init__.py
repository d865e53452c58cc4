"""UltraLIF: spiking neural networks with exact gradients, by ultradiscretization.

Names are imported on first use, so that the command line can answer without importing torch.
"""

from typing import TYPE_CHECKING

from ultralif.lazy import lazy

__version__ = "0.3.0"

if TYPE_CHECKING:
    from ultralif import analysis as analysis
    from ultralif import conversion as conversion
    from ultralif import data as data
    from ultralif import export as export
    from ultralif import functional as functional
    from ultralif import maxplus as maxplus
    from ultralif import models as models
    from ultralif import nn as nn
    from ultralif import ops as ops
    from ultralif import plot as plot
    from ultralif import training as training
    from ultralif.conversion import convert as convert
    from ultralif.diagnosis import calibrate_init as calibrate_init
    from ultralif.diagnosis import diagnose as diagnose
    from ultralif.loading import load as load
    from ultralif.nn import LIF as LIF
    from ultralif.nn import NEURONS as NEURONS
    from ultralif.nn import PLIF as PLIF
    from ultralif.nn import AdaLIF as AdaLIF
    from ultralif.nn import DelayedLinear as DelayedLinear
    from ultralif.nn import DSpike as DSpike
    from ultralif.nn import DSpikePlus as DSpikePlus
    from ultralif.nn import FullPLIF as FullPLIF
    from ultralif.nn import LeakyIntegrator as LeakyIntegrator
    from ultralif.nn import Network as Network
    from ultralif.nn import Neuron as Neuron
    from ultralif.nn import Recurrent as Recurrent
    from ultralif.nn import SoftLIF as SoftLIF
    from ultralif.nn import Stepped as Stepped
    from ultralif.nn import TimeDistributed as TimeDistributed
    from ultralif.nn import UltraDLIF as UltraDLIF
    from ultralif.nn import UltraDPLIF as UltraDPLIF
    from ultralif.nn import UltraLIF as UltraLIF
    from ultralif.nn import UltraPLIF as UltraPLIF
    from ultralif.nn import mode as mode
    from ultralif.nn import parameter_groups as parameter_groups
    from ultralif.nn import register as register
    from ultralif.nn import set_mode as set_mode
    from ultralif.nn import step as step
    from ultralif.nn.layers import truncated as truncated
    from ultralif.nn.recomputation import recompute as recompute
    from ultralif.training import Result as Result
    from ultralif.training import RunConfig as RunConfig
    from ultralif.training import Store as Store
    from ultralif.training import train as train

_SUBMODULES = (
    "analysis",
    "conversion",
    "data",
    "export",
    "functional",
    "maxplus",
    "models",
    "nn",
    "ops",
    "plot",
    "training",
)
_HOMES = {
    "calibrate_init": "diagnosis",
    "convert": "conversion",
    "diagnose": "diagnosis",
    "load": "loading",
    "AdaLIF": "nn",
    "DSpike": "nn",
    "DSpikePlus": "nn",
    "DelayedLinear": "nn",
    "FullPLIF": "nn",
    "LIF": "nn",
    "LeakyIntegrator": "nn",
    "NEURONS": "nn",
    "Network": "nn",
    "Neuron": "nn",
    "PLIF": "nn",
    "Recurrent": "nn",
    "SoftLIF": "nn",
    "Stepped": "nn",
    "TimeDistributed": "nn",
    "UltraDLIF": "nn",
    "UltraDPLIF": "nn",
    "UltraLIF": "nn",
    "UltraPLIF": "nn",
    "mode": "nn",
    "parameter_groups": "nn",
    "recompute": "nn",
    "register": "nn",
    "set_mode": "nn",
    "step": "nn",
    "truncated": "nn",
    "Result": "training",
    "RunConfig": "training",
    "Store": "training",
    "train": "training",
}

__all__ = ["__version__", *_HOMES, *_SUBMODULES]

__getattr__, __dir__ = lazy(__name__, _HOMES, _SUBMODULES)
