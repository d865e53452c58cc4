"""Pure functions: tensors in, tensors out. The definition of every neuron."""

from ultralif.functional.baselines import (
    AdaptiveState,
    adalif,
    adalif_step,
    dspike,
    dspike_step,
    lif,
    lif_step,
    softlif,
    softlif_step,
)
from ultralif.functional.scan import Constant, compute_dtype, over_time, rest
from ultralif.functional.surrogate import dspike_curve, sigmoid_surrogate, straight_through
from ultralif.functional.ultra import (
    LeakForm,
    Mode,
    Neighborhood,
    ultradlif,
    ultradlif_step,
    ultralif,
    ultralif_step,
)

__all__ = [
    "AdaptiveState",
    "Constant",
    "LeakForm",
    "Mode",
    "Neighborhood",
    "adalif",
    "adalif_step",
    "compute_dtype",
    "dspike",
    "dspike_curve",
    "dspike_step",
    "lif",
    "lif_step",
    "over_time",
    "rest",
    "sigmoid_surrogate",
    "softlif",
    "softlif_step",
    "straight_through",
    "ultradlif",
    "ultradlif_step",
    "ultralif",
    "ultralif_step",
]
