"""Surrogate gradients, against a backward pass that was derived by hand and written in numpy.

Nothing below is differentiated by autograd but the library. A step is: potential P, spike
s = H(P - theta) with a smooth stand-in for its derivative, membrane v = P (1 - s) + r s. Backward in
time, with c = dL/ds given from outside and l = dL/dv from the next step:

    dL/ds = c + l (r - P),    dL/dP = l (1 - s) + dL/ds * ds/dP.

Where the reset is not differentiated, as by default, dL/ds = c.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from torch import Tensor

import ultralif as ul
from cases import CASES, Case, membrane
from ultralif import functional
from ultralif.errors import InputError

pytestmark = pytest.mark.usefixtures("float64")

Array = np.ndarray


def logistic(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


@dataclass
class Slope:
    """The derivatives of the stand-in for a spike: by potential, threshold, and its own width."""

    by_potential: Array
    by_threshold: Array
    by_width: Array


def sigmoid_slope(potential: Array, threshold: Array, slope: float) -> Slope:
    """The derivatives of sigma(beta (v - theta))."""
    s = logistic(slope * (potential - threshold))
    bump = s * (1 - s)
    return Slope(slope * bump, -slope * bump, (potential - threshold) * bump)


def soft_slope(potential: Array, threshold: float, eps: float) -> Slope:
    """The derivatives of sigma((v - theta) / eps)."""
    z = (potential - threshold) / eps
    bump = logistic(z) * (1 - logistic(z)) / eps
    return Slope(bump, -bump, -bump * z)


def dspike_slope(potential: Array, threshold: float, k: float) -> Slope:
    """The derivatives of the DSpike curve, which is clipped."""
    x = potential / (2 * threshold) - 0.5
    edge, edge_slope = np.tanh(k / 2), 0.5 / np.cosh(k / 2) ** 2
    inside = np.abs(x) <= 0.5
    bump = inside / np.cosh(k * x) ** 2 / (2 * edge)
    return Slope(
        k / (2 * threshold) * bump,
        -k * potential / (2 * threshold**2) * bump,
        x * bump - inside * np.tanh(k * x) * edge_slope / (2 * edge**2),
    )


def autograd(
    case: Case, current: Tensor, v0: Tensor, names: list[str]
) -> tuple[dict[str, Array], Array, Array]:
    """Return the library's gradients of a random loss, and the loss's own weights."""
    constants = {**case.constants, **case.surrogate}
    leaves = {name: torch.tensor(constants[name], requires_grad=True) for name in names}
    leaves |= {"current": current.clone().requires_grad_(), "v0": v0.clone().requires_grad_()}
    values = {name: leaf for name, leaf in leaves.items() if name != "current"}
    spikes, state = case.function(leaves["current"], **values)
    on_spikes, on_v = torch.randn_like(spikes), torch.randn_like(v0)
    ((on_spikes * spikes).sum() + (on_v * membrane(state)).sum()).backward()
    return {name: leaf.grad.numpy() for name, leaf in leaves.items()}, on_spikes.numpy(), on_v.numpy()


def assert_gradients(found: dict[str, Array], expected: dict[str, Array]) -> None:
    assert found.keys() == expected.keys()
    for name in found:
        assert np.abs(expected[name]).max() > 1e-3, f"{name}: the gradient is zero, the test shows nothing"
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-10, atol=1e-12, err_msg=name)


ADDITIVE = ["LIF", "PLIF", "FullPLIF", "DSpike-hard", "DSpikePlus-hard", "SoftLIF-hard"]
WIDTH = {"lif": "surrogate_slope", "dspike": "sharpness", "softlif": "eps"}


@pytest.mark.parametrize("timesteps", [1, 2, 7])
@pytest.mark.parametrize("detach", [None, False])
@pytest.mark.parametrize("name", ADDITIVE)
def test_additive_membrane(name: str, detach: bool | None, timesteps: int) -> None:
    """LIF and its relatives: P = leak * v + I."""
    case = replace(CASES[name], surrogate={**CASES[name].surrogate, "detach_reset": detach})
    c = {**case.constants, **case.surrogate}
    width = WIDTH[case.formula]
    learned = ["leak", "threshold", "v_reset", width]
    x, v0 = case.current(timesteps), 0.2 * case.current(1)[0]
    found, on_spikes, on_v = autograd(case, x, v0, learned)

    def slope_at(potential: Array) -> Slope:
        if case.formula == "lif":
            return sigmoid_slope(potential, c["threshold"], c[width])
        curve = dspike_slope if case.formula == "dspike" else soft_slope
        return curve(potential, c["threshold"], c[width])

    v, steps = v0.numpy(), []
    for current in x.numpy():
        potential = c["leak"] * v + current
        spike = np.where(potential > c["threshold"], 1.0, 0.0)
        steps.append((v, potential, spike))
        v = potential * (1 - spike) + c["v_reset"] * spike

    expected = {name: np.zeros(()) for name in learned} | {"current": np.zeros(x.shape)}
    to_v = on_v
    for t in reversed(range(timesteps)):
        before, potential, spike = steps[t]
        slope = slope_at(potential)
        through_reset = to_v * (c["v_reset"] - potential) if detach is False else 0.0
        to_spike = on_spikes[t] + through_reset
        to_potential = to_v * (1 - spike) + to_spike * slope.by_potential
        expected["current"][t] = to_potential
        expected["leak"] += (to_potential * before).sum()
        expected["threshold"] += (to_spike * slope.by_threshold).sum()
        expected["v_reset"] += (to_v * spike).sum()
        expected[width] += (to_spike * slope.by_width).sum()
        to_v = to_potential * c["leak"]
    assert_gradients(found, {**expected, "v0": to_v})


@pytest.mark.parametrize("timesteps", [3, 9])
def test_adaptive_threshold(timesteps: int) -> None:
    """AdaLIF: the adaptation b carries spikes forward, and their gradient back."""
    case = CASES["AdaLIF"]
    case = replace(case, surrogate={**case.surrogate, "detach_reset": False})
    c = {**case.constants, **case.surrogate}
    learned = ["leak", "threshold", "v_reset", "adapt_strength", "adapt_decay", "surrogate_slope"]
    x, v0 = case.current(timesteps, scale=2.5), 0.2 * case.current(1)[0]
    found, on_spikes, on_v = autograd(case, x, v0, learned)

    v, b, spike, steps = v0.numpy(), np.zeros(v0.shape), np.zeros(v0.shape), []
    for current in x.numpy():
        adapted = c["adapt_decay"] * b + (1 - c["adapt_decay"]) * spike
        theta = c["threshold"] + c["adapt_strength"] * b
        potential = c["leak"] * v + current
        fired = np.where(potential > theta, 1.0, 0.0)
        steps.append((v, b, spike, theta, potential, fired))
        v, b, spike = potential * (1 - fired) + c["v_reset"] * fired, adapted, fired

    expected = {name: np.zeros(()) for name in learned} | {"current": np.zeros(x.shape)}
    to_v, to_b, from_next = (
        on_v,
        np.zeros(v0.shape),
        np.zeros(v0.shape),
    )  # to_b: by b(t) as step t + 1 sees it
    for t in reversed(range(timesteps)):
        before, b, spike, theta, potential, fired = steps[t]
        slope = sigmoid_slope(potential, theta, c["surrogate_slope"])
        to_spike = on_spikes[t] + to_v * (c["v_reset"] - potential) + from_next
        to_potential = to_v * (1 - fired) + to_spike * slope.by_potential
        to_theta = to_spike * slope.by_threshold
        expected["current"][t] = to_potential
        expected["leak"] += (to_potential * before).sum()
        expected["threshold"] += to_theta.sum()
        expected["v_reset"] += (to_v * fired).sum()
        expected["adapt_strength"] += (to_theta * b).sum()
        expected["surrogate_slope"] += (to_spike * slope.by_width).sum()
        expected["adapt_decay"] += (to_b * (b - spike)).sum()
        from_next = (1 - c["adapt_decay"]) * to_b
        to_b = c["adapt_decay"] * to_b + to_theta * c["adapt_strength"]
        to_v = to_potential * c["leak"]
    assert_gradients(found, {**expected, "v0": to_v})


@pytest.mark.parametrize("timesteps", [1, 2, 7])
@pytest.mark.parametrize("mode", ["hard", "tropical"])
def test_ultralif_with_binary_spikes(mode: str, timesteps: int) -> None:
    """The membrane's own gradient is the weights of the log-sum-exp, or of the maximum."""
    case = CASES[f"UltraLIF-{mode}"]
    c = case.constants
    learned = ["eps", "leak", "threshold", "v_reset"]
    x, v0 = case.current(timesteps), 0.2 * case.current(1)[0]
    found, on_spikes, on_v = autograd(case, x, v0, learned)

    v, steps = v0.numpy(), []
    for current in x.numpy():
        decayed = v + np.log(c["leak"])
        if mode == "hard":
            kept = logistic((decayed - current) / c["eps"])
            potential = c["eps"] * np.logaddexp(decayed / c["eps"], current / c["eps"])
            entropy = -kept * np.log(kept) - (1 - kept) * np.log(1 - kept)
        else:
            kept, entropy = np.where(decayed > current, 1.0, 0.0), np.zeros(v.shape)
            potential = np.maximum(decayed, current)
        spike = np.where(potential > c["threshold"], 1.0, 0.0)
        steps.append((kept, entropy, potential, spike))
        v = potential * (1 - spike) + c["v_reset"] * spike

    expected = {name: np.zeros(()) for name in learned} | {"current": np.zeros(x.shape)}
    to_v = on_v
    for t in reversed(range(timesteps)):
        kept, entropy, potential, spike = steps[t]
        slope = soft_slope(potential, c["threshold"], c["eps"])
        to_spike = on_spikes[t]
        to_potential = to_v * (1 - spike) + to_spike * slope.by_potential
        expected["current"][t] = to_potential * (1 - kept)
        expected["eps"] += (to_potential * entropy + to_spike * slope.by_width).sum()
        expected["leak"] += (to_potential * kept).sum() / c["leak"]
        expected["threshold"] += (to_spike * slope.by_threshold).sum()
        expected["v_reset"] += (to_v * spike).sum()
        to_v = to_potential * kept
    assert_gradients(found, {**expected, "v0": to_v})


@pytest.mark.parametrize("timesteps", [1, 2, 7])
def test_ultradlif_with_binary_spikes(timesteps: int) -> None:
    case = CASES["UltraDLIF-hard"]
    c = case.constants
    learned = ["eps", "threshold", "v_reset"]
    x, v0 = case.current(timesteps), 0.2 * case.current(1)[0]
    found, on_spikes, on_v = autograd(case, x, v0, learned)

    v, steps = v0.numpy(), []
    for current in x.numpy():
        around = np.stack([np.roll(v, 1, -1), v, np.roll(v, -1, -1)]) / c["eps"]
        coupled = np.logaddexp.reduce(around)
        weights = np.exp(around - coupled)
        potential = c["eps"] * coupled + current
        spike = np.where(potential > c["threshold"], 1.0, 0.0)
        steps.append((weights, potential, spike))
        v = potential * (1 - spike) + c["v_reset"] * spike

    expected = {name: np.zeros(()) for name in learned} | {"current": np.zeros(x.shape)}
    to_v = on_v
    for t in reversed(range(timesteps)):
        weights, potential, spike = steps[t]
        slope = soft_slope(potential, c["threshold"], c["eps"])
        to_spike = on_spikes[t]
        to_potential = to_v * (1 - spike) + to_spike * slope.by_potential
        entropy = -(weights * np.log(weights)).sum(0)
        expected["current"][t] = to_potential
        expected["eps"] += (to_potential * entropy + to_spike * slope.by_width).sum()
        expected["threshold"] += (to_spike * slope.by_threshold).sum()
        expected["v_reset"] += (to_v * spike).sum()
        left, own, right = weights * to_potential
        to_v = np.roll(left, -1, -1) + own + np.roll(right, 1, -1)
    assert_gradients(found, {**expected, "v0": to_v})


@pytest.mark.parametrize("neuron", [ul.LIF, ul.PLIF, ul.FullPLIF, ul.AdaLIF])
def test_a_learned_width_trains(neuron: type[ul.Neuron]) -> None:
    """``learn_slope`` changes no spike, and gives the slope a gradient."""
    current = CASES["LIF"].current(7)
    learned, fixed = neuron(learn_slope=True), neuron()
    torch.testing.assert_close(learned(current), fixed(current), rtol=0, atol=0)
    learned(current).sum().backward()
    slope = torch.tensor(2.0, requires_grad=True)
    run = functional.adalif if neuron is ul.AdaLIF else functional.lif
    spikes, _ = run(current, leak=0.9, threshold=0.5, surrogate_slope=slope)
    spikes.sum().backward()
    torch.testing.assert_close(learned.log_surrogate_slope.grad, 2.0 * slope.grad)  # slope = exp(its log)
    assert slope.grad != 0


def test_straight_through_is_binary_to_the_bit() -> None:
    """Adding what is zero must not leave 0.9999999: spikes are compared with ``==``."""
    v = torch.linspace(-3, 3, 10_001)
    for dtype in (torch.float64, torch.float32):
        spikes = functional.surrogate_spike(v.to(dtype), 0.3, 7.0)
        assert set(spikes.unique().tolist()) == {0.0, 1.0}
        assert torch.equal(spikes, (v.to(dtype) > 0.3).to(dtype))


def test_the_dspike_curve() -> None:
    """It is 0, 1/2 and 1 at 0, the threshold and twice the threshold, as appendix D.4 has it."""
    v = torch.tensor([0.0, 0.4, 0.8])
    for sharpness in (1.0, 4.0, torch.tensor(9.0)):
        torch.testing.assert_close(functional.dspike_curve(v, 0.4, sharpness), torch.tensor([0.0, 0.5, 1.0]))


@pytest.mark.parametrize("surrogate", ["sigmoid", "atan", "triangle"])
def test_a_hard_spike_has_the_gradient_of_the_soft_one(surrogate: str) -> None:
    """For membrane, threshold and slope; the derivative has area 1 in z and its greatest value at 0."""
    leaves = [torch.linspace(-1, 2, 301, requires_grad=True), torch.tensor(0.41, requires_grad=True)]
    leaves.append(torch.tensor(3.0, requires_grad=True))
    weights = torch.randn(301)
    soft, hard = (
        torch.autograd.grad(
            (weights * functional.surrogate_spike(*leaves, surrogate=surrogate, **options)).sum(), leaves
        )
        for options in ({"mode": "soft"}, {"mode": "hard"})
    )
    torch.testing.assert_close(hard, soft)
    z = torch.linspace(-1e4, 1e4, 2_000_001, requires_grad=True)
    (slope,) = torch.autograd.grad(functional.surrogate_spike(z, 0.0, 1.0, surrogate=surrogate).sum(), z)
    assert torch.trapezoid(slope, z.detach()).item() == pytest.approx(1.0, abs=1e-3)
    assert slope.argmax() == 1_000_000


def test_superspike_has_the_same_height_at_every_slope() -> None:
    v = torch.linspace(-1, 2, 301, dtype=torch.float64, requires_grad=True)
    for slope in (0.5, 25.0, torch.tensor(3.0)):
        spikes = functional.surrogate_spike(v, 0.41, slope, surrogate="superspike")
        (gradient,) = torch.autograd.grad(spikes.sum(), v)
        torch.testing.assert_close(gradient, 1 / (1 + (slope * (v - 0.41)).abs().detach()) ** 2)
    with pytest.raises(InputError, match="no soft mode"):
        ul.ops.lif(v.detach()[:, None], leak=0.9, threshold=0.5, surrogate="superspike", mode="soft")
    assert ul.LIF(surrogate="superspike").modes == ("hard",)
    for surrogate in ("superspike", torch.sign):
        with pytest.raises(InputError, match="mode must be one of hard for LIF, got 'soft'"):
            ul.LIF(surrogate=surrogate, mode="soft")


@pytest.mark.parametrize("reset", ["zero", "subtract", "none", "saturate"])
@pytest.mark.parametrize("huge", [1e30, -1e30])
def test_huge_currents_leave_spikes_and_gradients_finite(reset: str, huge: float) -> None:
    current = torch.full((3, 1, 2), 0.1, dtype=torch.float32)
    current[0] = huge
    current.requires_grad_()
    runs = [functional.ultralif(current, eps=0.2, leak=0.9, threshold=0.5, reset=reset)]
    if reset != "saturate":
        for surrogate in ("sigmoid", "atan", "triangle", "superspike"):
            shape = {"surrogate": surrogate, "detach_reset": False}
            runs.append(functional.lif(current, leak=0.9, threshold=0.5, reset=reset, **shape))
    for spikes, _ in runs:
        (gradient,) = torch.autograd.grad(spikes.sum(), current)
        assert spikes.isfinite().all() and gradient.isfinite().all()


def test_saturation_tends_to_a_minimum() -> None:
    """The membrane of ``reset="saturate"`` is at most v_sat, and in the limit of eps it is clipped there."""
    current = CASES["LIF"].current(20)
    options = {"leak": 0.8, "threshold": 0.4, "reset": "saturate", "v_sat": 0.7}
    _, limit = functional.ultralif(current, eps=1.0, mode="tropical", **options)
    assert limit.max() <= 0.7
    for eps in (1e-1, 1e-2, 1e-3):
        _, v = functional.ultralif(current, eps=eps, **options)
        assert v.max() <= 0.7
        assert (v - limit).abs().max() < 20 * eps
    u, top = (functional.ultralif(current[:1], eps=0.5, **options)[1] / 0.5).exp(), math.exp(0.7 / 0.5)
    before = (functional.ultralif(current[:1], eps=0.5, **{**options, "reset": "none"})[1] / 0.5).exp()
    torch.testing.assert_close(u, before / (1 + before / top))  # a Moebius map of u = exp(V / eps)
