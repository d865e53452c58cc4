"""The Triton kernels on a GPU: parity with the definition, long rings, CUDA graphs, registration.

Settings share the length of a chunk, and so their kernels: most of the time here is their compilation.
"""

import math
from dataclasses import replace

import pytest
import torch

import ultralif as ul
from ops.op_cases import (
    CASES,
    CHUNKED,
    OPTIONS,
    SETTINGS,
    Setting,
    check,
    check_decoder,
    check_learned,
    check_lost_spikes,
    check_spikes_tell_all,
)
from ops.stack_cases import check_adam, check_groups, check_readout, check_step, check_sum
from ultralif import functional, ops
from ultralif.ops.autograd import integrate, integrate_backward
from ultralif.ops.rule import Membrane, Reset, Rule, encode

plan = pytest.importorskip("ultralif.ops.triton.plan")
chunked = pytest.importorskip("ultralif.ops.triton.chunked")

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

RINGS = [case for case in CASES if case.name == "ultradlif"]
SIZES = [
    replace(SETTINGS["T=1"], features=(129,)),
    SETTINGS["T=31 rate"],
    SETTINGS["T=100 B=1"],
    replace(SETTINGS["stack"], time=20),
    Setting(30, 5, (3, 64), (3, 64), start=True),
    SETTINGS["long"],
]
TEMPERATURES = [SETTINGS["cold"], replace(SETTINGS["hot"], start=False)]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_float32(case):
    for setting in [*SIZES, *(s for s in TEMPERATURES if s.applies(case))]:
        check(case, setting, torch.float32, "cuda")


@pytest.mark.parametrize("case", OPTIONS, ids=str)
def test_options(case):
    for setting in (SIZES[0], replace(SETTINGS["stack"], time=20)):
        check(case, setting, torch.float32, "cuda")


@pytest.mark.parametrize("case", CHUNKED, ids=str)
def test_long_sequences_are_cut_into_chunks(case, monkeypatch):
    """All chunks full, or the last ones short or empty; many neurons and few. Binary spikes might flip."""
    monkeypatch.setattr(chunked, "SHORTEST", 64)
    plan.forget()
    long = [Setting(1024, 16, (64,), (64,), start=True), Setting(4097, 2, (3, 5), rate=True)]
    for setting in [Setting(100, 1, (5,), (5,), start=True), *(long if case.soft else [])]:
        lanes = setting.batch * math.prod(setting.features)
        reset = Reset[case.fixed["reset"].upper()]
        assert chunked.find_tile(Rule(Membrane.LSE, True, reset), lanes, setting.time) is not None
        check(case, setting, torch.float32, "cuda")


def test_spikes_tell_the_membrane():
    check_spikes_tell_all("cuda")


@pytest.mark.parametrize("ring", [64, 1024, 4096])
def test_spikes_of_a_ring_that_are_lost(ring):
    """In small programs and large ones, whole rings and parts."""
    check_lost_spikes(RINGS[0], Setting(40, 128 if ring == 1024 else 4, (ring,)), "cuda")


def test_learned_constants_are_decoded_in_the_kernel():
    check_learned("cuda")
    check_decoder(torch.float32, "cuda")


@pytest.mark.parametrize("time", [1, 30])
def test_all_kinds_of_a_stack_in_one_call(time):
    check_groups(time, "cuda")


def test_readout_and_loss():
    check_readout("cuda")


def test_a_sum_over_rows():
    check_sum("cuda")


def test_adam():
    check_adam("cuda")


def test_a_step_of_a_stack():
    check_step("cuda")


@pytest.mark.parametrize("name", ["UltraLIF", "UltraDPLIF", "FullPLIF"])
def test_gradients_of_constants_are_the_same_in_every_run(name):
    """Programs come in any order; their partial sums are added in one. Large enough for many programs."""
    neuron = ul.NEURONS[name]().cuda()
    current = torch.randn(10, 64, 1024, device="cuda", requires_grad=True)
    parameters = list(neuron.parameters())
    first, *others = [torch.autograd.grad(neuron(current).square().sum(), parameters) for _ in range(5)]
    for other in others:
        assert all(torch.equal(a, b) for a, b in zip(first, other, strict=True))


@pytest.mark.parametrize("name", ["UltraLIF", "LIF"])
def test_a_channels_last_current_is_kept(name):
    current = torch.randn(12, 16, 9, 9, device="cuda").contiguous(memory_format=torch.channels_last)
    current = current.unflatten(0, (4, 3)).requires_grad_()
    found = []
    for x in (current, current.detach().contiguous().requires_grad_()):
        neuron = ul.NEURONS[name]().cuda()
        out = neuron(x)
        found.append((out, *torch.autograd.grad(out.square().sum(), [x, *neuron.parameters()])))
    assert found[0][0].stride() == found[0][1].stride() == current.stride()
    torch.testing.assert_close(found[0], found[1])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_half_precision_is_integrated_in_float32(case, dtype):
    check(case, SETTINGS["T=100 B=1"], dtype, "cuda")
    check(case, Setting(30, 5, (3, 64), (3, 64), start=True), dtype, "cuda")


@pytest.mark.parametrize("case", CASES[:1] + RINGS[:1], ids=str)
def test_float64_runs_without_kernels(case):
    check(case, SETTINGS["stack"], torch.float64, "cuda")


@pytest.mark.parametrize("case", [CASES[0], *RINGS, CASES[-1]], ids=str)
def test_more_than_the_device_takes_at_once(case):
    """Lanes go on to further samples, and keep their feature."""
    check(case, Setting(10, 300, (3, 333), (3, 333)), torch.float32, "cuda")


@pytest.mark.parametrize("case", RINGS, ids=str)
def test_rings_that_no_program_holds(case):
    """Parts with a halo; long sequences in spans, each of which is a launch."""
    long = Setting(70, 2, (3001,), start=True)
    members = Setting(65, 2, (2, 1500), (2, 1))
    for setting in (Setting(10, 2, (1025,)), long, replace(long, rate=True), members):
        check(case, setting, torch.float32, "cuda")


def test_many_rings_of_4096_neurons():
    check(RINGS[0], Setting(10, 100, (4096,)), torch.float32, "cuda")
    check_lost_spikes(RINGS[0], Setting(6, 100, (4096,)), "cuda")


def test_the_longest_ring():
    check(RINGS[0], Setting(10, 1, (65536,)), torch.float32, "cuda")


@pytest.mark.parametrize("name", ["UltraLIF", "UltraDLIF", "PLIF", "AdaLIF"])
def test_a_recorded_step_gives_the_same_numbers(name):
    neuron = ul.NEURONS[name]().cuda()
    current = torch.randn(10, 4, 48, device="cuda", requires_grad=True)
    weight = torch.randn_like(current)

    def step() -> tuple[torch.Tensor, ...]:
        out = neuron(current)
        grads = torch.autograd.grad(out, [current, *neuron.parameters()], weight)
        return out.detach(), *grads  # not the graph, whose nodes belong to the stream that made them

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        recorded = step()
    with torch.no_grad():
        current.copy_(torch.randn_like(current))
        weight.copy_(torch.randn_like(weight))
    graph.replay()
    for found, expected in zip(recorded, step(), strict=True):
        assert torch.equal(found, expected)


@pytest.mark.parametrize(
    "rule",
    [Rule(Membrane.LSE, True), Rule(Membrane.LSE, True, ring=3, leaks=True)],
    ids=["alone", "ring"],
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_opcheck(rule):
    current = torch.randn(10, 2, 6, device="cuda", requires_grad=True)
    constants = [torch.tensor([value], device="cuda", requires_grad=True) for value in (0.5, 0.9, 0.5)]
    arguments = (current, None, *constants, None, [1.0] * 4, *encode(rule))
    torch.library.opcheck(integrate, arguments)
    detached = [a.detach() if isinstance(a, torch.Tensor) else a for a in arguments]
    grads = torch.randn_like(current).detach(), torch.randn(1, 2, 6, device="cuda")
    torch.library.opcheck(integrate_backward, (*grads, *detached, [True, True, True, False]))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_compiled_without_a_break():
    compiled = torch.compile(
        lambda x: ops.ultradlif(x, eps=0.5, threshold=0.5)[0], fullgraph=True, backend="aot_eager"
    )
    current = torch.randn(10, 3, 40, device="cuda")
    torch.testing.assert_close(compiled(current), functional.ultradlif(current, eps=0.5, threshold=0.5)[0])
