"""The layout of rings over the programs of a GPU, and over the lanes of a program; see `ring`.

A program handles whole rings, or part of a long one. Its lanes form groups of COLS, which a thread holds
side by side; positions on a ring are counted in groups.
"""

import math
from typing import TYPE_CHECKING, NamedTuple

import torch
import triton
import triton.language as tl
from triton import cdiv, next_power_of_2

from ultralif.ops.layout import Steps
from ultralif.ops.triton import launch

if TYPE_CHECKING:
    from ultralif.ops.triton.plan import LaunchPlan

__all__ = [
    "Tiling",
    "address",
    "exchange",
    "in_round",
    "lanes_of",
    "place",
    "renew",
    "spread",
    "tiling",
    "tiling_of",
    "when",
]

WIDE = 1024  # neurons of the longest ring that one program handles whole
WIDER, WIDEST = 2048, 4096  # the same if there are many rings, and if their membranes follow from spikes
MANY = 96  # rings that fill a large GPU with one program each
PART = 1024  # lanes of a part of a longer ring, including its halo
SPAN = 50  # steps that parts integrate in a launch, or more where multiprocessors would be idle
UNITS = 132  # multiprocessors of a large GPU
MARGIN = 4  # lanes by which the warps of a part overlap at each end
LANES = 1 << 19  # as in `launch`, for programs of 4,096 lanes
CHUNK_ALONE = 4  # steps that parts with a multiprocessor each load at once
FEW = 1 << 15  # lanes of a small layer, which are spread over all multiprocessors
FEW_LONG = 1 << 17  # the same for rings in parts


class Tiling(NamedTuple):
    """The layout of rings over programs."""

    rounds: int
    size: int  # rows of a round
    tiles: int  # parts of a ring
    spans: int
    steps: int  # steps of a span
    lanes: int
    width: int  # lanes of a ring, or of a part
    cols: int  # lanes side by side
    halo: int
    margin: int  # lanes by which warps overlap
    warps: int

    @property
    def programs(self) -> int:
        """Number of programs of one span."""
        return -(-self.size // (self.lanes // self.width)) * self.tiles

    @property
    def alone(self) -> bool:
        """True for parts of rings if each has its own multiprocessor."""
        return self.halo > 0 and self.programs <= UNITS

    @property
    def work(self) -> int:
        """Number of programs of all spans."""
        return self.programs * self.spans

    def times(self, time: int, turn: int) -> tuple[int, ...]:
        """Return the kernels' argument ``times`` for one of the launches."""
        return time, self.steps, self.tiles, self.halo // self.cols, turn

    def shape(self, rows: int, ring: int) -> tuple[int, ...]:
        """Return the kernels' argument ``shape``."""
        return ring // self.cols, rows, self.rounds, self.size

    def at(self, steps: Steps) -> tuple[int, ...]:
        """Return the strides of a tensor, with the inner size in groups of lanes."""
        return steps.time, steps.outer, steps.inner, max(1, steps.size // self.cols)

    @property
    def choices(self) -> tuple[int, ...]:
        """The last of the kernels' compile-time choices."""
        return self.lanes, self.width, self.cols, self.margin


def covered(lanes: int, cols: int) -> int:
    """Return the number of neurons in a part of a ring, including its halo; its warps overlap."""
    return lanes - 2 * MARGIN * (lanes // (32 * max(2, cols)) - 1)


def span_of(rows: int, ring: int, time: int, cols: int) -> int:
    """Return the steps of a span that leave enough programs busy, with a halo twice as wide as the span."""
    cover = covered(PART, cols)
    idle = min(UNITS // rows, cdiv(ring, PART // 4))
    tiles = max(cdiv(ring, cover - 4 * min(time, SPAN)), idle)
    most = min(time, (cover - cdiv(ring, tiles)) // 4)
    fair = cdiv(time, cdiv(time, most))
    return next((n for n in range(fair, most + 1) if n % CHUNK_ALONE == 0 == time % n % CHUNK_ALONE), fair)


def tiling(
    rows: int, period: int, ring: int, time: int, most: int, back: bool, invertible: bool = False
) -> Tiling:
    """Lay out rows of rings; a round has a multiple of the rows after which the constants repeat."""
    width = next_power_of_2(ring)
    # A thread has at most four lanes and a program at most 1,024 threads: the longest need all four.
    whole = ring <= (WIDE if rows < MANY else WIDEST if invertible and ring % 4 == 0 else WIDER)
    few = rows * ring < (FEW if whole else FEW_LONG)
    # Where constants differ between rows, a program has lanes of one row, so that it reduces their gradients.
    cols = math.gcd(ring, 2 if few or (period > 1 and width < 128) else 4)
    if whole:
        spans, steps, halo, margin, tiles = 1, time, 0, 0, 1
        lanes = max(width, 32 * max(cols, 2))
    else:
        margin = MARGIN
        steps = span_of(rows, ring, time, cols)
        spans = cdiv(time, steps)
        halo = max(cdiv(steps * (1 + back), cols) * cols, MARGIN)
        lanes = width = PART
        tiles = cdiv(ring, covered(lanes, cols) - 2 * halo)
    warps = max(1, lanes // (32 * max(2, cols)))
    step = math.lcm(period, lanes // width)
    most = LANES if lanes > WIDER else most
    rounds = cdiv(rows, step * max(1, most // (width * tiles) // step))
    size = step * cdiv(cdiv(rows, rounds), step) if rounds > 1 else rows
    return Tiling(cdiv(rows, size), size, tiles, spans, steps, lanes, width, cols, halo, margin, warps)


def tiling_of(plan: "LaunchPlan", back: bool) -> Tiling:
    """Return a plan's layout for the forward or the backward pass."""
    ring = plan.rule.ring
    periods = [place.run * place.entries for place in plan.found if place.entries > 1]
    period = max(1, math.lcm(*periods, 1) // ring)
    invertible = plan.rule.invertible and plan.dtype == torch.float32 and not periods
    return tiling(plan.total // ring, period, ring, plan.time, launch.LANES, back, invertible)


@triton.jit
def spread(mask, COLS: tl.constexpr):
    """Return the mask of all lanes of the groups."""
    return tl.broadcast_to(mask[:, None], [mask.shape[0], COLS])


@triton.jit
def lanes_of(group, COLS: tl.constexpr):
    """Return the numbers of all lanes of the groups."""
    return group[:, None] * COLS + tl.arange(0, COLS)[None, :]


@triton.jit
def address(group, at, COLS: tl.constexpr):
    """Return the addresses of the lanes of the groups, as in `common`, with the inner size in groups."""
    first = group // at[3] * at[1] + group % at[3] * COLS * at[2]
    return first[:, None] + (tl.arange(0, COLS) * at[2])[None, :]


@triton.jit
def when(mask, condition):
    """Return the mask if a condition on the program holds, else an empty one."""
    return mask & (tl.zeros_like(mask).to(tl.int32) + condition.to(tl.int32) > 0)


@triton.jit
def in_round(i, stride_round, row, spot, own, ring, rows, COLS: tl.constexpr):
    """Return the lanes of a round that are on a ring, the program's own lanes, groups and positions."""
    row += tl.cast(i, tl.int64) * stride_round
    inside = spread((row < rows) & (spot < ring), COLS)
    own_now = spread(own & (row < rows), COLS)
    group = row * ring + spot
    return inside, own_now, group, lanes_of(group, COLS)


@triton.jit
def place_whole(ring, program, LANES: tl.constexpr, WIDTH: tl.constexpr, COLS: tl.constexpr):
    """Place the groups of whole rings; see `place`."""
    GROUPS: tl.constexpr = LANES // COLS
    group = tl.arange(0, GROUPS)
    row = group // (WIDTH // COLS) + program * (LANES // WIDTH)
    along = group % (WIDTH // COLS)
    left = tl.where(along == 0, group + ring - 1, group - 1) % GROUPS
    right = tl.where(along == ring - 1, group - ring + 1, group + 1) % GROUPS
    ends = tl.reshape(tl.join(2 * left, 2 * right + 1), [2 * GROUPS])
    return row, along, along < ring, (ends,), group


@triton.jit
def place_part(ring, program, tiles, halo, LANES: tl.constexpr, COLS: tl.constexpr, MARGIN: tl.constexpr):
    """Place the groups of a part of a ring; see `place`."""
    GROUPS: tl.constexpr = LANES // COLS
    WARP: tl.constexpr = 64 if COLS == 1 else 32  # groups of a warp
    EDGE: tl.constexpr = MARGIN // COLS
    group = tl.arange(0, GROUPS)
    warp, within_warp = group // WARP, group % WARP
    along = warp * (WARP - 2 * EDGE) + within_warp
    inner = GROUPS - 2 * EDGE * (GROUPS // WARP - 1) - 2 * halo
    spot = program % tiles * inner - halo + along
    first, last = within_warp < EDGE, within_warp >= WARP - EDGE
    own = (along >= halo) & (along < halo + inner) & (spot < ring) & ~first & ~last
    left = tl.reshape(tl.maximum(within_warp - 1, 0), [GROUPS // WARP, WARP])
    right = tl.reshape(tl.minimum(within_warp + 1, WARP - 1), [GROUPS // WARP, WARP])
    owner = tl.where(first & (warp > 0), group - 2 * EDGE, group)
    owner = tl.where(last & (warp < GROUPS // WARP - 1), group + 2 * EDGE, owner)
    row, spot = 0 * group + program // tiles, (spot % ring + ring) % ring
    return row, spot, own, (left, right), tl.reshape(lanes_of(owner, COLS), [LANES])


@triton.jit
def place(
    ring,
    program,
    tiles,
    halo,
    LANES: tl.constexpr,
    WIDTH: tl.constexpr,
    COLS: tl.constexpr,
    MARGIN: tl.constexpr,
):
    """Return each group's row, its place on the ring, whether it belongs to the tile, and its neighbours.

    The last result is the lane from which each lane of a part is renewed.
    """
    if MARGIN == 0:
        found = place_whole(ring, program, LANES, WIDTH, COLS)
    else:
        found = place_part(ring, program, tiles, halo, LANES, COLS, MARGIN)
    return found


@triton.jit
def exchange(x, y, around):
    """Return x from the group on the left and y from that on the right, by shuffles if within a warp."""
    if len(around) == 1:  # both at once
        ends = tl.reshape(tl.join(x, y), [2 * x.shape[0]])
        found = tl.split(tl.reshape(tl.gather(ends, around[0], 0), [x.shape[0], 2]))
    else:
        from_left = tl.gather(tl.reshape(x, around[0].shape), around[0], 1)
        from_right = tl.gather(tl.reshape(y, around[1].shape), around[1], 1)
        found = tl.reshape(from_left, x.shape), tl.reshape(from_right, y.shape)
    return found


@triton.jit
def renew(x, owner, step, PERIOD: tl.constexpr):
    """Return the lanes of a part, renewing those at the ends of each warp from the next warp at intervals."""
    if PERIOD > 0:  # noqa: SIM102 (Triton would evaluate both)
        if step % PERIOD == 0:
            x = tl.reshape(tl.gather(tl.reshape(x, owner.shape), owner, 0), x.shape)
    return x
