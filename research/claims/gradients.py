"""Claims 28 to 31: gradients and their consistency (sections 5.2, 5.3)."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from research.claims.claim import claim
from research.claims.evidence import Draw, Evidence
from research.claims.preliminaries import EPS
from research.claims.temporal import LEAK, THRESHOLD
from research.readings.neurons import ReleasedUltraLIF
from ultralif.functional import ultradlif, ultradlif_step, ultralif, ultralif_step
from ultralif.maxplus import soft_spike
from ultralif.nn import Neuron, UltraLIF


def spike_slope(z: Tensor, eps: float | Tensor) -> Tensor:
    """Return ds/dP at P = theta + eps z, without cancellation; in floating point, s(1 - s) is 0 at z = 40."""
    return torch.sigmoid(z) * torch.sigmoid(-z) / eps


@claim(
    28,
    "prop:gradients (a)",
    "5.2",
    "0 < ds/dP <= 1/(4 eps)",
    remark="not bounded away from 0: ds/dP <= e^{-|P-theta|/eps}/eps, so non-vanishing means nonzero",
)
def spike_gradient(written: Evidence, truth: Evidence, draw: Draw) -> None:
    """Test both bounds within the range of floats, and autograd where it resolves the slope."""
    z = torch.cat((torch.tensor([0.0, 40.0, -40.0, 700.0]).double(), draw.uniform(-300.0, 300.0, 3000)))
    for eps in EPS:
        slope = spike_slope(z, eps)
        written.true(slope > 0, "0 < ds/dP", eps=eps, z=z)
        written.at_most(slope, 1 / (4 * eps), "ds/dP <= 1/(4 eps)", eps=eps, z=z)
        truth.at_most(slope, torch.exp(-z.abs()) / eps, "ds/dP <= e^{-|P-theta|/eps}/eps", eps=eps)
        p = (THRESHOLD + eps * draw.uniform(-30.0, 30.0, 1000)).requires_grad_()
        (grad,) = torch.autograd.grad(soft_spike(p, THRESHOLD, eps).sum(), p)
        want = spike_slope((p - THRESHOLD) / eps, eps)
        truth.equal(grad, want, "autograd of the library", scale=1 / eps, eps=eps)


@claim(
    29,
    "prop:gradients (b)",
    "5.2",
    "|ds/dW_ij| <= max|x| / (4 eps) in one step",
    remark="sharp for UltraLIF: |x_j|/(4 eps) sigma((theta - V - log tau_0)/eps); factor 1 for UltraDLIF, "
    "which exceeds the bound over two steps",
)
def weight_gradient(written: Evidence, truth: Evidence, draw: Draw) -> None:
    """Differentiate one step with respect to its weights, then search a grid for the supremum."""
    for eps in EPS:
        x, v = draw.normal(500, 4, sd=2.0), draw.uniform(-2.0, 2.0, 500, 1)
        options: dict[str, Any] = {"eps": eps, "threshold": THRESHOLD}
        weight = draw.normal(500, 4).requires_grad_()
        current = (weight * x).sum(-1, keepdim=True)
        temporal, _ = ultralif_step(current, v, leak=LEAK, **options)
        spatial, _ = ultradlif_step(current.expand(-1, 3), v.expand(-1, 3), **options)
        bound = x.abs().amax(-1, keepdim=True) / (4 * eps)
        room = torch.sigmoid((THRESHOLD - v - math.log(LEAK)) / eps)
        for spike, factor in ((temporal[:, 0], room), (spatial[:, 1], torch.ones_like(room))):
            (grad,) = torch.autograd.grad(spike.sum(), weight, retain_graph=True)
            written.at_most(grad.abs(), bound, "|ds/dW| <= max|x|/(4 eps)", eps=eps)
            truth.at_most(grad.abs(), x.abs() * factor / (4 * eps), "|ds/dW_j| <= sharp bound", eps=eps)
        best = eps * math.log(math.exp(math.log(LEAK) / eps) + math.exp(THRESHOLD / eps))
        drive = (best + eps * torch.linspace(-1.0, 1.0, 2001).double()).requires_grad_()
        spike, _ = ultralif_step(drive, torch.zeros_like(drive), leak=LEAK, **options)
        (grad,) = torch.autograd.grad(spike.sum(), drive)
        sharp = 1 / (1 + math.exp((math.log(LEAK) - THRESHOLD) / eps)) / (4 * eps)
        truth.equal(grad.max(), sharp, "the sharp bound is attained", rel=1e-6, eps=eps)
    w = torch.tensor(0.06, dtype=torch.float64, requires_grad=True)
    others = torch.full((2,), -30.0, dtype=torch.float64)
    current = torch.cat((others[:1], w[None], others[1:])).expand(2, 1, 3)
    spikes, _ = ultradlif(current, eps=0.3, threshold=THRESHOLD)
    (grad,) = torch.autograd.grad(spikes[1, 0, 1], w)
    truth.equal(grad * 4 * 0.3, 1.133, "UltraDLIF's gradient over two steps, in units of the bound", rel=1e-3)


@claim(
    30,
    "cor:scaling",
    "5.2",
    "larger eps gives smaller gradients",
    correction="true of the bound and at the threshold; elsewhere it peaks at eps = |P-theta|/1.5434, "
    "with the value .22387/|P-theta|",
)
def gradient_scaling(written: Evidence, truth: Evidence, draw: Draw) -> None:
    """Increase eps at a fixed distance from the threshold."""
    distance = torch.cat((torch.ones(1, dtype=torch.float64), draw.uniform(0.05, 3.0, 200)))
    small, large = (spike_slope(distance / eps, eps) for eps in (0.1, 1.0))
    written.at_most(large, small, "slope at eps = 1 <= slope at eps = .1", distance=distance)
    ladder = torch.linspace(0.01, 20.0, 500, dtype=torch.float64)
    at_threshold = spike_slope(torch.zeros_like(ladder), ladder)
    truth.true(at_threshold.diff() < 0, "falls with eps at the threshold")
    truth.equal(at_threshold, 1 / (4 * ladder), "where it is the bound")
    z = torch.tensor(1.5, dtype=torch.float64)
    for _ in range(50):  # the root of z tanh(z/2) = 1
        z = 1 / torch.tanh(z / 2) * 0.5 + z * 0.5
    truth.equal(z, 1.5434, "the root of z tanh(z/2) = 1", rel=2e-5)
    grid = distance / z * torch.linspace(0.5, 2.0, 3001, dtype=torch.float64)[:, None]
    slopes = spike_slope(distance / grid, grid)
    truth.at_most(slopes, spike_slope(z, distance / z), "no eps beats |P-theta|/1.5434")
    truth.equal(spike_slope(z, distance / z) * distance, 0.22387, "the peak", rel=2e-5)


@claim(
    31,
    "thm:consistency",
    "5.3",
    "the backward pass differentiates exactly the forward computation",
    remark="for the soft network; not for a binarised one, and at its bound eps has no gradient, or by the "
    "library's default only one that leads back inside",
)
def consistency(written: Evidence, truth: Evidence, draw: Draw) -> None:
    """Compare the gradients of inputs, state and constants with finite differences."""

    def constant(value: float) -> Tensor:
        return torch.tensor(value, dtype=torch.float64, requires_grad=True)

    def temporal(current: Tensor, v: Tensor, eps: Tensor, leak: Tensor, threshold: Tensor) -> Tensor:
        spikes, last = ultralif(current, v, eps=eps, leak=leak, threshold=threshold)
        return torch.cat((spikes.flatten(), last.flatten()))

    def spatial(current: Tensor, v: Tensor, eps: Tensor, leak: Tensor, threshold: Tensor) -> Tensor:
        spikes, last = ultradlif(current, v, eps=eps, leak=leak, threshold=threshold)
        return torch.cat((spikes.flatten(), last.flatten()))

    for steps, eps in ((1, 1.0), (5, 0.3), (3, 3.0)):
        current, v = draw.normal(steps, 2, 4).requires_grad_(), draw.normal(2, 4).requires_grad_()
        inputs = (current, v, constant(eps), constant(LEAK), constant(THRESHOLD))
        for name, neuron in (("UltraLIF", temporal), ("UltraDLIF", spatial)):
            same = torch.autograd.gradcheck(neuron, inputs, raise_exception=False)
            written.true(same, "gradients match finite differences", neuron=name, T=steps, eps=eps)
    current = draw.normal(1, 200, 1).requires_grad_()
    hard, _ = ultralif(current, eps=0.5, leak=LEAK, threshold=THRESHOLD, mode="hard")
    (grad,) = torch.autograd.grad(hard.sum(), current)
    truth.true(grad.abs().max() > 0.01, "a binary spike is given a slope that it does not have")
    clamps: tuple[tuple[str, Callable[..., Neuron[Any]], tuple[bool, bool]], ...] = (
        ("dead", ReleasedUltraLIF, (False, False)),
        ("inward", UltraLIF, (True, False)),
    )
    for clamp, kind, lives in clamps:
        for sign, alive in zip((-1, 1), lives, strict=True):  # a gradient step leads inside, or farther out
            neuron = kind(eps=0.1).double()
            raw = dict(neuron.named_parameters())["log_eps"]
            raw.data.fill_(math.log(0.05))
            (grad,) = torch.autograd.grad(sign * torch.as_tensor(neuron.eps), raw)
            truth.true((grad != 0) == alive, "the gradient of eps at its bound", clamp=clamp, sign=sign)
