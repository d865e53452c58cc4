"""UltraLIF: spiking neural networks with exact gradients, by ultradiscretization.

Names are imported when they are first used, so that the command line can answer without torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

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
_HOMES = ("ultralif.nn", "ultralif.training")
"""Modules whose public names are also names of the package."""


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return import_module(f"ultralif.{name}")
    if not name.startswith("_"):
        for home in map(import_module, _HOMES):
            if name in home.__all__:
                return getattr(home, name)
    raise AttributeError(f"module 'ultralif' has no attribute {name!r}")


def __dir__() -> list[str]:
    names = {name for home in map(import_module, _HOMES) for name in home.__all__}
    return sorted(names.union(_SUBMODULES))
