"""How the C program computes each layer: thresholds and packed sums only where they are proved."""

import importlib.util
import re
import shutil
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import ultralif as ul
from export.c_program import SANITIZE, assert_equal_bit_for_bit, make
from ultralif.export import quantize, to_c
from ultralif.export.bounds import Counts, Range, sums
from ultralif.export.c.plan import make_plan, threshold_of
from ultralif.nn import TimeDistributed as Each

SHAPE = (2, 9, 8)
needs_gcc = pytest.mark.skipif(not shutil.which("gcc"), reason="there is no gcc")


def network(
    seed: int, channels=(16, 16), kernel=3, stride=1, pool=2, gain=2.0, neuron=ul.UltraLIF, **options
):
    """Return convolutions with a maximum before the second layer of neurons, and a linear readout."""
    torch.manual_seed(seed)
    first = nn.Conv2d(2, channels[0], 3, padding=1)
    second = nn.Conv2d(channels[0], channels[1], kernel, stride, padding=kernel // 2)
    net = nn.Sequential(
        Each(first),
        neuron(**options),
        Each(nn.Sequential(second, nn.MaxPool2d(pool))),
        neuron(**options),
        nn.Flatten(2),
        nn.LazyLinear(5),
    ).eval()
    with torch.no_grad():
        net(torch.zeros(1, 1, *SHAPE))
        for module in net.modules():
            if isinstance(module, nn.Conv2d):
                module.weight.mul_(gain)
    return net


def pictures(seed: int, steps: int, batch: int = 12) -> torch.Tensor:
    drawn = torch.rand(1, batch, *SHAPE, generator=torch.Generator().manual_seed(seed))
    drawn = drawn * (drawn > 0.6)
    drawn[:, 0] = 0
    return drawn.expand(steps, *drawn.shape[1:])


def exported(folder, net, steps: int, flags: str = SANITIZE, **options):
    integer = quantize(net, timesteps=steps, shape=SHAPE, input_range=(0, 1), **options)
    x = pictures(1, steps)
    changing = x[:, :3].clone()
    changing[-1] = changing[-1].flip(0)
    to_c(integer, folder, changing)
    make(folder, "gcc", f"-O1 -Wconversion -Wshadow -Wcast-qual {flags}", "test")
    assert_equal_bit_for_bit(folder, integer, x)
    return integer


@needs_gcc
@pytest.mark.parametrize(
    ("steps", "channels", "options", "ways"),
    [
        (1, (16, 16), {}, ("levels", "packed", True)),
        pytest.param(4, (16, 16), {}, ("levels", "packed", False), marks=pytest.mark.slow),
        pytest.param(1, (16, 5), {}, ("levels", "wide", True), marks=pytest.mark.slow),
        (4, (16, 5), {}, ("levels", "wide", False)),
        pytest.param(1, (16, 16), {"weight_bits": 16}, ("levels", "wide", True), marks=pytest.mark.slow),
        (1, (33, 32), {"weight_bits": 4}, ("levels", "packed", True)),  # more than 17 spikes in a tap
        pytest.param(4, (33, 32), {"weight_bits": 4}, ("levels", "packed", False), marks=pytest.mark.slow),
        pytest.param(1, (16, 5), {"weight_bits": 4}, ("levels", "wide", True), marks=pytest.mark.slow),
        (1, (260, 20), {}, ("levels", "wide", True)),  # sums beyond 16 bits, and channels beyond a byte
    ],
)
def test_every_way_is_equal_to_the_simulator(tmp_path, steps, channels, options, ways):
    integer = exported(tmp_path / "c", network(3, channels), steps, **options)
    first, second = make_plan(integer).gathered.values()
    assert (first.kernel, second.kernel, second.threshold is not None) == ways
    if first.threshold is None:
        assert re.search("several time steps|too many to be checked", first.membranes)


@needs_gcc
@pytest.mark.parametrize("options", [{"reset": "subtract"}, {"reset": "subtract", "delayed_reset": True}])
def test_gathered_membranes_with_other_resets(tmp_path, options):
    net = network(3, (16, 16), neuron=ul.LIF, **options)
    integer = exported(tmp_path / "c", net, 4, f"{SANITIZE} -march=native")
    assert len(make_plan(integer).gathered) == 2


@needs_gcc
@pytest.mark.parametrize(("kernel", "padding"), [(1, 2), (3, 4)])
def test_padding_beyond_the_kernel(tmp_path, kernel, padding):
    """The first rows read no spikes, and the rows of the layer below are kept for the ones that do."""
    net = network(3, neuron=ul.LIF)
    net[2].module[1] = nn.MaxPool2d(1)
    net.insert(4, Each(nn.Conv2d(16, 16, kernel, padding=padding)))
    net.insert(5, ul.LIF())
    net[4].module.weight.data.mul_(2)
    net[-1] = nn.LazyLinear(5)
    with torch.no_grad():
        net(torch.zeros(1, 1, *SHAPE))
    assert len(make_plan(exported(tmp_path / "c", net, 2)).gathered) == 3


@needs_gcc
@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_any_convolution(tmp_path_factory, data):
    draw = data.draw
    channels = draw(st.integers(1, 40)), draw(st.integers(1, 40))
    kernel, stride = draw(st.sampled_from((1, 2, 3, 5))), draw(st.integers(1, 2))
    neuron = draw(st.sampled_from((ul.UltraLIF, ul.LIF, ul.UltraDLIF)))
    net = network(
        draw(st.integers(0, 999)), channels, kernel, stride, draw(st.integers(1, 2)),
        draw(st.floats(0.2, 5)), neuron,
    )  # fmt: skip
    bits = draw(st.sampled_from((4, 8)))
    exported(tmp_path_factory.mktemp("any") / "c", net, draw(st.sampled_from((1, 3))), weight_bits=bits)


def test_a_threshold_is_what_every_reachable_sum_says():
    integer = quantize(network(5), timesteps=1, shape=SHAPE, input_range=(0, 1))
    layer = list(make_plan(integer).gathered.values())[1]
    op, neuron = integer.nodes[layer.synapses].op, integer.nodes[layer.neuron].op
    reach = sums(op.weight, Counts(1, 16 * 9 * 8))
    for channel in range(16):
        for total in range(int(reach.low[channel]), int(reach.high[channel]) + 1, 7):
            current = op.currents(torch.full((1, 16), total)).view(1, 16, 1, 1)
            fires, _ = neuron.step(current, torch.zeros_like(current))
            assert bool(fires[0, channel]) == (total >= int(layer.threshold[channel]))


def test_a_table_that_is_no_threshold_is_noticed():
    """A table with a cliff lets a sum near rest fire, and a larger one not."""
    integer = quantize(network(6), timesteps=1, shape=SHAPE, input_range=(0, 1))
    layer = list(make_plan(integer).gathered.values())[1]
    op, neuron = integer.nodes[layer.synapses].op, integer.nodes[layer.neuron].op
    entries = neuron.table.entries.clone()
    entries[:2] += 30_000
    cliff = replace(neuron, table=replace(neuron.table, entries=entries), floor=None)
    assert isinstance(threshold_of(op, cliff, Range(torch.full((16,), -3000), torch.full((16,), 3000))), str)


@pytest.mark.parametrize(
    ("options", "reason"),
    [({"neuron": ul.UltraDLIF}, "coupled across the map"), ({"pool": 2}, "membranes: several time steps")],
)
def test_a_reason_is_given(options, reason):
    integer = quantize(network(7, **options), timesteps=3, shape=SHAPE, input_range=(0, 1))
    plan = make_plan(integer)
    assert reason in plan.why(max([*plan.gathered, *plan.spread]))


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("arm-none-eabi-gcc"), reason="arm-none-eabi-gcc is not installed")
@pytest.mark.skipif(not importlib.util.find_spec("unicorn"), reason="unicorn is not installed")
@pytest.mark.parametrize("weight_bits", [4, 8])
def test_count_on_emulated_boards(tmp_path, weight_bits):
    """The self-test passes in the emulator with DSP instructions and without, and costs fewer with them."""
    net = network(8, (33, 32))
    integer = quantize(net, timesteps=1, shape=SHAPE, input_range=(0, 1), weight_bits=weight_bits)
    to_c(integer, tmp_path / "c", pictures(9, 1)[:, :3])
    done = subprocess.run(
        ["make", "-s", "-C", tmp_path / "c", f"PYTHON={sys.executable}", "count"],
        check=True,
        capture_output=True,
    )
    found = dict(re.findall(r"Cortex-(\S+) +([\d,]+) instructions", done.stdout.decode()))
    count = {name: int(value.replace(",", "")) for name, value in found.items()}
    assert count["M4"] < count["M4-PORTABLE"] < count["M0PLUS"]
