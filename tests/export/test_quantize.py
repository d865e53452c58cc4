"""The integer machine: exact where the network is, close elsewhere, and never over its bounds."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import ultralif as ul
from ultralif.errors import InputError
from ultralif.export import bounds
from ultralif.export.harden import spike_trains
from ultralif.export.integer import IntegerNetwork
from ultralif.export.quantize import halvings, quantize, table, table_error
from ultralif.export.trace import describe

INTEGER_NEURONS = (
    ("UltraLIF", "hard"),
    ("UltraLIF", "tropical"),
    ("UltraPLIF", "hard"),
    ("UltraDLIF", "hard"),
    ("UltraDLIF", "tropical"),
    ("UltraDPLIF", "hard"),
    ("UltraDPLIF", "tropical"),
    ("LIF", "hard"),
    ("PLIF", "hard"),
    ("FullPLIF", "hard"),
    ("DSpike", "hard"),
    ("SoftLIF", "hard"),
)


def events(seed: int, steps: int = 12, batch: int = 16, inputs: int = 20, most: int = 1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, most + 1, (steps, batch, inputs), generator=generator)


def network(neuron: str, seed: int, sizes=(20, 16, 5), **options) -> ul.Network:
    torch.manual_seed(seed)
    net = ul.Network(sizes, neuron=neuron, neuron_options=options).double()
    with torch.no_grad():
        for linear in net.linears:
            linear.weight.mul_(2)
    return net


def snap(net: ul.Network, step: float = 2.0**-6) -> ul.Network:
    """Move weights and biases to a grid that int8 with scales of powers of two holds exactly."""
    with torch.no_grad():
        for linear in net.linears:
            linear.weight.copy_((linear.weight / step).round().clamp(-127, 127) * step)
            linear.weight[:, 0] = 127 * step  # so that the finest weight step is the grid's
            linear.bias.copy_((linear.bias / step).round() * step)
    return net


@given(seed=st.integers(0, 10**6), readout=st.sampled_from(("linear", "spiking")))
@settings(max_examples=8, deadline=None)
@pytest.mark.parametrize(
    ("neuron", "mode", "options"),
    [
        ("UltraDLIF", "tropical", {}),
        ("UltraLIF", "tropical", {}),
        ("UltraLIF", "tropical", {"reset": "none", "leak": math.exp(-0.25)}),
        ("UltraLIF", "tropical", {"reset": "saturate", "v_sat": 0.75, "leak": math.exp(-0.25)}),
        ("UltraDPLIF", "tropical", {"leak": 0.5}),
        ("LIF", "hard", {"leak": 0.5}),
        ("LIF", "hard", {"leak": 0.75, "threshold": 1.25, "v_reset": -0.25}),
    ],
)
def test_what_integers_can_say_they_say_exactly(neuron, mode, options, seed, readout):
    torch.manual_seed(seed)
    net = snap(ul.Network((20, 16, 16, 5), neuron=neuron, neuron_options=options, readout=readout).double())
    x = events(seed, steps=4)
    ul.set_mode(net, mode)
    integer = quantize(net, mode=mode, timesteps=4)
    found = integer.run(x)
    trains = spike_trains(net, x.double())
    for mine, theirs in zip(found.spikes, trains, strict=True):
        assert torch.equal(mine, theirs > 0)
    unit = integer.synapses[-1].unit if readout == "linear" else 1.0
    assert torch.allclose(found.scores.double() * unit / 4, net(x.double()), rtol=0, atol=1e-9)


@pytest.mark.parametrize(("neuron", "mode"), INTEGER_NEURONS)
@pytest.mark.parametrize("bits", [16, 32])
def test_integers_spike_like_floats(neuron, mode, bits):
    net = network(neuron, seed=1, sizes=(50, 40, 5))
    x = events(2, inputs=50, batch=64)
    ul.set_mode(net, mode)
    (train,) = spike_trains(net, x.double())
    found = quantize(net, mode=mode, timesteps=12, bits=bits, clip_membrane=bits == 16).run(x)
    assert 0.02 < train.mean() < 0.98
    assert (found.spikes[0] == (train > 0)).double().mean() > 0.97
    assert all(part.dtype == torch.int64 for part in (found.scores, *found.membranes))


def driven(net: torch.nn.Module, integer: IntegerNetwork) -> bounds.Range:
    """Return the range of the currents of the first layer."""
    graph = describe(net)
    most = bounds.counts(graph, bounds.Counts(integer.max_events, integer.max_events))
    return bounds.currents(graph, {1: integer.synapses[0]}, most, integer.timesteps)[1][1]


@given(seed=st.integers(0, 10**6), leak=st.sampled_from(("multiply", "shift")), clip=st.booleans())
@settings(max_examples=8, deadline=None)
@pytest.mark.parametrize(("neuron", "mode"), INTEGER_NEURONS)
def test_no_membrane_leaves_its_bounds(neuron, mode, seed, leak, clip):
    net = network(neuron, seed)
    integer = quantize(net, mode=mode, timesteps=30, input_max=3, leak=leak, clip_membrane=clip)
    weight = integer.synapses[0].weight
    # All events on one input: the best that an adversary can do for each neuron, up and down.
    extremes = torch.cat([weight.argmin(1), weight.argmax(1)])
    x = torch.zeros(30, len(extremes), 20, dtype=torch.int64)
    x[:, torch.arange(len(extremes)), extremes] = integer.max_events
    x[1::2, len(extremes) // 2 :] = 0
    found = integer.run(x)
    _, stored = bounds.membranes(integer.neurons[0], driven(net, integer), 30)
    assert bool((found.membranes[0] >= stored.low).all())
    assert bool((found.membranes[0] <= stored.high).all())
    assert int(found.scores.abs().max()) < 2**31


def test_bounds_are_reached_where_nothing_is_lost_in_them():
    net = network("LIF", 3)
    integer = quantize(net, timesteps=5)
    x = torch.zeros(5, 16, 20, dtype=torch.int64)
    x[:, torch.arange(16), integer.synapses[0].weight.argmin(1)] = integer.max_events
    _, stored = bounds.membranes(integer.neurons[0], driven(net, integer), 5)
    assert torch.equal(integer.run(x).membranes[0][-1].diagonal(), stored.low)


@pytest.mark.parametrize("bits", [3, 5, 8, 10])
@pytest.mark.parametrize("fraction", [0, 1, 4, 8])
def test_the_table_is_as_near_as_its_width_allows(bits, fraction):
    resolution = 2 ** (bits - 3 + fraction)
    made = table(resolution, bits)
    assert len(made.entries) == 2**bits
    assert int(made.entries[0]) < 2**16
    assert bool((made.entries.diff() <= 0).all())
    width = 8 / 2**bits  # of an entry, in eps; the slope is at most 1/2
    assert table_error(made, resolution) <= width / 4 + 0.5 / resolution + math.log1p(math.exp(-8))


@given(leak=st.floats(0.01, 0.999))
def test_halvings_are_near_the_leak(leak):
    value = 1 + sum(sign * 2.0**-distance for sign, distance in halvings(leak).terms)
    assert abs(value - leak) < 0.02


def test_a_leak_by_halvings_spikes_like_one_by_multiplication():
    net = network("LIF", seed=4, sizes=(50, 40, 5))
    x = events(5, inputs=50, batch=64)
    by_shift = quantize(net, timesteps=12, leak="shift").run(x)
    by_product = quantize(net, timesteps=12).run(x)
    assert (by_shift.spikes[0] == by_product.spikes[0]).double().mean() > 0.98


def test_additions_are_counted_by_hand():
    net = network("LIF", 6, sizes=(20, 16, 12, 5))
    x = events(7, most=3)
    integer = quantize(net, timesteps=12, input_max=3)
    found = integer.run(x)
    by_hand = 0
    for t in range(12):
        for b in range(16):
            by_hand += 16 * int(x[t, b].sum())
            by_hand += 12 * int(found.spikes[0][t, b].sum()) + 5 * int(found.spikes[1][t, b].sum())
    assert integer.additions(x, found) == by_hand


def test_a_centered_ring_does_not_drift():
    net = network("UltraDLIF", 8, centered=True, eps=1.0)
    with torch.no_grad():
        net.linears[0].bias.zero_()
    integer = quantize(net, timesteps=50)
    assert int(integer.run(torch.zeros(50, 1, 20)).spikes[0].sum()) == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mode": "soft"}, "mode must be hard or tropical"),
        ({"timesteps": 0}, "timesteps must be in"),
        ({"bits": 8}, "bits must be 16 or 32"),
        ({"leak": "guess"}, "leak must be multiply or shift"),
        ({"table_bits": 20}, "table_bits must be in"),
        ({"input_max": 0}, "events in a time step"),
        ({"max_events": 2**31}, "events in a time step"),
        ({"bits": 16, "input_max": 255}, "int16 cannot hold.*bits=32.*clip_membrane=True"),
        ({"max_events": 2**30}, "int32 cannot hold"),
    ],
)
def test_what_cannot_be_asked(change, message):
    with pytest.raises(InputError, match=message):
        quantize(network("UltraDLIF", 9), **change)


@pytest.mark.parametrize(
    ("neuron", "options", "message"),
    [
        ("UltraLIF", {"reset": "saturate"}, "reset='saturate', a soft minimum that cannot be quantized"),
        ("UltraDLIF", {"eps": torch.linspace(0.5, 1, 16), "learn_eps": False}, "different eps"),
    ],
)
def test_neurons_without_an_integer_form(neuron, options, message):
    with pytest.raises(InputError, match=message):
        quantize(network(neuron, 10, **options))


@pytest.mark.parametrize("threshold", [0.5, 0.7312, 0.99])
def test_a_threshold_is_floored(threshold):
    """A whole number of units exceeds theta exactly if it exceeds the floor; rounding would miss spikes."""
    integer = quantize(network("LIF", 21, threshold=threshold), timesteps=12)
    for neuron, synapses in zip(integer.neurons, integer.synapses, strict=False):
        assert bool((neuron.threshold * synapses.unit <= threshold).all())
        assert bool((threshold < (neuron.threshold + 1) * synapses.unit).all())


def test_a_leak_for_each_neuron_is_multiplied():
    net = network("LIF", 11, leak=torch.linspace(0.5, 0.9, 16))
    quantize(net)
    with pytest.raises(InputError, match="leak='multiply'"):
        quantize(net, leak="shift")


@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_weights_that_are_not_finite(value):
    net = network("LIF", 12)
    with torch.no_grad():
        net.linears[1].weight[0, 0] = value
    with pytest.raises(InputError, match=r"layer 'linears.1' has weights that are not finite"):
        quantize(net)


def test_a_bias_beyond_all_ranges():
    net = network("LIF", 13)
    with torch.no_grad():
        net.linears[0].bias[3] = 1e30
    with pytest.raises(InputError, match=r"layer 'neurons.0' .*cannot hold"):
        quantize(net)


def test_a_leak_beyond_all_ranges():
    """Tiny weights make a fine unit, in which the logarithm of a leak is a huge number."""
    net = network("UltraLIF", 20, leak=1e-30)
    with torch.no_grad():
        net.linears[0].weight.mul_(1e-8)
        net.linears[0].bias.zero_()
    with pytest.raises(InputError, match=r"layer 'neurons.0' .*cannot hold"):
        quantize(net, mode="tropical")


def test_a_layer_without_weights_is_still_a_layer():
    net = network("UltraLIF", 14)
    with torch.no_grad():
        net.linears[0].weight.zero_()
        net.linears[0].weight[3] = 1e-9
    assert quantize(net, timesteps=12).run(events(15)).scores.shape == (16, 5)


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (torch.zeros(5, 20), "must be"),
        (torch.zeros(5, 2, 21), "must be"),
        (torch.zeros(101, 2, 20), "timesteps=101"),
        (torch.full((5, 2, 20), 0.5), "event counts"),
        (-torch.ones(5, 2, 20), "event counts"),
        (2 * torch.ones(5, 2, 20), "max_events=40"),
        (torch.full((5, 2, 20), 2**62), "events in a time step"),  # their sum is beyond 64 bits
        (torch.zeros(0, 2, 20), "event counts"),
    ],
)
def test_what_cannot_be_run(x, message):
    with pytest.raises(InputError, match=message):
        quantize(network("LIF", 16)).run(x)


def test_images_are_flattened():
    net = network("LIF", 17)
    x = events(18)
    integer = quantize(net, timesteps=12)
    assert torch.equal(integer.run(x).scores, integer.run(x.reshape(12, 16, 4, 5)).scores)


@pytest.mark.parametrize("dataset", ["mnist", pytest.param("nmnist", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("neuron", "mode"), [("UltraDLIF", "hard"), ("UltraDLIF", "tropical"), ("LIF", "hard")]
)
def test_integers_keep_the_accuracy_on_real_digits(request, train, dataset, neuron, mode):
    digits = request.getfixturevalue(dataset)
    net = train(neuron, digits)
    integer = quantize(net, mode=mode, timesteps=10, input_max=int(digits.test_x.max()))
    found = integer.run(digits.test_x).scores.argmax(1)
    with ul.mode(net, mode), torch.no_grad():
        expected = net(digits.test_x).argmax(1)
    assert (expected == digits.test_y).float().mean() > 0.5
    assert (found == expected).float().mean() > 0.98
