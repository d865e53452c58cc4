"""Claims 5 to 11: ultradiscretization and the temporal neuron (sections 4.1, 4.1.1)."""

import math

import torch
from torch import Tensor

from research.claims.claim import claim
from research.claims.convergence import before_reset
from research.claims.evidence import Draw, Evidence
from research.claims.preliminaries import EPS
from ultralif.functional import lif_step, ultralif_step
from ultralif.maxplus import exponentiate, lse, soft_spike, ultradiscretize

LEAK, THRESHOLD = 0.9, 0.5
MILD = tuple(eps for eps in EPS if eps >= 0.1)
"""Temperatures at which exp(5 / eps) does not overflow."""


def membrane(current: Tensor, v: Tensor, eps: float, leak: float | Tensor = LEAK) -> Tensor:
    """Return UltraLIF's membrane before reset."""
    return before_reset(ultralif_step, current, v, eps=eps, leak=leak, threshold=THRESHOLD)


@claim(
    5,
    "eq:ultra_add",
    "4.1",
    "e^{X/eps} + e^{Y/eps} -> e^{max(X,Y)/eps} as eps -> 0",
    correction="only after eps log: |eps log(e^{X/eps} + e^{Y/eps}) - max(X,Y)| <= eps log 2",
)
def addition(written: Evidence, truth: Evidence, draw: Draw) -> None:
    """Test the ratio of the two sides, then their logarithms."""
    x = torch.cat((torch.tensor([[0.3, 0.3], [0.3, 0.3 + 1e-9]], dtype=torch.float64), draw.normal(500, 2)))
    top = x.amax(-1)
    for eps in (1e-1, 1e-2, 1e-3):
        ratio = torch.exp((x - top[:, None]) / eps).sum(-1)
        written.equal(ratio, 1.0, "ratio of the sides -> 1", rel=1e-3, X=x[:, 0], Y=x[:, 1], eps=eps)
        truth.at_most((lse(x, eps) - top).abs(), eps * math.log(2), "|eps log sum - max|", eps=eps)
        tie = lse(torch.full((2,), 0.3, dtype=torch.float64), eps) - 0.3
        truth.equal(tie, eps * math.log(2), "a tie attains eps log 2", eps=eps)


@claim(6, "eq:ultra_mult", "4.1", "products become sums, e^{X/eps} e^{Y/eps} = e^{(X+Y)/eps}, exactly")
def multiplication(written: Evidence, truth: Evidence, draw: Draw) -> None:
    """Test the identity in both directions."""
    for eps in EPS:
        x, y = eps * draw.uniform(-50.0, 50.0, 2, 500)
        product = exponentiate(x, eps) * exponentiate(y, eps)
        written.equal(ultradiscretize(product, eps), x + y, "D(xy) = D(x) + D(y)", eps=eps)
        written.equal(product / exponentiate(x + y, eps), 1.0, "ratio of the sides", eps=eps)


@claim(
    7,
    "eq:lif_discrete",
    "4.1.1",
    "forward Euler of the LIF equation gives v' = tau_0 v + I with tau_0 = 1 - dt/tau_m in (0,1)",
    correction="v' = tau_0 v + R (1 - tau_0) I, for 0 < dt < tau_m; the equation holds for the scaled input",
)
def euler(written: Evidence, truth: Evidence, draw: Draw) -> None:
    """Compare one Euler step of the differential equation with the recurrence."""
    few = torch.tensor([[0.1, 2.0, 0.0, 1.0], [2.0, 1.0, 1.0, 0.0]], dtype=torch.float64)
    random = torch.cat((draw.uniform(0.01, 0.99, 500, 1), draw.uniform(-3.0, 3.0, 500, 3)), 1)
    ratio, resistance, v, current = torch.cat((few, random)).T
    stepped = v + ratio * (-v + resistance * current)
    leak = 1 - ratio
    where = {"dt/tau_m": ratio, "R": resistance, "v": v, "I": current}
    written.equal(stepped, leak * v + current, "Euler = tau_0 v + I", **where)
    written.true((leak > 0) & (leak < 1), "tau_0 in (0,1)", **where)
    truth.equal(stepped, leak * v + resistance * (1 - leak) * current, "Euler = tau_0 v + R(1-tau_0) I")
    truth.equal(
        (leak > 0) & (leak < 1), (ratio > 0) & (ratio < 1), "tau_0 in (0,1) iff 0 < dt < tau_m", rel=0
    )
    scaled = resistance * (1 - leak) * current
    library = before_reset(lif_step, scaled, v, leak=leak, threshold=THRESHOLD)
    truth.equal(library, stepped, "lif_step on the scaled input is an Euler step")


@claim(
    8,
    "eq:ultralif_limit",
    "4.1.1",
    "substitution and limit give max(V + T, J)",
    remark="at each eps it is exactly L_eps(V + T, J); it needs v, I > 0",
)
def temporal_limit(written: Evidence, truth: Evidence, draw: Draw) -> None:
    """Test the identity at finite eps and the distance from the limit."""
    v, j = draw.uniform(-5.0, 5.0, 2, 500)
    j[:5] = v[:5] + math.log(LEAK)  # ties
    top = torch.maximum(v + math.log(LEAK), j)
    for eps in (*EPS, 1e-3, 1e-5):
        error = (membrane(j, v, eps) - top).abs()
        written.at_most(error, eps * math.log(2), "|L - max| <= eps log 2", eps=eps, V=v, J=j)
    for eps in MILD:
        tau = math.exp(math.log(LEAK) / eps)
        linear = tau * exponentiate(v, eps) + exponentiate(j, eps)
        truth.equal(exponentiate(membrane(j, v, eps), eps) / linear, 1.0, "u' = tau u + i", eps=eps)


@claim(
    9,
    "leak, tau = e^{T/eps} with T = log tau_0",
    "4.1.1",
    "the leak of the neuron is tau_0",
    instead="the leak of e^{V/eps} is tau_0^{1/eps}, which is tau_0 at eps = 1 only; keeping tau_0 needs "
    "V + eps log tau_0, whose limit max(V, I) does not leak",
)
def leak_factor(written: Evidence, truth: Evidence, draw: Draw) -> None:
    """Measure the factor by which u = e^{V/eps} shrinks without input."""
    v = torch.cat((torch.zeros(1, dtype=torch.float64), draw.uniform(-5.0, 5.0, 300)))
    current = draw.uniform(-5.0, 5.0, 301)
    for eps in (0.1, 0.661, 20.0):
        silent = membrane(torch.full_like(v, -torch.inf), v, eps)
        written.equal(torch.exp((silent - v) / eps), LEAK, "effective leak = tau_0", rel=1e-6, eps=eps)
    leak = draw.uniform(0.05, 0.99, 301)
    for eps in MILD:
        linear = leak ** (1 / eps) * exponentiate(v, eps) + exponentiate(current, eps)
        got = exponentiate(membrane(current, v, eps, leak), eps)
        truth.equal(got / linear, 1.0, "u' = tau_0^{1/eps} u + i", eps=eps)
    silent = membrane(torch.full_like(v, -torch.inf), v, 1.0, leak)
    truth.equal(torch.exp(silent - v), leak, "the leak is tau_0 at eps = 1")
    for eps in (1e-1, 1e-3, 1e-5):
        kept = lse(torch.stack((v + eps * torch.log(leak), current)), eps, dim=0)
        gap = (kept - torch.maximum(v, current)).abs()
        truth.at_most(gap, eps * (math.log(2) - torch.log(leak)), "keeping tau_0 tends to max(V, I)", eps=eps)


@claim(
    10,
    "text",
    "4.1.1",
    "the leak becomes stronger as eps -> 0",
    correction="true of u = e^{V/eps}, whose leak tau_0^{1/eps} -> 0; V falls by |log tau_0| at every eps",
)
def leak_strength(written: Evidence, truth: Evidence, draw: Draw) -> None:
    """Measure the decay of V and the factor on u at decreasing temperatures."""
    v = torch.cat((torch.ones(1, dtype=torch.float64), draw.uniform(-5.0, 5.0, 100)))
    silence = torch.full_like(v, -torch.inf)
    falls = [v - membrane(silence, v, eps) for eps in (1.0, 0.5, 0.1)]
    for colder, warmer in ((falls[1], falls[0]), (falls[2], falls[1])):
        written.true(colder > warmer + 1e-9, "V falls faster at lower eps", V=v)
    for eps, fall in zip((1.0, 0.5, 0.1), falls, strict=True):
        truth.equal(fall, -math.log(LEAK), "V falls by |log tau_0|", eps=eps)
    factors = torch.stack([torch.exp((membrane(silence, v, e) - v) / e) for e in (5.0, 1.0, 0.1, 0.01, 1e-3)])
    truth.true(factors.diff(dim=0) < 0, "the factor on u falls with eps")
    truth.at_most(factors[-1], 1e-40, "and tends to 0")


@claim(
    11,
    "eq:ultralif_soft",
    "4.1.1",
    "the soft neuron, with I in the place of the derivation's J, is the transformed LIF",
    correction="without reset it is a linear LIF in u = e^{V/eps} with inputs e^{I/eps} > 0, leak "
    "tau_0^{1/eps}, threshold e^{theta/eps} and spike u/(u + e^{theta/eps}); reset to 0 means u = 1",
)
def conjugacy(written: Evidence, truth: Evidence, draw: Draw) -> None:
    """Compare the effective linear current with the input current, then test the conjugacy."""
    one = torch.tensor(0.3, dtype=torch.float64)
    for eps in (0.1, 1.0):
        written.equal(exponentiate(one, eps), one, "linear current = I", I=one, eps=eps)
    currents = draw.uniform(-5.0, 5.0, 8, 200)
    currents[:, 0] = math.log(LEAK) * torch.arange(1, 9)  # ties at every step
    currents[:, 1], currents[:, 2] = 5.0, -5.0
    for eps in MILD:
        v, u = torch.zeros(200, dtype=torch.float64), torch.ones(200, dtype=torch.float64)
        for current in currents:
            v = membrane(current, v, eps)
            u = LEAK ** (1 / eps) * u + exponentiate(current, eps)
            truth.equal(exponentiate(v, eps) / u, 1.0, "u' = tau u + i, many steps", eps=eps)
            hill = u / (u + math.exp(THRESHOLD / eps))
            truth.equal(soft_spike(v, THRESHOLD, eps), hill, "spike = u/(u + k)", eps=eps)
        truth.equal(exponentiate(torch.zeros(1), eps), 1.0, "V = 0 is u = 1", eps=eps)
