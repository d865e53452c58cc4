"""Claims 12 to 16: diffusion, the spatial neuron and its boundedness (sections 4.1.2, 4.2)."""

import math

import torch
from torch import Tensor

from research.claims.claim import claim
from research.claims.convergence import before_reset, state_ceiling, trajectory
from research.claims.evidence import Draw, Evidence
from research.claims.preliminaries import EPS
from research.claims.temporal import LEAK, THRESHOLD
from research.claims.undriven import escape_current
from ultralif.functional import ultradlif, ultradlif_step, ultralif_step
from ultralif.maxplus import exponentiate, lse, ultradiscretize


def coupled(v: Tensor, eps: float, mode: str = "soft", centered: bool = False) -> Tensor:
    """Return UltraDLIF's membrane on a ring without input and before reset."""
    quiet = torch.zeros_like(v)
    return before_reset(ultradlif_step, quiet, v, eps=eps, threshold=THRESHOLD, mode=mode, centered=centered)


def diffuse(v: Tensor, alpha: float) -> Tensor:
    """Take one explicit step of the diffusion equation on a ring."""
    return v + alpha * (v.roll(1, -1) - 2 * v + v.roll(-1, -1))


@claim(
    12,
    "eq:nf_uniform, stability",
    "4.1.2",
    "D dt/dx^2 = 1/3 gives the uniform average, and the explicit scheme is stable iff D dt/dx^2 <= 1/2",
    remark="growth is 1 - 4 alpha sin^2(k/2), in [-1/3, 1] at alpha = 1/3",
)
def diffusion(written: Evidence, truth: Evidence, draw: Draw) -> None:
    """Test the average, then the growth factors and long runs on rings."""
    for n in (32, 64):
        v = draw.normal(20, n)
        mean = (v.roll(1, -1) + v + v.roll(-1, -1)) / 3
        written.equal(diffuse(v, 1 / 3), mean, "1/3 is the uniform average", n=n)
        pulse = torch.zeros(n, dtype=torch.float64)
        pulse[0] = 1.0
        for alpha in (0.05, 1 / 3, 0.5, 0.500001, 0.51, 0.7):
            growth = torch.fft.fft(diffuse(pulse, alpha)).real
            stable = bool((growth.abs() <= 1 + 1e-12).all())
            written.true(stable == (alpha <= 0.5), "|growth| <= 1 iff alpha <= 1/2", n=n, alpha=alpha)
            k = 2 * math.pi * torch.arange(n, dtype=torch.float64) / n
            truth.equal(growth, 1 - 4 * alpha * torch.sin(k / 2) ** 2, "growth", n=n, alpha=alpha)
            for _ in range(2000):
                v = diffuse(v, alpha)
            bounded = bool(v.abs().max() < 100)
            if alpha != 0.500001:  # instability takes more steps to show there
                written.true(bounded == (alpha <= 0.5), "bounded iff alpha <= 1/2", n=n, alpha=alpha)
            v = draw.normal(20, n)


@claim(
    13,
    "remark on subtraction",
    "4.1.2",
    "alpha = 1/3 is what removes subtraction; other regimes need inversible algebra",
    correction="every alpha in (0, 1/2) has positive weights and becomes L_eps(V- + eps log alpha, "
    "V + eps log(1 - 2 alpha), V+ + eps log alpha); only alpha > 1/2 needs subtraction, and is unstable",
)
def subtraction(written: Evidence, truth: Evidence, draw: Draw) -> None:
    """Look for positive weights at values other than 1/3, then test the general identity."""
    for alpha in (0.2, 0.1, 0.45):
        written.true(min(alpha, 1 - 2 * alpha) <= 0, "off 1/3 a weight is negative", alpha=alpha)
    for alpha in (*draw.uniform(0.001, 0.499, 20).tolist(), 1e-9, 0.5 - 1e-9):
        for eps in EPS:
            v = eps * draw.uniform(-15.0, 15.0, 50, 16)
            shifts = (math.log(alpha), math.log(1 - 2 * alpha), math.log(alpha))
            around = (v.roll(1, -1), v, v.roll(-1, -1))
            soft = lse(torch.stack([x + eps * c for x, c in zip(around, shifts, strict=True)]), eps, dim=0)
            u = exponentiate(v, eps)
            step = alpha * u.roll(1, -1) + (1 - 2 * alpha) * u + alpha * u.roll(-1, -1)
            truth.equal(soft, ultradiscretize(step, eps), "the identity", alpha=alpha, eps=eps)
    for alpha in (0.5001, 0.7, 2.0):
        truth.true(1 - 2 * alpha < 0, "a weight is negative above 1/2", alpha=alpha)
        truth.true(1 - 4 * alpha < -1, "which is unstable", alpha=alpha)


@claim(
    14,
    "eq:ultradlif_limit",
    "4.1.2",
    "the limit of the averaged update is the maximum over three, a morphological dilation",
    remark="t steps are a dilation of radius t",
)
def dilation(written: Evidence, truth: Evidence, draw: Draw) -> None:
    """Compare one step and many steps with max-pooling over a circularly padded ring."""
    v = torch.cat((draw.normal(200, 16, sd=3.0), torch.zeros(1, 16)))

    def pooled(radius: int) -> Tensor:
        padded = torch.nn.functional.pad(v, (radius, radius), mode="circular")
        return torch.nn.functional.max_pool1d(padded, 2 * radius + 1, 1)

    written.equal(coupled(v, 1.0, "tropical"), pooled(1), "the library's limit is the dilation", rel=0)
    for eps in (*EPS, 1e-3):
        mean = coupled(v, eps, centered=True)
        written.at_most((mean - pooled(1)).abs(), eps * math.log(3), "|L - max| <= eps log 3", eps=eps)
    state = v
    for t in range(1, 8):
        state = coupled(state, 1.0, "tropical")
        truth.equal(state, pooled(t), "t steps have radius t", rel=0, t=t)


@claim(
    15,
    "eq:ultradlif_soft",
    "4.1.2",
    "the finite-eps form of the average is L_eps(V-, V, V+)",
    correction="it is L_eps - eps log 3, the log of the mean; the paper's form is that one with a constant "
    "current of eps log 3 at every step, so it fires without a stimulus",
)
def drift(written: Evidence, truth: Evidence, draw: Draw) -> None:
    """Compare the two forms over one step, and over many steps with input, spikes and reset."""
    rest = torch.zeros(1, 8, dtype=torch.float64)
    for eps in (1.0, *EPS):
        v = torch.cat((rest, eps * draw.uniform(-15.0, 15.0, 200, 8)))
        u = exponentiate(v, eps)
        mean = ultradiscretize((u.roll(1, -1) + u + u.roll(-1, -1)) / 3, eps)
        written.equal(coupled(v, eps), mean, "L_eps = eps log mean", eps=eps, V=v)
        truth.equal(coupled(v, eps, centered=True), mean, "L_eps - eps log 3 = eps log mean", eps=eps)
        current = draw.normal(30, 20, 8, sd=2.0)
        shift = eps * math.log(3)
        paper = trajectory(ultradlif_step, current, eps=eps, threshold=THRESHOLD)
        faithful = trajectory(ultradlif_step, current + shift, eps=eps, threshold=THRESHOLD, centered=True)
        truth.equal(paper.s, faithful.s, "the forms differ by a current eps log 3", eps=eps)
    first = trajectory(ultradlif_step, rest[None], eps=1.0, threshold=THRESHOLD)
    truth.equal(first.p[0], math.log(3), "from rest V(1) = log 3 at eps = 1")
    truth.true(first.s > 0.5, "and fires without a stimulus")


@claim(
    16,
    "def:ultralif, def:ultradlif",
    "4.2",
    "the states stay bounded",
    correction="V <= eps W(e^{theta/eps - 1}) for both; UltraLIF also keeps V >= -max|I|; UltraDLIF sinks "
    "endlessly under a uniform current below -eps log 3 - eps W(e^{-1-theta/eps}) (centred: no eps log 3)",
)
def boundedness(written: Evidence, truth: Evidence, draw: Draw) -> None:
    """Drive a ring down for a long time, then test the ceiling, the floor and the escape current."""
    steps = 2000
    for current, eps, centered in ((-2.0, 1.0, False), (-0.05, 0.1, True)):
        driven = torch.full((steps, 1, 3), current, dtype=torch.float64)
        _, v = ultradlif(driven, eps=eps, threshold=THRESHOLD, centered=centered)
        written.at_most(-v, 50.0, "-V(2000) stays small", I=current, eps=eps, centred=centered)
    noise = draw.normal(30, 200, 8, sd=3.0)
    for eps in (0.02, 0.1, 1.0, 20.0):
        options = {"eps": eps, "threshold": THRESHOLD}
        temporal = trajectory(ultralif_step, noise, leak=LEAK, **options).v
        ceiling = state_ceiling(eps, THRESHOLD)
        truth.at_most(temporal, ceiling, "UltraLIF's ceiling", slack=1e-12, eps=eps)
        truth.at_most(-temporal, noise.abs().amax(), "UltraLIF's floor", slack=1e-12, eps=eps)
        for centered in (False, True):
            spatial = trajectory(ultradlif_step, noise, centered=centered, **options).v
            truth.at_most(spatial, ceiling, "UltraDLIF's ceiling", slack=1e-12, eps=eps, centred=centered)
    for centered in (False, True):
        limit = escape_current(1.0, THRESHOLD, centered=centered)
        pair = torch.tensor([1.02, 0.98], dtype=torch.float64)[:, None] * limit
        driven = pair.expand(steps // 2, 2, 3)
        _, middle = ultradlif(driven, eps=1.0, threshold=THRESHOLD, centered=centered)
        _, end = ultradlif(driven, middle, eps=1.0, threshold=THRESHOLD, centered=centered)
        lost = (end - middle)[:, 0]
        truth.at_most(lost[0], -1.0, "sinks 2% below the escape current", centred=centered)
        truth.at_most(-lost[1], 1e-9, "settles 2% above it", centred=centered)
