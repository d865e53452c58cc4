"""`return_membrane`: the states of `step`, with exact gradients through spikes and membranes."""

import pytest
import torch

import ultralif as ul

NEURONS = [ul.UltraLIF, ul.UltraDLIF, ul.LIF, ul.AdaLIF, ul.DSpike, ul.SoftLIF]


@pytest.mark.parametrize("neuron", NEURONS)
@pytest.mark.parametrize("options", [{}, {"batch_first": True}, {"synapse": 0.5}, {"reset": "subtract"}])
def test_it_returns_the_membranes_of_step(neuron: type, options: dict) -> None:
    layer = neuron(**options)
    current = torch.randn(5, 3, 4)
    spikes, membrane = layer(
        current.transpose(0, 1) if "batch_first" in options else current, return_membrane=True
    )
    if "batch_first" in options:
        spikes, membrane = spikes.transpose(0, 1), membrane.transpose(0, 1)
    state = None
    for t in range(5):
        spike, state = layer.step(current[t], state)
        torch.testing.assert_close(spikes[t], spike)
        torch.testing.assert_close(membrane[t], state[0])


@pytest.mark.parametrize("neuron", [ul.UltraLIF, ul.SoftLIF, ul.UltraDLIF])
def test_gradients_are_exact(neuron: type) -> None:
    layer = neuron(learn_eps=False)
    current = torch.randn(4, 2, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: layer(x, return_membrane=True), (current,))


def test_a_loss_on_the_membrane_trains_the_constants() -> None:
    layer = ul.UltraPLIF()
    spikes, membrane = layer(torch.randn(6, 2, 4), return_membrane=True)
    (spikes.sum() + membrane.square().sum()).backward()
    assert all(p.grad is not None and float(p.grad) != 0 for p in layer.parameters())
    assert torch.is_tensor(layer(torch.randn(6, 2, 4)))
