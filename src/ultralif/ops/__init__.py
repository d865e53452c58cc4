"""The neurons of `ultralif.functional`, fast: one kernel over all time steps, forward and backward.

Every function takes what its namesake takes and two arguments more: ``rate=True`` returns the mean over
time, and ``backend="reference"`` runs the definition itself. What no kernel covers runs by its definition
too: a delayed reset, the grid neighbourhood, export, and the transforms of `torch.func`.
"""

from ultralif.ops.fused import Backend
from ultralif.ops.operators import adalif, dspike, lif, softlif, ultradlif, ultralif

__all__ = ["Backend", "adalif", "dspike", "lif", "softlif", "ultradlif", "ultralif"]
