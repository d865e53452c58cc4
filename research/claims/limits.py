"""Claims 21 to 27: convergence to the limit, its bounds, and where they break (section 5.1)."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from research.claims.claim import claim
from research.claims.convergence import MarginBounds, Trajectory, margin_theorem, trajectory
from research.claims.evidence import Draw, Evidence
from research.claims.spikes import DEFAULTS
from research.claims.temporal import LEAK, THRESHOLD
from ultralif.functional import fire, lif, ultradlif_step, ultralif_step
from ultralif.maxplus import soft_spike

LOG_LEAK = math.log(LEAK)


def limit_of(current: Tensor, v0: float = 0.0, v_reset: float = 0.0) -> Trajectory:
    """Return the max-plus trajectory of UltraLIF."""
    return trajectory(ultralif_step, current, v0, eps=1.0, mode="tropical", v_reset=v_reset, **DEFAULTS)


def soft_of(current: Tensor, eps: float) -> Trajectory:
    """Return UltraLIF's trajectory."""
    return trajectory(ultralif_step, current, eps=eps, **DEFAULTS)


def log_spike_error(soft: Trajectory, limit: Trajectory, eps: float) -> Tensor:
    """Return log|s_eps - s|, computed from the membrane because the difference itself underflows."""
    toward = torch.where(limit.s > 0, 1.0, -1.0)
    return torch.nn.functional.logsigmoid(-toward * (soft.p - THRESHOLD) / eps)


def step_numbers(current: Tensor) -> Tensor:
    """Return 1..T, shaped to broadcast with ``[T, ...]``."""
    t = torch.arange(1, len(current) + 1, dtype=torch.float64)
    return t.reshape(-1, *[1] * (current.dim() - 1))


class Kept(NamedTuple):
    """The sequences that keep the margin required by the corrected theorem."""

    eps: float
    bounds: MarginBounds
    soft: Trajectory
    limit: Trajectory


def sequences_with_margin(draw: Draw, eps: float, kappa: float, sd: float, steps: int = 10) -> Kept:
    """Return trajectories for random inputs that keep the margin and for inputs that barely keep it."""
    current = draw.normal(steps, 6000, sd=sd)
    peak = max(THRESHOLD, float(current.abs().max()))
    bounds = margin_theorem(eps, steps, peak + eps * math.log(2), kappa=kappa)
    side = torch.where(draw.uniform(-1.0, 1.0, steps, 500) > 0, 1.0, -1.0)
    barely = THRESHOLD + side * bounds.margin[:, None] * (1 + 1e-9)
    current = torch.cat((current, barely.clamp(-peak, peak)), 1)
    limit = limit_of(current)
    kept = ((limit.p - THRESHOLD).abs() >= bounds.margin[:, None]).all(0)
    return Kept(eps, bounds, soft_of(current[:, kept], eps), Trajectory(*(x[:, kept] for x in limit)))


@claim(
    21,
    "prop:convergence (limit)",
    "5.1",
    "V_eps -> v and s_eps -> s of the standard LIF",
    instead="the limit is the max-plus recurrence p' = max(v + log tau_0, I), where no p(t) equals theta",
)
def lif_limit(written: Evidence, truth: Evidence, draw: Draw) -> None:
    """Compare low-temperature trajectories with additive LIF and with max-plus."""
    simple = torch.tensor([0.3, 0.3], dtype=torch.float64)[:, None]
    noise = draw.normal(10, 500, sd=0.8)
    for current in (simple, noise):
        spikes, _ = lif(current[..., None], **DEFAULTS)
        for eps in (1e-2, 1e-3, 1e-4):
            error = (soft_of(current, eps).s - spikes[..., 0]).abs()
            written.at_most(error, 0.01, "|s_eps - s_LIF|", t=step_numbers(current), eps=eps, I=current)
    for eps in (1e-2, 1e-3, 1e-4):
        kept = sequences_with_margin(draw, eps, 1.0, 0.8)
        bound = kept.bounds.v[:, None]
        truth.at_most((kept.soft.v - kept.limit.v).abs(), bound, "|V_eps - v_maxplus|", eps=eps)
        truth.at_most((kept.soft.s - kept.limit.s).abs(), 0.01, "|s_eps - s_maxplus|", eps=eps)


@claim(
    22,
    "prop:convergence (consequence)",
    "5.1",
    "the limit is a temporal neuron: its past matters",
    instead="its spikes are memoryless, s(t+1) = 1[I(t) > theta], for V(0), V_reset <= theta - log tau_0",
)
def memoryless(written: Evidence, truth: Evidence, draw: Draw) -> None:
    """Look for a past that changes a spike, then test the rule spike by spike."""
    pasts = draw.normal(49, 2000, sd=0.8)
    for now in (0.3, 0.4999, 0.5001, 1.0):
        last = torch.full((1, 2000), now, dtype=torch.float64)
        final = limit_of(torch.cat((pasts, last))).s[-1]
        written.true(final.min() != final.max(), "some of 2000 pasts changes the spike", I=now)
    pasts[::7] = THRESHOLD  # the edge itself: no spike
    above = (pasts > THRESHOLD).double()
    for v_reset in (0.0, -1.0, THRESHOLD - LOG_LEAK - 0.01):
        spikes = limit_of(pasts, v_reset=v_reset).s
        truth.equal(spikes, above, "s = 1[I > theta]", rel=0, v_reset=v_reset)
    edge = THRESHOLD - LOG_LEAK + 0.01
    truth.true(limit_of(torch.zeros(1, 1), edge).s == 1, "a higher V(0) fires without input")
    truth.true(limit_of(pasts, v_reset=edge).s.sum() > above.sum(), "and so does a higher V_reset")


@claim(
    23,
    "prop:convergence (V bound)",
    "5.1",
    "|V_eps(t) - v(t)| <= t eps log 2",
    instead="if the limit keeps margins eps[log(k+1) + K + log(BT/(K eps))] from theta, then |V_eps - v| <= "
    "eps(log(t+1) + K + K/T), logarithmic in t; at T = 1 the paper's bound needs eps >= .377 (theta = .5)",
)
def membrane_bound(written: Evidence, truth: Evidence, draw: Draw) -> None:
    """Test the bound near the threshold and at random, then the corrected bound under its margin."""
    near = torch.tensor([[0.499]], dtype=torch.float64)
    noise = draw.normal(10, 5000, sd=0.8)
    for current, eps in ((near, 0.02), (noise, 0.02), (noise, 0.1), (noise, 0.004)):
        error = (soft_of(current, eps).v - limit_of(current).v).abs()
        t = step_numbers(current)
        bound = t * eps * math.log(2)
        written.at_most(error, bound, "|V_eps - v| <= t eps log 2", t=t, eps=eps, I=current)
    for eps in (0.005, 0.02, 0.05):
        for kappa, sd in ((0.1, 0.8), (1.0, 0.8), (1.0, 2.0)):
            kept = sequences_with_margin(draw, eps, kappa, sd)
            for name, got, want, bound in (
                ("P", kept.soft.p, kept.limit.p, kept.bounds.p),
                ("V", kept.soft.v, kept.limit.v, kept.bounds.v),
            ):
                truth.at_most((got - want).abs(), bound[:, None], f"|{name}_eps - limit|", eps=eps, K=kappa)
    all_currents = torch.linspace(-1.0, 1.5, 200_001, dtype=torch.float64)[None]
    for eps, holds in ((0.376, False), (0.378, True)):
        error = (soft_of(all_currents, eps).v - limit_of(all_currents).v).abs().max()
        truth.true(bool(error <= eps * math.log(2)) == holds, "the paper's bound at T = 1", eps=eps)


@claim(
    24,
    "prop:convergence (s bound)",
    "5.1",
    "|s_eps(t) - s(t)| <= e^{-d_t/eps} with d_t = |v(t) - theta|",
    instead="at t = 1 it is <= 2 e^{-d/eps} (<= e^{-d/eps} where s = 1), d before reset; under the margin "
    "of claim 23 it is <= (t+1) e^K e^{-d_t/eps}; without it even 2^t e^{-d/eps} fails",
)
def spike_bound(written: Evidence, truth: Evidence, draw: Draw) -> None:
    """Test the bound in logarithms, far from the threshold and near it, then the corrected bounds."""
    far = torch.tensor([[LOG_LEAK]], dtype=torch.float64)
    for current, eps in ((far, 0.1), (draw.normal(10, 5000, sd=0.8), 0.1)):
        soft, limit = soft_of(current, eps), limit_of(current)
        rate = torch.exp(-(limit.p - THRESHOLD).abs() / eps)
        error = log_spike_error(soft, limit, eps).exp()
        written.at_most(error, rate, "|s_eps - s| <= e^{-d/eps}", t=step_numbers(current), eps=eps, I=current)
    near = torch.tensor([[0.501]], dtype=torch.float64)
    error = log_spike_error(soft_of(near, 0.05), limit_of(near), 0.05).exp()
    rate = torch.exp(-(limit_of(near).v - THRESHOLD).abs() / 0.05)
    written.at_most(error, rate, "the same with d after reset", eps=0.05, I=near)
    first = torch.cat((draw.normal(1, 20_000, sd=2.0), far, near), 1)
    for eps in (0.005, 0.1, 1.0):
        limit = limit_of(first)
        error = log_spike_error(soft_of(first, eps), limit, eps)
        log_rate = -(limit.p - THRESHOLD).abs() / eps
        truth.at_most(error, log_rate + math.log(2), "t = 1: log error", eps=eps)
        fired = limit.s > 0
        truth.at_most(error[fired], log_rate[fired], "t = 1, s = 1: log error", eps=eps)
    for eps, kappa in ((0.005, 1.0), (0.02, 0.1), (0.05, 1.0)):
        kept = sequences_with_margin(draw, eps, kappa, 0.8)
        distance = (kept.limit.p - THRESHOLD).abs() / eps
        error = log_spike_error(kept.soft, kept.limit, eps)
        truth.at_most(error, kept.bounds.log_s[:, None] - distance, "log error", eps=eps, K=kappa)
    no_margin = torch.tensor([[0.501], [-1.0]], dtype=torch.float64)
    limit = limit_of(no_margin)
    error = log_spike_error(soft_of(no_margin, 0.05), limit, 0.05)[1]
    worse = 2 * math.log(2) - (limit.p[1] - THRESHOLD).abs() / 0.05
    truth.true(error > worse, "without the margin even 2^t fails")


def reset_slope(z: Tensor, y: float) -> Tensor:
    """Return the slope of x(1 - s(x)) at x = theta + eps z, for theta/eps = y."""
    x = (z + y).requires_grad_()  # in units of eps
    _, v = fire(x, lambda v: soft_spike(v, y, 1.0), None, y, 0.0, "soft")
    (slope,) = torch.autograd.grad(v.sum(), x)
    return slope


@claim(
    25,
    "proof step",
    "C.1",
    "the reset x(1 - s(x)) is non-expansive",
    instead="its slope at theta is 1/2 - theta/(4 eps); it is >= -1 iff theta/eps <= 6 - log 2, and "
    "<= 1.0998 always, <= 1 for x >= -eps",
)
def reset_expansion(written: Evidence, truth: Evidence, draw: Draw) -> None:
    """Differentiate the reset on a fine grid of z = (x - theta)/eps from z = 0; ratio is theta/eps."""
    grid = torch.cat((torch.zeros(1, dtype=torch.float64), torch.linspace(-40.0, 40.0, 80_001).double()))
    grid = torch.cat((grid, math.log(2) + draw.normal(1000, sd=1e-3)))
    edge = 6 - math.log(2)
    for y in (THRESHOLD / 0.02, 1.0):
        slope = reset_slope(grid, y)
        written.at_most(slope.abs(), 1.0, "|slope| <= 1", ratio=y, z=grid)
    for y in (0.0, 0.1, 1.0, 3.0, edge - 0.01, edge, edge + 0.01, 10.0, 25.0, 200.0):
        slope = reset_slope(grid, y)
        truth.equal(slope[0], 0.5 - y / 4, "slope at theta", ratio=y)
        truth.true(bool(slope.min() >= -1 - 1e-9) == (y <= edge), "slope >= -1 iff", ratio=y)
        truth.at_most(slope, 1.0999, "slope <= 1.0998", ratio=y)
        truth.at_most(slope[grid + y >= -1], 1.0, "slope <= 1 for x >= -eps", ratio=y)
    truth.equal(reset_slope(grid, edge).min(), -1.0, "the least slope there", rel=1e-6)


@claim(
    26,
    "prop:convergence (A2)",
    "5.1",
    "the inputs that violate the margin assumption have measure zero",
    correction="given V(0) + log tau_0 != theta it is violated iff some I(t) = theta: a null set for inputs "
    "with a density, but not for inputs from a finite alphabet",
)
def margin_measure(written: Evidence, truth: Evidence, draw: Draw) -> None:
    """Start at theta - log tau_0, where every weak input violates the assumption, then test the rule."""
    start = THRESHOLD - LOG_LEAK
    weak = draw.uniform(-3.0, THRESHOLD, 1, 1000)
    touching = (limit_of(weak, start).p - THRESHOLD).abs() < 1e-15
    written.at_most(touching.double().mean(), 0.0, "fraction of inputs with p(1) = theta", V0=start)
    letters = torch.tensor([0.0, THRESHOLD, 1.0, -0.7], dtype=torch.float64)
    alphabet = letters[draw.integers(0, 3, 12, 2000).long()]
    for current in (draw.normal(12, 5000, sd=0.8), alphabet):
        touched = (limit_of(current).p == THRESHOLD).any(0)
        truth.equal(touched, (current == THRESHOLD).any(0), "p = theta iff some I = theta", rel=0)
    truth.true((alphabet == THRESHOLD).any(0).double().mean() > 0.5, "a finite alphabet hits it often")
    at = torch.full((1, 1), THRESHOLD, dtype=torch.float64)
    for eps in (1e-2, 1e-3, 1e-4):
        truth.equal(soft_of(at, eps).s, 0.5, "s_eps -> 1/2 there", rel=1e-9, eps=eps)


@claim(
    27,
    "cor:ultradlif_convergence",
    "5.1",
    "UltraDLIF's trajectory converges with error <= t eps log 3",
    correction="to max(neighbours) + I with hard reset; without reset 0 <= error <= t eps log 3 holds and is "
    "attained; with reset it needs the margin of claim 23 with log(k+1) replaced by k log 3",
)
def spatial_convergence(written: Evidence, truth: Evidence, draw: Draw) -> None:
    """Break the bound next to the threshold, then test it without reset and under the margin."""

    def run(
        current: Tensor, eps: float, v0: float = 0.0, *, hard: bool = False, reset: bool = True
    ) -> Trajectory:
        mode, threshold = "tropical" if hard else "soft", THRESHOLD if reset else math.inf
        return trajectory(ultradlif_step, current, v0, eps=eps, threshold=threshold, mode=mode)

    beside = torch.full((1, 1, 3), 0.499, dtype=torch.float64)
    for current, eps in ((beside, 0.02), (draw.normal(8, 1000, 6, sd=0.8), 0.02)):
        t = step_numbers(current)
        error = (run(current, eps).v - run(current, eps, hard=True).v).abs()
        written.at_most(error, t * eps * math.log(3), "|V_eps - v| <= t eps log 3", t=t, eps=eps, I=current)
    for eps in (0.004, 0.1, 1.0):
        noise = draw.normal(8, 500, 6)
        rise = step_numbers(noise) * eps * math.log(3)
        free, edge = run(noise, eps, reset=False).v, run(noise, eps, hard=True, reset=False).v
        truth.at_most(edge, free, "without reset: error >= 0", eps=eps)
        truth.at_most(free - edge, rise, "without reset: error", eps=eps)
        level = torch.zeros(8, 1, 6, dtype=torch.float64)
        truth.equal(run(level, eps, 0.7, reset=False).v, 0.7 + rise, "attained by a uniform state", eps=eps)
    for eps in (0.001, 0.004):
        noise = draw.normal(4, 6000, 3, sd=2.0)
        soft, limit = run(noise, eps), run(noise, eps, hard=True)
        bounds = margin_theorem(eps, 4, float(soft.p.abs().max()), terms=3)
        distance = (limit.p - THRESHOLD).abs()
        kept = (distance >= bounds.margin[:, None, None]).all(-1).all(0)
        error = (soft.p - limit.p).abs()[:, kept]
        truth.at_most(error, bounds.p[:, None, None], "with margin: |P_eps - p|", eps=eps)
        log_error = log_spike_error(soft, limit, eps)[:, kept]
        log_bound = bounds.log_s[:, None, None] - distance[:, kept] / eps
        truth.at_most(log_error, log_bound, "with margin: log spike error", eps=eps)
        once = margin_theorem(eps, 1, 1.0, terms=3)
        barely = THRESHOLD + once.margin * torch.tensor([-1.0, 1.0], dtype=torch.float64)
        driven = barely[None, :, None].expand(1, 2, 3)
        error = (run(driven, eps).v - run(driven, eps, hard=True).v).abs()
        truth.at_most(error, once.v[:, None, None], "with the least margin: |V_eps - v|", eps=eps)
