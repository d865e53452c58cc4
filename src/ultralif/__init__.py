"""UltraLIF: spiking neural networks with exact gradients, by ultradiscretization.

Names are imported when they are first used, so that the command line can answer without torch.
"""

from typing import TYPE_CHECKING

from ultralif.lazy import lazy

__version__ = "0.2.0"

if TYPE_CHECKING:
    from ultralif import analysis as analysis
    from ultralif import data as data
    from ultralif import export as export
    from ultralif import functional as functional
    from ultralif import maxplus as maxplus
    from ultralif import models as models
    from ultralif import nn as nn
    from ultralif import ops as ops
    from ultralif import plot as plot
    from ultralif import training as training
    from ultralif.diagnosis import calibrate_init as calibrate_init
    from ultralif.diagnosis import diagnose as diagnose
    from ultralif.loading import load as load
    from ultralif.nn import *
    from ultralif.training import *

_SUBMODULES = (
    "analysis",
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
_LEAVING = {
    "LOG": "nn",
    "LOGIT": "nn",
    "estimate": "training",
    "grid": "training",
    "plan": "training",
    "run_local": "training",
    "train_stack": "training",
}

__getattr__, __dir__ = lazy(
    __name__,
    {"calibrate_init": "diagnosis", "diagnose": "diagnosis", "load": "loading"},
    _SUBMODULES,
    stars=("training", "nn"),
    leaving=_LEAVING,
)
