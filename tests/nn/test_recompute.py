"""Recomputation in time: the same numbers and gradients, in a memory that hardly grows with T."""

import copy
from collections.abc import Callable
from itertools import accumulate
from typing import Any

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

import ultralif as ul
from ultralif.errors import InputError


def peak_memory(run: Callable[[], object]) -> int:
    """Return the most bytes that tensors had at one time, counted by the allocator, which changes no call."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        run()
    kineto = profiled.profiler
    assert kineto is not None
    events = kineto.kineto_results.events()
    return max(accumulate(event.nbytes() for event in events if event.name() == "[memory]"))


def conv_net() -> nn.Sequential:
    torch.manual_seed(0)
    each = ul.TimeDistributed
    return nn.Sequential(
        each(nn.Conv2d(1, 8, 3, padding=1)),
        ul.UltraLIF(),
        each(nn.Conv2d(8, 8, 3, padding=1)),
        ul.LIF(),
        each(nn.Sequential(nn.AvgPool2d(4), nn.Flatten())),
        nn.Linear(32, 3),
    )


def gradients(net: nn.Module, out: torch.Tensor) -> list[torch.Tensor]:
    net.zero_grad()
    out.square().sum().backward()
    return [p.grad.clone() for p in net.parameters() if p.grad is not None]


@pytest.mark.parametrize("timesteps", [1, 3, 4, 7, 40])
@pytest.mark.parametrize("steps", [1, 4])
def test_results_and_gradients_are_those_of_the_network(timesteps: int, steps: int) -> None:
    net = conv_net()
    x = torch.rand(timesteps, 2, 1, 8, 8)
    whole = net(x)
    pieces = ul.nn.recompute(net, x, steps=steps)
    torch.testing.assert_close(pieces, whole)
    for got, wanted in zip(gradients(net, pieces), gradients(net, whole), strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)


def test_every_layer_with_a_state_is_carried() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Linear(5, 6),
        ul.Recurrent(ul.AdaLIF(), nn.Linear(6, 6)),
        ul.DelayedLinear(6, 4, max_delay=3),
        ul.UltraLIF(synapse=0.5),
        nn.Dropout(0.0),
        ul.LeakyIntegrator(),
    )
    x = torch.rand(21, 2, 5, requires_grad=True)
    whole = net(x)
    pieces = ul.nn.recompute(net, x, steps=2)
    torch.testing.assert_close(pieces, whole)
    (got,) = torch.autograd.grad(pieces.square().sum(), x)
    (wanted,) = torch.autograd.grad(whole.square().sum(), x)
    torch.testing.assert_close(got, wanted)
    assert "forward" not in vars(net[1]) and not net[3]._forward_hooks


def test_a_network_that_returns_a_mean() -> None:
    net = ul.models.vgg("vgg5", channels=2, width=0.25).eval()
    events = torch.rand(10, 2, 2, 16, 16).round()
    whole = net(events)
    torch.testing.assert_close(ul.nn.recompute(net, events, steps=4, over="mean"), whole)
    plain = ul.Network([6, 5, 3])
    x = torch.rand(9, 2, 6)
    torch.testing.assert_close(ul.nn.recompute(plain, x, steps=2, over="mean"), plain(x))


def test_batch_norm_uses_each_piece_and_counts_it_once() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(ul.TimeDistributed(nn.BatchNorm1d(6)), ul.UltraLIF(), nn.Linear(6, 2))
    other = copy.deepcopy(net)
    x = torch.randn(40, 4, 6)
    gradients(net, ul.nn.recompute(net, x, steps=2))
    with ul.truncated(other):
        for piece in x.split(2):
            other(piece)
    norm, wanted = net[0].module, other[0].module
    torch.testing.assert_close(norm.running_mean, wanted.running_mean)
    torch.testing.assert_close(norm.running_var, wanted.running_var)
    assert norm.momentum == 0.1 and int(norm.num_batches_tracked) == 20


def peak(timesteps: int, call: Any) -> int:
    net = conv_net()
    x = torch.rand(1, 64, 1, 8, 8).expand(timesteps, -1, -1, -1, -1)
    call(net, x[:4])  # the first call allocates what does not depend on T
    return peak_memory(lambda: call(net, x).square().mean().backward())


def test_memory_hardly_grows_with_the_number_of_steps() -> None:
    plain = {t: peak(t, lambda net, x: net(x)) for t in (8, 128)}
    again = {t: peak(t, lambda net, x: ul.nn.recompute(net, x, steps=2)) for t in (8, 128)}
    assert plain[128] > 10 * plain[8]
    assert again[128] < 2.5 * again[8]  # it grows with the logarithm of T
    assert again[128] < plain[128] / 8


def test_bad_input_gets_one_clear_error() -> None:
    with pytest.raises(InputError, match="steps must be at least 1"):
        ul.nn.recompute(conv_net(), torch.rand(4, 2, 1, 8, 8), steps=0)
    with pytest.raises(InputError, match="over must be one of steps, mean"):
        ul.nn.recompute(conv_net(), torch.rand(4, 2, 1, 8, 8), over="sum")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="without ultralif neurons"):
        ul.nn.recompute(nn.Linear(2, 2), torch.rand(4, 2, 2))
