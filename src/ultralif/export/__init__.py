"""The way to hardware: binary spikes, integers, plain C, NIR, ONNX.

All functions read a network's description, which `describe` makes from any module with our neurons.

Soft to hard: `gap`, `calibrate`, `finetune`. Hard to integers: `quantize`. And out: `to_c`, `to_nir`,
`to_onnx`, `to_torch`; back in: `from_nir`. `for_spikingjelly`, `for_snntorch` and `for_norse` take our
neurons into those libraries, `for_neurobench` a network to that judge.
"""

from ultralif.export.c import Footprint, footprint, to_c
from ultralif.export.guests import for_neurobench, for_norse, for_snntorch, for_spikingjelly
from ultralif.export.harden import Gap, Parting, calibrate, finetune, gap
from ultralif.export.integer import IntegerNetwork, IntegerOutput
from ultralif.export.nir import Drift, to_nir
from ultralif.export.nir_read import from_nir
from ultralif.export.onnx import to_onnx, to_torch
from ultralif.export.quantize import quantize
from ultralif.export.trace import describe

__all__ = [
    "Drift",
    "Footprint",
    "Gap",
    "IntegerNetwork",
    "IntegerOutput",
    "Parting",
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
