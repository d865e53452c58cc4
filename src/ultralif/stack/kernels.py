"""Triton kernels for stacks: constants of all programs, readout with loss, a sum over rows, and Adam.

Each program has a row with the values that `triton.common.constants` returns. The row's gradient holds the
sums over the program's lanes for the four constants.
"""

import triton
import triton.language as tl

from ultralif.ops.triton.common import HELD, decode, derived, pull

__all__ = ["adam_kernel", "decode_kernel", "gather_kernel", "readout_kernel", "rows_kernel"]

COLUMNS = tl.constexpr(6)
"""Number of columns of the table that describes how each constant is decoded."""


@triton.jit
def value_of(raw, table, index, numbers, C: tl.constexpr, here):
    """Return constant C of each row, decoded, or a fixed number where its index is negative."""
    at = tl.load(index + C, mask=here, other=0)
    value, _, _, _ = decode(raw, table, COLUMNS, tl.maximum(at, 0))
    return tl.where(at < 0, tl.load(numbers + C, mask=here, other=1.0), value)


@triton.jit
def decode_kernel(held, raw, table, index, numbers, rows, BLOCK: tl.constexpr):
    """Write the rows; the fifth number of a row indicates whether its first constant is a sharpness."""
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    here = row < rows
    index += row * 5
    numbers += row * 4
    eps = value_of(raw, table, index, numbers, 0, here)
    leak = value_of(raw, table, index, numbers, 1, here)
    threshold = value_of(raw, table, index, numbers, 2, here)
    amplitude = value_of(raw, table, index, numbers, 3, here)
    sharp = tl.load(index + 4, mask=here, other=0) > 0
    plain = derived(eps, leak, threshold, amplitude, 0)
    steep = derived(eps, leak, threshold, amplitude, 1)
    for i in tl.static_range(6):
        tl.store(held + row * HELD + i, tl.where(sharp, steep[i], plain[i]), mask=here)


@triton.jit
def gather_kernel(grads, raw, table, sums, to_raw, BLOCK: tl.constexpr):
    """Write the gradient of one raw parameter: the sum over all rows that use it, in a fixed order.

    For each parameter, ``sums`` holds the position of its first sum, the number of consecutive rows that use
    it, the period of these runs, and the total number of rows.
    """
    entry = tl.program_id(0)
    first, side = tl.load(sums + entry * 4), tl.load(sums + entry * 4 + 1)
    jump, count = tl.load(sums + entry * 4 + 2), tl.load(sums + entry * 4 + 3)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, count, BLOCK):
        i = start + tl.arange(0, BLOCK)
        row = i // side * jump + i % side
        total += tl.load(grads + first + row * HELD, mask=i < count, other=0.0)
    tl.store(to_raw + entry, pull(tl.sum(total), raw, table, COLUMNS, entry))


@triton.jit
def scores(
    rates,
    weight,
    bias,
    row,
    inside,
    stride,
    neurons,
    classes,
    BATCH: tl.constexpr,
    NEURONS: tl.constexpr,
    CLASSES: tl.constexpr,
):
    """Return the rows' scores ``[BATCH, CLASSES]``, -inf beyond the last class, and their total spikes."""
    c = tl.arange(0, CLASSES)
    known = c < classes
    out = tl.zeros((BATCH, CLASSES), tl.float32)
    fired = 0.0
    for first in range(0, neurons, NEURONS):
        n = first + tl.arange(0, NEURONS)
        here = n < neurons
        r = tl.load(rates + row[:, None] * stride + n[None, :], inside[:, None] & here[None, :], 0.0)
        r = r.to(tl.float32)
        w = tl.load(weight + c[:, None] * neurons + n[None, :], known[:, None] & here[None, :], 0.0)
        out = tl.dot(r, tl.trans(w), out, input_precision="ieee")
        fired += tl.sum(r)
    out += tl.load(bias + c, known, 0.0)[None, :]
    return tl.where(known[None, :], out, float("-inf")), fired


@triton.jit
def softmax(z):
    """Return the softmax of each row, and the logarithm of its sum of exponentials."""
    top = tl.max(z, 1)
    e = tl.exp(z - top[:, None])
    total = tl.sum(e, 1)
    return e / total[:, None], top + tl.log(total)


@triton.jit
def add_parts(parts, at, size, count, stride, PARTS: tl.constexpr, AT_ONCE: tl.constexpr):
    """Sum the positions ``at`` over the parts written by all programs, PARTS at a time."""
    total = tl.zeros((AT_ONCE,), tl.float32)
    for first in range(0, count, PARTS):
        i = first + tl.arange(0, PARTS)
        there = (i < count)[:, None] & (at < size)[None, :]
        each = tl.load(parts + i[:, None] * stride + at[None, :], there, 0.0, cache_modifier=".cg")
        total += tl.sum(each, 0)
    return total


@triton.jit
def pick(sums, i: tl.constexpr):
    """Return number i of four."""
    return tl.sum(tl.where(tl.arange(0, 4) == i, sums, 0.0))


@triton.jit
def readout_kernel(
    rates,
    weight,
    bias,
    labels,
    sparsity,
    loss,
    hits,
    rate,
    to_rates,
    to_weight,
    to_bias,
    parts,
    counters,
    batch,
    neurons,
    classes,
    members,
    readers,
    smoothing,
    GRADS: tl.constexpr,
    BATCH: tl.constexpr,
    NEURONS: tl.constexpr,
    CLASSES: tl.constexpr,
    PARTS: tl.constexpr,
    AT_ONCE: tl.constexpr,
):
    """Write the loss, hits and mean rate of a member, and the gradients of its loss.

    Each program handles some rows of one member. It writes its part of all sums, starting with the gradients
    of weight and bias. The last program of a member to finish adds the parts in a fixed order. Groups of
    ``readers`` consecutive members share their labels.
    """
    m, tile, tiles = tl.program_id(0), tl.program_id(1), tl.num_programs(1)
    stride = members * neurons
    rates += m * neurons
    weight += m * classes * neurons
    row = tile * BATCH + tl.arange(0, BATCH)
    inside = row < batch
    label = tl.load(labels + m // readers * batch + row, inside, 0)
    c = tl.arange(0, CLASSES)
    known = c < classes
    z, fired = scores(
        rates, weight, bias + m * classes, row, inside, stride, neurons, classes, BATCH, NEURONS, CLASSES
    )
    share, log_sum = softmax(z)
    own = c[None, :] == label[:, None]
    mine = tl.sum(tl.where(own, z, 0.0), 1)
    even = tl.sum(tl.where(known[None, :], z, 0.0), 1) / classes
    each = log_sum - (1.0 - smoothing) * mine - smoothing * even
    linear = classes * (neurons + 1)  # parameters of the readout
    part = parts + (m * tiles + tile) * (linear + 3)
    tl.store(part + linear, tl.sum(tl.where(inside, each, 0.0)))
    tl.store(part + linear + 1, tl.sum(tl.where(inside & (tl.argmax(z, 1) == label), 1.0, 0.0)))
    tl.store(part + linear + 2, fired)
    penalty = tl.load(sparsity + m)
    if GRADS:
        wanted = tl.where(own, 1.0 - smoothing, 0.0) + smoothing / classes
        g = tl.where(inside[:, None] & known[None, :], (share - wanted) / batch, 0.0)
        everywhere = penalty / (batch * neurons)
        for first in range(0, neurons, NEURONS):
            n = first + tl.arange(0, NEURONS)
            here = n < neurons
            there = inside[:, None] & here[None, :]
            at = row[:, None] * stride + n[None, :]
            pair = known[:, None] & here[None, :]
            w = tl.load(weight + c[:, None] * neurons + n[None, :], pair, 0.0)
            tl.store(to_rates + m * neurons + at, tl.dot(g, w, input_precision="ieee") + everywhere, there)
            r = tl.load(rates + at, there, 0.0).to(tl.float32)
            g_weight = tl.dot(tl.trans(g), r, input_precision="ieee")
            tl.store(part + c[:, None] * neurons + n[None, :], g_weight, pair)
        tl.store(part + classes * neurons + c, tl.sum(g, 0), known)
    tl.debug_barrier()
    before = tl.atomic_add(counters + m, 1, sem="acq_rel")
    if before == tiles - 1:
        tl.debug_barrier()
        parts += m * tiles * (linear + 3)
        sums = add_parts(parts + linear, tl.arange(0, 4), 3, tiles, linear + 3, PARTS, 4)
        fired = pick(sums, 2) / (batch * neurons)
        tl.store(loss + m, pick(sums, 0) / batch + penalty * fired)
        tl.store(hits + m, pick(sums, 1))
        tl.store(rate + m, fired)
        if GRADS:
            edge = classes * neurons
            for start in range(0, linear, AT_ONCE):
                at = start + tl.arange(0, AT_ONCE)
                whole = add_parts(parts, at, linear, tiles, linear + 3, PARTS, AT_ONCE)
                tl.store(to_weight + m * edge + at, whole, at < edge)
                tl.store(to_bias + m * classes + at - edge, whole, (at >= edge) & (at < linear))
        tl.store(counters + m, 0)


@triton.jit
def rows_kernel(
    x,
    out,
    parts,
    counters,
    rows,
    columns,
    each,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    PARTS: tl.constexpr,
):
    """Write the sum over all rows. Each program adds some rows; the last to finish adds their sums."""
    block, part, count = tl.program_id(0), tl.program_id(1), tl.num_programs(1)
    column = block * COLUMNS + tl.arange(0, COLUMNS)
    here = column < columns
    end = tl.minimum(rows, (part + 1) * each)
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for first in range(part * each, end, ROWS):
        row = first + tl.arange(0, ROWS)
        at = row.to(tl.int64)[:, None] * columns + column[None, :]
        total += tl.load(x + at, (row < end)[:, None] & here[None, :], 0.0)
    tl.store(parts + part * columns + column, tl.sum(total, 0), here)
    tl.debug_barrier()
    before = tl.atomic_add(counters + block, 1, sem="acq_rel")
    if before == count - 1:
        tl.debug_barrier()
        tl.store(out + column, add_parts(parts, column, columns, count, columns, PARTS, COLUMNS), here)
        tl.store(counters + block, 0)


@triton.jit
def adam_kernel(
    tensors,
    grads,
    firsts,
    seconds,
    sizes,
    starts,
    steps,
    rates,
    decays,
    COUNT: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Take an AdamW step with PyTorch's defaults; ``starts`` holds the first program of each tensor."""
    program = tl.program_id(0)
    step = tl.load(steps).to(tl.float64)
    LOG_1: tl.constexpr = -0.10536051565782628  # log 0.9
    LOG_2: tl.constexpr = -0.0010005003335835344  # log 0.999
    part = (1.0 - tl.exp(step * LOG_1)).to(tl.float32)
    root = tl.sqrt(1.0 - tl.exp(step * LOG_2)).to(tl.float32)
    for i in tl.static_range(COUNT):
        if (program >= starts[i]) & (program < starts[i + 1]):
            at = (program - starts[i]) * BLOCK + tl.arange(0, BLOCK)
            mask = at < sizes[i]
            g = tl.load(grads[i] + at, mask, 0.0)
            speed = tl.load(rates[i])
            x = tl.load(tensors[i] + at, mask, 0.0) * (1.0 - speed * decays[i])
            first = tl.load(firsts[i] + at, mask, 0.0)
            first += (g - first) * 0.1
            second = tl.load(seconds[i] + at, mask, 0.0) * 0.999 + 0.001 * g * g
            tl.store(firsts[i] + at, first, mask)
            tl.store(seconds[i] + at, second, mask)
            tl.store(tensors[i] + at, x - speed / part * first / (tl.sqrt(second) / root + 1e-8), mask)
