"""The Triton kernels on the CPU, in Triton's interpreter.

The interpreter is chosen when triton is first imported, so `test_interpreter` runs this in a process of its
own.
"""

import os
from dataclasses import replace

import pytest
import torch
from triton.runtime.interpreter import InterpretedFunction

from ops.op_cases import (
    CASES,
    CHUNKED,
    CHUNKED_SETTINGS,
    KINDS,
    OPTIONS,
    SETTINGS,
    Setting,
    check,
    check_decoder,
    check_learned,
    check_lost_spikes,
    check_minus_infinity,
    check_nan,
    check_spikes_tell_all,
    pairs,
)
from ops.stack_cases import check_adam, check_groups, check_readout, check_step, check_sum
from ultralif import functional, ops
from ultralif.ops import autograd
from ultralif.ops.rule import Constants, Membrane, Reset, Rule
from ultralif.ops.triton import chunked, launch, plan, ring_layout
from ultralif.ops.triton.encode import encode_images

assert os.environ.get("TRITON_INTERPRET") == "1", "set TRITON_INTERPRET=1"

pytestmark = pytest.mark.usefixtures("triton", "poisoned")

RINGS = [case for case in CASES if case.name == "ultradlif"]


@pytest.fixture
def triton(monkeypatch):
    monkeypatch.setattr(autograd, "on_gpu", lambda current: True)
    monkeypatch.setattr(autograd, "has_kernel", lambda device, dtype, rule: True)
    plan.forget()


@pytest.mark.parametrize(
    ("case", "setting"),
    [pair for pair in pairs("T=2 from a state", "stack") if pair.values[1].time <= 100],
)
def test_float32(case, setting):
    """Some short sequences for all, the others for one case of each formula: an interpreter is slow."""
    check(case, setting, torch.float32)


@pytest.mark.parametrize("case", OPTIONS, ids=str)
def test_options(case):
    check(case, Setting(7, 3, (33,)), torch.float32)
    check(case, Setting(5, 2, (2, 32), (2, 1), start=True), torch.float32)


@pytest.mark.parametrize("case", CHUNKED, ids=str)
def test_chunks(case, monkeypatch):
    """Full chunks, a short last one and empty ones; one neuron in a program and several."""
    for name, number in {"SHORTEST": 9, "THREADS": 16, "PROGRAMS": 2, "WIDEST": 8}.items():
        monkeypatch.setattr(chunked, name, number)
    thin = Setting(20, 1, (1,), start=True)
    ragged = Setting(41, 1, (8,), (8,), start=True)
    for setting in (thin, ragged, CHUNKED_SETTINGS[1]):
        check(case, setting, torch.float32)
    check_nan(case, 20)


def test_chunks_are_found_again_where_nothing_was_kept(monkeypatch):
    """As for the registered operators, whose outputs are only those of the definition."""
    monkeypatch.setattr(chunked, "SHORTEST", 9)
    current, weight = torch.randn(2, 20, 1, 3)
    constants = Constants(0.5, torch.tensor([0.5, 0.9, 0.99]), 0.5, 1.0)
    rule = Rule(Membrane.LSE, True, Reset.SATURATE)
    learned = (False, True, False, False)
    made = plan.find_plan(current, None, constants, rule)
    *_, starts = made.forward(current, None, constants)
    assert starts is not None
    found = [
        made.backward(weight, None, current, None, constants, learned, (None, kept))
        for kept in (starts, None)
    ]
    assert torch.equal(found[0][0], found[1][0]) and torch.equal(found[0][2][1], found[1][2][1])


@pytest.fixture
def second_gpu(monkeypatch):
    """Count the launches, which must all be made while the device of the tensors is the current one."""
    is_current, launches = False, []

    class Device:
        def __init__(self, device):
            pass

        def __enter__(self):
            nonlocal is_current
            is_current = True

        def __exit__(self, *error):
            nonlocal is_current
            is_current = False

    launched = InterpretedFunction.__getitem__

    def launching(kernel, grid):
        launches.append((kernel.__name__, is_current))
        return launched(kernel, grid)

    monkeypatch.setattr(InterpretedFunction, "__getitem__", launching)
    monkeypatch.setattr(launch, "is_elsewhere", lambda device: not is_current)
    monkeypatch.setattr(torch.cuda, "device", Device)
    return launches


def test_kernels_are_launched_on_the_device_of_their_tensors(second_gpu):
    for case in (CASES[0], RINGS[0]):
        check(case, Setting(3, 2, (33,), start=True), torch.float32)
    check_groups(3)
    check_step()
    check_sum()
    test_images_become_clipped_spikes_or_currents()
    assert len({kernel for kernel, _ in second_gpu}) >= 9
    assert not [kernel for kernel, is_current in second_gpu if not is_current]


def test_spikes_tell_the_membrane():
    check_spikes_tell_all()


@pytest.mark.filterwarnings("ignore:overflow encountered")
def test_spikes_of_a_ring_that_are_lost():
    soft = [case for case in RINGS if case.soft]
    for case in (soft[0], soft[-1]):
        check_lost_spikes(case, Setting(7, 2, (2, 16), (2, 1)))


def test_learned_constants_are_decoded_in_the_kernel():
    check_learned()


@pytest.mark.filterwarnings("ignore:invalid value encountered in log")
def test_every_form_of_a_constant_is_decoded_over_its_whole_range():
    check_decoder(torch.float32)


@pytest.mark.parametrize("time", [1, 7])
def test_all_kinds_of_a_stack_in_one_call(time):
    check_groups(time)


def test_readout_and_loss():
    check_readout()


def test_a_sum_over_rows():
    check_sum()


def test_adam():
    check_adam()


def test_a_step_of_a_stack():
    check_step()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("case", KINDS, ids=str)
def test_half_precision(case, dtype):
    """The interpreter, unlike a GPU, cuts bfloat16 off in place of rounding it."""
    check(case, replace(SETTINGS["one per neuron"], time=3), dtype, cut=dtype == torch.bfloat16)


def test_a_current_of_minus_infinity_is_absorbed():
    check_minus_infinity(torch.float32)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_nan_is_not_hidden(case):
    check_nan(case)


@pytest.mark.parametrize("case", KINDS, ids=str)
def test_several_rounds(case, monkeypatch):
    """A layer larger than the device takes at once."""
    monkeypatch.setattr(launch, "LANES", 16)
    check(case, replace(SETTINGS["stack"], time=4, batch=10), torch.float32)


@pytest.mark.filterwarnings("ignore:overflow encountered")
@pytest.mark.parametrize("case", RINGS, ids=str)
def test_a_ring_in_parts(case, monkeypatch):
    """Rings that no program holds: parts with a halo, several launches over time, several rounds."""
    monkeypatch.setattr(ring_layout, "WIDE", 32)
    monkeypatch.setattr(ring_layout, "PART", 128)
    monkeypatch.setattr(ring_layout, "SPAN", 3)
    monkeypatch.setattr(ring_layout, "UNITS", 1)
    check(case, Setting(9, 1, (181,), (181,), start=True), torch.float32)
    check(case, Setting(3, 1, (134,)), torch.float32)
    if case is not RINGS[0]:
        return
    check_lost_spikes(case, Setting(9, 1, (180,)))
    monkeypatch.setattr(launch, "LANES", 256)
    monkeypatch.setattr(ring_layout, "FEW_LONG", 0)
    monkeypatch.setattr(ring_layout, "PART", 256)
    plan.forget()
    check(case, Setting(12, 2, (2, 404), (2, 1), rate=True), torch.float32)


def test_four_neurons_a_thread(monkeypatch):
    monkeypatch.setattr(ring_layout, "FEW", 0)
    for features in ((2, 8), (20,), (130,)):
        check(RINGS[0], Setting(7, 3, features, start=True), torch.float32)


@pytest.mark.parametrize("case", KINDS, ids=str)
def test_only_the_last_state_is_differentiated(case):
    grads = []
    for module in (ops, functional):
        current = torch.linspace(-1, 1, 60).view(4, 3, 5).requires_grad_()
        _, last = getattr(module, case.name)(current, **case.learned, **case.fixed)
        grads += torch.autograd.grad(
            (last if isinstance(last, torch.Tensor) else last.v).square().sum(), current
        )
    torch.testing.assert_close(*grads, rtol=1e-5, atol=1e-6)


def test_images_become_clipped_spikes_or_currents():
    """As the released code of the paper encodes them: p = gain * clip((x - mean) / std, 0, 1)."""
    mean, std, gain = 0.13, 0.31, 0.5
    pixels = torch.randint(0, 256, (6, 1, 10, 10), dtype=torch.uint8)
    where = pixels, torch.arange(6), torch.zeros(1, dtype=torch.int64), torch.tensor([7])
    normal = ((pixels.float() / 255 - mean) / std).flatten(1)
    spikes, current = torch.empty(60, 6, 100), torch.empty(2, 6, 100)
    line = torch.tensor([gain / 255 / std]), torch.tensor([-gain * mean / std])
    picked = torch.empty(6, dtype=torch.int64)
    encode_images(spikes, *where, *line, most=gain, labels=10 * torch.arange(6), picked=picked)
    assert picked.tolist() == [0, 10, 20, 30, 40, 50]
    chance = gain * normal.clamp(0, 1)
    assert (spikes.mean(0) - chance).abs().max() < 5 * 0.5 / 60**0.5
    assert spikes[:, chance == 0].sum() == 0
    encode_images(current, *where, *(part / gain for part in line), draws=False)
    torch.testing.assert_close(current, normal.expand(2, 6, 100), rtol=1e-5, atol=1e-5)
