"""Parity with other libraries, step by step: what a user of theirs gets here, and by which options."""

import importlib
import warnings

import pytest
import torch
from torch import Tensor

import ultralif as ul

pytestmark = pytest.mark.usefixtures("float64")

LEAK, THRESHOLD, SLOPE = 0.9, 0.5, 10.0


def peer(name: str):
    """Import a peer, whose own warnings are not ours; skip the test where it is not installed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return importlib.import_module(name)
        except ImportError:
            pytest.skip(f"{name} is not installed; see tests/peers.txt")


@pytest.fixture
def current() -> Tensor:
    return 0.6 * torch.randn(60, 3, 8)


def leaky(current: Tensor, **options) -> tuple[Tensor, Tensor, torch.nn.Module]:
    """Run snnTorch's LIF; return spikes, the membranes of every step, and the layer."""
    snntorch = peer("snntorch")
    surrogate = peer("snntorch.surrogate").sigmoid(slope=SLOPE)
    layer = snntorch.Leaky(beta=LEAK, threshold=THRESHOLD, spike_grad=surrogate, **options).to(current)
    membrane, spikes, membranes = layer.reset_mem(), [], []
    for x in current:
        spike, membrane = layer(x, membrane)
        spikes.append(spike)
        membranes.append(membrane)
    return torch.stack(spikes), torch.stack(membranes), layer


def stepwise(neuron: ul.Neuron, current: Tensor) -> tuple[Tensor, Tensor]:
    state, spikes, membranes = None, [], []
    for x in current:
        spike, state = neuron.step(x, state)
        spikes.append(spike)
        membranes.append(state.v)
    return torch.stack(spikes), torch.stack(membranes)


@pytest.mark.parametrize("neuron", [ul.LIF, ul.PLIF])
def test_snntorch_leaky(neuron: type[ul.Neuron], current: Tensor) -> None:
    """Reset to zero, at once: every spike and every membrane agrees, and so does every gradient."""
    current.requires_grad_()
    ours = neuron(leak=LEAK, threshold=THRESHOLD, surrogate_slope=SLOPE, scaled_surrogate=True)
    spikes, membranes = stepwise(ours, current)
    learn = {"learn_beta": neuron is ul.PLIF}
    their_spikes, their_membranes, layer = leaky(current, reset_mechanism="zero", reset_delay=False, **learn)
    assert torch.equal(spikes, their_spikes) and 0.05 < spikes.mean() < 0.5
    torch.testing.assert_close(membranes, their_membranes, rtol=1e-12, atol=1e-12)
    weights = torch.randn_like(spikes)
    (found,) = torch.autograd.grad((weights * spikes).sum(), current, retain_graph=True)
    (expected,) = torch.autograd.grad((weights * their_spikes).sum(), current, retain_graph=True)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)  # its spikes are float32
    if neuron is ul.PLIF:  # leak = sigmoid(raw): d/d raw = leak (1 - leak) d/d leak
        (weights * spikes).sum().backward()
        (weights * their_spikes).sum().backward()
        torch.testing.assert_close(
            ours.logit_leak.grad, LEAK * (1 - LEAK) * layer.beta.grad, rtol=1e-5, atol=1e-5
        )


def test_snntorch_by_its_defaults_is_another_neuron(current: Tensor) -> None:
    """The naive mapping does not match: it subtracts the threshold, and resets one step late."""
    spikes, membranes = stepwise(ul.LIF(leak=LEAK, threshold=THRESHOLD), current)
    assert not torch.equal(leaky(current)[0], spikes)
    late_spikes, late_membranes, _ = leaky(current, reset_mechanism="zero")
    assert torch.equal(late_spikes, spikes) and not torch.allclose(late_membranes, membranes)


def spikingjelly(current: Tensor, *, spiking: bool = True, **options) -> Tensor:
    neurons = peer("spikingjelly.activation_based.neuron")
    sigmoid = peer("spikingjelly.activation_based.surrogate").Sigmoid(alpha=SLOPE, spiking=spiking)
    layer = neurons.LIFNode(
        tau=1 / (1 - LEAK),
        v_threshold=THRESHOLD,
        v_reset=0.0,
        surrogate_function=sigmoid,
        step_mode="m",
        **options,
    )
    return layer(current)


def test_spikingjelly_lif(current: Tensor) -> None:
    """``tau`` is a time constant there, 1 / (1 - leak); by default the input decays with it."""
    current.requires_grad_()
    spikes = ul.LIF(leak=LEAK, threshold=THRESHOLD, surrogate_slope=SLOPE, scaled_surrogate=True)(current)
    theirs = spikingjelly(current, decay_input=False)
    assert torch.equal(spikes, theirs)
    assert not torch.equal(spikes, spikingjelly(current))
    weights = torch.randn_like(spikes)
    (found,) = torch.autograd.grad((weights * spikes).sum(), current)
    (expected,) = torch.autograd.grad((weights * theirs).sum(), current)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)


def test_spikingjelly_soft_spikes_are_softlif(current: Tensor) -> None:
    """The control exists there as a surrogate without spikes; the steepness is 1 / eps."""
    spikes = ul.SoftLIF(eps=1 / SLOPE, leak=LEAK, threshold=THRESHOLD)(current)
    theirs = spikingjelly(current, decay_input=False, spiking=False)
    torch.testing.assert_close(spikes, theirs, rtol=1e-10, atol=1e-12)


def test_spikingjelly_fires_at_the_threshold_and_we_above_it() -> None:
    tie = torch.full((1, 1, 1), THRESHOLD)
    assert spikingjelly(tie, decay_input=False).item() == 1.0
    assert ul.LIF(threshold=THRESHOLD)(tie).item() == 0.0


def test_norse_lif_box(current: Tensor) -> None:
    """An Euler step of 1 - leak: it scales the current by that, too."""
    norse = peer("norse.torch.functional.lif_box")
    parameters = norse.LIFBoxParameters(
        tau_mem_inv=torch.tensor(100.0), v_th=torch.tensor(THRESHOLD), v_reset=torch.tensor(0.0)
    )
    spikes, membranes = stepwise(ul.LIF(leak=LEAK, threshold=THRESHOLD), current)
    state = norse.LIFBoxFeedForwardState(v=torch.zeros_like(current[0]))
    for t, x in enumerate(current):
        spike, state = norse.lif_box_feed_forward_step(x / (1 - LEAK), state, parameters, dt=(1 - LEAK) / 100)
        assert torch.equal(spike, spikes[t])
        torch.testing.assert_close(state.v, membranes[t], rtol=1e-12, atol=1e-12)
