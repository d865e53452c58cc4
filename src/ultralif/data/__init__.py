"""Find or download datasets, verify them, read them with our own readers, and batch them on the device.

Names are imported on first use, so that the command line can list datasets without importing torch.
"""

from typing import TYPE_CHECKING

from ultralif.lazy import lazy

if TYPE_CHECKING:
    from ultralif.data import encoders as encoders
    from ultralif.data import events as events
    from ultralif.data import loader as loader
    from ultralif.data.dataset import Dataset as Dataset
    from ultralif.data.dataset import load as load
    from ultralif.data.events import to_frames as to_frames
    from ultralif.data.files import available as available
    from ultralif.data.loader import Loader as Loader
    from ultralif.data.split import Split as Split
    from ultralif.data.stream import pad_samples as pad_samples
    from ultralif.data.table import DATASETS as DATASETS
    from ultralif.data.user_data import register_data as register_data

__all__ = [
    "DATASETS",
    "Dataset",
    "Loader",
    "Split",
    "available",
    "encoders",
    "events",
    "load",
    "loader",
    "pad_samples",
    "register_data",
    "to_frames",
]

_HOMES = {
    "DATASETS": "table",
    "Dataset": "dataset",
    "Loader": "loader",
    "Split": "split",
    "available": "files",
    "load": "dataset",
    "pad_samples": "stream",
    "register_data": "user_data",
    "to_frames": "events",
}

__getattr__, __dir__ = lazy(__name__, _HOMES, ("encoders", "events", "loader"))
