"""`ul.step`, and hooks of neurons inside `ul.Recurrent`."""

import pytest
import torch
from torch import nn

import ultralif as ul
from ultralif.errors import InputError

NETS = {
    "sequential": lambda: nn.Sequential(nn.Linear(6, 5), ul.LIF(threshold=0.1), nn.Linear(5, 2)),
    "recurrent": lambda: nn.Sequential(nn.Linear(6, 5), ul.Recurrent(ul.LIF(synapse=0.5), nn.Linear(5, 5))),
    "delays": lambda: nn.Sequential(ul.DelayedLinear(6, 5, max_delay=3), ul.UltraLIF(), ul.LeakyIntegrator()),
}


@pytest.mark.parametrize("kind", NETS)
def test_steps_equal_the_sequence(kind: str) -> None:
    torch.manual_seed(0)
    net, x, state, outs = NETS[kind](), torch.rand(7, 3, 6), None, []
    for each in x:
        out, state = ul.step(net, each, state)
        outs.append(out)
    torch.testing.assert_close(torch.stack(outs), net(x))
    torch.stack(outs).sum().backward()
    assert all(p.grad is not None for p in net.parameters())
    with pytest.raises(InputError, match="state has 9 parts"):
        ul.step(net, x[0], (None,) * 9)


def test_a_network_steps() -> None:
    net, x = ul.Network([6, 5, 2]), torch.rand(1, 3, 6)
    torch.testing.assert_close(ul.step(net, x[0])[0], net(x))


def test_hooks_of_a_neuron_inside_recurrent_fire() -> None:
    net = nn.Sequential(nn.Linear(6, 5), ul.Recurrent(ul.LIF(threshold=0.1), nn.Linear(5, 5)))
    seen = []
    net[1].neuron.register_forward_hook(lambda module, given, out: seen.append((given[0], out)))
    spikes = net(torch.rand(4, 3, 6))
    ((current, out),) = seen
    assert torch.equal(out, spikes) and current.shape == spikes.shape and bool(spikes.any())
    assert torch.equal(net(torch.zeros(2, 1, 6)), seen[1][1])
