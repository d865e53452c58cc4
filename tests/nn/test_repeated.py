"""A call that is repeated is not checked again, and still sees every change."""

import copy
import pickle

import pytest
import torch

import ultralif as ul
from ultralif.errors import InputError


def test_a_repeated_call_follows_every_change():
    neuron, current = ul.UltraLIF(eps=0.5), torch.randn(5, 3, 8)

    def fresh() -> torch.Tensor:
        """Return what a neuron computes that was never called before."""
        return copy.deepcopy(neuron)(current)

    changes = {
        "reset": lambda: setattr(neuron, "reset", "subtract"),
        "a fixed constant": lambda: neuron.assign("leak", 0.3),
        "a learned constant": lambda: neuron.assign("eps", 0.2),
        "another parameter": lambda: setattr(neuron, "log_eps", torch.nn.Parameter(torch.tensor(1.0))),
        "mode": lambda: setattr(neuron, "mode", "hard"),
    }
    for name, change in changes.items():
        for _ in range(3):
            before = neuron(current)
        change()
        assert torch.equal(neuron(current), fresh()), name
        assert not torch.equal(neuron(current), before), name
    assert torch.equal(pickle.loads(pickle.dumps(neuron))(current), fresh())  # noqa: S301


def test_another_shape_is_checked_again():
    neuron = ul.UltraLIF(parameter_shape=(8,))
    for _ in range(2):
        neuron(torch.zeros(2, 3, 8))
    with pytest.raises(InputError, match="eps has shape"):
        neuron(torch.zeros(2, 3, 9))


def test_gradients_of_a_repeated_call():
    neuron, current = ul.UltraPLIF(), torch.randn(5, 3, 8, requires_grad=True)
    inputs = [current, *neuron.parameters()]
    first, second = (torch.autograd.grad(neuron(current).square().sum(), inputs) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
