"""Claims 45 to 49: zonotope volume, general position and their implications (appendix C.3.3)."""

import math
from itertools import product

import torch
from torch import Tensor, nn

from research.claims.arrangements import thetas
from research.claims.claim import claim
from research.claims.evidence import Draw, Evidence
from ultralif.analysis import (
    count_regions,
    general_position,
    log_volume,
    log_volume_gap,
    merge_redundant,
    prune_neurons,
    region_bound,
    whitney_count,
    zonotope_volume,
)
from ultralif.nn import Network


def matrix(*rows: tuple[float, ...]) -> Tensor:
    """Return rows as a float64 matrix."""
    return torch.tensor(rows, dtype=torch.float64)


def integer_arrangements(draw: Draw, h: int, n: int, count: int) -> tuple[Tensor, Tensor]:
    """Return normals ``[count, h, n]`` without zero rows and offsets; small integers, often degenerate."""
    weight, offset = draw.integers(-2, 2, 3 * count, h, n), draw.integers(-2, 2, 3 * count, h)
    proper = (weight != 0).any(-1).all(-1)
    return weight[proper][:count], offset[proper][:count]


@claim(
    45,
    "text: vol_n(Z) = 0",
    "C.3.3",
    "where the zonotope's volume is 0 the weights are dependent and the arrangement degenerates",
    instead="vol_n(Z) = sum |det W_S| > 0 iff rank W = n; for h < n it is 0, as in all the paper's networks",
)
def zero_volume(written: Evidence, truth: Evidence, draw: Draw) -> None:
    """Test one vector in the plane, then compare the volume and rank of integer matrices."""
    single = matrix((1.0, 0.0))
    truth.equal(zonotope_volume(single), 0.0, "vol of one vector in the plane", rel=0)
    written.true(torch.linalg.matrix_rank(single) < 1, "w = (1,0) in R^2 has volume 0, so it is dependent")
    written.true(count_regions(single, thetas(1)) < region_bound(1, 2), "and its arrangement degenerates")
    for h, n in product(range(1, 6), range(1, 4)):
        for weight in integer_arrangements(draw, h, n, 60)[0]:
            spans = int(torch.linalg.matrix_rank(weight)) == n
            truth.equal(zonotope_volume(weight) > 1e-9, spans, "vol > 0 iff rank n", rel=0, h=h, n=n)
            if h < n:
                truth.equal(zonotope_volume(weight), 0.0, "vol = 0 for h < n", rel=0, h=h, n=n)


def paper_conditions(weight: Tensor, offset: Tensor) -> bool:
    """Test the paper's conditions (1) and (2), which are empty for h < n."""
    return len(weight) < weight.shape[1] or general_position(weight, offset).general


@claim(
    46,
    "thm:app-zonotope-expressivity (i)",
    "C.3.3",
    "the count is maximal iff no n+1 hyperplanes meet and any n normals are independent",
    correction="true for h >= n; in general any min(h,n) normals must be independent",
)
def maximal_count(written: Evidence, truth: Evidence, draw: Draw) -> None:
    """Test two opposite normals in three dimensions, then integer arrangements of every small shape."""
    opposite, apart = matrix((1.0, 0.0, 0.0), (-1.0, 0.0, 0.0)), torch.tensor([1.0, 1.0]).double()
    best = count_regions(opposite, apart) == region_bound(2, 3)
    met = paper_conditions(opposite, apart)
    written.equal(best, met, "3 regions, R = 4, but the conditions are met: maximal = conditions", rel=0)
    for h, n in product(range(1, 6), range(1, 4)):
        weights, offsets = integer_arrangements(draw, h, n, 100)
        counts = whitney_count(weights, offsets)
        for weight, offset, count in zip(weights, offsets, counts.tolist(), strict=True):
            best = count == region_bound(h, n)
            written.equal(best, paper_conditions(weight, offset), "maximal iff conditions", rel=0, h=h, n=n)
            general = general_position(weight, offset).general
            truth.equal(best, general, "maximal iff in general position, as corrected", rel=0, h=h, n=n)


@claim(
    47,
    "thm (ii), cor:app-capacity-lower-bound",
    "C.3.3",
    "rank n and h >= n give a non-degenerate arrangement with at least 2^n regions",
    correction="at least 2^n, but it may be degenerate; in general 2^r <= regions <= R(h,r) for r = rank W",
)
def capacity(written: Evidence, truth: Evidence, draw: Draw) -> None:
    """Test a parallel pair with a third line, then integer matrices."""
    weight = matrix((1.0, 0.0), (0.0, 1.0), (2.0, 0.0))
    written.at_most(4, count_regions(weight, thetas(3)), "2^n <= regions")
    count = count_regions(weight, thetas(3))
    written.equal(
        count, region_bound(3, 2), "(1,0), (0,1), (2,0), volume 3, is non-degenerate: regions = R", rel=0
    )
    for h, n in product(range(1, 7), range(1, 4)):
        weights, offsets = integer_arrangements(draw, h, n, 50)
        counts, ranks = whitney_count(weights, offsets), torch.linalg.matrix_rank(weights)
        bounds = torch.tensor([region_bound(h, r) for r in ranks.tolist()])
        truth.at_most(2**ranks, counts, "2^r <= regions", h=h, n=n)
        truth.at_most(counts, bounds, "regions <= R(h,r)", h=h, n=n)
    for n in (2, 4, 6):
        generic = draw.normal(n + 3, n)
        truth.equal(count_regions(generic, thetas(n + 3)), region_bound(n + 3, n), "attained", rel=0, n=n)


@claim(
    48,
    "thm (iii), converse",
    "C.3.3",
    "volume 0 means fewer than 2^n regions, at most linear in h",
    instead="at most R(h,r) = O(h^r), attained in general position inside the span; linear for r = 1 only",
)
def degenerate_count(written: Evidence, truth: Evidence, draw: Draw) -> None:
    """Test parallel lines, then many planes that contain a common direction."""
    parallel = matrix((1.0, 0.0), (2.0, 0.0), (3.0, 0.0))
    truth.equal(zonotope_volume(parallel), 0.0, "volume of three parallel normals", rel=0)
    written.at_most(count_regions(parallel, thetas(3)), 3, "regions < 2^n for (1,0), (2,0), (3,0)")
    for h, want in ((4, 11), (8, 37), (12, 79), (64, 2081)):
        flat = torch.cat((draw.normal(h, 2), torch.zeros(h, 1)), 1)
        if h <= 12:
            truth.equal(zonotope_volume(flat), 0.0, "volume of flat normals", rel=0, h=h)
        found = count_regions(flat, thetas(h))
        written.at_most(found, 2 * h, "at most linear in h: regions <= 2h", h=h, n=3)
        truth.equal(found, want, "regions of rank 2 in R^3", rel=0, h=h)
        truth.equal(region_bound(h, 2), want, "R(h,2)", rel=0, h=h)
    for h in (1, 3, 7):
        line = draw.normal(h, 1) @ draw.normal(1, 3)
        truth.equal(count_regions(line, thetas(h)), h + 1, "linear for rank 1", rel=0, h=h)


@claim(
    49,
    "Implications",
    "C.3.3",
    "random weights give volume > 0, orthogonal ones the most, and a parallel neuron adds next to none",
    instead="use log det(W W^T)/2 for h <= n, log det(W^T W)/2 for h >= n, where sqrt(det) <= vol <= "
    "sqrt(C(h,n) det); orthogonal rows are best for h = n; equal neurons are merged, not pruned",
)
def implications(written: Evidence, truth: Evidence, draw: Draw) -> None:
    """Test the paper's own layer, two tight frames and a duplicated neuron, then the true statement."""
    paper = nn.init.kaiming_normal_(torch.empty(64, 784, dtype=torch.float64), generator=draw.generator)
    written.true(zonotope_volume(paper) > 0, "Kaiming weights, 64 x 784, have volume > 0")
    truth.true(torch.isfinite(log_volume(paper)), "their log-volume is finite")
    tight = matrix((1.0, 0.0), (1.0, 0.0), (0.0, 1.0), (0.0, 1.0))
    angles = torch.arange(4, dtype=torch.float64) * math.pi / 4
    spread = torch.stack((angles.cos(), angles.sin()), 1)
    truth.equal(spread.T @ spread, tight.T @ tight, "both frames have orthogonal columns, W^T W = 2I")
    written.at_most(zonotope_volume(spread), zonotope_volume(tight), "no unit vectors beat orthogonal ones")
    doubled = matrix((1.0, 0.0), (1.0, 0.0), (0.0, 1.0))
    kept = zonotope_volume(doubled[1:]) / zonotope_volume(doubled)
    written.at_most(1 - kept, 0.05, "fraction of the volume lost with a parallel neuron")
    for n in (1, 2, 3, 5):
        square = draw.normal(40, n, n)
        truth.at_most(square.det().abs(), square.norm(dim=-1).prod(-1), "|det| <= product of lengths", n=n)
        turned = torch.linalg.qr(square).Q
        truth.equal(turned.det().abs(), 1.0, "orthogonal rows attain it", n=n)
        for h in (n, n + 1, n + 4):
            weight = draw.normal(h, n)
            exact, low = zonotope_volume(weight).log(), log_volume(weight)
            truth.at_most(low, exact, "log-volume <= log vol", h=h, n=n)
            truth.at_most(exact, low + log_volume_gap(h, n), "log vol <= log-volume + gap", h=h, n=n)
    merging(truth, draw)


def merging(truth: Evidence, draw: Draw) -> None:
    """Duplicate a neuron: merging preserves the outputs, pruning one of the two does not."""
    net = Network((6, 5, 3)).double()
    with torch.no_grad():
        for parameter in net.linears.parameters():
            parameter.copy_(draw.normal(*parameter.shape))
        net.linears[0].get_parameter("weight")[3] = net.linears[0].get_parameter("weight")[1]
        net.linears[0].get_parameter("bias")[3] = net.linears[0].get_parameter("bias")[1]
        x = draw.normal(4, 100, 6)
        merged = merge_redundant(net)
        truth.equal(merged.network.sizes[1], 4, "the doubled neuron is merged", rel=0)
        truth.equal(merged.network(x), net(x), "merging keeps every output")
        change = (prune_neurons(net, 4)(x) - net(x)).abs().max()
        truth.true(change > 0.01, "pruning it changes them")
