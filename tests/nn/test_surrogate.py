"""Surrogates that are functions, such as those of other libraries."""

from pathlib import Path

import pytest
import torch
from torch import nn

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


def test_a_function_has_no_soft_mode(tmp_path: Path) -> None:
    net = ul.LIF(surrogate=lambda v: (v > 0).float())
    with ul.mode(net, "soft"):
        assert net.mode == "hard" and net(torch.ones(2, 1, 1)).tolist() == [[[1.0]], [[1.0]]]
    with pytest.raises(InputError, match="no soft mode; choose mode='hard'"):
        ul.functional.surrogate_spike(torch.ones(1), 0.5, 2.0, net.surrogate, "soft")
    trained = nn.Sequential(nn.Linear(4, 8), net, nn.Linear(8, 2))
    data = torch.rand(8, 4), torch.arange(8) % 2
    result = ul.train(trained, data, data, timesteps=2, epochs=1, progress=False, runs_dir=tmp_path)
    assert list(result.by_mode) == ["hard"]
