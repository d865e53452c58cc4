"""Claims 1 to 4: the semiring and log-sum-exp (section 3)."""

import math

import torch
from torch import Tensor

from research.claims.claim import claim
from research.claims.evidence import Draw, Evidence
from ultralif import maxplus
from ultralif.maxplus import lse

EPS = (0.02, 0.1, 0.5, 1.0, 5.0)
"""The temperatures used to test the claims."""


@claim(1, "def. Max-Plus", "3.1", "(R with -inf, max, +) is a semiring with zero -inf and one 0")
def semiring(written: Evidence, truth: Evidence, draw: Draw) -> None:
    """Test the axioms on all triples of random and extreme numbers, and on matrices."""
    extreme = torch.tensor([-torch.inf, 0.0, 1e300, -1e300, 5e-324, 1e-16], dtype=torch.float64)
    values = torch.cat((draw.normal(30, sd=3.0), extreme))
    a, b, c = torch.meshgrid(values, values, values, indexing="ij")
    most = torch.maximum
    size = torch.nan_to_num(a.abs() + b.abs() + c.abs(), posinf=0.0)
    written.equal(most(most(a, b), c), most(a, most(b, c)), "max is associative", rel=0)
    written.equal(most(a, b), most(b, a), "max is commutative", rel=0)
    # both sums round twice: four half units in the last place of the operands
    written.equal((a + b) + c, a + (b + c), "+ is associative", rel=4.5e-16, scale=size)
    written.equal(a + most(b, c), most(a + b, a + c), "+ distributes over max", rel=0)
    written.equal(most(values, extreme[0]), values, "-inf is the zero", rel=0)
    written.equal(values + extreme[0], extreme[0], "-inf absorbs", rel=0)
    written.equal(values + 0.0, values, "0 is the one", rel=0)
    x, y, z = draw.integers(-9, 9, 3, 5, 5)
    product = maxplus.matmul
    written.equal(product(x, most(y, z)), most(product(x, y), product(x, z)), "matrices distribute", rel=0)
    written.equal(product(product(x, y), z), product(x, product(y, z)), "matrices associate", rel=0)


def _vectors(draw: Draw, n: int) -> Tensor:
    """Return random vectors and difficult ones: ties, near ties, values far apart or far from zero."""
    ramp = torch.arange(n, dtype=torch.float64)
    hard = torch.stack((0 * ramp, 0 * ramp - 1e6, 1e-12 * ramp, -40.0 * ramp, 1e6 + ramp))
    return torch.cat((draw.normal(300, n, sd=3.0), hard))


@claim(
    2,
    "lem:lse_convergence (bounds)",
    "3.2",
    "M <= L_eps(x) <= M + eps log n, hence L_eps -> M as eps -> 0",
    remark="the upper bound is attained if and only if all x_i are equal",
)
def lse_bounds(written: Evidence, truth: Evidence, draw: Draw) -> None:
    """Test both bounds, the limit, and when the upper bound is attained."""
    for n in (1, 2, 3, 8, 64):
        x = _vectors(draw, n)
        top = x.amax(-1)
        for eps in EPS:
            soft, upper = lse(x, eps), top + eps * math.log(n)
            written.at_most(top, soft, "M <= L_eps", slack=1e-14, n=n, eps=eps)
            written.at_most(soft, upper, "L_eps <= M + eps log n", slack=1e-14, n=n, eps=eps)
            level = draw.normal(20, 1).expand(-1, n)
            truth.equal(lse(level, eps), level[:, 0] + eps * math.log(n), "attained if equal", n=n, eps=eps)
            if n > 1:
                uneven = torch.zeros(n, dtype=torch.float64)
                uneven[0] = -1e-3 * eps
                short = lse(uneven, eps) < eps * math.log(n)
                truth.true(short, "not attained otherwise", n=n, eps=eps)
        written.at_most((lse(x, 1e-9) - top).abs(), 1e-8, "L_eps -> M", n=n)


@claim(
    3,
    "lem:lse_convergence (gradient)",
    "3.2",
    "grad L_eps = softmax(x/eps), which lies in (0,1)^n",
    correction="it lies in the open simplex for n >= 2, and is 1 for n = 1",
)
def lse_gradient(written: Evidence, truth: Evidence, draw: Draw) -> None:
    """Compare autograd with softmax, and test positivity where floats can resolve it."""
    for n in (1, 2, 3, 8):
        for eps in EPS:
            spread = eps * draw.uniform(-14.0, 14.0, 200, n)
            tied = torch.zeros(1, n, dtype=torch.float64)
            x = torch.cat((spread, tied)).requires_grad_()
            (grad,) = torch.autograd.grad(lse(x, eps).sum(), x)
            written.true((grad > 0) & (grad < 1), "0 < gradient < 1", n=n, eps=eps)
            truth.equal(grad, torch.softmax(x / eps, -1), "gradient = softmax", n=n, eps=eps)
            truth.equal(grad.sum(-1), 1.0, "gradients sum to 1", n=n, eps=eps)
            inside = (grad > 0) & (grad < 1) if n > 1 else grad == 1
            truth.true(inside, "in the open simplex, or 1", n=n, eps=eps)


@claim(
    4,
    "remark after lemma",
    "3.2",
    "with a unique maximum and gap d, L_eps - M = O(eps exp(-d/eps))",
    remark="eps log(1 + exp(-d/eps)) <= L_eps - M <= (n-1) eps exp(-d/eps), and n-1 is attained in the limit",
)
def lse_gap(written: Evidence, truth: Evidence, draw: Draw) -> None:
    """Test the rate with its constant; the excess over M = 0 is computed without cancellation."""
    for n in (2, 3, 10):
        for eps in EPS:
            gap = eps * draw.uniform(0.01, 100.0, 300)
            others = -gap[:, None] - torch.cat((torch.zeros(300, 1), draw.uniform(0, 3 * eps, 300, n - 2)), 1)
            excess = eps * torch.log1p(torch.exp(others / eps).sum(-1))
            rate = eps * torch.exp(-gap / eps)
            written.at_most(excess, (n - 1) * rate, "L - M <= (n-1) eps exp(-d/eps)", n=n, eps=eps, d=gap)
            low = eps * torch.log1p(torch.exp(-gap / eps))
            truth.at_most(low, excess, "L - M >= eps log(1 + exp(-d/eps))", n=n, eps=eps, d=gap)
            x = torch.cat((torch.zeros(300, 1), others), 1)
            truth.equal(lse(x, eps), excess, "L - M by the library", rel=1e-14, n=n, eps=eps)
        attained = torch.log1p((n - 1) * torch.tensor(-25.0).double().exp()) / math.exp(-25.0)
        truth.equal(attained, n - 1, "n-1 is attained", rel=1e-9, n=n)
    tie = torch.tensor([0.0, 0.0, -1.0], dtype=torch.float64)
    truth.equal(lse(tie, 0.1), 0.1 * math.log(2), "a tie leaves eps log 2: uniqueness is needed", rel=1e-4)
