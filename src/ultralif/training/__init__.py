"""Training: one network or a thousand, resumable, with every result in a store.

Names are imported on first use, so reading configs and listing runs does not require torch.
"""

from typing import TYPE_CHECKING

from ultralif.lazy import lazy

if TYPE_CHECKING:
    from ultralif.training.api import train as train
    from ultralif.training.config import PRESETS as PRESETS
    from ultralif.training.config import RunConfig as RunConfig
    from ultralif.training.loop import run_local as run_local
    from ultralif.training.loop import train_stack as train_stack
    from ultralif.training.networks import build_network as build_network
    from ultralif.training.progress import Interrupted as Interrupted
    from ultralif.training.progress import Progress as Progress
    from ultralif.training.progress import RunOptions as RunOptions
    from ultralif.training.result import Result as Result
    from ultralif.training.result import unpack_hits as unpack_hits
    from ultralif.training.store import Store as Store
    from ultralif.training.sweep import estimate as estimate
    from ultralif.training.sweep import grid as grid
    from ultralif.training.sweep import plan as plan

_HOMES = {
    "Interrupted": "progress",
    "PRESETS": "config",
    "Progress": "progress",
    "Result": "result",
    "RunConfig": "config",
    "RunOptions": "progress",
    "Store": "store",
    "build_network": "networks",
    "estimate": "sweep",
    "grid": "sweep",
    "plan": "sweep",
    "run_local": "loop",
    "train": "api",
    "train_stack": "loop",
    "unpack_hits": "result",
}

__all__ = list(_HOMES)

__getattr__, __dir__ = lazy(__name__, _HOMES)
