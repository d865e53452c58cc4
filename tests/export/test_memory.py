"""Layers that remember: synaptic currents, adaptive thresholds, feedback, delays and leaky readouts."""

import shutil

import pytest
import torch
from torch import nn

import ultralif as ul
from export.c_program import SANITIZE, assert_equal_bit_for_bit, make
from ultralif.errors import InputError
from ultralif.export import describe, quantize, to_c, to_onnx
from ultralif.export.harden import calibrate, spike_trains
from ultralif.nn import TimeDistributed as Each

INPUTS = 2 * 5 * 4


def delayed(inputs: int, outputs: int, longest: int) -> ul.DelayedLinear:
    layer = ul.DelayedLinear(inputs, outputs, max_delay=longest)
    layer.delay.data.round_()
    return layer


def between(neuron: nn.Module, readout: nn.Module | None = None) -> nn.Module:
    return nn.Sequential(nn.Linear(INPUTS, 12), neuron, nn.Linear(12, 5), *([readout] if readout else []))


def maps(neuron: nn.Module) -> nn.Module:
    """Feedback by a convolution, after maps that are gathered from lists of spikes."""
    first = nn.Sequential(
        Each(nn.Conv2d(2, 16, 3, padding=1)), ul.LIF(), Each(nn.Conv2d(16, 3, 3, padding=1))
    )
    return nn.Sequential(first, neuron, nn.Flatten(2), nn.Linear(60, 5), ul.LeakyIntegrator(leak=0.8))


NETWORKS = {
    "synapse": lambda: between(ul.LIF(synapse=0.7)),
    "synapse of a log-sum-exp": lambda: between(ul.UltraLIF(synapse=0.5, eps=0.3, mode="hard")),
    "adaptive": lambda: between(ul.AdaLIF(adapt_strength=1.5, adapt_decay=0.8)),
    "adaptive, subtract": lambda: between(ul.AdaLIF(adapt_strength=2.0, reset="subtract")),
    "adaptive, none, synapse": lambda: between(ul.AdaLIF(adapt_strength=3.0, reset="none", synapse=0.4)),
    "recurrent": lambda: between(ul.Recurrent(ul.LIF(), nn.Linear(12, 12))),
    "recurrent ring": lambda: between(ul.Recurrent(ul.UltraDLIF(eps=0.3, mode="hard"), nn.Linear(12, 12))),
    "recurrent, adaptive, synapse": lambda: between(
        ul.Recurrent(ul.AdaLIF(adapt_strength=1.0, synapse=0.6), nn.Linear(12, 12, bias=False))
    ),
    "recurrent convolution": lambda: maps(ul.Recurrent(ul.LIF(), nn.Conv2d(3, 3, 3, padding=1))),
    "delays": lambda: nn.Sequential(delayed(INPUTS, 12, 3), ul.LIF(), delayed(12, 5, 6)),
    "leaky readout": lambda: between(ul.LIF(), ul.LeakyIntegrator(leak=0.8)),
    "everything": lambda: nn.Sequential(
        nn.Linear(INPUTS, 12),
        ul.Recurrent(ul.LIF(synapse=0.5, delayed_reset=True), nn.Linear(12, 12)),
        delayed(12, 9, 4),
        ul.AdaLIF(adapt_strength=1.0),
        nn.Linear(9, 5),
        ul.LeakyIntegrator(leak=torch.linspace(0.5, 0.95, 5)),
    ),
}
SHAPES = {"recurrent convolution": (2, 5, 4)}
OPTIONS = ({}, {"bits": 16, "clip_membrane": True}, {"leak": "shift"})
KINDS = [
    pytest.param(kind, options, marks=() if (i + j) % 3 == 0 or kind == "everything" else pytest.mark.slow)
    for i, kind in enumerate(NETWORKS)
    for j, options in enumerate(OPTIONS)
]
"""Every network with all options; in the quick tests most have one, in turns."""


def network(kind: str) -> nn.Module:
    torch.manual_seed(3)
    net = NETWORKS[kind]().eval()
    with torch.no_grad():
        for module in net.modules():
            if isinstance(module, nn.Linear | nn.Conv2d | ul.DelayedLinear):
                module.weight.mul_(3)
    return net


def events(kind: str, batch: int = 16, steps: int = 9) -> torch.Tensor:
    drawn = torch.rand(steps, batch, INPUTS, generator=torch.Generator().manual_seed(1)) < 0.3
    return drawn.view(steps, batch, *SHAPES.get(kind, (INPUTS,))).float()


@torch.no_grad()
@pytest.mark.parametrize("kind", NETWORKS)
def test_integers_spike_like_floats(kind):
    net, x = network(kind), events(kind, 64)
    integer = quantize(net, timesteps=9, shape=SHAPES.get(kind), weight_bits=16, inputs=x)
    found, trains = integer.run(x), spike_trains(net, x)
    assert all(0.01 < train.mean() < 0.99 for train in trains)
    for mine, theirs in zip(found.spikes, trains, strict=True):
        assert (mine == (theirs > 0.5)).double().mean() > 0.99
    scores = net(x)
    scores = scores.mean(0) if scores.dim() == 3 else scores
    assert (found.scores.argmax(1) == scores.argmax(1)).double().mean() > 0.9


@pytest.mark.skipif(not shutil.which("gcc"), reason="there is no gcc")
@pytest.mark.parametrize(("kind", "options"), KINDS)
def test_c_is_equal_bit_for_bit(tmp_path, kind, options):
    net, x = network(kind), events(kind).long()
    if options.get("leak") and kind == "everything":
        with pytest.raises(InputError, match="leak='multiply'"):
            quantize(net, timesteps=9, shape=SHAPES.get(kind), **options)
        return
    if options.get("bits") and kind in ("adaptive, none, synapse", "everything"):
        with pytest.raises(InputError, match="choose bits=32"):
            quantize(net, timesteps=9, shape=SHAPES.get(kind), **options)
        return
    integer = quantize(net, timesteps=9, shape=SHAPES.get(kind), **options)
    to_c(integer, tmp_path / "c", x[:, :3])
    make(tmp_path / "c", "gcc", f"-O1 -Wconversion -Wshadow -Wcast-qual {SANITIZE}", "model")
    assert all(0 < spikes.double().mean() < 1 for spikes in integer.run(x).spikes)
    assert_equal_bit_for_bit(tmp_path / "c", integer, x.flatten(2))


def test_a_second_sequence_starts_at_rest():
    """The simulator runs recurrent networks step by step; no state is left over."""
    integer = quantize(network("everything"), timesteps=9)
    x = events("everything")
    assert torch.equal(integer.run(x).scores, integer.run(x).scores)
    assert torch.equal(integer.run(x[:, 4:5]).scores[0], integer.run(x).scores[4])


def test_additions_of_feedback_and_delays_are_those_of_the_events():
    net = network("delays")
    integer = quantize(net, timesteps=20)
    x = torch.cat([events("delays"), torch.zeros(11, 16, INPUTS)])  # until every delay has passed
    output = integer.run(x)
    assert integer.additions(x, output) <= int(x.sum()) * 12 + int(output.spikes[0].sum()) * 5
    assert integer.additions(x, output) >= int(x.sum()) * 12


def changed(kind: str, place: int, **values: object) -> nn.Module:
    net = network(kind)
    for name, value in values.items():
        setattr(net[place], name, value)
    return net


@pytest.mark.parametrize(
    ("net", "message"),
    [
        (
            nn.Sequential(ul.DelayedLinear(40, 5, max_delay=3), ul.LIF(), nn.Linear(5, 2)),
            r"0\.delay\.data\.round_",
        ),
        (between(ul.AdaLIF(delayed_reset=True)), "delayed_reset=False"),
        (nn.Sequential(between(ul.LeakyIntegrator()), ul.LIF()), "put neurons before it"),
        (between(ul.Recurrent(ul.LIF(), nn.Identity())), "other than Linear and Conv2d"),
    ],
)
def test_what_has_no_integer_form_names_the_layer_and_the_way_out(net, message):
    with pytest.raises(InputError, match=message):
        quantize(net, timesteps=4)


def test_delays_of_real_numbers_are_refused():
    with pytest.raises(InputError, match="put neurons before it, or encode"):
        quantize(network("delays"), timesteps=4, input_range=(0, 1))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")  # torch's own, where a scan runs eagerly
@pytest.mark.parametrize("kind", ["recurrent", "delays", "leaky readout", "synapse"])
@pytest.mark.parametrize("timesteps", [None, 6])
def test_memory_in_onnx(tmp_path, kind, timesteps):
    assert to_onnx(network(kind), tmp_path / "file.onnx", timesteps=timesteps) < 1e-5


def test_a_wrong_feedback_is_found_before_anything_is_written():
    """The description is compared with the network itself."""
    net = network("recurrent")
    described = describe(net)
    assert [type(node.op).__name__ for node in described.nodes[2:6]] == ["Last", "Synapses", "Sum", "Spikes"]
    net[1].forward = lambda current: ul.Recurrent.run(net[1], -current)[0]
    with pytest.raises(InputError):
        quantize(net, timesteps=4)


def test_calibration_refuses_feedback():
    with pytest.raises(InputError, match="fine-tune"):
        calibrate(network("recurrent"), events("recurrent"))
