"""Fast versions of the neurons in `ultralif.functional`: one kernel runs all time steps, forward or backward.

Every function accepts the arguments of its namesake and two more: ``rate=True`` returns the mean over time,
and ``backend="reference"`` runs the definition itself. The definition also runs where there is no kernel: for
the grid neighbourhood, in export, and under the transforms of `torch.func`.
"""

from ultralif.ops.operators import Backend, adalif, dspike, lif, softlif, ultradlif, ultralif

__all__ = ["Backend", "adalif", "dspike", "lif", "softlif", "ultradlif", "ultralif"]
