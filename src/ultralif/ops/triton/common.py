"""Shared parts of all Triton kernels: fast functions, spike, reset, and learned constants.

The choices of a rule reach a kernel as one number, `RULE`; `choice` extracts one of them.

A constant is located by four numbers in ``places``: the entry of neuron ``pos`` is ``pos // run % count``,
row ``entry * step`` of its table describes how to read it (form, number, low, high, inverse, speed), and
``side`` consecutive programs share its entries. The value is ``form(speed * raw)``, clamped, and
optionally inverted.

For its gradient every program writes a partial sum to ``partials`` and increments a counter. The program that
finishes last adds them in a fixed order, so that every run gives the same result, and resets the counter to
0.
"""

import triton
import triton.language as tl

from ultralif.ops.constants import Form
from ultralif.ops.rule import BITS, Curve, Membrane, Reset
from ultralif.ops.triton import launch

LSE = tl.constexpr(int(Membrane.LSE))
MAX = tl.constexpr(int(Membrane.MAX))
ADD = tl.constexpr(int(Membrane.ADD))
ATAN = tl.constexpr(int(Curve.ATAN))
TRIANGLE = tl.constexpr(int(Curve.TRIANGLE))
SUPERSPIKE = tl.constexpr(int(Curve.SUPERSPIKE))
ZERO = tl.constexpr(int(Reset.ZERO))
SUBTRACT = tl.constexpr(int(Reset.SUBTRACT))
SATURATE = tl.constexpr(int(Reset.SATURATE))
EXP = tl.constexpr(int(Form.EXP))
LOGISTIC = tl.constexpr(int(Form.LOGISTIC))
SOFTPLUS = tl.constexpr(int(Form.SOFTPLUS))
NATIVE = tl.constexpr(launch.NATIVE)
FULL = tl.constexpr(launch.FULL)
"""Added to the code of a rule whose chunks are full."""
FAR = tl.constexpr(1000.0)
"""A finite upper limit for gaps: 2**-1000 is 0 in float32, and 0 times 1000 is 0, not NaN."""
LN2 = tl.constexpr(0.6931471805599453)
HALF_PI = tl.constexpr(1.5707963267948966)
SHARED = tl.constexpr(1)
"""All lanes of a program share one entry."""
EACH = tl.constexpr(2)
"""Each lane has its own entry, and two programs have either the same entries or none in common."""
LEFT = tl.constexpr(3)
"""The sums of the lanes are left in ``partials`` for another reduction."""
READY = tl.constexpr(2)
"""A program's constants are already decoded: it has a row of them, and a row of sums for their gradients."""
HELD = tl.constexpr(8)
"""Number of values in such a row."""
AT_ONCE = tl.constexpr(256)
"""Number of partial sums that are loaded from memory at once."""


@triton.constexpr_function
def choice(rule, name):
    """Return one choice of a rule, by the name of its field; `ultralif.ops.rule.code` packs them."""
    return rule >> BITS[name] & 3


@triton.jit
def instruction(x, CODE: tl.constexpr):
    """Return the result of applying one NVIDIA GPU instruction to x."""
    return tl.inline_asm_elementwise(CODE, "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)


@triton.jit
def exp2(x):
    """Return 2**x with one instruction; results below 1e-38 are 0, unlike those of `tl.exp2`."""
    return instruction(x, "ex2.approx.ftz.f32 $0, $1;") if NATIVE else tl.exp2(x)


@triton.jit
def log2(x):
    """Return the binary logarithm with one instruction; `tl.log2` is a polynomial."""
    return instruction(x, "lg2.approx.ftz.f32 $0, $1;") if NATIVE else tl.log2(x)


@triton.jit
def inverse(x):
    """Return 1 / x with one instruction."""
    return instruction(x, "rcp.approx.ftz.f32 $0, $1;") if NATIVE else 1.0 / x


@triton.jit
def largest(x, y):
    """Return the larger of two numbers, or NaN if one of them is NaN."""
    return tl.maximum(x, y, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def clamp(x, low, high):
    """Return x clamped to the bounds; NaN stays NaN."""
    return tl.minimum(largest(x, low), high, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def arctangent(x):
    """Return atan within 1e-7: a polynomial in x on [-1, 1], and in 1 / x outside."""
    steep = tl.abs(x) > 1.0
    y = tl.where(steep, inverse(x), x)
    u = y * y
    q = -0.0040545
    q = q * u + 0.0218605
    q = q * u - 0.0559024
    q = q * u + 0.0964217
    q = q * u - 0.1390846
    q = q * u + 0.1994659
    q = q * u - 0.3332986
    q = q * u + 0.9999994
    near = q * y
    return tl.where(steep, tl.where(x > 0.0, HALF_PI, -HALF_PI) - near, near)


@triton.jit
def has_step(mask, t, time):
    """Return the mask of the lanes that have a step t."""
    return mask & (tl.zeros_like(mask).to(tl.int32) + t < time)


@triton.jit
def within(mask, t, time, RULE: tl.constexpr):
    """Return the same as `has_step`, without a comparison if chunks divide the time."""
    if choice(RULE, "even"):
        return mask
    return has_step(mask, t, time)


@triton.jit
def only(inside, x, y, RULE: tl.constexpr):
    """Return x, or y for steps past the end."""
    return x if choice(RULE, "even") else tl.where(inside, x, y)


@triton.jit
def address(pos, at):
    """Return the addresses of the neurons of a step; ``at`` is (time, outer, inner stride, inner size)."""
    return pos // at[3] * at[1] + pos % at[3] * at[2]


@triton.jit
def fire(base, weight, limit, held, RULE: tl.constexpr):
    """Return the level P = base + eps log(weight), the curve f(z), f'(z) and the spike.

    A sigmoid does not wait for the logarithm of P: it is
    weight / (weight + exp((limit - base) / eps)), and its derivative is left to `steepness`.
    """
    eps, k, amplitude = held[0], held[1], held[5]
    level = base
    if choice(RULE, "membrane") == LSE:
        level = base + eps * log2(weight)
    if choice(RULE, "curve") == ATAN:
        z = (level - limit) * (k * LN2 * HALF_PI)
        steep = 0.5 * inverse(1.0 + z * z)
        gate = steep
        if choice(RULE, "soft"):
            gate = 0.5 + arctangent(z) * (0.5 / HALF_PI)
    elif choice(RULE, "curve") == TRIANGLE:
        z = clamp((level - limit) * (k * LN2), -1.0, 1.0)
        steep = 1.0 - tl.abs(z)
        gate = 0.5 + z - 0.5 * z * tl.abs(z)
    elif choice(RULE, "curve") == SUPERSPIKE:
        size = 1.0 + tl.abs((level - limit) * (k * LN2))
        steep = inverse(k * LN2 * size * size)
        gate = steep
    else:
        gate = weight * inverse(weight + exp2((limit - base) * k))
        steep = gate
    return level, gate, steep, spike_of(level, gate, limit, amplitude, RULE)


@triton.jit
def spike_of(level, gate, limit, amplitude, RULE: tl.constexpr):
    """Return the spike at a level, soft or hard."""
    if choice(RULE, "soft"):
        spike = gate
        if choice(RULE, "clipped"):
            spike = clamp(amplitude * gate + (1.0 - amplitude) * 0.5, 0.0, 1.0)
        return spike
    # If neither comparison holds, one of the two is NaN, and so is their sum: NaN exposes a broken network.
    return tl.where(level > limit, 1.0, tl.where(level <= limit, 0.0, level + limit))


@triton.jit
def apply_reset(potential, spike, limit, v_reset, RULE: tl.constexpr):
    """Return the membrane after reset."""
    if choice(RULE, "reset") == ZERO:
        return potential * (1.0 - spike) + v_reset * spike
    if choice(RULE, "reset") == SUBTRACT:
        return potential - limit * spike
    return potential


@triton.jit
def saturated(potential, held, RULE: tl.constexpr):
    """Return the soft minimum of P and a ceiling, its derivative in P, and minus its derivative in eps."""
    eps, k, top = held[0], held[1], held[5]
    least = tl.minimum(potential, top, propagate_nan=tl.PropagateNan.ALL)
    if choice(RULE, "membrane") == MAX:
        below = tl.where(potential < top, 1.0, tl.where(potential == top, 0.5, 0.0))
        return least, below, 0.0 * below
    gap = tl.minimum(tl.abs(potential - top) * k, FAR)
    weight = 1.0 + exp2(-gap)
    large = inverse(weight)
    small = exp2(-gap) * large
    log_weight = log2(weight)
    return least - eps * log_weight, tl.where(potential < top, large, small), LN2 * (log_weight + gap * small)


@triton.jit
def fire_backward(gs, gv, potential, level, gate, steep, limit, held, v_reset, RULE: tl.constexpr):
    """Propagate the gradient back through reset and spike.

    Return the gradients for the spike, for the level through the spike, for P through the reset, and for the
    threshold through the reset.
    """
    k, amplitude = held[1], held[5]
    spike = spike_of(level, gate, limit, amplitude, RULE)
    fed, kept, to_limit = gs, gv, 0.0 * gv
    if choice(RULE, "reset") == ZERO:
        kept = gv * (1.0 - spike)
        if not choice(RULE, "detach"):
            fed += gv * (v_reset - potential)
    elif choice(RULE, "reset") == SUBTRACT:
        to_limit = -(gv * spike)
        if not choice(RULE, "detach"):
            fed -= gv * limit
    if choice(RULE, "clipped"):  # the curve rises between 0 and twice the threshold
        fed = tl.where((level >= 0.0) & (level <= 2.0 * limit), fed, 0.0)
    slope = steep * (k * LN2)
    if choice(RULE, "curve") == 0:
        slope = gate * (1.0 - gate) * (k * LN2)
    if choice(RULE, "clipped"):
        slope = slope * amplitude
    return fed, fed * slope, kept, to_limit


@triton.jit
def entry(places, C: tl.constexpr, pos):
    """Return which entry of a constant each lane uses."""
    return (pos // places[4 * C] % places[4 * C + 1]).to(tl.int32)


@triton.jit
def decode(raw, table, step, index):
    """Return the value of a constant, its value before the clamp, its slope in raw, and its row."""
    row = table + index * step
    form = tl.load(row)
    x = tl.load(raw + index).to(tl.float32) * tl.load(row + 5)
    small = tl.exp(-tl.abs(x))
    positive = tl.where(x > 0.0, 1.0, small) / (1.0 + small)
    y = tl.where(form == EXP, tl.exp(x), x)
    y = tl.where(form == LOGISTIC, positive, y)
    y = tl.where(form == SOFTPLUS, tl.maximum(x, 0.0) + tl.log(1.0 + small), y)
    y = tl.where(form == 0.0, tl.load(row + 1), y)
    slope = tl.where(form == EXP, y, tl.where(form == LOGISTIC, y * (1.0 - y), 1.0))
    slope = tl.where(form == SOFTPLUS, positive, slope) * tl.load(row + 5)
    slope = tl.where(form == 0.0, 0.0, slope)
    value = clamp(y, tl.load(row + 2), tl.load(row + 3))
    value = tl.where(tl.load(row + 4) > 0.0, 1.0 / value, value)
    return value, y, slope, row


@triton.jit
def pull(g, raw, table, step, index):
    """Return the gradient for a raw parameter from that for its value."""
    value, y, slope, row = decode(raw, table, step, index)
    low, high = tl.load(row + 2), tl.load(row + 3)
    g = tl.where(tl.load(row + 4) > 0.0, -g * value * value, g)
    inward = tl.where(g > 0.0, y > low, y < high)
    return tl.where(inward, g * slope, 0.0)


@triton.jit
def derived(eps, leak, threshold, amplitude, SHARPNESS: tl.constexpr):
    """Return eps and its inverse in units of log 2, leak, log(leak), threshold and amplitude."""
    if SHARPNESS:  # see `Rule`: the first constant is the sharpness
        small = tl.exp(-eps)
        amplitude = (1.0 + small) / (1.0 - small)
        eps = threshold / eps
    return eps * LN2, inverse(LN2 * eps), leak, tl.log(leak), threshold, amplitude


@triton.jit
def constants(known, numbers, pos, RULE: tl.constexpr):
    """Return the results of `derived` for each lane, and the numbers of a rule: v_reset, strength, decay.

    Where all lanes have the same constants, there is one of each.
    """
    numbers = (numbers[0], numbers[1], numbers[2])
    raws, tables, places = known
    if choice(RULE, "same") == READY:
        row = raws[0] + tl.program_id(0) * HELD
        found = ()
        for i in tl.static_range(6):
            found = found + (tl.load(row + i),)
        return found + numbers
    if choice(RULE, "same"):
        pos = tl.program_id(0) * 0
    eps, _, _, _ = decode(raws[0], tables[0], places[2], entry(places, 0, pos))
    leak, _, _, _ = decode(raws[1], tables[1], places[6], entry(places, 1, pos))
    threshold, _, _, _ = decode(raws[2], tables[2], places[10], entry(places, 2, pos))
    amplitude, _, _, _ = decode(raws[3], tables[3], places[14], entry(places, 3, pos))
    return derived(eps, leak, threshold, amplitude, choice(RULE, "sharp")) + numbers


@triton.jit
def reduce(value, C: tl.constexpr, pos, own, learning, WAYS: tl.constexpr, BLOCK: tl.constexpr):
    """Sum the gradients of all lanes for constant C and write the gradient for its raw parameter.

    ``learning``: a kernel's ``known``, ``grads`` and ``scratch``, the program, and the number of programs.
    """
    WAY: tl.constexpr = WAYS // 4**C % 4
    known, grads, scratch, program, programs = learning
    raws, tables, places = known
    partials, counters, groups, region = scratch
    raw, table, step, side = raws[C], tables[C], places[4 * C + 2], places[4 * C + 3]
    mine = partials + C * tl.cast(region, tl.int64)
    value = tl.where(own, value, 0.0)
    if WAYS // 256:  # ready: one sum per program, which another kernel adds up
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
