"""Take a trained network to hardware: binary spikes, integers, plain C, NIR, ONNX.

All functions work from a network's description, which `describe` builds from any module with our neurons.

From soft to binary spikes: `gap`, `calibrate`, `finetune`. From floats to integers: `quantize`. Write with
`to_c`, `to_nir`, `to_onnx` and `to_torch`; read with `from_nir`. `for_spikingjelly`, `for_snntorch` and
`for_norse` adapt our neurons to those libraries, `for_neurobench` adapts a network to that benchmark.

NIR and ONNX are imported when they are first used.
"""

from typing import TYPE_CHECKING

from ultralif.export.adapters import for_neurobench, for_norse, for_snntorch, for_spikingjelly
from ultralif.export.c import Footprint, footprint, to_c
from ultralif.export.harden import FirstDifference, Gap, calibrate, finetune, gap
from ultralif.export.integer import IntegerNetwork, IntegerOutput
from ultralif.export.quantize import quantize
from ultralif.export.trace import describe
from ultralif.lazy import lazy

if TYPE_CHECKING:
    from ultralif.export.nir import Drift, to_nir
    from ultralif.export.nir_read import from_nir
    from ultralif.export.onnx import to_onnx, to_torch

__all__ = [
    "Drift",
    "FirstDifference",
    "Footprint",
    "Gap",
    "IntegerNetwork",
    "IntegerOutput",
    "calibrate",
    "describe",
    "finetune",
    "footprint",
    "for_neurobench",
    "for_norse",
    "for_snntorch",
    "for_spikingjelly",
    "from_nir",
    "gap",
    "quantize",
    "to_c",
    "to_nir",
    "to_onnx",
    "to_torch",
]

__getattr__, _ = lazy(
    __name__, {"Drift": "nir", "to_nir": "nir", "from_nir": "nir_read", "to_onnx": "onnx", "to_torch": "onnx"}
)


def __dir__() -> list[str]:
    return __all__
