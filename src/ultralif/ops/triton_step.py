"""Triton kernels for the rest of a training step of stacked networks: readout with loss, and Adam."""

import triton
import triton.language as tl

__all__ = ["adam_kernel", "readout_backward_kernel", "readout_kernel"]


@triton.jit
def scores(
    rates,
    weight,
    bias,
    labels,
    start,
    batch,
    stride,
    neurons,
    classes,
    BATCH: tl.constexpr,
    NEURONS: tl.constexpr,
    CLASSES: tl.constexpr,
):
    """Return rows of a member from ``start`` on, which of them there are, their labels and their scores.

    The scores are ``[BATCH, CLASSES]``; -inf where there is no class.
    """
    row = start + tl.arange(0, BATCH)
    inside = row < batch
    label = tl.load(labels + row, inside, 0)
    c = tl.arange(0, CLASSES)
    known = c < classes
    out = tl.zeros((BATCH, CLASSES), tl.float32)
    for first in range(0, neurons, NEURONS):
        n = first + tl.arange(0, NEURONS)
        here = n < neurons
        r = tl.load(rates + row[:, None] * stride + n[None, :], inside[:, None] & here[None, :], 0.0)
        w = tl.load(weight + c[None, :] * neurons + n[:, None], here[:, None] & known[None, :], 0.0)
        out = tl.dot(r.to(tl.float32), w, out, input_precision="ieee")
    out += tl.load(bias + c, known, 0.0)[None, :]
    return row, inside, label, tl.where(known[None, :], out, float("-inf"))


@triton.jit
def softmax(z):
    """Return the softmax of each row, and the logarithm of its sum of exponentials."""
    top = tl.max(z, 1)
    e = tl.exp(z - top[:, None])
    total = tl.sum(e, 1)
    return e / total[:, None], top + tl.log(total)


@triton.jit
def readout_kernel(
    rates,
    weight,
    bias,
    labels,
    sparsity,
    loss,
    hits_of,
    rate_of,
    batch,
    neurons,
    classes,
    members,
    readers,
    smoothing,
    BATCH: tl.constexpr,
    NEURONS: tl.constexpr,
    CLASSES: tl.constexpr,
):
    """Write the loss, the hits and the mean rate of a member.

    Groups of ``readers`` consecutive members have the same labels.
    """
    m = tl.program_id(0)
    stride = members * neurons
    rates += m * neurons
    weight += m * classes * neurons
    bias += m * classes
    labels += m // readers * batch
    c = tl.arange(0, CLASSES)
    entropy, hits, fired = 0.0, 0.0, 0.0
    for first in range(0, batch, BATCH):
        row, inside, label, z = scores(
            rates, weight, bias, labels, first, batch, stride, neurons, classes, BATCH, NEURONS, CLASSES
        )
        _, log_sum = softmax(z)
        mine = tl.sum(tl.where(c[None, :] == label[:, None], z, 0.0), 1)
        even = tl.sum(tl.where(c[None, :] < classes, z, 0.0), 1) / classes
        each = log_sum - (1.0 - smoothing) * mine - smoothing * even
        entropy += tl.sum(tl.where(inside, each, 0.0))
        hit = tl.argmax(z, 1) == label
        hits += tl.sum(tl.where(inside & hit, 1.0, 0.0))
        for start in range(0, neurons, NEURONS):
            n = start + tl.arange(0, NEURONS)
            there = inside[:, None] & (n < neurons)[None, :]
            r = tl.load(rates + row[:, None] * stride + n[None, :], there, 0.0)
            fired += tl.sum(r.to(tl.float32))
    rate = fired / (batch * neurons)
    tl.store(loss + m, entropy / batch + tl.load(sparsity + m) * rate)
    tl.store(hits_of + m, hits)
    tl.store(rate_of + m, rate)


@triton.jit
def readout_backward_kernel(
    grad,
    rates,
    weight,
    bias,
    labels,
    sparsity,
    to_rates,
    to_weight,
    to_bias,
    batch,
    neurons,
    classes,
    members,
    readers,
    smoothing,
    BATCH: tl.constexpr,
    NEURONS: tl.constexpr,
    CLASSES: tl.constexpr,
):
    """Write the gradients of the losses for rates, weight and bias, for some neurons of a member."""
    m = tl.program_id(0)
    stride = members * neurons
    rates += m * neurons
    to_rates += m * neurons
    weight += m * classes * neurons
    bias += m * classes
    labels += m // readers * batch
    c = tl.arange(0, CLASSES)
    n = tl.program_id(1) * NEURONS + tl.arange(0, NEURONS)
    here = n < neurons
    known = c < classes
    scale = tl.load(grad + m)
    everywhere = scale * tl.load(sparsity + m) / (batch * neurons)
    w = tl.load(weight + c[:, None] * neurons + n[None, :], known[:, None] & here[None, :], 0.0)
    g_weight = tl.zeros((CLASSES, NEURONS), tl.float32)
    g_bias = tl.zeros((CLASSES,), tl.float32)
    for first in range(0, batch, BATCH):
        row, inside, label, z = scores(
            rates, weight, bias, labels, first, batch, stride, neurons, classes, BATCH, NEURONS, CLASSES
        )
        share, _ = softmax(z)
        wanted = tl.where(c[None, :] == label[:, None], 1.0 - smoothing, 0.0) + smoothing / classes
        g = tl.where(inside[:, None] & known[None, :], (share - wanted) * (scale / batch), 0.0)
        there = inside[:, None] & here[None, :]
        at = row[:, None] * stride + n[None, :]
        tl.store(to_rates + at, tl.dot(g, w, input_precision="ieee") + everywhere, there)
        r = tl.load(rates + at, there, 0.0).to(tl.float32)
        g_weight = tl.dot(tl.trans(g), r, g_weight, input_precision="ieee")
        g_bias += tl.sum(g, 0)
    at = to_weight + m * classes * neurons + c[:, None] * neurons + n[None, :]
    tl.store(at, g_weight, known[:, None] & here[None, :])
    if tl.program_id(1) == 0:
        tl.store(to_bias + m * classes + c, g_bias, known)


@triton.jit
def adam_kernel(
    tensors,
    grads,
    firsts,
    seconds,
    sizes,
    starts,
    steps,
    rate,
    decay,
    COUNT: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Take a step of AdamW with torch's defaults; ``starts`` has the first program of each tensor."""
    program = tl.program_id(0)
    step = tl.load(steps).to(tl.float64)
    speed = tl.load(rate)
    LOG_1: tl.constexpr = -0.10536051565782628  # log 0.9
    LOG_2: tl.constexpr = -0.0010005003335835344  # log 0.999
    stride = speed / (1.0 - tl.exp(step * LOG_1)).to(tl.float32)
    root = tl.sqrt(1.0 - tl.exp(step * LOG_2)).to(tl.float32)
    for i in tl.static_range(COUNT):
        if (program >= starts[i]) & (program < starts[i + 1]):
            at = (program - starts[i]) * BLOCK + tl.arange(0, BLOCK)
            mask = at < sizes[i]
            g = tl.load(grads[i] + at, mask, 0.0)
            x = tl.load(tensors[i] + at, mask, 0.0) * (1.0 - speed * decay)
            first = tl.load(firsts[i] + at, mask, 0.0)
            first += (g - first) * 0.1
            second = tl.load(seconds[i] + at, mask, 0.0) * 0.999 + 0.001 * g * g
            tl.store(firsts[i] + at, first, mask)
            tl.store(seconds[i] + at, second, mask)
            tl.store(tensors[i] + at, x - stride * first / (tl.sqrt(second) / root + 1e-8), mask)
