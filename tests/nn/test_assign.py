"""Constants can be given another value, fixed or learned."""

import pytest
import torch

import ultralif as ul


def test_a_learned_constant_goes_on_from_there():
    neuron = ul.UltraLIF(eps=1.0)
    neuron.assign("eps", 0.25)
    assert float(neuron.eps.detach()) == pytest.approx(0.25)
    neuron(torch.ones(2, 1, 3)).sum().backward()
    assert neuron.log_eps.grad is not None


def test_one_for_each_neuron():
    neuron = ul.PLIF(parameter_shape=(3,))
    neuron.assign("leak", torch.tensor([0.2, 0.5, 0.8]))
    torch.testing.assert_close(neuron.leak.detach(), torch.tensor([0.2, 0.5, 0.8]))
    neuron.assign("leak", 0.7)
    torch.testing.assert_close(neuron.leak.detach(), torch.full((3,), 0.7))


def test_a_fixed_number_and_a_fixed_tensor():
    neuron = ul.LIF(leak=0.9, threshold=torch.ones(3))
    neuron.assign("leak", 0.5)
    neuron.assign("threshold", torch.tensor([1.0, 2.0, 3.0]))
    assert neuron.leak == 0.5
    assert torch.equal(neuron.threshold, torch.tensor([1.0, 2.0, 3.0]))


OUTSIDE = [("eps", 0.01), ("eps", 50.0), ("leak", -0.5), ("leak", 1.5), ("threshold", float("inf"))]


@pytest.mark.parametrize(("name", "value"), OUTSIDE)
def test_out_of_range(name, value):
    with pytest.raises(ValueError, match=f"{name} must be in"):
        ul.UltraLIF().assign(name, value)


def test_a_constant_is_set_like_an_attribute() -> None:
    neuron, current = ul.UltraLIF(), torch.full((3, 1, 2), 0.6)
    before = neuron(current)
    neuron.threshold, neuron.eps = 0.7, 0.4
    assert torch.equal(neuron(current), ul.UltraLIF(threshold=0.7, eps=0.4)(current))
    assert not torch.equal(neuron(current), before)
    with pytest.raises(ValueError, match="leak must be in"):
        neuron.leak = 2.0


def test_what_is_no_constant() -> None:
    with pytest.raises(ValueError, match="UltraLIF has no constant 'thresold'; it has threshold, eps, leak"):
        ul.UltraLIF().assign("thresold", 0.7)
    with pytest.raises(TypeError, match="eps must be a number or a tensor, got 'cold'"):
        ul.UltraLIF().assign("eps", "cold")
