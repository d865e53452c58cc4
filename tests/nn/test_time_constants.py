"""Time constants: spread over a layer, kept apart from the temperature, learned where the leak is."""

import math

import pytest
import torch

import ultralif as ul
from ultralif.errors import InputError
from ultralif.nn.state import State


def test_they_are_spread_evenly_in_their_logarithm():
    neuron = ul.UltraLIF(time_constants=(2, 32), parameter_shape=(5,))
    torch.testing.assert_close(neuron.log_decay, -1 / torch.tensor([2.0, 4.0, 8.0, 16.0, 32.0]))
    soft = ul.SoftLIF(time_constants=(2, 32), parameter_shape=(5,))
    torch.testing.assert_close(soft.leak, torch.exp(-1 / torch.tensor([2.0, 4.0, 8.0, 16.0, 32.0])))


def test_memory_does_not_move_with_the_temperature():
    neuron = ul.UltraPLIF(time_constants=(3, 30), parameter_shape=(4,), reset="none")
    before = neuron.log_decay.detach()
    neuron.assign("eps", 1.3)
    torch.testing.assert_close(neuron.log_decay.detach(), before)


def test_an_undriven_membrane_falls_by_its_time_constant():
    """In u = exp(V / eps), by 1 / e in as many steps."""
    neuron = ul.UltraLIF(time_constants=(10, 10), parameter_shape=(1,), reset="none", eps=0.3)
    _, state = neuron.run(torch.full((10, 1, 1), -1e4), State(torch.zeros(1, 1)))
    torch.testing.assert_close(state.v / neuron.eps, torch.full((1, 1), -1.0))


def test_they_are_learned_like_the_leak():
    x = torch.randn(6, 3, 4)
    for neuron, learns in ((ul.UltraLIF, False), (ul.UltraPLIF, True)):
        made = neuron(time_constants=(3, 30), parameter_shape=(4,), reset="none")
        made(x).sum().backward()
        grads = {name: p.grad for name, p in made.named_parameters()}
        assert ("log_time_constant" in grads) is learns
        assert all(bool(grad.ne(0).any()) for grad in grads.values())


def test_every_layer_of_a_network_has_its_own():
    net = ul.Network((5, 8, 6, 3), "UltraPLIF", {"time_constants": (2, 20), "reset": "saturate"})
    assert [tuple(neuron.leak.shape) for neuron in net.neurons] == [(8,), (6,)]
    again = ul.Network((5, 8, 6, 3), "UltraPLIF", {"time_constants": (3, 9), "reset": "saturate"})
    again.load_state_dict(net.state_dict())
    x = torch.randn(7, 2, 5)
    assert torch.equal(net(x), again(x))


def test_a_leak_can_be_assigned():
    neuron = ul.UltraLIF(time_constants=(2, 20), parameter_shape=(3,))
    neuron.assign("leak", 0.8)
    torch.testing.assert_close(neuron.leak.detach(), torch.full((3,), 0.8))
    with pytest.raises(InputError, match="leak must be in"):
        neuron.assign("leak", 1.5)


@pytest.mark.parametrize("wrong", [(0, 3), (5, 2), (1, math.inf), (3,)])
def test_wrong_ones_are_refused(wrong):
    with pytest.raises(InputError, match="time_constants must be two positive numbers"):
        ul.UltraLIF(time_constants=wrong, parameter_shape=(4,))


def test_a_shape_is_needed_and_no_leak():
    with pytest.raises(InputError, match="needs parameter_shape"):
        ul.UltraLIF(time_constants=(2, 20))
    with pytest.raises(InputError, match="leave it out"):
        ul.UltraLIF(time_constants=(2, 20), parameter_shape=(4,), leak=0.5)
    with pytest.raises(InputError, match="does not broadcast"):
        ul.UltraLIF(time_constants=(2, 20), parameter_shape=(4,))(torch.zeros(2, 1, 5))
