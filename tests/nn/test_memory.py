"""Layers that remember more than a neuron does: feedback, delays, and long sequences in pieces."""

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint_sequential

import ultralif as ul
from ultralif.errors import InputError
from ultralif.export import gap, quantize


def currents(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def recurrent(neuron=ul.UltraLIF, **options) -> ul.Recurrent:
    torch.manual_seed(1)
    return ul.Recurrent(neuron(**options), nn.Linear(4, 4)).double()


@pytest.mark.parametrize("neuron", [ul.UltraLIF, ul.UltraDLIF, ul.SoftLIF])
def test_the_gradient_through_feedback_is_exact(neuron):
    layer = recurrent(neuron, eps=0.5)
    parameters = dict(layer.named_parameters())

    def run(x: Tensor, *values: Tensor) -> Tensor:
        return torch.func.functional_call(layer, dict(zip(parameters, values, strict=True)), x)

    inputs = (currents(4, 2, 4), *parameters.values())
    assert torch.autograd.gradcheck(run, [part.detach().requires_grad_() for part in inputs])


def test_feedback_is_the_definition():
    layer, x = recurrent(ul.LIF), currents(6, 2, 4) * 2
    spikes, v = torch.zeros(2, 4, dtype=torch.float64), torch.zeros(2, 4, dtype=torch.float64)
    expected = []
    for step in x:
        v = 0.9 * v + step + layer.linear(spikes)
        spikes = (v > 0.5).double()
        v = v * (1 - spikes)
        expected.append(spikes)
    found = layer(x)
    assert 0.1 < found.mean() < 0.9
    assert torch.equal(found, torch.stack(expected))


def test_a_recurrent_layer_goes_on_from_its_state_and_changes_its_mode():
    layer, x = recurrent(), currents(6, 2, 4)
    whole = layer(x)
    first, state = layer.run(x[:2])
    second, state = layer.step(x[2], state)
    rest, _ = layer.run(x[3:], state)
    torch.testing.assert_close(torch.cat([first, second[None], rest]), whole)
    ul.set_mode(nn.Sequential(layer), "hard")
    assert set(layer(x).unique().tolist()) <= {0.0, 1.0}
    batch_first = ul.Recurrent(ul.UltraLIF(batch_first=True), layer.linear).double()
    ul.set_mode(batch_first, "hard")
    assert torch.equal(batch_first(x.transpose(0, 1)).transpose(0, 1), layer(x))


def test_feedback_by_convolution_and_of_the_wrong_shape():
    assert ul.Recurrent(ul.LIF(), nn.Conv2d(2, 2, 3, padding=1))(torch.rand(3, 1, 2, 5, 5)).shape == (
        3,
        1,
        2,
        5,
        5,
    )
    with pytest.raises(InputError, match="must preserve the shape"):
        ul.Recurrent(ul.LIF(), nn.Linear(4, 3))(torch.rand(3, 1, 4))
    with pytest.raises(InputError, match="at least one time step"):
        recurrent()(torch.rand(0, 1, 4).double())
    with pytest.raises(TypeError, match="pass the feedback second"):
        ul.Recurrent(nn.Linear(4, 4), ul.LIF())


def test_whole_delays_deliver_late():
    torch.manual_seed(2)
    layer, x = ul.DelayedLinear(3, 2, max_delay=4).double(), currents(9, 2, 3)
    with torch.no_grad():
        layer.delay.copy_(torch.tensor([[0.0, 4.0, 1.0], [2.0, 0.0, 3.0]]))
    expected = layer.bias.expand(9, 2, 2).clone()
    for o in range(2):
        for i in range(3):
            late = int(layer.delay[o, i])
            expected[late:, :, o] += layer.weight[o, i] * x[: 9 - late, :, i]
    torch.testing.assert_close(layer(x), expected)


def test_the_gradient_by_a_delay_is_exact():
    torch.manual_seed(3)
    layer = ul.DelayedLinear(3, 2, max_delay=4).double()
    parameters = dict(layer.named_parameters())
    assert "delay" in parameters

    def run(x: Tensor, *values: Tensor) -> Tensor:
        return torch.func.functional_call(layer, dict(zip(parameters, values, strict=True)), x)

    inputs = (currents(6, 2, 3), *parameters.values())
    assert torch.autograd.gradcheck(run, [part.detach().requires_grad_() for part in inputs])


def test_delays_are_learned():
    """A copy of the input three steps late: descent finds the delay, not only the weight."""
    torch.manual_seed(4)
    layer, x = ul.DelayedLinear(1, 1, max_delay=6, bias=False), torch.randn(200, 4, 1).cumsum(0) / 5
    target = torch.cat([torch.zeros(3, 4, 1), x[:-3]])
    with torch.no_grad():
        layer.delay.fill_(0.5)
        layer.weight.fill_(1.0)
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.05)
    for _ in range(200):
        optimizer.zero_grad()
        (layer(x) - target).square().mean().backward()
        optimizer.step()
    assert layer.delay.item() == pytest.approx(3, abs=0.1)


def test_a_delayed_layer_goes_on_from_its_state():
    layer, x = ul.DelayedLinear(3, 2, max_delay=4).double(), currents(9, 2, 3)
    first, state = layer.run(x[:2])
    second, state = layer.step(x[2], state)
    rest, _ = layer.run(x[3:], state)
    torch.testing.assert_close(torch.cat([first, second[None], rest]), layer(x))
    with pytest.raises(InputError, match="state has shape"):
        layer.run(x, state[1:])
    with pytest.raises(InputError, match=r"use nn\.Linear"):
        ul.DelayedLinear(3, 2, max_delay=0)


def memory() -> nn.Module:
    torch.manual_seed(5)
    return nn.Sequential(
        ul.DelayedLinear(3, 4, max_delay=2),
        ul.Recurrent(ul.UltraLIF(), nn.Linear(4, 4)),
        nn.Linear(4, 4),
        ul.LIF(),
    ).double()


def test_pieces_of_a_sequence_are_the_sequence_without_its_gradient():
    net, x = memory(), currents(12, 2, 3)
    whole = net(x)
    given = x.clone().requires_grad_()
    with ul.truncated(net):
        pieces = [net(piece) for piece in given.split(5)]
    assert torch.equal(torch.cat(pieces), whole)
    (gradient,) = torch.autograd.grad(pieces[1].sum(), given)
    assert bool(gradient[5:10].any())
    assert not bool(gradient[:5].any())
    assert torch.equal(net(x), whole)  # after the block every call starts at rest


def test_a_network_in_pieces_has_its_mean_spikes():
    net, x = ul.Network((3, 5, 2)).double(), currents(12, 2, 3).abs()
    with ul.truncated(net):
        means = [net(piece) for piece in x.split(4)]
    torch.testing.assert_close(torch.stack(means).mean(0), net(x))
    with pytest.raises(InputError, match="no state to keep"), ul.truncated(nn.Linear(2, 2)):
        pass


def test_checkpointing_is_a_line_of_torch():
    net, x = memory(), currents(6, 2, 3)
    net(x).sum().backward()
    plain = [parameter.grad.clone() for parameter in net.parameters()]
    net.zero_grad()
    checkpoint_sequential(net, 2, x, use_reentrant=False).sum().backward()
    for parameter, gradient in zip(net.parameters(), plain, strict=True):
        torch.testing.assert_close(parameter.grad, gradient)


@pytest.mark.parametrize(
    ("layer", "reason"),
    [
        (ul.DelayedLinear(3, 4, max_delay=2), "layer '1' receives real numbers"),
        (ul.Recurrent(ul.LIF(), nn.Linear(3, 3)), "layer '2' receives spikes without weights"),
    ],
)
def test_export_counts_spikes_and_refuses_what_integers_cannot_say(layer, reason):
    net = nn.Sequential(nn.Linear(3, 3), layer, ul.LIF())
    found = gap(net, [(torch.ones(4, 2, 3), torch.tensor([0, 1]))])["hard"]
    assert len(found.spike_rate) == (2 if isinstance(layer, ul.Recurrent) else 1)
    with pytest.raises(InputError, match=reason):
        quantize(nn.Sequential(nn.Linear(3, 3), layer, ul.LIF()))
