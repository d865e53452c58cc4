"""Surrogates that are functions, such as those of other libraries."""

import pytest
import torch

import ultralif as ul
from ultralif.errors import InputError


@pytest.mark.parametrize("neuron", [ul.LIF, ul.AdaLIF])
def test_a_function_as_surrogate(neuron: type[ul.LIF]) -> None:
    theirs = pytest.importorskip("snntorch").surrogate.atan(alpha=2.0)
    x = torch.randn(9, 3, 4, generator=torch.Generator().manual_seed(0)).requires_grad_()
    by_function = neuron(surrogate=theirs)
    by_name = neuron(surrogate="atan", surrogate_slope=2.0)
    weights = torch.arange(9.0).view(9, 1, 1)
    found, expected = (
        torch.autograd.grad((each(x) * weights).sum(), x)[0] for each in (by_function, by_name)
    )
    torch.testing.assert_close(found, expected)
    assert torch.equal(by_function(x), by_name(x)) and bool(found.any())


def test_a_function_has_no_soft_mode() -> None:
    net = ul.LIF(surrogate=lambda v: (v > 0).float())
    with ul.mode(net, "soft"), pytest.raises(InputError, match="no soft mode; choose mode='hard'"):
        net(torch.ones(2, 1, 1))
