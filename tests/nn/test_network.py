"""Multilayer perceptrons of any depth, streamed and whole, and networks that a user puts together."""

from itertools import pairwise
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.nn.functional import cross_entropy

import ultralif as ul
from ultralif.names import NEURON_NAMES

every_neuron = pytest.mark.parametrize("name", NEURON_NAMES)


@every_neuron
@pytest.mark.parametrize("readout", ["linear", "spiking"])
def test_forward_is_the_papers_readout(name: str, readout: str) -> None:
    """Layer by layer by hand: W_out applied to mean spikes (appendix D.3), or mean output spikes (eq. 25)."""
    net = ul.Network((6, 5, 3), neuron=name, readout=readout)
    x = torch.randn(7, 2, 6)
    hidden = net.neurons[0](net.linears[0](x))
    output = net.linears[1](hidden)
    expected = output.mean(0) if readout == "linear" else net.neurons[1](output).mean(0)
    torch.testing.assert_close(net(x), expected, rtol=1e-5, atol=1e-6)


@every_neuron
@pytest.mark.parametrize("readout", ["linear", "spiking"])
def test_depth(name: str, readout: str) -> None:
    sizes = (6, 8, 7, 5, 4, 3)
    net = ul.Network(sizes, neuron=name, readout=readout)
    assert [(linear.in_features, linear.out_features) for linear in net.linears] == list(pairwise(sizes))
    spiking = sizes[1:] if readout == "spiking" else sizes[1:-1]
    assert len(net.neurons) == len(spiking) == len(list(net.layers()))
    assert len({id(neuron) for neuron in net.neurons}) == len(spiking)  # each layer has its own
    logits, rates = net.observe(torch.rand(4, 2, sizes[0]))[:2]
    assert logits.shape == (2, sizes[-1])
    assert [rate.shape for rate in rates] == [(2, size) for size in spiking]
    assert all(rate.min() >= -0.1 and rate.max() <= 1.1 for rate in rates)  # DSpike's curve leaves [0, 1]
    logits.sum().backward()
    assert all(p.grad is not None for p in net.parameters())


@every_neuron
@pytest.mark.parametrize("readout", ["linear", "spiking"])
def test_streaming_gives_the_same_mean(name: str, readout: str) -> None:
    net = ul.Network((6, 5, 4, 3), neuron=name, readout=readout).double()
    x = torch.randn(9, 2, 2, 3, dtype=torch.float64)
    states, outputs = None, []
    for frame in x:
        output, states = net.step(frame, states)
        outputs.append(output)
    torch.testing.assert_close(torch.stack(outputs).mean(0), net(x), rtol=1e-12, atol=1e-12)
    assert len(states) == len(net.neurons)


def test_rates_are_means_over_time() -> None:
    net = ul.Network((4, 5, 2), neuron="LIF")
    x = 3 * torch.randn(10, 3, 4)
    (rate,) = net.observe(x).rates
    assert torch.equal(rate, net.neurons[0](net.linears[0](x)).mean(0))
    assert set((rate * 10).round().unique().tolist()) <= set(range(11)) and rate.any()


def test_any_input_shape_is_flattened() -> None:
    net = ul.Network((24, 5, 2))
    x = torch.randn(3, 2, 2, 3, 4)
    assert torch.equal(net(x), net(x.reshape(3, 2, 24)))


def test_options_reach_every_layer() -> None:
    options = {"eps": 0.4, "threshold": 0.3, "centered": True}
    net = ul.Network((6, 5, 4, 3), neuron="ultradlif", neuron_options=options)
    for neuron in net.neurons:
        assert isinstance(neuron, ul.UltraDLIF) and neuron.centered and neuron.threshold == 0.3
    assert options == {"eps": 0.4, "threshold": 0.3, "centered": True}


@pytest.mark.parametrize(
    ("written", "found"), [("UltraDLIF", ul.UltraDLIF), ("plif", ul.PLIF), ("DSpike+", ul.DSpikePlus)]
)
def test_names_of_neurons(written: str, found: type[ul.Neuron]) -> None:
    assert ul.nn.find_neuron(written) is found
    assert isinstance(ul.Network((2, 3, 2), neuron=written).neurons[0], found)
    assert isinstance(ul.Network((2, 3, 2), neuron=found).neurons[0], found)


def test_an_empty_batch() -> None:
    net = ul.Network((4, 5, 3))
    assert net(torch.zeros(3, 0, 4)).shape == (0, 3)
    assert net.step(torch.zeros(0, 4))[0].shape == (0, 3)


@every_neuron
def test_a_network_learns(name: str) -> None:
    """Three classes that light up three groups of inputs are soon told apart, whatever the neuron."""
    y = torch.arange(30) % 3
    x = (torch.rand(5, 30, 9) < 0.1 + 0.6 * (torch.arange(9) // 3 == y[:, None])).float()
    net = ul.Network((9, 24, 3), neuron=name)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.02)
    losses = []
    for _ in range(60):
        loss = cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]


def convolutional() -> nn.Sequential:
    return nn.Sequential(
        ul.TimeDistributed(nn.Conv2d(1, 4, 3, padding=1)),
        ul.UltraDLIF(centered=True, eps=0.5),
        ul.TimeDistributed(nn.MaxPool2d(2)),
        ul.TimeDistributed(nn.Conv2d(4, 6, 3, padding=1)),
        ul.LIF(),
        nn.Flatten(2),
        nn.Linear(6 * 16, 3),
        ul.UltraPLIF(),
    )


def test_time_distributed_is_the_module_at_every_step() -> None:
    conv = nn.Conv2d(2, 3, 3, stride=2)
    x = torch.randn(4, 5, 2, 8, 8)
    folded = ul.TimeDistributed(conv)(x)
    torch.testing.assert_close(folded, torch.stack([conv(frame) for frame in x]))
    strided = x.transpose(0, 1)
    torch.testing.assert_close(ul.TimeDistributed(conv)(strided), folded.transpose(0, 1))
    assert ul.TimeDistributed(conv)(x[:, :0]).shape == (4, 0, 3, 3, 3)


def test_a_convolution_of_a_constant_image_is_computed_once() -> None:
    conv, image = ul.TimeDistributed(nn.Conv2d(2, 3, 3)), torch.randn(5, 2, 8, 8)
    one, many = image.clone().requires_grad_(), image.clone().requires_grad_()
    once = conv(one.expand(4, *image.shape))
    each = conv(many.repeat(4, 1, 1, 1, 1))
    torch.testing.assert_close(once, each)
    (once * once).sum().backward()
    (each * each).sum().backward()
    torch.testing.assert_close(one.grad, many.grad)
    with mock.patch.object(functional, "conv2d", wraps=functional.conv2d) as convolve:
        torch.testing.assert_close(conv(image.expand(4, *image.shape)).relu_(), each.relu())
    assert [len(call.args[0]) for call in convolve.mock_calls] == [5]
    exported = torch.export.export(conv, (image.expand(4, *image.shape),)).module()
    torch.testing.assert_close(exported(moving := torch.randn(4, *image.shape)), conv(moving))
    seen = []
    conv.module.register_forward_hook(lambda module, given, out: seen.append(len(out)))
    conv(image.expand(4, *image.shape))
    assert seen == [20]  # a hook, which may count operations, sees the call of every step


class Noisy(nn.Conv2d):
    """A user's convolution that draws noise."""

    def forward(self, x):
        return super().forward(x + torch.randn_like(x))


def test_a_convolution_with_noise_differs_at_every_step() -> None:
    first, second = ul.TimeDistributed(Noisy(2, 3, 3))(torch.randn(5, 2, 8, 8).expand(2, -1, -1, -1, -1))
    assert not torch.equal(first, second)


@pytest.mark.parametrize("layer", [nn.Conv2d(2, 3, 3), nn.MaxPool2d(2)])
def test_a_folded_layer_for_any_number_of_steps(layer: nn.Module) -> None:
    steps, x = torch.export.Dim("steps", min=2), torch.randn(4, 2, 2, 8, 8)
    made = torch.export.export(ul.TimeDistributed(layer), (x,), dynamic_shapes=({0: steps},), strict=False)
    longer = torch.randn(7, 2, 2, 8, 8)
    torch.testing.assert_close(made.module()(longer), ul.TimeDistributed(layer)(longer))


def test_a_module_in_time_distributed_is_called_where_someone_watches_it() -> None:
    inside = nn.Sequential(nn.Conv2d(2, 3, 3), nn.MaxPool2d(2))
    seen = []
    inside.register_full_backward_hook(lambda module, given, out: seen.append("gradient"))
    ul.TimeDistributed(inside)(torch.randn(4, 5, 2, 8, 8, requires_grad=True)).sum().backward()
    assert seen == ["gradient"]
    pool = nn.MaxPool2d(2)
    pool.forward = lambda x: -functional.max_pool2d(x, 2)
    x = torch.rand(4, 5, 2, 8, 8)
    assert float(ul.TimeDistributed(nn.Sequential(pool))(x).max()) <= 0


@pytest.mark.parametrize("options", [{}, {"stride": 1}, {"padding": 1}, {"ceil_mode": True}, {"dilation": 2}])
@pytest.mark.parametrize("window", [1, 2, 3, (2, 3)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_maximum_pooling_without_gradients(options: dict, window: object, dtype: torch.dtype) -> None:
    if window == 1 and "padding" in options:
        pytest.skip("PyTorch refuses it")
    x = (torch.rand(2, 3, 4, 7, 9) < 0.3).to(dtype)
    x[0, 0, 0, 2, 2], x[1, 1, 1, 1, 1] = torch.nan, -torch.inf
    pool = nn.MaxPool2d(window, **options)
    expected = torch.stack([pool(frame) for frame in x])
    for given in (x, x.to(memory_format=torch.channels_last_3d)):
        for layer in (pool, nn.Sequential(nn.Identity(), pool)):
            found = ul.TimeDistributed(layer)(given)
            torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("window", [(2,), [2, 3], np.int64(2)])
def test_every_way_to_write_a_window(window: Any) -> None:
    x, pool = torch.randn(2, 3, 4, 7, 9), nn.MaxPool2d(window)
    assert torch.equal(ul.TimeDistributed(pool)(x), torch.stack([pool(frame) for frame in x]))


def test_a_window_of_one_copies() -> None:
    x = torch.randn(2, 3, 4, 7, 9)
    before = x.clone()
    ul.TimeDistributed(nn.MaxPool2d(1))(x).zero_()
    assert torch.equal(x, before)


def test_maximum_pooling_with_gradients_and_hooks() -> None:
    x, seen = torch.rand(2, 3, 4, 7, 9, requires_grad=True), []
    layer = ul.TimeDistributed(nn.MaxPool2d(2))
    (found,) = torch.autograd.grad(layer(x).square().sum(), x)
    (expected,) = torch.autograd.grad(sum(layer.module(frame).square().sum() for frame in x), x)
    assert torch.equal(found, expected) and int((found != 0).sum()) == 2 * 3 * 4 * 3 * 4
    layer.module.register_forward_hook(lambda module, given, out: seen.append(out.shape))
    with torch.no_grad():
        layer(x)
    assert seen == [(6, 4, 3, 4)]


def test_a_convolutional_network_trains() -> None:
    """A user's own network: convolutions, pooling, a grid of coupled neurons, mixed families."""
    net = convolutional()
    x, y = torch.rand(4, 8, 1, 8, 8), torch.randint(0, 3, (8,))
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    losses = []
    for _ in range(12):
        loss = cross_entropy(10 * net(x).mean(0), y)
        optimizer.zero_grad()
        loss.backward()
        assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in net.parameters())
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    with ul.mode(net, "hard"), torch.no_grad():
        assert set(net(x).unique().tolist()) <= {0.0, 1.0}


def test_a_backward_hook_of_a_convolution_sees_every_step_of_a_constant_image() -> None:
    conv, sizes = nn.Conv2d(1, 2, 3), []
    conv.register_full_backward_hook(lambda module, inwards, outwards: sizes.append(len(outwards[0])))
    ul.TimeDistributed(conv)(
        torch.rand(3, 1, 6, 6, requires_grad=True).expand(4, -1, -1, -1, -1)
    ).sum().backward()
    assert sizes == [12]
