"""Training: one network or a thousand, resumable, with every result in a store.

Names are imported when they are first used: reading configs and listing runs need no torch.
"""

from typing import TYPE_CHECKING

from ultralif.lazy import lazy

if TYPE_CHECKING:
    from ultralif.training.api import train as train
    from ultralif.training.build import build_network as build_network
    from ultralif.training.config import RunConfig as RunConfig
    from ultralif.training.executors import run_local as run_local
    from ultralif.training.forecast import estimate as estimate
    from ultralif.training.hits import unpack_hits as unpack_hits
    from ultralif.training.loop import train_stack as train_stack
    from ultralif.training.options import Interrupted as Interrupted
    from ultralif.training.options import Progress as Progress
    from ultralif.training.options import RunOptions as RunOptions
    from ultralif.training.presets import PRESETS as PRESETS
    from ultralif.training.result import Result as Result
    from ultralif.training.store import Store as Store
    from ultralif.training.sweep import grid as grid
    from ultralif.training.sweep import plan as plan

_HOMES = {
    "Interrupted": "options",
    "PRESETS": "presets",
    "Progress": "options",
    "Result": "result",
    "RunConfig": "config",
    "RunOptions": "options",
    "Store": "store",
    "build_network": "build",
    "estimate": "forecast",
    "grid": "sweep",
    "plan": "sweep",
    "run_local": "executors",
    "train": "api",
    "train_stack": "loop",
    "unpack_hits": "hits",
}

__all__ = list(_HOMES)

__getattr__, __dir__ = lazy(__name__, _HOMES)
