"""Claims 17 to 20: soft and binary spikes, the order of the reset (sections 4.2, 4.3, 5.1)."""

import math
from typing import Any

import torch
from torch import Tensor

from research.claims.claim import claim
from research.claims.evidence import Draw, Evidence
from research.claims.preliminaries import EPS
from research.claims.temporal import LEAK, THRESHOLD
from ultralif.functional import ultradlif, ultralif
from ultralif.maxplus import hard_spike, soft_spike

DEFAULTS: dict[str, Any] = {"leak": LEAK, "threshold": THRESHOLD}


def half_current(eps: float | Tensor, leak: float = LEAK, threshold: float = THRESHOLD) -> Tensor:
    """Return the current at which UltraLIF's first spike is one half."""
    eps = torch.as_tensor(eps, dtype=torch.float64)
    return threshold + eps * torch.log1p(-torch.exp((math.log(leak) - threshold) / eps))


@claim(
    17,
    "Soft vs. binary spikes",
    "4.2",
    "the mean spike rate is inherently robust to soft versus hard spikes",
    instead="averaging over time does not remove the bias: the rates differ by up to the mean of "
    "sigma(-|P - theta|/eps), that is by up to 1/2",
)
def rate_robustness(written: Evidence, truth: Evidence, draw: Draw) -> None:
    """Average a constant membrane over more and more steps, then random membranes."""
    for eps, p in ((0.1, THRESHOLD - 0.1), (1.0, 0.0)):
        membranes = torch.full((1000,), p, dtype=torch.float64)
        gap = soft_spike(membranes, THRESHOLD, eps) - hard_spike(membranes, THRESHOLD)
        mean_gap = abs(float(gap.mean()))
        written.at_most(mean_gap, abs(float(gap[0])) / 10, "1000 steps shrink the gap of rates", P=p, eps=eps)
        truth.equal(mean_gap, float(gap[0]), "the gap stays", P=p, eps=eps)
    for eps in EPS:
        walk = THRESHOLD + draw.normal(100, 500)
        soft, hard = soft_spike(walk, THRESHOLD, eps), hard_spike(walk, THRESHOLD)
        bias = torch.sigmoid(-(walk - THRESHOLD).abs() / eps)
        truth.at_most((soft - hard).mean(0).abs(), bias.mean(0), "gap <= mean sigma(-|P-theta|/eps)", eps=eps)
        above = THRESHOLD + draw.normal(100, 500).abs()
        one_sided = (soft_spike(above, THRESHOLD, eps) - hard_spike(above, THRESHOLD)).mean(0).abs()
        bias = torch.sigmoid(-(above - THRESHOLD) / eps).mean(0)
        truth.equal(one_sided, bias, "and equal to it on one side of the threshold", eps=eps)
        truth.at_most(one_sided, 0.5, "gap <= 1/2", eps=eps)


@claim(
    18,
    "Soft vs. binary spikes",
    "4.2",
    "convergence guarantees that thresholding at inference gives the limit's binary spikes",
    instead="H(P_eps - theta) and the max-plus spike differ for I between theta + eps log(1 - "
    "e^{(log tau_0 - theta)/eps}) and theta (UltraDLIF: theta - eps log 3), and agree outside at T = 1",
)
def thresholding(written: Evidence, truth: Evidence, draw: Draw) -> None:
    """Compare the first spikes of the thresholded and the max-plus neuron."""
    current = torch.cat((torch.zeros(1, dtype=torch.float64), draw.uniform(-3.0, 3.0, 2000)))
    ring = current[:, None].expand(-1, 3)
    for eps in (1.0, *EPS):
        hard, _ = ultralif(current[None, :, None], eps=eps, mode="hard", **DEFAULTS)
        limit, _ = ultralif(current[None, :, None], eps=eps, mode="tropical", **DEFAULTS)
        written.equal(
            hard[0, :, 0], limit[0, :, 0], "H(P_eps - theta) = H(p - theta)", rel=0, eps=eps, I=current
        )
        edge = half_current(eps)
        soft, _ = ultralif(edge.reshape(1, 1, 1), eps=eps, **DEFAULTS)
        truth.equal(soft, 0.5, "UltraLIF's spike is 1/2 at the edge of the band", eps=eps)
        outside = (current < edge - 1e-9) | (current > THRESHOLD)
        truth.equal(hard[0, outside, 0], limit[0, outside, 0], "they agree outside", rel=0, eps=eps)
        inside = (current > edge + 1e-9) & (current <= THRESHOLD)
        if bool(inside.any()):
            truth.true(hard[0, inside, 0] > limit[0, inside, 0], "and differ inside", eps=eps)
        edge = torch.as_tensor(THRESHOLD - eps * math.log(3), dtype=torch.float64)
        soft, _ = ultradlif(edge.expand(1, 1, 3), eps=eps, threshold=THRESHOLD)
        truth.equal(soft, 0.5, "UltraDLIF's spike is 1/2 at the edge of its band", eps=eps)
        hard, _ = ultradlif(ring[None], eps=eps, threshold=THRESHOLD, mode="hard")
        limit, _ = ultradlif(ring[None], eps=eps, threshold=THRESHOLD, mode="tropical")
        outside = (current < edge - 1e-9) | (current > THRESHOLD)
        truth.equal(hard[0, outside], limit[0, outside], "UltraDLIF agrees outside", rel=0, eps=eps)


@claim(
    19,
    "Architecture equations",
    "4.3",
    "the network's neuron is that of the definition",
    instead="the architecture resets by the previous spike, a refractory step: in the limit s(t+1) = "
    "1[I > theta](1 - s(t)), where the definition has s(t+1) = 1[I > theta]",
)
def architecture(written: Evidence, truth: Evidence, draw: Draw) -> None:
    """Run both forms of the reset in the max-plus limit."""
    ones = torch.ones(4, 1, 1, dtype=torch.float64)
    noise = draw.normal(40, 500, 1, sd=0.8)
    for current in (ones, noise):
        limits = {"eps": 1.0, "mode": "tropical", **DEFAULTS}
        by_definition, _ = ultralif(current, **limits)
        by_architecture, _ = ultralif(current, delayed_reset=True, **limits)
        t = torch.arange(1, len(current) + 1)[:, None, None]
        written.equal(by_architecture, by_definition, "spikes agree", rel=0, t=t, I=current)
        above = (current > THRESHOLD).double()
        truth.equal(by_definition, above, "definition: 1[I > theta]", rel=0)
        before = torch.cat((torch.zeros_like(above[:1]), by_architecture[:-1]))
        truth.equal(by_architecture, above * (1 - before), "architecture: 1[I > theta](1 - s)", rel=0)


@claim(
    20,
    "lem:sigmoid",
    "5.1",
    "|sigma(x/eps) - H(x)| <= e^{-|x|/eps} for x != 0",
    remark="e^{-|x|/eps}/2 <= error; not uniform, the supremum over x is 1/2 at every eps",
)
def sigmoid(written: Evidence, truth: Evidence, draw: Draw) -> None:
    """Test both sides with cancellation-free errors, and the library's spike where it resolves them."""
    for eps in (*EPS, 1e-3):
        z = draw.uniform(1e-6, 50.0, 1000)
        x = eps * torch.cat((z, -z))
        error = torch.sigmoid(-x.abs() / eps)
        rate = torch.exp(-x.abs() / eps)
        written.at_most(error, rate, "error <= e^{-|x|/eps}", eps=eps, x=x)
        library = (soft_spike(x, 0.0, eps) - hard_spike(x, 0.0)).abs()
        truth.equal(library, error, "the library's error", rel=1e-15, scale=1.0, eps=eps)
        truth.at_most(rate / 2, error, "error >= e^{-|x|/eps}/2", eps=eps)
        near = torch.tensor(1e-9 * eps, dtype=torch.float64)
        truth.equal(1 - soft_spike(near, 0.0, eps), 0.5, "the supremum is 1/2", rel=1e-8, eps=eps)
