"""The Triton kernels on the CPU, in Triton's interpreter; `test_interpreter` runs this in a process of its own.

The interpreter is chosen when triton is first imported, so no other test may have done that before.
"""

import os
from dataclasses import replace

import pytest
import torch

from ops.op_cases import CASES, PAIRS, SETTINGS, Setting, check

assert os.environ.get("TRITON_INTERPRET") == "1", "set TRITON_INTERPRET=1"

from ultralif.ops import gpu, library

pytestmark = pytest.mark.usefixtures("triton", "poisoned")

RINGS = [case for case in CASES if case.name == "ultradlif"]
FEW = [
    CASES[0],
    RINGS[0],
    *(case for case in CASES if case.fixed in ({"adapt_late": True}, {"mode": "soft"})),
]


@pytest.fixture
def triton(monkeypatch):
    monkeypatch.setattr(library, "_implementation", lambda current: gpu)


@pytest.mark.parametrize(
    ("case", "setting"), [pair for pair in PAIRS if pair.values[1].time < 10 or pair.values[0] in FEW]
)
def test_float32(case, setting):
    """Short sequences for all, the others for one neuron of each family: an interpreter is slow."""
    if setting.time < 1000 or case in FEW[:2]:
        check(case, setting, torch.float32)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_half_precision(case, dtype):
    """The interpreter, unlike a GPU, cuts bfloat16 off in place of rounding it."""
    check(case, replace(SETTINGS["one per neuron"], time=3), dtype, cut=dtype == torch.bfloat16)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_several_rounds(case, monkeypatch):
    """A layer larger than the device takes at once."""
    monkeypatch.setattr(gpu, "LANES", 16)
    check(case, replace(SETTINGS["stack"], batch=40), torch.float32)


@pytest.mark.parametrize("case", RINGS, ids=str)
@pytest.mark.parametrize("lanes", [64, 1 << 18])
def test_a_ring_in_parts(case, lanes, monkeypatch):
    """Rings that no program holds: parts with a halo, and several launches over time."""
    monkeypatch.setattr(gpu, "WIDEST", 32)
    monkeypatch.setattr(gpu, "SPAN", 3)
    monkeypatch.setattr(gpu, "LANES", lanes)
    check(case, Setting(7, 2, (51,), (51,), start=True), torch.float32)
    check(case, Setting(6, 2, (3, 40), (3, 1), rate=True), torch.float32)
