"""Networks as people build them: described, hardened, in integers and in C."""

import re
import shutil
import subprocess

import pytest
import torch
from torch import nn

import ultralif as ul
from export.c_program import SANITIZE, assert_equal_bit_for_bit, classify, make
from export.networks import KINDS, SHAPE, events, made
from ultralif.errors import InputError
from ultralif.export import calibrate, describe, finetune, gap, quantize, to_c
from ultralif.export.graph import Sum, Synapses
from ultralif.export.harden import spike_trains

NEURONS = [
    (ul.LIF, "hard", {}),
    (ul.UltraLIF, "hard", {"eps": 0.3}),
    (ul.UltraLIF, "tropical", {}),
    (ul.UltraDLIF, "hard", {"eps": 0.3, "centered": True}),
]


@torch.no_grad()
@pytest.mark.parametrize("kind", KINDS)
def test_the_description_computes_what_the_network_does(kind):
    """Step by step, with batch normalization in its place."""
    net, x = made(kind).double(), events(1).double()
    graph = describe(net, SHAPE)
    states: list[torch.Tensor] = [x.new_zeros(x.shape[1], *shape) for *_, shape in graph.memory]
    outputs = []
    for step in x:
        output, states = graph.step(step, states)
        outputs.append(output)
    expected = net(x)
    torch.testing.assert_close(
        torch.stack(outputs).mean(0), expected.mean(0) if expected.dim() == 3 else expected
    )


def test_a_description_names_layers_and_folds_normalization():
    graph = describe(made("residual"), SHAPE)
    names = [node.name for node in graph.nodes]
    assert names[:4] == ["input", "stem.module.0", "first", "inner.module.0"]
    assert sum(isinstance(node.op, Sum) for node in graph.nodes) == 2
    assert [node.op.norm is not None for node in graph.nodes if isinstance(node.op, Synapses)] == [
        True,
        True,
    ] + [False] * 3
    assert [graph.nodes[i].shape for i in graph.spiking] == [(4, 9, 8)] * 3 + [(6, 4, 3)]


@torch.no_grad()
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("neuron", "mode", "options"), NEURONS)
def test_integers_spike_like_floats(kind, neuron, mode, options):
    if kind == "residual" and options.get("centered"):
        with pytest.raises(InputError, match="shares its synapses"):
            quantize(made(kind, 1, neuron, **options), mode=mode, shape=SHAPE, timesteps=5)
        return
    net, x = made(kind, 1, neuron, **options), events(2, batch=32)
    integer = quantize(net, mode=mode, shape=SHAPE, timesteps=5)
    found = integer.run(x)
    with ul.mode(net, mode):
        trains = spike_trains(net, x)
    assert any(0.02 < train.mean() < 0.98 for train in trains)
    same = [(mine == (theirs > 0)).flatten() for mine, theirs in zip(found.spikes, trains, strict=True)]
    assert same[0].double().mean() > 0.98  # later layers see what earlier ones round
    assert torch.cat(same).double().mean() > 0.97


@torch.no_grad()
@pytest.mark.parametrize("kind", ["pooled spikes", "residual"])
def test_integers_are_exact_on_a_grid(kind):
    """Weights and biases on a grid that int8 holds: spikes and scores are those of floats."""
    net, x = made(kind, 3, leak=0.5, threshold=1.25).double(), events(4, steps=4).double()
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.zero_()
            module.running_var.fill_(1 - module.eps)
            module.weight.fill_(1)
            module.bias.zero_()
        elif isinstance(module, nn.Linear | nn.Conv2d):
            module.weight.copy_((module.weight * 64).round().clamp(-126, 126) / 64).flatten(1)[:, 0] = (
                127 / 64
            )
            if module.bias is not None:
                module.bias.copy_((module.bias * 64).round() / 64)
    if kind == "pooled spikes":  # a mean of six is not on the grid
        net[2].module = nn.AvgPool2d(2, stride=(2, 1))
    else:  # nor is one over a map of twelve
        net.last.module.stride = (4, 4)
    integer = quantize(net, shape=SHAPE, timesteps=4)
    found = integer.run(x)
    for mine, theirs in zip(found.spikes, spike_trains(net, x), strict=True):
        assert torch.equal(mine, theirs > 0)


@pytest.mark.skipif(not shutil.which("gcc"), reason="there is no gcc")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "choice", [(ul.LIF, "hard", {"bits": 16, "clip_membrane": True}), (ul.UltraDLIF, "tropical", {})]
)
def test_c_is_equal_bit_for_bit(tmp_path, kind, choice):
    neuron, mode, options = choice
    net, x = made(kind, 5, neuron), events(6, batch=20).long()
    integer = quantize(net, mode=mode, shape=SHAPE, timesteps=5, **options)
    to_c(integer, tmp_path / "c", x[:, :3])
    make(tmp_path / "c", "gcc", f"-O1 -Wconversion -Wshadow -Wcast-qual -DMODEL_COUNT {SANITIZE}", "model")
    output, lines = integer.run(x), classify(tmp_path / "c", integer, x.flatten(2))
    assert all(spikes.any() for spikes in output.spikes)
    assert sum(int(line[-1]) for line in lines) == sum(int(spikes.sum()) for spikes in output.spikes)
    make(tmp_path / "c", "gcc", "-O1", "clean", "model")
    assert_equal_bit_for_bit(tmp_path / "c", integer, x.flatten(2))


@pytest.mark.parametrize("kind", KINDS)
def test_calibration_and_fine_tuning_of_any_network(kind):
    net, x = made(kind, 7, ul.UltraLIF, eps=0.3), events(8, batch=64)
    before = {name: value.clone() for name, value in net.state_dict().items()}
    if kind == "residual":  # its second layer adds to what the first reads; its first has the stem alone
        with pytest.raises(InputError, match="layer 'first' shares all of its synapses"):
            calibrate(net, x, to="hard")
    else:
        calibrated = calibrate(net, x, to="hard")
        with torch.no_grad():
            for soft, hard in zip(spike_trains(net, x), spike_trains(calibrated, x), strict=True):
                channels = (0, 1, *range(3, soft.dim()))
                assert (soft.mean(channels) - hard.mean(channels)).abs().median() < 5e-3
    labels = torch.arange(64) % 5
    tuned = finetune(net, [(x, labels)] * 2, steps=2, mode="hard")
    assert gap(tuned, [(x, labels)])["hard"].agreement <= 100
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())


class Odd(nn.Module):
    """A network with something between its layers."""

    def __init__(self, between) -> None:
        super().__init__()
        self.first, self.neuron, self.last, self.between = nn.Linear(4, 4), ul.LIF(), nn.Linear(4, 3), between

    def forward(self, x):
        return self.last(self.between(self, x))


@pytest.mark.parametrize(
    ("net", "message"),
    [
        (nn.Sequential(nn.Linear(4, 3), nn.ReLU(), ul.LIF()), "layer '1' is ReLU .*; use Linear"),
        (
            nn.Sequential(nn.Linear(4, 3), ul.LIF(batch_first=True)),
            "layer '1' has batch_first.*; put the time first",
        ),
        (nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 3), ul.LIF()), "layer '1' receives real numbers"),
        (nn.Sequential(ul.LIF(), nn.Linear(4, 3)), "layer '0' receives spikes without weights"),
        (nn.Sequential(nn.Linear(4, 3)), "no ultralif neurons"),
        (Odd(lambda net, x: net.neuron(net.first(x)) * 2), "is the operation 'mul' .*sums, means"),
        (Odd(lambda net, x: net.neuron(net.first(x)) + net.first(x)), "adds spikes to currents"),
        (Odd(lambda net, x: net.neuron(net.first(x).mean(0, keepdim=True).expand_as(x))), "a mean over 0"),
        (nn.Sequential(nn.Conv2d(1, 2, 3), ul.LIF()), "shape is needed"),
    ],
)
def test_what_cannot_be_exported_is_named(net, message):
    with pytest.raises(InputError, match=message):
        quantize(net)


@pytest.mark.skipif(not shutil.which("arm-none-eabi-gcc"), reason="there is no arm-none-eabi-gcc")
def test_a_vgg_on_a_cortex_m(tmp_path):
    integer = quantize(made("vgg", 5), shape=SHAPE, timesteps=5, bits=16, clip_membrane=True)
    size = to_c(integer, tmp_path / "c", events(6, batch=3))
    printed = subprocess.run(
        ["make", "-s", "-C", tmp_path / "c", "cortex-m"], check=True, capture_output=True
    )
    flash, ram = re.fullmatch(rb"flash (\d+) bytes, RAM (\d+) bytes and the stack\n", printed.stdout).groups()
    assert size.rom < int(flash) < size.rom + 4000
    assert int(ram) == size.ram
    if not shutil.which("qemu-system-arm"):
        pytest.skip("there is no qemu-system-arm")
    done = subprocess.run(["make", "-s", "-C", tmp_path / "c", "qemu"], check=True, capture_output=True)
    assert b"self-test passed" in done.stdout + done.stderr


def test_a_shape_that_does_not_fit():
    with pytest.raises(InputError, match="cannot be run on"):
        quantize(made("vgg"), shape=(3, 9, 8))


@pytest.mark.skipif(not shutil.which("gcc"), reason="there is no gcc")
@pytest.mark.parametrize("build", [ul.models.vgg, ul.models.resnet])
def test_the_models_of_the_library_to_c(tmp_path, build):
    """Also where batch norm turns a maximum into a minimum, and temperatures differ from layer to layer."""
    torch.manual_seed(9)
    stages = ((4,), (6, 5)) if build is ul.models.vgg else ((4, 2), (6, 1))
    net = build(stages, channels=2, classes=5, neuron_options={"eps": 0.3}).eval()
    with torch.no_grad():
        for number, module in enumerate(net.modules()):
            if isinstance(module, nn.BatchNorm2d):
                module.running_var.uniform_(0.02, 0.1)
                module.bias.normal_(0.1, 0.2)
                module.weight[0] *= -1
            elif isinstance(module, ul.UltraLIF):
                module.assign("eps", 0.2 + 0.01 * number)
    x = events(10, batch=12)
    integer = quantize(net, shape=SHAPE, timesteps=5)
    found = integer.run(x)
    with ul.mode(net, "hard"):
        trains = spike_trains(net, x)
    same = [(mine == (theirs > 0)).flatten() for mine, theirs in zip(found.spikes, trains, strict=True)]
    assert torch.cat(same).double().mean() > 0.95
    to_c(integer, tmp_path / "c", x[:, :3])
    make(tmp_path / "c", "gcc", f"-O1 -Wconversion {SANITIZE}", "model")
    assert_equal_bit_for_bit(tmp_path / "c", integer, x.long().flatten(2))
