"""The gap between soft and binary spikes: measured by hand, and closed."""

import copy

import pytest
import torch
from torch import nn

import ultralif as ul
from export.networks import SHAPE, events, made
from ultralif.errors import InputError
from ultralif.export.harden import _as_integers, calibrate, finetune, gap, modes, spike_trains
from ultralif.export.quantize import Request, quantize


def network(neuron: str = "UltraDLIF", seed: int = 0, sizes=(12, 10, 8, 4), **options) -> ul.Network:
    torch.manual_seed(seed)
    net = ul.Network(sizes, neuron=neuron, neuron_options=options)
    with torch.no_grad():
        for linear in net.linears:
            linear.weight.mul_(3)
    return net


def batches(seed: int = 1, count: int = 3):
    generator = torch.Generator().manual_seed(seed)
    for size in range(4, 4 + count):
        x = (torch.rand(6, size, 12, generator=generator) < 0.4).float()
        yield x, torch.randint(0, 4, (size,), generator=generator)


def same_weights(a: ul.Network, b: ul.Network) -> bool:
    return all(torch.equal(p, q) for p, q in zip(a.parameters(), b.parameters(), strict=True))


def test_the_gap_is_what_counting_by_hand_gives():
    net = network()
    found = gap(net, batches())
    samples, agreeing, correct, spikes, differing = 0, 0, 0, torch.zeros(2), torch.zeros(2, 6)
    for x, labels in batches():
        for b in range(len(labels)):
            one = x[:, b : b + 1]
            soft, soft_class = spike_trains(net, one), int(net(one).argmax())
            with ul.mode(net, "hard"):
                hard, hard_class = spike_trains(net, one), int(net(one).argmax())
            samples += 1
            agreeing += soft_class == hard_class
            correct += hard_class == int(labels[b])
            for layer in range(2):
                spikes[layer] += hard[layer].mean()
                for t in range(6):
                    differing[layer, t] += ((soft[layer][t] > 0.5) != (hard[layer][t] > 0.5)).float().mean()
    measured = found["hard"]
    assert measured.accuracy == pytest.approx(100 * correct / samples)
    assert measured.agreement == pytest.approx(100 * agreeing / samples)
    torch.testing.assert_close(torch.tensor(measured.spike_rate), spikes / samples)
    torch.testing.assert_close(measured.differing.float(), differing / samples)
    assert found["soft"].agreement == 100
    assert found["soft"].first is None


def test_soft_and_hard_part_after_the_first_reset_or_in_the_second_layer():
    """The first membrane is the same in both, so its first spikes are."""
    found = gap(network(), batches())
    assert found["hard"].differing[0, 0] == 0
    parting = found["hard"].first
    assert (parting.layer, parting.step) in {(2, 1), (1, 2), (2, 2)}
    assert parting.share == found["hard"].differing[parting.layer - 1, parting.step - 1]


def test_the_modes_of_a_network_are_those_of_its_neurons():
    assert modes(network("LIF")) == modes(network("SoftLIF")) == ["soft", "hard"]
    assert list(gap(network("LIF"), batches())) == ["soft", "hard"]


def test_a_gap_needs_samples():
    with pytest.raises(InputError, match="holds no samples"):
        gap(network(), [])


@pytest.mark.parametrize("mode", ["hard", "tropical"])
@pytest.mark.parametrize("neuron", ["UltraLIF", "UltraDLIF"])
def test_calibration_gives_every_neuron_its_soft_rate(neuron, mode):
    net = network(neuron, 2, eps=1.0)
    before = copy.deepcopy(net)
    x = (torch.rand(6, 400, 12, generator=torch.Generator().manual_seed(3)) < 0.4).float()
    made = calibrate(net, x, to=mode)
    assert same_weights(net, before)
    assert net.neurons[0].mode == "soft"
    assert [neuron.mode for neuron in made.neurons] == [mode, mode]
    assert all(torch.equal(a.weight, b.weight) for a, b in zip(net.linears, made.linears, strict=True))
    with torch.no_grad():
        for soft, hard in zip(spike_trains(net, x), spike_trains(made, x), strict=True):
            error = (soft.mean((0, 1)) - hard.mean((0, 1))).abs()
            assert error.median() < 2e-3
            assert error.max() < 0.1  # rates move in jumps where many samples share a current


@pytest.mark.parametrize("mode", ["hard", "tropical"])
def test_fine_tuning_in_a_mode_helps_that_mode(mnist, train, mode):
    net = train("UltraDLIF", mnist)
    test = [(mnist.test_x, mnist.test_y)]
    made = finetune(net, mnist.batches(), steps=40, mode=mode, lr=2e-3)
    before, after = gap(net, test), gap(made, test)
    assert after[mode].accuracy > before[mode].accuracy
    assert made.neurons[0].mode == mode


def test_annealing_leads_eps_to_its_end(mnist, train):
    net = train("UltraDLIF", mnist)
    made = finetune(net, mnist.batches(), steps=10, mode="soft", eps=(1.0, 0.1))
    assert float(made.neurons[0].eps.detach()) == pytest.approx(0.1)
    assert not same_weights(net, made)
    fixed = network(eps=1.0, learn_eps=False, sizes=(784, 10, 10))
    assert finetune(fixed, mnist.batches(), steps=2, mode="soft", eps=(1.0, 0.05)).neurons[
        0
    ].eps == pytest.approx(0.05)
    assert fixed.neurons[0].eps == 1.0


def test_annealing_trains_at_both_ends():
    net, seen = network(), []
    net.neurons[0].assign("eps", 5.0)

    def note(module, *_):
        seen.append(float(module.neurons[0].eps.detach()))

    net.register_forward_hook(note)
    finetune(net, batches(count=3), steps=3, mode="soft", eps=(1.0, 0.25))
    assert seen == pytest.approx([1.0, 0.5, 0.25])


@pytest.mark.parametrize("ends", [(0.1, 0.1), (20.0, 0.1), (0.1, 20.0)])
def test_annealing_between_the_ends_of_the_range(ends):
    made = finetune(network(eps_range=(0.1, 20.0)), batches(count=7), steps=7, mode="soft", eps=ends)
    assert float(made.neurons[0].eps.detach()) == pytest.approx(ends[1])


@pytest.mark.parametrize("weight_bits", [4, 8])
@pytest.mark.parametrize("neuron", [ul.UltraLIF, ul.LIF])
def test_training_in_integers_sees_what_the_exported_network_decides(neuron, weight_bits):
    """Batch norm, pooling by mean and maximum, and a feedback: the same spikes, and scores up to a unit."""
    torch.manual_seed(0)
    net = nn.Sequential(
        *list(made("vgg", 1, neuron).children())[:-1],
        nn.Linear(36, 12),
        ul.Recurrent(neuron(), nn.Linear(12, 12)),
        nn.Linear(12, 5),
    ).eval()
    ul.set_mode(net, "hard")
    x = events(3)
    scores = _as_integers(net, x, Request(weight_bits=weight_bits, timesteps=5)).mean(0)
    integer = quantize(net, weight_bits=weight_bits, timesteps=5, shape=SHAPE)
    unit = integer.synapses[-1].unit[0]
    found = integer.run(x)
    assert all(0.02 < spikes.float().mean() < 0.98 for spikes in found.spikes)
    assert float((scores.detach() - found.scores * unit / 5).abs().max()) <= 2 * unit
    scores.square().sum().backward()
    assert all(bool(parameter.grad.any()) for parameter in net[0].parameters())


@pytest.mark.parametrize("weight_bits", [4, 8])
def test_fine_tuning_in_integers_helps_them(mnist, train, weight_bits):
    net, how = train("UltraLIF", mnist), {"timesteps": 10, "weight_bits": weight_bits, "bits": 16}
    how["clip_membrane"] = True

    def right(trained):
        return int((quantize(trained, **how).run(mnist.test_x).scores.argmax(1) == mnist.test_y).sum())

    tuned = finetune(net, mnist.batches(), steps=40, lr=2e-3, **how)
    assert right(tuned) > right(net)


def test_options_of_integers_need_their_bits():
    with pytest.raises(InputError, match=r"timesteps, bits applies .* add weight_bits"):
        finetune(network(), batches(), steps=1, timesteps=6, bits=16)


def test_annealing_what_has_no_temperature():
    with pytest.raises(InputError, match="no temperature"):
        finetune(network("LIF"), batches(), steps=1, eps=(1.0, 0.1))


def test_annealing_out_of_range():
    with pytest.raises(ValueError, match=r"eps must be in \[0.1, 20\]"):
        finetune(network(), batches(), steps=2, mode="soft", eps=(1.0, 0.01))
