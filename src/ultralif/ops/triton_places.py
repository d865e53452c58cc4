"""The lanes of a program on rings: their places, neighbours and addresses; see `triton_spatial`.

A program has whole rings, or a part of a long one. Its lanes are in groups of COLS, which a thread has side
by side; positions on a ring are counted in groups.
"""

import triton
import triton.language as tl

__all__ = ["address", "exchange", "in_round", "lanes_of", "place", "renew", "spread", "when"]


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
    """Return where the lanes of the groups are in memory: as in `triton_parts`, the inner size in groups."""
    first = group // at[3] * at[1] + group % at[3] * COLS * at[2]
    return first[:, None] + (tl.arange(0, COLS) * at[2])[None, :]


@triton.jit
def when(mask, condition):
    """Return the mask where a condition on the program holds, else an empty one."""
    return mask & (tl.zeros_like(mask).to(tl.int32) + condition.to(tl.int32) > 0)


@triton.jit
def in_round(i, stride_round, row, spot, own, ring, rows, COLS: tl.constexpr):
    """Return the lanes of a round that are on a ring, those that are its own, the groups and the places."""
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

    The last result tells which lane each lane of a part is renewed from.
    """
    if MARGIN == 0:
        found = place_whole(ring, program, LANES, WIDTH, COLS)
    else:
        found = place_part(ring, program, tiles, halo, LANES, COLS, MARGIN)
    return found


@triton.jit
def exchange(x, y, around):
    """Return x of the group to the left and y of that to the right, by shuffles if they are in a warp."""
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
    """Return the lanes of a part with those at the ends of each warp as the next warp has them, at times."""
    if PERIOD > 0:  # noqa: SIM102 (Triton would evaluate both)
        if step % PERIOD == 0:
            x = tl.reshape(tl.gather(tl.reshape(x, owner.shape), owner, 0), x.shape)
    return x
