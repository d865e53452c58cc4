"""Claims 40 to 44: spike patterns, decision boundaries, growth over time (appendices C.3.1, C.3.2)."""

import math

import torch
from torch import Tensor

from research.claims.claim import claim
from research.claims.convergence import trajectory
from research.claims.evidence import Draw, Evidence
from research.claims.spikes import DEFAULTS, half_current
from research.claims.temporal import LEAK, THRESHOLD
from ultralif.analysis import count_regions, enumerate_regions, line_crossings, region_bound, static_bound
from ultralif.functional import Mode, ultralif, ultralif_step

MODES: tuple[tuple[Mode, float], ...] = (("tropical", 1.0), ("hard", 0.3), ("hard", 1.0))
INPUT_SIZES = {"MNIST": 784, "Fashion": 784, "CIFAR-10": 3072, "N-MNIST": 2312, "DVS": 32768, "SHD": 700}


def pattern(weight: Tensor, x: Tensor, mode: Mode = "tropical", eps: float = 1.0, steps: int = 1) -> Tensor:
    """Return the rasters ``[N, T, h]`` of an UltraLIF layer for constant inputs ``[N, n]``."""
    current = (x.double() @ weight.double().T).expand(steps, -1, -1)
    return ultralif(current, eps=eps, mode=mode, **DEFAULTS)[0].transpose(0, 1)


def thetas(h: int) -> Tensor:
    """Return h hyperplane offsets, all equal to the threshold."""
    return torch.full((h,), THRESHOLD, dtype=torch.float64)


def distinct(rasters: Tensor) -> int:
    """Count distinct rasters."""
    return len(torch.unique(rasters.flatten(1), dim=0))


def points_in(draw: Draw, count: int, n: int) -> Tensor:
    """Return points near the origin and far from it, to reach both small and distant regions."""
    return draw.normal(count, n) * 10 ** draw.uniform(-1.0, 2.0, count, 1)


@claim(
    40,
    "def. Hyperplane Arrangement",
    "C.3.1",
    "the hyperplanes w_j.x = log tau_0 bound the regions of constant spike pattern",
    instead="the hyperplanes are w_j.x + b_j = theta; log tau_0 is where the membrane bends, not the spike",
)
def pattern_hyperplanes(written: Evidence, truth: Evidence, draw: Draw) -> None:
    """Test two points on one side of the paper's hyperplane, then compare patterns with signs."""
    one = torch.ones(1, 1, dtype=torch.float64)
    x = torch.tensor([[0.0], [0.6]], dtype=torch.float64)
    fired = pattern(one, x)
    written.equal(fired[0], fired[1], "s(x = 0) = s(x = .6), both above log tau_0", rel=0)
    sides = pattern(one, torch.tensor([[-1.0], [0.0]], dtype=torch.float64))
    written.true(bool(sides[0] != sides[1]), "s changes between x = -1 and x = 0, across log tau_0")
    for h, n in ((1, 1), (5, 3), (20, 10)):
        weight = draw.normal(h, n)
        near = THRESHOLD * weight[:1] / (weight[:1] ** 2).sum() * (1 + draw.normal(500, 1, sd=1e-9))
        x = torch.cat((points_in(draw, 2000, n), near))
        drive = x @ weight.T
        clear = (drive - THRESHOLD).abs().amin(1) > 1e-14
        fired = pattern(weight, x)[clear, 0]
        truth.equal(fired, drive[clear] > THRESHOLD, "pattern = [w.x > theta]", rel=0, h=h, n=n)


@claim(
    41,
    "prop:app-tropical-arrangement",
    "C.3.1",
    "at most R(h,n) regions, and in each the output is constant",
    correction="with theta in the place of log tau_0: at most R(h,n), attained in general position; also for "
    "thresholded networks at finite eps, T = 1",
)
def arrangement_bound(written: Evidence, truth: Evidence, draw: Draw) -> None:
    """Find two different outputs in one of the paper's regions, then count the true regions."""
    one = torch.ones(1, 1, dtype=torch.float64)
    fired = pattern(one, torch.tensor([[0.0], [0.6]], dtype=torch.float64))
    written.equal(fired[0], fired[1], "output at x = 0 = output at x = .6, one region of log tau_0", rel=0)
    for (h, n), want in (((4, 2), 11), ((5, 3), 26), ((7, 4), 99), ((3, 5), 8)):
        weight = draw.normal(h, n)
        truth.equal(region_bound(h, n), want, "R(h, n)", rel=0, h=h, n=n)
        for mode, eps in MODES:
            edge = thetas(h) if mode == "tropical" else half_current(eps).expand(h)
            regions = enumerate_regions(weight, edge)
            truth.equal(len(regions.points), want, "regions in general position", rel=0, h=h, n=n, eps=eps)
            fired = pattern(weight, regions.points, mode, eps)[:, 0]
            truth.equal(fired, regions.patterns, "each has the pattern of its neurons", rel=0, h=h, n=n)
            met = distinct(pattern(weight, points_in(draw, 4000, n), mode, eps))
            truth.at_most(met, want, "patterns met at random", h=h, n=n)
    for _ in range(100):
        h, n = int(draw.integers(1, 6)), int(draw.integers(1, 3))
        degenerate = draw.integers(-2, 2, h, n)
        truth.at_most(count_regions(degenerate, thetas(h)), region_bound(h, n), "degenerate", h=h, n=n)


@claim(
    42,
    "decision boundary paragraph",
    "C.3.1",
    "the set where two class scores are equal is a union of (n-1)-faces, a tropical hypersurface",
    instead="scores are piecewise constant: the set of ties is a union of cells; the argmax changes only on "
    "the hyperplanes w_j.x = theta",
)
def decision_sets(written: Evidence, truth: Evidence, draw: Draw) -> None:
    """Tie two scores on a half-line and flip them without a tie, then follow random segments."""
    x = torch.linspace(-2.0, 2.0, 81, dtype=torch.float64)[:, None]
    spikes = pattern(torch.ones(1, 1), x)[:, 0]
    half_line = (spikes @ torch.tensor([[1.0], [0.0]]).double().T).diff(dim=1)[:, 0] == 0
    written.at_most(half_line.double().sum(), 1.0, "ties among 81 points of a line, W_out = (1, 0)")
    scores = spikes @ torch.tensor([[-1.0], [0.0]]).double().T + torch.tensor([0.5, 0.0]).double()
    flips = bool(scores.argmax(1)[0] != scores.argmax(1)[-1])
    written.true(not flips or bool((scores[:, 0] == scores[:, 1]).any()), "a flip has a tie, W_out = (-1, 0)")
    for _ in range(60):
        weight, readout = draw.normal(8, 3), draw.normal(4, 8)
        start, end = draw.normal(3, sd=3.0), draw.normal(3, sd=3.0)
        cuts = line_crossings(weight, thetas(8), start, end)
        knots = torch.cat((cuts.new_zeros(1), cuts, cuts.new_ones(1)))
        inner = torch.linspace(0.001, 0.999, 9, dtype=torch.float64)
        at = knots[:-1, None] + knots.diff()[:, None] * inner
        outputs = pattern(weight, start + at.reshape(-1, 1) * (end - start))[:, 0] @ readout.T
        outputs = outputs.reshape(*at.shape, 4)
        truth.equal(outputs, outputs[:, :1], "scores are constant between crossings", rel=0)


@claim(
    43,
    "prop:app-temporal-expressivity",
    "C.3.2",
    "T steps cut R^n into at most R(h,n)^T regions, and expressivity grows to that",
    correction="a constant input has exactly the regions of T = 1, for every T; inputs that vary have "
    "R(h,n)^T regions of R^{nT}; the membranes of a constant input have sum_k C(h,k)(T+1)^k linear pieces",
)
def temporal_growth(written: Evidence, truth: Evidence, draw: Draw) -> None:
    """Count rasters for constant and varying inputs, and the linear pieces of the membranes."""
    weight, x = draw.normal(3, 2), points_in(draw, 20_000, 2)
    counts = {steps: distinct(pattern(weight, x, steps=steps)) for steps in (1, 2, 4, 10)}
    written.at_most(counts[1] + 1, counts[4], "rasters at T = 1, plus one <= rasters at T = 4", h=3, n=2)
    for steps, count in counts.items():
        truth.at_most(count, region_bound(3, 2) ** steps, "the bound itself", T=steps)
        truth.equal(count, region_bound(3, 2), "constant input: as at T = 1", rel=0, T=steps)
    weight = draw.normal(2, 2)
    both = torch.kron(torch.eye(2, dtype=torch.float64), weight)
    truth.equal(count_regions(both, thetas(4)), region_bound(2, 2) ** 2, "varying input, T = 2: 16", rel=0)
    pairs = points_in(draw, 40_000, 4).reshape(-1, 2, 2).transpose(0, 1)
    met = ultralif(pairs @ weight.T, eps=1.0, mode="tropical", **DEFAULTS)[0].transpose(0, 1)
    truth.equal(distinct(met), 16, "all of them are met", rel=0)
    u = torch.cat((draw.uniform(-1.0, 1.0, 2000), THRESHOLD + torch.tensor([0.0, 1e-9]).double()))
    t = torch.arange(1, 4, dtype=torch.float64)[:, None]
    v = trajectory(ultralif_step, u.expand(3, -1), eps=1.0, mode="tropical", **DEFAULTS).v
    law = torch.where(u > THRESHOLD, 0.0, torch.maximum(t * math.log(LEAK), u))
    truth.equal(v, law, "V(t) = max(t log tau_0, u), or 0 above theta")
    breaks = torch.cat((torch.arange(1, 4) * math.log(LEAK), torch.tensor([THRESHOLD]))).double()
    pieces = count_regions(weight.repeat_interleave(4, 0), breaks.repeat(2))
    truth.equal(pieces, static_bound(2, 2, 4), "pieces for h = n = 2, T = 3: 25", rel=0)
    truth.equal(static_bound(2, 2, 4), 25, "sum_k C(h,k)(T+1)^k", rel=0)


@claim(
    44,
    "R(h,n) ~ 10^19",
    "C.3.2",
    "R(h,n) is about 10^19 in the paper's settings",
    remark="2^64 = 1.845e19 for h = 64 and every n >= 64, if the weights have full row rank",
)
def expressivity(written: Evidence, truth: Evidence, draw: Draw) -> None:
    """Evaluate the bound in exact integers for the six datasets."""
    for name, n in INPUT_SIZES.items():
        digits = math.log10(region_bound(64, n))
        written.at_most(abs(digits - 19), 0.5, "|log10 R - 19|", dataset=name, n=n)
        truth.true(region_bound(64, n) == 2**64, "R = 2^64", dataset=name)
    truth.true(region_bound(64, 63) < 2**64, "and less for n < 64")
