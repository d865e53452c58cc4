"""The Triton kernels are compiled for GPUs that are not there, and fit into their registers."""

import runpy
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import ultralif as ul
from ops.op_cases import CASES, CHUNKED, KINDS, SETTINGS, Setting, draw, kernel_case
from ultralif import ops
from ultralif.stack import Stack

pytest.importorskip("triton")
ring_layout = pytest.importorskip("ultralif.ops.triton.ring_layout")
chunked = pytest.importorskip("ultralif.ops.triton.chunked")
launch = pytest.importorskip("ultralif.ops.triton.launch")
compiled = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "disassembly.py"))["compiled"]

pytestmark = pytest.mark.slow

RINGS = [case for case in CASES if case.name == "ultradlif"]
OPTIONAL = [kernel_case(title, delayed_reset=True, reset="subtract") for title in ("UltraLIF-soft", "LIF")]
OPTIONAL += [kernel_case("LIF", surrogate="superspike")]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """Compile anew, whatever was compiled before."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))


def compile_call(case, setting, dtype, capability=90):
    """Return the kernels of a call and of its derivative."""
    drawn = draw(case, setting, dtype)
    current = drawn["current"].requires_grad_()
    constants = {name: torch.tensor(value, requires_grad=True) for name, value in case.learned.items()}
    with compiled(capability) as kernels:
        out, _ = getattr(ops, case.name)(current, rate=setting.rate, **constants, **case.fixed)
        out.float().sum().backward()
    return kernels


def assert_fits(kernel):
    """Nothing is put aside but around the call of a division's slow path, which is outside of the steps."""
    assert kernel.spills <= 2 * kernel.instructions["CALL"], kernel


@pytest.mark.parametrize("case", [*KINDS, RINGS[-1], *OPTIONAL], ids=str)
def test_every_neuron_compiles_and_fits_into_registers(case):
    kernels = compile_call(case, replace(SETTINGS["one per neuron"], time=30), torch.float32)
    family = "ring" if case.name == "ultradlif" else "temporal"
    assert [kernel.name for kernel in kernels] == [f"{family}_forward_kernel", f"{family}_backward_kernel"]
    for kernel in kernels:
        assert_fits(kernel)
        assert kernel.instructions["LDG"] and kernel.instructions["STG"]


def test_the_derivative_from_spikes_alone_compiles():
    _, backward = compile_call(CASES[0], Setting(30, 8, (64,)), torch.float32)
    assert backward.name == "temporal_backward_from_spikes_kernel"
    assert_fits(backward)
    forward, backward = compile_call(RINGS[0], Setting(30, 8, (64,)), torch.float32)
    assert_fits(forward)
    # Its first loop reads spikes; what follows runs only where a spike is 0.
    loop = backward.first_loop
    assert loop["LDG"] and loop["STG"] and not loop["STL"] + loop["LDL"], backward


@pytest.mark.parametrize("case", [CHUNKED[0], CHUNKED[3]], ids=str)
def test_chunks_compile(case):
    for time in (4096, 5000):
        kernels = compile_call(case, Setting(time, 16, (64,)), torch.float32)
        assert [kernel.name for kernel in kernels] == ["chunked_forward_kernel", "chunked_backward_kernel"]
        for kernel in kernels:
            assert_fits(kernel)
            assert kernel.registers * chunked.THREADS <= 1 << 16


def test_the_rest_of_a_step_compiles():
    from ultralif.stack import fused_step as step

    rates, weight, bias = (
        torch.zeros(s, requires_grad=True) for s in ((128, 18, 64), (18, 10, 64), (18, 10))
    )
    labels = torch.zeros(1, 128, dtype=torch.int64)
    with compiled() as kernels:
        step.readout_loss(rates, weight, bias, labels, torch.zeros(18))[0].sum().backward()
        two = [weight, weight]
        step.adam(two, two, two, two, torch.zeros(()), [torch.zeros(())] * 2, [0.0, 0.1])
        step.sum_rows(torch.zeros(3840, 1152), torch.zeros(1152))
    assert [kernel.name for kernel in kernels] == ["readout_kernel", "adam_kernel", "rows_kernel"]
    for kernel in kernels:
        assert kernel.spills < 10, kernel


def test_a_stack_decodes_its_constants_once():
    """Short kernels: no table is read in them, and no program waits for others."""
    names = ("UltraLIF", "UltraDPLIF", "DSpike", "UltraLIF")
    stack = Stack([ul.Network((6, 64, 3), name) for name in names])
    with compiled() as kernels:
        stack.rates(torch.zeros(1, 128, 6))[-1].sum().backward()
    neurons = [kernel for kernel in kernels if kernel.name not in ("decode_kernel", "gather_kernel")]
    assert len(neurons) == len(kernels) - 2 == 6
    for kernel in neurons:
        assert sum(kernel.instructions.values()) < 500 and not kernel.instructions["ATOMG"], kernel


@pytest.mark.parametrize("capability", [80, 100])
@pytest.mark.parametrize("case", [CASES[0], RINGS[0]], ids=str)
def test_older_and_newer_gpus(case, capability):
    for kernel in compile_call(case, replace(SETTINGS["T=31 rate"], batch=2), torch.bfloat16, capability):
        assert_fits(kernel)


@pytest.mark.parametrize("ring", [64, 999, 1025, 1026, 2047, 2049, 3001, 4094, 4096, 4100])
@pytest.mark.parametrize("rows", [1, 16, 128])
def test_programs_of_rings_have_no_more_threads_than_a_gpu_allows(ring, rows):
    """And their own neurons are all of the ring."""
    for tells in (False, True):
        tiles = ring_layout.tiling(rows, 1, ring, 500, launch.LANES, True, tells)
        assert tiles.warps <= 32 and tiles.spans * tiles.steps >= 500
        own = ring_layout.covered(tiles.lanes, tiles.cols) - 2 * tiles.halo if tiles.halo else tiles.width
        assert own * tiles.tiles >= ring
        assert tiles.halo == 0 or tiles.halo >= 2 * tiles.steps
