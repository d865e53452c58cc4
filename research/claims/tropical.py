"""Claims 32 to 39: the tropical limit, the activation family, Lipschitz constants (5.4, B, C.2)."""

import math
from typing import Any

import torch
from torch import Tensor

from research.claims.activations import large_eps_form, softplus
from research.claims.claim import claim
from research.claims.evidence import Draw, Evidence
from research.claims.limits import limit_of, soft_of
from research.claims.preliminaries import EPS
from research.claims.spikes import DEFAULTS, half_current
from research.claims.temporal import THRESHOLD
from ultralif.analysis import line_crossings
from ultralif.functional import lif, ultradlif, ultralif
from ultralif.maxplus import hard_spike, lse, soft_spike, ultradiscretize


@claim(
    32,
    "thm:tropical (homomorphism)",
    "5.4",
    "D_eps(x) = eps log x is a semiring homomorphism from (R>0, +, *) to (R, L_eps, +)",
    remark="an isomorphism of semifields; its addition is not idempotent, a + a = a + eps log 2",
)
def homomorphism(written: Evidence, truth: Evidence, draw: Draw) -> None:
    """Test sums and products of numbers between e^-50 and e^50."""
    for eps in EPS:
        x, y = draw.uniform(-50.0, 50.0, 2, 2000).exp()
        x[:20] = y[:20]
        a, b = ultradiscretize(x, eps), ultradiscretize(y, eps)
        scale = eps * (1 + x.log().abs() + y.log().abs())
        added = lse(torch.stack((a, b)), eps, dim=0)
        written.equal(added, ultradiscretize(x + y, eps), "D(x + y)", rel=1e-14, scale=scale, eps=eps)
        written.equal(a + b, ultradiscretize(x * y, eps), "D(x y)", rel=1e-14, scale=scale, eps=eps)
        twice = lse(torch.stack((a, a)), eps, dim=0)
        truth.equal(twice, a + eps * math.log(2), "a + a = a + eps log 2", eps=eps)
        truth.equal(ultradiscretize(torch.zeros(1), eps), -torch.inf, "D(0) = -inf", eps=eps)


@claim(
    33,
    "thm:tropical (addition)",
    "5.4",
    "soft addition tends to max uniformly",
    remark="at the rate eps log 2, attained on the diagonal",
)
def soft_addition(written: Evidence, truth: Evidence, draw: Draw) -> None:
    """Test the distance from max at scales from 1e-6 to 1e6."""
    pairs = draw.normal(3000, 2) * 10 ** draw.uniform(-6.0, 6.0, 3000, 1)
    pairs[:100, 1] = pairs[:100, 0]
    for eps in (*EPS, 1e-4):
        gap = (lse(pairs, eps) - pairs.amax(-1)).abs()
        rounding = 1e-15 * pairs.abs().amax(-1)
        written.at_most(gap, eps * math.log(2), "|L - max| <= eps log 2", rounding=rounding, eps=eps)
        origin = torch.zeros(2, dtype=torch.float64)
        truth.equal(lse(origin, eps), eps * math.log(2), "attained on the diagonal", eps=eps)


@claim(
    34,
    "thm:tropical (dynamics)",
    "5.4",
    "the dynamics converge to a piecewise-linear map",
    correction="the map before reset does, uniformly; after reset the limit is piecewise linear but "
    "jumps from theta to 0, and convergence holds off the jump: at I = theta, s -> 1/2 and V -> theta/2",
)
def dynamics_limit(written: Evidence, truth: Evidence, draw: Draw) -> None:
    """Test the maps at the jump and away from it."""
    jump = torch.full((1, 1), THRESHOLD, dtype=torch.float64)
    away = draw.uniform(-2.0, 3.0, 1, 5000)
    away = away[:, (away[0] - THRESHOLD).abs() > 0.01]
    for eps in (1e-2, 1e-3, 1e-4):
        gap = (soft_of(jump, eps).v - limit_of(jump).v).abs()
        written.at_most(gap, 0.01, "|V_eps - V| -> 0", I=jump, eps=eps)
        truth.equal(soft_of(jump, eps).s, 0.5, "s -> 1/2 at the jump", rel=1e-9, eps=eps)
        truth.equal(soft_of(jump, eps).v, THRESHOLD / 2, "V -> theta/2 at the jump", rel=1e-9, eps=eps)
        everywhere = torch.cat((away, jump), 1)
        before = (soft_of(everywhere, eps).p - limit_of(everywhere).p).abs()
        truth.at_most(before, eps * math.log(2), "before reset: uniformly", eps=eps)
    after = (soft_of(away, 1e-3).v - limit_of(away).v).abs()
    truth.at_most(after, 0.01, "after reset: off the jump", eps=1e-3)
    sides = limit_of(THRESHOLD + torch.tensor([[-1e-12, 1e-12]], dtype=torch.float64)).v[0]
    truth.equal(sides, torch.tensor([THRESHOLD, 0.0]), "the limit jumps from theta to 0", rel=1e-10)


@claim(
    35,
    "thm:tropical (boundaries)",
    "5.4",
    "decision boundaries, where class scores tie, approach tropical hypersurfaces",
    correction="spike boundaries do: at T = 1 s = 1/2 on the hyperplane w.x = theta + eps log(1 - "
    "e^{(log tau_0 - theta)/eps}) -> theta; their union is the hypersurface of sum_j max(w_j.x, theta)",
)
def boundaries(written: Evidence, truth: Evidence, draw: Draw) -> None:
    """Tie two scores off all hyperplanes, then test where spikes equal 1/2 and where the sum bends."""
    x = torch.linspace(-1.0, 1.0, 9, dtype=torch.float64)
    score = hard_spike(x, THRESHOLD)  # class 0 reads the only neuron, w = 1; class 1 scores 0
    tied = score == 0.0
    written.true((x - THRESHOLD).abs()[tied] < 1e-9, "ties lie on w.x = theta", x=x[tied])
    for eps in EPS:
        w = draw.normal(200, 3) * 10 ** draw.uniform(-2.0, 2.0, 200, 1)
        foot = half_current(eps) * w / (w * w).sum(-1, keepdim=True)
        along = draw.normal(200, 3)
        on = foot + along - (along * w).sum(-1, keepdim=True) / (w * w).sum(-1, keepdim=True) * w
        spike, _ = ultralif((w * on).sum(-1)[None, :, None], eps=eps, **DEFAULTS)
        truth.equal(spike, 0.5, "s = 1/2 on the shifted hyperplane", eps=eps)
    truth.equal(half_current(1e-4), THRESHOLD, "which tends to w.x = theta", rel=1e-9)
    for _ in range(20):
        weight, start, end = draw.normal(6, 3), draw.normal(3, sd=3.0), draw.normal(3, sd=3.0)
        cuts = line_crossings(weight, torch.full((6,), THRESHOLD, dtype=torch.float64), start, end)
        knots = torch.cat((cuts.new_zeros(1), cuts, cuts.new_ones(1)))

        def total(at: Tensor, weight: Tensor = weight, start: Tensor = start, end: Tensor = end) -> Tensor:
            points = start + at[:, None] * (end - start)
            return (points @ weight.T).clamp_min(THRESHOLD).sum(-1)

        middle = total((knots[1:] + knots[:-1]) / 2)
        truth.equal(
            middle, (total(knots)[1:] + total(knots)[:-1]) / 2, "linear between hyperplanes", rel=1e-10
        )
        bend = (total(knots).diff() / knots.diff()).diff()
        if len(cuts):
            truth.true(bend > 1e-9, "bent at each hyperplane")


@claim(
    36,
    "softplus",
    "B",
    "L_eps(0, x) = eps log(1 + e^{x/eps}) -> ReLU",
    remark="it is softplus with beta = 1/eps; the greatest error, eps log 2, is at 0",
)
def softplus_member(written: Evidence, truth: Evidence, draw: Draw) -> None:
    """Compare with PyTorch's softplus and with ReLU."""
    x = torch.cat((torch.zeros(1, dtype=torch.float64), draw.uniform(-4.0, 4.0, 2000)))
    for eps in (*EPS, 1e-3):
        want = torch.nn.functional.softplus(x, beta=1 / eps, threshold=1e9 if eps > 0.01 else 600.0)
        written.equal(softplus(x, eps), want, "L(0, x) = softplus", rel=1e-13, eps=eps)
        error = softplus(x, eps) - torch.relu(x)
        written.at_most(error, eps * math.log(2), "error from ReLU", eps=eps)
        truth.equal(error[0], eps * math.log(2), "greatest at 0", eps=eps)
        truth.at_most(error, error[0], "and nowhere greater", eps=eps)


@claim(
    37,
    "eps -> 0 bullet",
    "B",
    "eps -> 0 is the classical LIF",
    instead="it is the max-plus LIF, whose spikes are memoryless",
)
def cold_bullet(written: Evidence, truth: Evidence, draw: Draw) -> None:
    """Compare the limit's rasters with LIF's."""
    simple = torch.tensor([0.3, 0.3], dtype=torch.float64)[:, None, None]
    for current in (simple, draw.normal(20, 300, 1, sd=0.8)):
        limit, _ = ultralif(current, eps=1.0, mode="tropical", **DEFAULTS)
        classical, _ = lif(current, **DEFAULTS)
        t = torch.arange(1, len(current) + 1)[:, None, None]
        written.equal(limit, classical, "spikes of the limit = spikes of LIF", rel=0, t=t, I=current)
        truth.equal(limit, (current > THRESHOLD).double(), "spikes are 1[I > theta]", rel=0)


@claim(
    38,
    "eps -> infinity bullet",
    "B",
    'eps -> infinity is "linear + constant"',
    correction="L_eps = eps log n + mean + Var/(2 eps) + O(1/eps^2): linear after eps log n is taken off; "
    "spikes tend to constants, 2/3 then .6957 (UltraLIF), 3/4 then .7984 (UltraDLIF), 1/2 (centred)",
)
def hot_bullet(written: Evidence, truth: Evidence, draw: Draw) -> None:
    """Raise the temperature of the log-sum-exp and of the neurons."""
    x = torch.tensor([-0.3, 0.8], dtype=torch.float64)
    written.at_most((lse(x, 100.0) - lse(x, 10.0)).abs(), 1.0, "|L_100 - L_10| at x = (-.3, .8)")
    for n in (2, 3, 8):
        x = torch.cat((draw.normal(300, n), torch.zeros(1, n)))
        for eps in (10.0, 100.0, 1000.0):
            third = (x - x.mean(-1, keepdim=True)).abs().amax(-1) ** 3
            rest = (lse(x, eps) - large_eps_form(x, eps)).abs()
            truth.at_most(rest, third / eps**2 + 1e-12 * eps, "rest of the expansion", n=n, eps=eps)
    current = draw.normal(60, 20, 3)
    hot: dict[str, Any] = {"eps": 1e6, "threshold": THRESHOLD}
    for name, rise, rows in (
        ("UltraLIF", lambda w: math.log1p(math.exp(w)), ultralif(current, leak=0.9, **hot)[0]),
        ("UltraDLIF", lambda w: w + math.log(3), ultradlif(current, **hot)[0]),
        ("centred", lambda w: w, ultradlif(current, centered=True, **hot)[0]),
    ):
        w, want = 0.0, []
        for _ in range(60):
            w = rise(w)
            want.append(1 / (1 + math.exp(-w)))
            w *= 1 - want[-1]
        tower = torch.tensor(want, dtype=torch.float64)[:, None, None]
        truth.equal(rows, tower, "spikes do not depend on the input", rel=1e-5, neuron=name)
        ends = {"UltraLIF": (2 / 3, 0.6957), "UltraDLIF": (0.75, 0.7984), "centred": (0.5, 0.5)}[name]
        truth.equal(want[0], ends[0], "first spike", neuron=name)
        truth.equal(want[-1], ends[1], "last spike", rel=5e-5, neuron=name)


@claim(
    39,
    "lem:lipschitz",
    "C.2",
    "L_eps is 1-Lipschitz in the maximum norm, and sigma_eps is 1/(4 eps)-Lipschitz",
    remark="both are sharp: translations, and x = 0",
)
def lipschitz(written: Evidence, truth: Evidence, draw: Draw) -> None:
    """Test random pairs, close together and far apart, and the pairs that attain the constants."""
    for eps in EPS:
        for size in (1e-6, 1e-2, 1.0, 30.0):
            x, change = draw.normal(1000, 5), draw.normal(1000, 5, sd=size)
            moved = (lse(x + change, eps) - lse(x, eps)).abs()
            most = change.abs().amax(-1)
            written.at_most(moved, most, "|L(x) - L(y)| <= max|x - y|", rounding=1e-14, eps=eps)
            a, b = draw.normal(1000), draw.normal(1000, sd=size)
            step = (soft_spike(a + b, 0.0, eps) - soft_spike(a, 0.0, eps)).abs()
            most = b.abs() / (4 * eps)
            written.at_most(step, most, "|s(x) - s(y)| <= |x - y|/(4 eps)", rounding=1e-15, eps=eps)
        shifted = lse(x + 0.7, eps) - lse(x, eps)
        truth.equal(shifted, 0.7, "translations attain 1", eps=eps)
        tiny = torch.tensor(1e-5 * eps, dtype=torch.float64)
        slope = (soft_spike(tiny, 0.0, eps) - soft_spike(-tiny, 0.0, eps)) / (2 * tiny)
        truth.equal(slope * 4 * eps, 1.0, "x = 0 attains 1/(4 eps)", rel=1e-9, eps=eps)
