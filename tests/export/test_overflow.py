"""No number of an exported network overflows: inputs at the ends of their ranges, under the sanitizer."""

import math
import shutil
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

import ultralif as ul
from export.c_program import SANITIZE, assert_equal_bit_for_bit, make
from ultralif.errors import InputError
from ultralif.export import bounds, to_c
from ultralif.export.integer import IntegerNetwork, IntegerNeuron
from ultralif.export.quantize import quantize
from ultralif.nn import TimeDistributed as Each

NEURONS = [
    ("UltraLIF", "hard"),
    ("UltraLIF", "tropical"),
    ("UltraDLIF", "hard"),
    ("UltraDLIF", "tropical"),
    ("UltraDPLIF", "hard"),
    ("LIF", "hard"),
    ("SoftLIF", "hard"),
]
needs_gcc = pytest.mark.skipif(not shutil.which("gcc"), reason="there is no gcc")


def cancelled(inputs: int, neuron: nn.Module) -> nn.Module:
    """Sums that a bias brings back into range."""
    net = nn.Sequential(nn.Linear(inputs, 8), neuron, nn.Linear(8, 4))
    with torch.no_grad():
        net[0].weight.fill_(1.0)
        net[0].bias.fill_(-inputs / 2)
    return net


@needs_gcc
@pytest.mark.parametrize("inputs", [256, 300, 400, 1000])
@pytest.mark.parametrize(("neuron", "mode"), [("LIF", "hard"), ("UltraLIF", "tropical")])
def test_sums_are_bounded_without_their_bias(tmp_path, inputs, neuron, mode):
    net = cancelled(inputs, ul.nn.find_neuron(neuron)())
    x = (torch.rand(1, 4, inputs, generator=torch.Generator().manual_seed(0)) < 0.9).float()
    x[:, 0] = 1
    integer = quantize(net, mode=mode, timesteps=1, weight_bits=16)
    to_c(integer, tmp_path / "c", x)
    make(tmp_path / "c", "gcc", f"-O1 {SANITIZE}", "model")
    assert_equal_bit_for_bit(tmp_path / "c", integer, x)


@pytest.mark.parametrize("power", [12, 20, 25, 30, 37])
def test_a_shift_beyond_32_bits_is_refused(power):
    torch.manual_seed(0)
    net = cancelled(20, ul.UltraLIF())
    with torch.no_grad():
        net[0].weight.copy_(torch.randn(8, 20) * 10.0**power)
        net[0].bias.zero_()
    with pytest.raises(InputError):
        quantize(net, timesteps=4)


def test_a_shift_beyond_32_bits_has_no_bound_whatever_the_weights():
    op = quantize(cancelled(20, ul.UltraLIF()), timesteps=4).synapses[0]
    op = replace(op, weight=torch.zeros_like(op.weight))
    for shift, bounded in ((31, True), (32, False), (63, False)):
        far = replace(op, shift=torch.full_like(op.shift, shift))
        assert math.isfinite(bounds.scaled(far, bounds.Counts(1, 20))) == bounded


def test_the_log_sum_exp_of_a_ring_is_within_its_bounds():
    """Three neighbours that tie are further above their maximum than two."""
    integer = quantize(cancelled(20, ul.UltraDLIF()), mode="hard", timesteps=1)
    (neuron,) = (node.op for node in integer.nodes if isinstance(node.op, IntegerNeuron))
    zero = torch.zeros(8, dtype=torch.int64)
    reached, _ = bounds.membranes(neuron, bounds.Range(zero, zero), 1)
    assert 0 < int(neuron.membrane(zero, zero).max()) <= int(reached.high.max())


@pytest.mark.parametrize("mode", ["hard", "tropical"])
@pytest.mark.parametrize("neuron", ["LIF", "UltraLIF", "UltraDLIF"])
def test_weights_near_the_largest_float(neuron, mode):
    """They are refused, or their integers decide as the network does."""
    net = cancelled(20, ul.nn.find_neuron(neuron)())
    with torch.no_grad():
        for layer in (net[0], net[2]):
            layer.weight.copy_(torch.where(torch.rand_like(layer.weight) < 0.5, -3e38, 3e38))
    if neuron == "LIF" and mode == "tropical":
        pytest.skip("LIF has no tropical mode")
    with pytest.raises(InputError):
        quantize(net, mode=mode, timesteps=4)


def drawn(seed: int, convolutional: bool) -> tuple[IntegerNetwork, Tensor] | None:
    """Return a random network near the limits of its integers and inputs that push it there, or None."""
    g = torch.Generator().manual_seed(seed)

    def pick(*values):
        return values[int(torch.randint(len(values), (), generator=g))]

    torch.manual_seed(seed)
    neuron, mode = pick(*NEURONS)
    options = {"threshold": pick(0.05, 1.0, 3.0)} | (
        {"leak": pick(0.3, 0.9, 0.999)} if "D" not in neuron else {}
    )
    kind = ul.nn.find_neuron(neuron)
    if convolutional:
        channels, size, groups = pick(2, 4), pick(7, 9), pick(1, 2)
        shape = (2, size, size)
        pool = pick(nn.Identity(), nn.AvgPool2d(2), nn.MaxPool2d(2))
        first = nn.Conv2d(2, channels, pick(1, 3), stride=pick(1, 2), padding=pick(0, 1), groups=groups)
        body = [Each(nn.Sequential(first, pool) if pick(True, False) else first), kind(**options)]
        body += [Each(nn.Conv2d(channels, 4, 1)), kind(**options), nn.Flatten(2)]
        with torch.no_grad():
            width = nn.Sequential(*body)(torch.zeros(1, 1, *shape)).shape[-1]
        net = nn.Sequential(*body, nn.Linear(width, 3))
    else:
        shape = (pick(3, 40, 300),)
        hidden = pick(1, 5, 16)
        body = [nn.Linear(shape[0], hidden), kind(**options), nn.Linear(hidden, 4), kind(**options)]
        net = nn.Sequential(*body, nn.Linear(4, 3))
    with torch.no_grad():
        for layer in net.modules():
            if isinstance(layer, nn.Linear | nn.Conv2d):
                layer.weight.mul_(10.0 ** pick(-2, 0, 1, 2, 3))
                if pick(True, False):
                    layer.weight.abs_()
                reach = layer.weight.abs().flatten(1).sum(1)
                layer.bias.copy_(pick(-1.0, -0.5, 0.0, 0.5) * reach * pick(1, 10, 100))
    most, steps = pick(1, 9, 255), pick(1, 3, 12)
    try:
        integer = quantize(
            net,
            mode=mode,
            timesteps=steps,
            shape=shape,
            input_max=most,
            bits=pick(16, 32, 32),
            clip_membrane=pick(True, False),
            weight_bits=pick(8, 16),
            leak=pick("multiply", "shift"),
        )
    except InputError:
        return None
    return integer, extremes(integer, steps, most, g)


def extremes(integer: IntegerNetwork, steps: int, most: int, g: torch.Generator) -> Tensor:
    """Return inputs that bring a sum of the first layer to an end of its range, at every step or in turns."""
    shape = integer.nodes[0].shape
    weight = integer.synapses[0].weight.double()
    if integer.synapses[0].geometry is None:
        signs = weight[: min(4, len(weight))].sign()  # [outputs, inputs]
    else:
        signs = torch.ones(1, *shape) * weight.sum((0, 2, 3)).sign().repeat(2)[: shape[0]].view(-1, 1, 1)
    ends = [(signs > 0), (signs < 0), torch.ones_like(signs) > 0, torch.rand(signs.shape, generator=g) < 0.5]
    samples = torch.cat([end.reshape(-1, *shape) for end in ends]).long() * most
    held = samples.expand(steps, *samples.shape)
    turns = torch.stack([samples.roll(step % 2 * (len(samples) // 2), 0) for step in range(steps)])
    return torch.cat([held, turns], 1)


def attack(folder, seed: int, convolutional: bool, flags: str) -> bool:
    """Build a random network and run it at its limits; False if it was refused."""
    found = drawn(seed, convolutional)
    if found is None:
        return False
    integer, x = found
    to_c(integer, folder, x[:, :1])
    make(folder, "gcc", flags, "model")
    assert_equal_bit_for_bit(folder, integer, x)
    shutil.rmtree(folder)
    return True


@needs_gcc
@pytest.mark.parametrize("convolutional", [False, True])
def test_inputs_at_the_ends_of_their_ranges(tmp_path, convolutional):
    built = sum(attack(tmp_path / "c", seed, convolutional, f"-O0 {SANITIZE}") for seed in range(12))
    assert built >= 4


@pytest.mark.slow
@pytest.mark.timeout(7200)
@needs_gcc
@pytest.mark.parametrize(("convolutional", "count"), [(False, 2000), (True, 600)])
def test_thousands_of_networks_at_their_limits(tmp_path, convolutional, count):
    built = sum(
        attack(tmp_path / "c", seed, convolutional, "-O0 -fsanitize=undefined -fno-sanitize-recover=all")
        for seed in range(1000, 1000 + count)
    )
    print(f"{built} of {count} were built and ran at their limits; the others were refused")
    assert built >= count / 3
