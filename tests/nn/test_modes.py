"""Switching a whole network between soft, hard and tropical spikes."""

import copy

import pytest
import torch
from torch import nn

import ultralif as ul
from ultralif.names import NEURON_NAMES

every_neuron = pytest.mark.parametrize("name", NEURON_NAMES)

MODES = {
    "UltraLIF": ("soft", "hard", "tropical"),
    "UltraPLIF": ("soft", "hard", "tropical"),
    "UltraDLIF": ("soft", "hard", "tropical"),
    "UltraDPLIF": ("soft", "hard", "tropical"),
    "SoftLIF": ("soft", "hard"),
    "DSpike": ("hard", "soft"),
    "DSpikePlus": ("hard", "soft"),
    "LIF": ("hard", "soft"),
    "PLIF": ("hard", "soft"),
    "FullPLIF": ("hard", "soft"),
    "AdaLIF": ("hard", "soft"),
}


def mixed() -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(4, 5), ul.UltraDLIF(), nn.Sequential(nn.Linear(5, 5), ul.LIF()), ul.SoftLIF(), ul.DSpike()
    )


def modes_of(net: nn.Module) -> list[str]:
    return [module.mode for module in net.modules() if isinstance(module, ul.Neuron)]


@every_neuron
def test_each_neuron_has_its_modes(name: str) -> None:
    neuron = ul.NEURONS[name]
    assert neuron.modes == MODES[name]
    assert neuron().mode == MODES[name][0]
    assert [neuron(mode=mode).mode for mode in neuron.modes] == list(MODES[name])


@every_neuron
def test_spikes_are_binary_outside_of_soft_mode(name: str) -> None:
    neuron, current = ul.NEURONS[name](), 2 * torch.randn(20, 3, 6)
    for mode in neuron.modes:
        neuron.mode = mode
        values = set(neuron(current).unique().tolist())
        assert (values == {0.0, 1.0}) == (mode != "soft")


def test_a_network_switches_at_once_and_falls_back_to_hard() -> None:
    net = mixed()
    assert modes_of(net) == ["soft", "hard", "soft", "hard"]
    ul.set_mode(net, "tropical")
    assert modes_of(net) == ["tropical", "hard", "hard", "hard"]
    ul.set_mode(net, "soft")
    assert modes_of(net) == ["soft"] * 4
    ul.set_mode(net, "hard")
    assert modes_of(net) == ["hard"] * 4


def test_a_context_restores_what_was_there() -> None:
    net = mixed()
    net[1].mode = "hard"
    before = modes_of(net)
    with ul.mode(net, "soft"):
        assert modes_of(net) == ["soft"] * 4
        with ul.mode(net[1], "tropical"):
            assert modes_of(net)[0] == "tropical"
        assert modes_of(net)[0] == "soft"
    assert modes_of(net) == before
    with pytest.raises(RuntimeError, match="inside"), ul.mode(net, "tropical"):
        raise RuntimeError("inside")
    assert modes_of(net) == before


def test_a_mode_changes_the_output_and_the_weights_not() -> None:
    net = ul.Network((4, 16, 3), neuron="UltraDLIF")
    weights = copy.deepcopy(net.state_dict())
    x = torch.randn(6, 2, 4)
    outputs = {}
    for mode in ("soft", "hard", "tropical"):
        with ul.mode(net, mode):
            outputs[mode] = net(x)
    assert not torch.allclose(outputs["soft"], outputs["hard"])
    assert not torch.allclose(outputs["hard"], outputs["tropical"])
    assert torch.equal(net(x), outputs["soft"])
    assert all(torch.equal(value, weights[key]) for key, value in net.state_dict().items())


@every_neuron
def test_a_mode_survives_a_copy_and_comes_back_with_the_state_dict(name: str) -> None:
    neuron = ul.NEURONS[name]()
    neuron.mode = "hard"
    assert copy.deepcopy(neuron).mode == "hard"
    assert not any("mode" in key for key in neuron.state_dict())
    fresh = ul.NEURONS[name]()
    fresh.load_state_dict(neuron.state_dict())
    assert fresh.mode == "hard"
    fresh = ul.NEURONS[name]()
    fresh.load_state_dict(dict(neuron.state_dict()))
    assert fresh.mode == MODES[name][0], "a plain dict has parameters alone"


def test_training_and_evaluation_leave_the_mode_alone() -> None:
    """Deployment is a decision of its own: ``eval()`` must not change what a network computes."""
    net = mixed()
    x = torch.randn(3, 2, 4)
    assert torch.equal(net.train()(x), net.eval()(x))
    assert modes_of(net) == ["soft", "hard", "soft", "hard"]


def test_hard_spikes_train() -> None:
    """In hard mode the gradient is that of the soft spike, so every parameter still learns."""
    net = ul.Network((4, 8, 3), neuron="UltraPLIF")
    ul.set_mode(net, "hard")
    net(torch.randn(5, 6, 4)).sum().backward()
    assert all(p.grad is not None and p.grad.any() for p in net.parameters())
