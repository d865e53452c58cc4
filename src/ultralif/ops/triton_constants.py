"""Constants inside a kernel: learned ones are computed from raw parameters, and their gradients reduced.

A constant is found by four numbers in ``places``: the entry of neuron ``pos`` is ``pos // run % count``, row
``entry * step`` of its table says how to read it (form, number, low, high, inward, inverse, speed), and
``side`` consecutive programs share its entries. The value is ``form(speed * raw)``, clamped, and
perhaps inverted.

For its gradient every program writes a partial sum to ``partials`` and raises a counter. The program that
comes last adds all of them in a fixed order, so that the result is the same in every run, and sets the
counter to 0.
"""

import triton
import triton.language as tl

from ultralif.ops.triton_parts import LN2, SAME, SHARP, bits, clamp, inverse

__all__ = ["EACH", "HELD", "LEFT", "SHARED", "constants", "decode", "derived", "pull", "reduce"]

EXP = tl.constexpr(2)
SIGMOID = tl.constexpr(3)
SOFTPLUS = tl.constexpr(4)
SHARED = tl.constexpr(1)
"""All lanes of a program have one entry."""
EACH = tl.constexpr(2)
"""Each lane has an entry of its own, and two programs have either the same entries or none in common."""
LEFT = tl.constexpr(3)
"""The sums of the lanes are left in ``partials`` for another reduction."""
READY = tl.constexpr(2)
"""A program's constants are decoded already: a row of them, and of the sums for their gradients."""
HELD = tl.constexpr(8)
"""Numbers in such a row."""
AT_ONCE = tl.constexpr(256)
"""Number of partial sums that are loaded from memory at once."""


@triton.jit
def entry(places, C: tl.constexpr, pos):
    """Return which entry of a constant serves each lane."""
    return (pos // places[4 * C] % places[4 * C + 1]).to(tl.int32)


@triton.jit
def decode(raw, table, step, index):
    """Return the value of a constant, the same before the clamp, its slope by raw, and its row."""
    row = table + index * step
    form = tl.load(row)
    x = tl.load(raw + index).to(tl.float32) * tl.load(row + 6)
    small = tl.exp(-tl.abs(x))
    positive = tl.where(x > 0.0, 1.0, small) / (1.0 + small)
    y = tl.where(form == EXP, tl.exp(x), x)
    y = tl.where(form == SIGMOID, positive, y)
    y = tl.where(form == SOFTPLUS, tl.maximum(x, 0.0) + tl.log(1.0 + small), y)
    y = tl.where(form == 0.0, tl.load(row + 1), y)
    slope = tl.where(form == EXP, y, tl.where(form == SIGMOID, y * (1.0 - y), 1.0))
    slope = tl.where(form == SOFTPLUS, positive, slope) * tl.load(row + 6)
    slope = tl.where(form == 0.0, 0.0, slope)
    value = clamp(y, tl.load(row + 2), tl.load(row + 3))
    value = tl.where(tl.load(row + 5) > 0.0, 1.0 / value, value)
    return value, y, slope, row


@triton.jit
def pull(g, raw, table, step, index):
    """Return the gradient for a raw parameter from that for its value."""
    value, y, slope, row = decode(raw, table, step, index)
    low, high = tl.load(row + 2), tl.load(row + 3)
    g = tl.where(tl.load(row + 5) > 0.0, -g * value * value, g)
    inward = tl.where(g > 0.0, y > low, y < high)
    lives = tl.where(tl.load(row + 4) > 0.0, inward, (y >= low) & (y <= high))
    return tl.where(lives, g * slope, 0.0)


@triton.jit
def derived(eps, leak, threshold, amplitude, SHARPNESS: tl.constexpr, NATIVE: tl.constexpr):
    """Return eps and its inverse in units of log 2, leak, log(leak), threshold and amplitude."""
    if SHARPNESS:  # see `recurrence.Rule`: the first constant is the sharpness
        small = tl.exp(-eps)
        amplitude = (1.0 + small) / (1.0 - small)
        eps = threshold / eps
    return eps * LN2, inverse(LN2 * eps, NATIVE), leak, tl.log(leak), threshold, amplitude


@triton.jit
def constants(known, pos, RULE: tl.constexpr, NATIVE: tl.constexpr):
    """Return what `derived` does, for each lane; one of each where all lanes have the same constants."""
    raws, tables, places = known
    if bits(RULE, SAME) == READY:
        row = raws[0] + tl.program_id(0) * HELD
        return (
            tl.load(row),
            tl.load(row + 1),
            tl.load(row + 2),
            tl.load(row + 3),
            tl.load(row + 4),
            tl.load(row + 5),
        )
    if bits(RULE, SAME):
        pos = tl.program_id(0) * 0
    eps, _, _, _ = decode(raws[0], tables[0], places[2], entry(places, 0, pos))
    leak, _, _, _ = decode(raws[1], tables[1], places[6], entry(places, 1, pos))
    threshold, _, _, _ = decode(raws[2], tables[2], places[10], entry(places, 2, pos))
    amplitude, _, _, _ = decode(raws[3], tables[3], places[14], entry(places, 3, pos))
    return derived(eps, leak, threshold, amplitude, bits(RULE, SHARP), NATIVE)


@triton.jit
def reduce(
    value,
    C: tl.constexpr,
    pos,
    own,
    known,
    grads,
    scratch,
    program,
    programs,
    WAYS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Add up the gradients of all lanes for constant C and write the gradient for its raw parameter."""
    WAY: tl.constexpr = WAYS // 4**C % 4
    raws, tables, places = known
    partials, counters, groups, region = scratch
    raw, table, step, side = raws[C], tables[C], places[4 * C + 2], places[4 * C + 3]
    mine = partials + C * tl.cast(region, tl.int64)
    value = tl.where(own, value, 0.0)
    if WAYS // 256:  # ready: one sum for a program, which another kernel adds up
        if WAY:
            tl.store(grads[C] + program * HELD + C, tl.sum(value))
    elif WAY == LEFT:
        tl.store(mine + pos, value, mask=own)
    elif WAY:
        lane = tl.arange(0, BLOCK)
        if WAY == EACH:
            size = programs // side
            group = program % side
            tl.store(mine + program * BLOCK + lane, value)
        else:
            size = programs // places[4 * C + 1]
            group = program // side % places[4 * C + 1]
            tl.store(mine + program, tl.sum(value))
        tl.debug_barrier()
        before = tl.atomic_add(counters + C * groups + group, 1, sem="acq_rel")
        if before == size - 1:
            tl.debug_barrier()
            if WAY == EACH:
                total = tl.zeros((BLOCK,), tl.float32)
                for i in range(size):
                    total += tl.load(mine + (i * side + group) * BLOCK + lane, cache_modifier=".cg")
                at = group * BLOCK + lane
                tl.store(grads[C] + at, pull(total, raw, table, step, at))
            else:
                wide = tl.zeros((AT_ONCE,), tl.float32)
                for first in range(0, size, AT_ONCE):
                    i = first + tl.arange(0, AT_ONCE)
                    at = i
                    if size < programs:
                        at = i // side * (programs // size * side) + group * side + i % side
                    wide += tl.load(mine + at, mask=i < size, other=0.0, cache_modifier=".cg")
                tl.store(grads[C] + group, pull(tl.sum(wide), raw, table, step, group))
            tl.store(counters + C * groups + group, 0)
