"""Define every neuron as pure functions of tensors."""

from ultralif.functional.baselines import (
    AdaptiveState,
    adalif,
    adalif_step,
    dspike,
    dspike_step,
    leaky_integrator,
    leaky_integrator_step,
    lif,
    lif_step,
    softlif,
    softlif_step,
)
from ultralif.functional.reset import Reset, fire, saturate
from ultralif.functional.scan import Constant, compute_dtype, over_time, rest
from ultralif.functional.spike import (
    Mode,
    Surrogate,
    SurrogateName,
    dspike_curve,
    straight_through,
    surrogate_spike,
)
from ultralif.functional.ultra import log_decay, ultradlif, ultradlif_step, ultralif, ultralif_step

__all__ = [
    "AdaptiveState",
    "Constant",
    "Mode",
    "Reset",
    "Surrogate",
    "SurrogateName",
    "adalif",
    "adalif_step",
    "compute_dtype",
    "dspike",
    "dspike_curve",
    "dspike_step",
    "fire",
    "leaky_integrator",
    "leaky_integrator_step",
    "lif",
    "lif_step",
    "log_decay",
    "over_time",
    "rest",
    "saturate",
    "softlif",
    "softlif_step",
    "straight_through",
    "surrogate_spike",
    "ultradlif",
    "ultradlif_step",
    "ultralif",
    "ultralif_step",
]
