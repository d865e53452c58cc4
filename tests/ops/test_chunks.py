"""Time in chunks gives what one step after the other gives: spikes, last membrane and every gradient."""

import math

import pytest
import torch

from ops.op_cases import CHUNKED, CHUNKED_SETTINGS, check
from ultralif import ops
from ultralif.ops.cpu import chunks as cut
from ultralif.ops.rule import Membrane, Reset, Rule


@pytest.fixture
def chunks(monkeypatch):
    """Cut whatever four chunks divide, and count how often."""
    found = []
    kept = cut.run
    monkeypatch.setattr(cut, "chunks", lambda current, rule: 4 if len(current) % 4 == 0 else 1)
    monkeypatch.setattr(cut, "run", lambda *given: (found.append(1), kept(*given))[1])
    return found


@pytest.mark.parametrize("case", CHUNKED, ids=str)
@pytest.mark.parametrize("setting", CHUNKED_SETTINGS)
def test_it_is_the_definition(case, setting, chunks):
    check(case, setting, torch.float64)
    check(case, setting, torch.float32)
    assert chunks


def test_long_and_thin_sequences_are_cut():
    """And only those: others keep all lanes busy."""
    rule = Rule(Membrane.LSE, True, Reset.NONE)
    assert cut.chunks(torch.zeros(8192, 1, 4), rule) > 1
    assert cut.chunks(torch.zeros(8192, 64, 64), rule) == 1
    assert cut.chunks(torch.zeros(30, 1, 4), rule) == 1
    assert cut.chunks(torch.zeros(4, 8192, 1).transpose(0, 1), rule) == 1
    assert cut.chunks(torch.zeros(8192, 1, 4), rule._replace(reset=Reset.ZERO)) == 1


@pytest.mark.parametrize("lanes", [1, 100, 1024, 8192])
def test_a_tile_has_every_step_and_fills_a_gpu(lanes):
    """With few steps, chunks of the least length; with many, as many chunks as there are threads."""
    chunked = pytest.importorskip("ultralif.ops.triton.chunked")
    rule = Rule(Membrane.LSE, True, Reset.SATURATE)
    assert chunked.find_tile(rule, lanes, chunked.SHORTEST - 1) is None
    assert chunked.find_tile(rule._replace(reset=Reset.ZERO), lanes, 1 << 16) is None
    for time in (chunked.SHORTEST, 5003, 1 << 16):
        neurons, count, length = chunked.find_tile(rule, lanes, time)
        assert time <= count * length < time + count * chunked.STEPS and length % chunked.STEPS == 0
        assert neurons * count == chunked.THREADS or length == chunked.STEPS
    assert chunked.find_tile(rule, lanes, 1 << 16, [100]).neurons <= 4


@pytest.mark.parametrize("v_sat", [math.inf, 1.0])
def test_streaming_gives_the_same_numbers(v_sat):
    """Step by step within 1e-5 in float32; binary spikes differ only that near to the threshold."""
    current = torch.randn(8192, 1, 4, generator=torch.Generator().manual_seed(0))
    leak = torch.exp(-0.1 / torch.tensor([3.0, 30.0, 100.0, 300.0]))
    reset = {"reset": "none"} if v_sat == math.inf else {"reset": "saturate", "v_sat": v_sat}
    constants = {"eps": 0.1, "leak": leak, "threshold": 0.5, **reset}
    soft, last = ops.ultralif(current, **constants)
    hard, _ = ops.ultralif(current, mode="hard", **constants)
    state, spikes, levels = None, [], []
    for x in current.unbind():
        spike, state = ops.ultralif(x.unsqueeze(0), state, **constants)
        spikes.append(spike[0])
        levels.append(0.5 + 0.1 * torch.logit(spike[0].double()))
    torch.testing.assert_close(soft, torch.stack(spikes), rtol=0, atol=1e-5)
    torch.testing.assert_close(last, state, rtol=0, atol=1e-5)
    levels = torch.stack(levels)
    differ = hard != (levels > 0.5)
    assert (levels[differ] - 0.5).abs().max() < 1e-5 if differ.any() else True
