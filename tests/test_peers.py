"""Parity with other libraries, step by step: what a user of theirs gets here, and by which options."""

import importlib
import warnings

import pytest
import torch
from torch import Tensor

import ultralif as ul

pytestmark = pytest.mark.usefixtures("float64")

LEAK, THRESHOLD, SLOPE = 0.9, 0.5, 10.0
CONSTANTS = {"leak": LEAK, "threshold": THRESHOLD, "surrogate_slope": SLOPE}


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


def run_snntorch(layer: torch.nn.Module, current: Tensor) -> tuple[Tensor, Tensor]:
    """Run a layer of snnTorch; return the spikes and the membranes of every step."""
    state, spikes, membranes = (
        tuple(torch.zeros_like(current[0]) for _ in range(STATES[type(layer).__name__])),
        [],
        [],
    )
    for x in current:
        spike, *state = layer(x, *state)
        spikes.append(spike)
        membranes.append(state[-1])
    return torch.stack(spikes), torch.stack(membranes)


STATES = {"Leaky": 1, "Synaptic": 2}


def stepwise(neuron: ul.Neuron, current: Tensor) -> tuple[Tensor, Tensor]:
    state, spikes, membranes = None, [], []
    for x in current:
        spike, state = neuron.step(x, state)
        spikes.append(spike)
        membranes.append(state.v)
    return torch.stack(spikes), torch.stack(membranes)


def assert_same(current: Tensor, ours: tuple[Tensor, ...], theirs: tuple[Tensor, ...], exact: bool) -> None:
    """Compare spikes, membranes and the gradients of a weighted sum of spikes for the current.

    snnTorch's spikes are float32, and so are its gradients.
    """
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other.to(one), rtol=1e-9, atol=1e-12)
    assert 0.05 < ours[0].mean() < 0.7
    weights = torch.randn_like(ours[0])
    (found,) = torch.autograd.grad((weights * ours[0]).sum(), current, retain_graph=True)
    (expected,) = torch.autograd.grad((weights * theirs[0]).sum(), current, retain_graph=True)
    rtol, atol = (1e-9, 1e-12) if exact else (1e-5, 1e-5)
    torch.testing.assert_close(found, expected, rtol=rtol, atol=atol)


SNNTORCH = {
    "the default": ({}, {"reset": "subtract", "delayed_reset": True}),
    "zero": ({"reset_mechanism": "zero"}, {}),
    "none": ({"reset_mechanism": "none"}, {"reset": "none"}),
    "zero at once": ({"reset_mechanism": "zero", "reset_delay": False}, {"detach_reset": False}),
}
"""Arguments of ``snntorch.Leaky``, and ours for the same neuron.

Its ``zero`` returns the membrane before the reset. Its subtraction at once has no match: it is left out in a
step after a spike where the membrane is still above the threshold.
"""


@pytest.mark.parametrize("shape", ["sigmoid", "atan"])
@pytest.mark.parametrize("resets", SNNTORCH)
def test_snntorch_leaky(resets: str, shape: str, current: Tensor) -> None:
    current.requires_grad_()
    theirs, options = SNNTORCH[resets]
    surrogate = peer("snntorch.surrogate")
    spike_grad = surrogate.atan(alpha=SLOPE) if shape == "atan" else surrogate.sigmoid(slope=SLOPE)
    layer = peer("snntorch").Leaky(beta=LEAK, threshold=THRESHOLD, spike_grad=spike_grad, **theirs)
    ours = ul.LIF(**CONSTANTS, surrogate=shape, **options)
    compared = slice(1 if resets == "zero" else 2)
    found, expected = stepwise(ours, current), run_snntorch(layer.to(current), current)
    assert_same(current, found[compared], expected[compared], exact=False)


def test_snntorch_synaptic(current: Tensor) -> None:
    current.requires_grad_()
    surrogate = peer("snntorch.surrogate").atan(alpha=SLOPE)
    layer = peer("snntorch").Synaptic(alpha=0.6, beta=LEAK, threshold=THRESHOLD, spike_grad=surrogate)
    ours = ul.LIF(**CONSTANTS, surrogate="atan", synapse=0.6, reset="subtract", delayed_reset=True)
    assert_same(current, stepwise(ours, current), run_snntorch(layer.to(current), current), exact=False)


def test_a_learned_leak_is_snntorchs_learned_beta(current: Tensor) -> None:
    """Leak = sigmoid(raw): d/d raw = leak (1 - leak) d/d leak."""
    surrogate = peer("snntorch.surrogate").sigmoid(slope=SLOPE)
    layer = peer("snntorch").Leaky(beta=LEAK, threshold=THRESHOLD, spike_grad=surrogate, learn_beta=True)
    ours = ul.PLIF(**CONSTANTS, surrogate="sigmoid", reset="subtract", delayed_reset=True)
    ours(current).sum().backward()
    run_snntorch(layer.to(current), current)[0].sum().backward()
    torch.testing.assert_close(
        ours.logit_leak.grad, LEAK * (1 - LEAK) * layer.beta.grad, rtol=1e-5, atol=1e-5
    )


def spikingjelly(current: Tensor, *, shape: str = "Sigmoid", spiking: bool = True, **options) -> Tensor:
    neurons = peer("spikingjelly.activation_based.neuron")
    surrogate = getattr(peer("spikingjelly.activation_based.surrogate"), shape)(alpha=SLOPE, spiking=spiking)
    given = {
        "v_threshold": THRESHOLD,
        "v_reset": 0.0,
        "surrogate_function": surrogate,
        "step_mode": "m",
    } | options
    parametric = "init_tau" in given
    layer = neurons.ParametricLIFNode(**given) if parametric else neurons.LIFNode(tau=1 / (1 - LEAK), **given)
    return layer.to(current)(current)


SHAPES = {"sigmoid": "Sigmoid", "atan": "ATan", "triangle": "PiecewiseQuadratic"}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("reset", ["zero", "subtract"])
@pytest.mark.parametrize("detach_reset", [False, True])
@pytest.mark.parametrize("parametric", [False, True])
def test_spikingjelly_lif(
    shape: str, reset: str, detach_reset: bool, parametric: bool, current: Tensor
) -> None:
    """``tau`` is a time constant there, 1 / (1 - leak); by default the input decays with it."""
    current.requires_grad_()
    tau = {"init_tau": 1 / (1 - LEAK)} if parametric else {}
    theirs = spikingjelly(
        current,
        shape=SHAPES[shape],
        v_reset=0.0 if reset == "zero" else None,
        detach_reset=detach_reset,
        decay_input=False,
        **tau,
    )
    neuron = ul.PLIF if parametric else ul.LIF
    ours = neuron(**CONSTANTS, surrogate=shape, reset=reset, detach_reset=detach_reset)
    assert_same(current, (ours(current),), (theirs,), exact=True)


def test_spikingjelly_by_its_defaults_decays_the_input(current: Tensor) -> None:
    """The naive mapping does not match."""
    assert not torch.equal(ul.LIF(**CONSTANTS)(current), spikingjelly(current))


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
