"""Count a layer's regions along a line, in a plane, and over time."""

from collections.abc import Sequence
from itertools import pairwise
from math import comb
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ultralif.analysis.arrangement import TOLERANCE, count_regions, region_bound
from ultralif.analysis.limits import refuse_beyond
from ultralif.errors import InputError
from ultralif.functional import Mode
from ultralif.nn import LIF, DSpike, Neuron, SoftLIF, UltraDLIF, UltraLIF, mode

__all__ = [
    "Growth",
    "Plane",
    "firing_current",
    "growth",
    "hyperplanes",
    "line_crossings",
    "plane_hyperplanes",
    "plane_through",
    "random_plane",
    "raster",
    "raster_bound",
    "sample_regions",
    "static_bound",
]

AnyNeuron = Neuron[Any]

MAX_BITS = 200_000_000
"""Rasters with more bits are refused, because they would not fit in a laptop's memory."""


@torch.no_grad()
def firing_current(neuron: AnyNeuron, features: int) -> Tensor:
    """Return the current above which each neuron fires at its first step from rest, ``[features]``.

    It is found by bisection, down to the last bit, which works for any neuron. In soft mode, a spike above
    one half counts as firing. In that mode, the current is
    ``threshold + eps * log(1 - exp((log(leak) - threshold) / eps))`` for UltraLIF and
    ``threshold - eps * log(3)`` for UltraDLIF; in tropical mode, it is the threshold itself.

    Example:
        >>> from ultralif.nn import LIF
        >>> firing_current(LIF(), (2,))
        tensor([0.5000, 0.5000], dtype=torch.float64)
    """

    def fires(current: Tensor) -> Tensor:
        return neuron.step(current.unsqueeze(0))[0].squeeze(0) > 0.5

    high = torch.ones(features, dtype=torch.float64)
    low = -high
    while not bool((fires(high) & ~fires(low)).all()):
        low, high = 2 * low, 2 * high
        if bool(high.isinf().any()):
            raise InputError(
                f"{type(neuron).__name__} fires at every current or at none: it has no threshold"
            )
    while True:
        middle = (low + high) / 2
        if bool(((middle == low) | (middle == high)).all()):
            return low
        loud = fires(middle)
        low, high = torch.where(loud, low, middle), torch.where(loud, middle, high)


def hyperplanes(linear: nn.Linear, neuron: AnyNeuron) -> tuple[Tensor, Tensor]:
    """Return normals ``[h, n]`` and offsets ``[h]``: neuron j fires at step 1 where ``w_j . x > offset_j``.

    They define a layer's spike boundaries at T = 1, in the neuron's current mode.

    Example:
        >>> from ultralif.nn import LIF
        >>> weight, offset = hyperplanes(torch.nn.Linear(2, 3), LIF())
        >>> weight.shape, offset.shape
        (torch.Size([3, 2]), torch.Size([3]))
    """
    weight = linear.weight.detach().double()
    offset = firing_current(neuron, linear.out_features)
    return weight, offset if linear.bias is None else offset - linear.bias.detach().double()


def line_crossings(weight: Tensor, offset: Tensor, start: Tensor, end: Tensor) -> Tensor:
    """Return where a segment crosses hyperplanes, as sorted fractions of its length in (0, 1).

    The segment passes through one more region than it has crossings. The result is exact for any number of
    neurons and inputs.

    Example:
        >>> normals, offsets = torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([0.25, 2.0])
        >>> line_crossings(normals, offsets, torch.tensor([0.0, 0.0]), torch.tensor([1.0, 1.0]))
        tensor([0.2500], dtype=torch.float64)
    """
    height = offset.double() - weight.double() @ start.double()
    slope = weight.double() @ (end - start).double()
    at = (height / slope)[slope != 0].sort().values
    at = at[(at > 0) & (at < 1)]
    apart = torch.ones_like(at, dtype=torch.bool)
    apart[1:] = at.diff() > TOLERANCE
    return at[apart]


class Plane(NamedTuple):
    """A plane in input space: ``origin + s * right + t * up``, with orthonormal directions.

    Example:
        >>> plane = Plane(torch.zeros(3), torch.tensor([1.0, 0.0, 0.0]), torch.tensor([0.0, 1.0, 0.0]))
        >>> plane.grid(2.0, 5).shape
        torch.Size([5, 5, 3])
    """

    origin: Tensor
    right: Tensor
    up: Tensor

    def grid(self, extent: float, resolution: int) -> Tensor:
        """Return points ``[resolution, resolution, n]``, |s| and |t| up to the extent; row 0 is lowest."""
        ticks = torch.linspace(-extent, extent, resolution, dtype=self.origin.dtype)
        return self.origin + ticks[:, None, None] * self.up + ticks[:, None] * self.right


def plane_through(samples: Tensor) -> Plane:
    """Return the plane through three samples ``[3, n]``, with their mean as its origin.

    Example:
        >>> import torch
        >>> plane_through(torch.eye(3)).origin
        tensor([0.3333, 0.3333, 0.3333], dtype=torch.float64)
    """
    if samples.dim() != 2 or len(samples) != 3:
        raise InputError(f"samples must be three vectors [3, n], got shape {tuple(samples.shape)}")
    samples = samples.double()
    directions = samples[1:] - samples[0]
    _, values, basis = torch.linalg.svd(directions, full_matrices=False)
    if len(values) < 2 or float(values[-1]) < 1e-9 * float(values[0]):
        raise InputError("samples are on one line and do not define a plane; choose other samples")
    return Plane(samples.mean(0), basis[0], basis[1])


def random_plane(n: int, generator: torch.Generator, around: Tensor | None = None) -> Plane:
    """Return a plane with random directions through ``around`` or the origin.

    Example:
        >>> random_plane(4, torch.Generator().manual_seed(0)).right.shape
        torch.Size([4])
    """
    if n < 2:
        raise InputError(f"a plane needs at least two inputs, got {n}")
    basis = torch.linalg.qr(torch.randn(n, 2, generator=generator, dtype=torch.float64)).Q
    origin = torch.zeros(n, dtype=torch.float64) if around is None else around.double()
    return Plane(origin, basis[:, 0], basis[:, 1])


def plane_hyperplanes(weight: Tensor, offset: Tensor, plane: Plane) -> tuple[Tensor, Tensor]:
    """Return the lines ``[h, 2]``, ``[h]`` in which hyperplanes intersect a plane, for `count_regions`.

    Example:
        >>> plane = plane_through(torch.eye(3))
        >>> lines, distances = plane_hyperplanes(torch.rand(5, 3), torch.rand(5), plane)
        >>> lines.shape, distances.shape
        (torch.Size([5, 2]), torch.Size([5]))
    """
    weight = weight.double()
    return weight @ torch.stack((plane.right, plane.up), 1), offset.double() - weight @ plane.origin


def sample_regions(
    weight: Tensor,
    offset: Tensor,
    *,
    segments: int,
    planes: int,
    box: tuple[float, float],
    generator: torch.Generator,
) -> tuple[list[int], list[int]]:
    """Count the regions that random segments and planes intersect, exactly for any number of inputs.

    Args:
        weight: normals ``[h, n]``.
        offset: ``[h]``.
        segments: number of segments, each between two points in the box.
        planes: number of infinite planes, each through a point in the box, with random directions.
        box: smallest and largest value of an input.
        generator: random number generator for the segments and planes.

    Example:
        >>> source = torch.Generator().manual_seed(0)
        >>> on_segments, in_planes = sample_regions(
        ...     torch.eye(2), torch.zeros(2), segments=3, planes=1, box=(-1.0, 1.0), generator=source
        ... )
        >>> len(on_segments), in_planes
        (3, [4])
    """
    n = weight.shape[1]

    def point() -> Tensor:
        return box[0] + (box[1] - box[0]) * torch.rand(n, generator=generator, dtype=torch.float64)

    along = [len(line_crossings(weight, offset, point(), point())) + 1 for _ in range(segments)]
    cuts = (random_plane(n, generator, point()) for _ in range(planes))
    return along, [count_regions(*plane_hyperplanes(weight, offset, cut)) for cut in cuts]


@torch.no_grad()
def raster(linear: nn.Linear, neuron: AnyNeuron, x: Tensor) -> Tensor:
    """Return where neurons fire, ``[T, N, h]``, for inputs ``[T, N, n]``; soft spikes above 1/2 count."""
    weight, bias = linear.weight.detach().double(), linear.bias
    current = nn.functional.linear(x.double(), weight, None if bias is None else bias.detach().double())
    spikes: Tensor = neuron(current)
    return spikes > 0.5


def static_bound(hyperplane_count: int, dimension: int, copies: int) -> int:
    r"""Return :math:`\sum_k \binom hk c^k`, the bound for h families of c parallel hyperplanes each.

    With c = T + 1, it bounds the linear pieces of UltraLIF's limit under a constant input; with c = T, the
    rasters of additive LIF.

    Example:
        >>> static_bound(2, 2, 4)
        25
    """
    h, n = hyperplane_count, dimension
    return sum(comb(h, k) * copies**k for k in range(min(h, n) + 1))


class Growth(NamedTuple):
    """The number of distinct spike rasters of a layer after a number of steps.

    Example:
        >>> points = torch.rand(100, 2, generator=torch.Generator().manual_seed(0))
        >>> row = growth(nn.Linear(2, 4), UltraLIF(), points, [3])[0]
        >>> row.steps, row.bound, row.found <= row.bound
        (3, 11, True)
    """

    steps: int
    found: int
    """Number of rasters among the samples, a lower bound on the true number."""
    bound: int | None
    """A proven upper bound; None if none is known (soft resets, adaptation)."""


def growth(
    linear: nn.Linear,
    neuron: AnyNeuron,
    points: Tensor,
    steps: Sequence[int],
    *,
    dimension: int | None = None,
    spike_mode: Mode = "tropical",
) -> list[Growth]:
    """Count a layer's spike rasters over time, and return the bounds on their number.

    Args:
        linear: the layer's weights.
        neuron: its neurons.
        points: constant inputs ``[N, n]``, or input sequences ``[T, N, n]``.
        steps: numbers of time steps, ascending.
        dimension: dimension of the space that contains the points: 2 for a `Plane`'s grid, None for n.
        spike_mode: the mode to run in; see `ultralif.set_mode`.

    Example:
        >>> points = torch.rand(100, 2, generator=torch.Generator().manual_seed(0))
        >>> [row.bound for row in growth(nn.Linear(2, 4), LIF(), points, [1, 2, 4], spike_mode="hard")]
        [11, 33, 113]
    """
    if not steps or min(steps) < 1 or any(a >= b for a, b in pairwise(steps)):
        raise InputError(f"steps must be positive and ascending, got {list(steps)}")
    varying = points.dim() == 3
    if varying and len(points) < steps[-1]:
        raise InputError(f"points have {len(points)} time steps, but steps asks for {steps[-1]}")
    x = points[: steps[-1]] if varying else points.expand(steps[-1], *points.shape)
    n = linear.in_features if dimension is None else dimension
    samples, bits = x.shape[1], linear.out_features * steps[-1]
    refuse_beyond(
        MAX_BITS,
        samples * bits,
        2e-8,
        f"{samples} rasters of {bits} bits (one per neuron and step) have {samples * bits:.3g} bits in total",
        f"up to {MAX_BITS // bits} samples are feasible",
    )
    with mode(neuron, spike_mode):
        fired = raster(linear, neuron, x).transpose(0, 1)
        bounds = [raster_bound(neuron, linear.out_features, n, t, varying) for t in steps]
    found = [_distinct_rows(fired[:, :t].flatten(1)) for t in steps]
    return [Growth(*row) for row in zip(steps, found, bounds, strict=True)]


def _distinct_rows(bits: Tensor) -> int:
    """Count distinct rows by a 62-bit hash, which is far faster than sorting them and never overcounts."""
    generator = torch.Generator().manual_seed(0)
    salt = torch.randint(2**62, (bits.shape[1],), generator=generator)
    return len(torch.unique((bits * salt).sum(1)))


def raster_bound(neuron: AnyNeuron, h: int, n: int, steps: int, varying: bool = False) -> int | None:
    r"""Return an upper bound on the number of rasters of h neurons with n inputs; None if none is proven.

    Under a constant input, UltraLIF's limit repeats its first pattern, so its bound is R(h, n) for every T.
    The bound is :math:`\sum_k \binom hk T^k` for additive LIF, and R(4h, n)^T for UltraDLIF's limit, which
    has three comparisons and a threshold per neuron and step. Under varying inputs, regions are counted in
    the space of sequences, and the bounds are R(h, n)^T, R(hT(T+1)/2, nT) and R(4h, nT)^T. For soft spikes
    or log-sum-exp membranes, a bound is known only for T = 1.

    Args:
        neuron: the layer's neuron, in the mode to bound.
        h: the number of neurons.
        n: the dimension of one step's inputs.
        steps: T.
        varying: the input changes from step to step.

    Example:
        >>> from ultralif.nn import UltraLIF
        >>> raster_bound(UltraLIF(mode="tropical"), 3, 2, 1)
        7
    """
    first = region_bound(h, n)
    if steps == 1:
        return first
    if isinstance(neuron, UltraLIF):
        return (first**steps if varying else first) if neuron.mode == "tropical" else None
    if isinstance(neuron, UltraDLIF):
        known = neuron.mode == "tropical"
        return region_bound(4 * h, n * steps if varying else n) ** steps if known else None
    if isinstance(neuron, LIF | DSpike | SoftLIF) and neuron.mode == "hard" and neuron.v_reset == 0:
        return region_bound(h * steps * (steps + 1) // 2, n * steps) if varying else static_bound(h, n, steps)
    return None
