"""The leaky integrator: its formula, exact gradients, states, and its place in a network."""

import pytest
import torch
from torch import nn

import ultralif as ul
from ultralif.errors import InputError


def test_the_membrane_is_the_sum_of_decayed_currents() -> None:
    x = torch.randn(6, 2, 3, dtype=torch.float64)
    out = ul.LeakyIntegrator(leak=0.8)(x)
    for t in range(6):
        wanted = sum(0.8 ** (t - s) * x[s] for s in range(t + 1))
        torch.testing.assert_close(out[t], wanted)


def test_gradients_are_exact() -> None:
    x = torch.randn(4, 2, 3, dtype=torch.float64, requires_grad=True)
    v = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
    leak = torch.tensor([0.2, 0.5, 0.9], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda x, v, leak: ul.functional.leaky_integrator(x, v, leak=leak), (x, v, leak)
    )
    layer = ul.LeakyIntegrator(learn_leak=True, parameter_shape=(3,)).double()
    layer(x).square().sum().backward()
    assert layer.logit_leak.grad is not None and bool((layer.logit_leak.grad != 0).all())


def test_forward_run_and_step_agree() -> None:
    x = torch.randn(5, 2, 3)
    layer = ul.LeakyIntegrator(leak=0.7)
    whole = layer(x)
    first, state = layer.run(x[:2])
    second, _ = layer.run(x[2:], state)
    torch.testing.assert_close(torch.cat((first, second)), whole)
    stepped = None
    for t in range(5):
        out, stepped = layer.step(x[t], stepped)
        torch.testing.assert_close(out, whole[t])
    batch_first = ul.LeakyIntegrator(leak=0.7, batch_first=True)
    torch.testing.assert_close(batch_first(x.transpose(0, 1)).transpose(0, 1), whole)


def test_it_is_a_readout_without_spikes() -> None:
    net = nn.Sequential(nn.Linear(4, 8), ul.UltraLIF(), nn.Linear(8, 2), ul.LeakyIntegrator())
    before = net(torch.rand(6, 3, 4))
    ul.set_mode(net, "hard")
    assert before.shape == (6, 3, 2) and net[1].mode == "hard"
    assert "leak=0.9" in repr(net[3])
    x = torch.rand(6, 3, 4)
    with ul.truncated(net):
        pieces = torch.cat([net(piece) for piece in x.split(2)])
    torch.testing.assert_close(pieces, net(x))


def test_bad_input_gets_one_clear_error() -> None:
    layer = ul.LeakyIntegrator()
    with pytest.raises(InputError, match="leak must be in"):
        ul.LeakyIntegrator(leak=1.5)
    with pytest.raises(InputError, match="current must be"):
        layer(torch.rand(3, 2))
    with pytest.raises(InputError, match="state has shape"):
        layer.run(torch.rand(3, 2, 4), layer.run(torch.rand(3, 2, 5))[1])
