"""Benchmark: time and memory of a layer, compared with the plain loop, other libraries and a copy."""

from ultralif.bench.plan import Measurement, describe, measure, refuse_unless_right
from ultralif.bench.subjects import OURS, Layer

__all__ = ["OURS", "Layer", "Measurement", "describe", "measure", "refuse_unless_right"]
