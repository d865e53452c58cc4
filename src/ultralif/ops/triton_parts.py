"""The parts that the Triton kernels of all neurons share: fast functions, spike, reset, constants.

The choices of a rule reach a kernel as one number, `RULE`; `bits` takes a choice out of it.
"""

import triton
import triton.language as tl

from ultralif.ops.recurrence import Curve, Membrane, Reset

__all__ = [
    "ADAPT",
    "ADD",
    "AT_SPIKE",
    "CENTERED",
    "FAR",
    "LATE",
    "LEAK_FORM",
    "LN2",
    "LSE",
    "MAX",
    "MEMBRANE",
    "RATE",
    "RESET",
    "SAME",
    "SATURATE",
    "SHARP",
    "SOFT",
    "UNIT",
    "address",
    "bits",
    "clamp",
    "exp2",
    "fire",
    "inverse",
    "largest",
    "log2",
    "only",
    "saturated",
    "settle",
    "unfire",
    "within",
]

LSE = tl.constexpr(int(Membrane.LSE))
MAX = tl.constexpr(int(Membrane.MAX))
ADD = tl.constexpr(int(Membrane.ADD))
ATAN = tl.constexpr(int(Curve.ATAN))
TRIANGLE = tl.constexpr(int(Curve.TRIANGLE))
ZERO = tl.constexpr(int(Reset.ZERO))
SUBTRACT = tl.constexpr(int(Reset.SUBTRACT))
SATURATE = tl.constexpr(int(Reset.SATURATE))
FAR = tl.constexpr(1000.0)
"""A gap so large that its power of two is 0 in float32; times 0 it is 0, while infinity times 0 is NaN."""
LN2 = tl.constexpr(0.6931471805599453)
HALF_PI = tl.constexpr(1.5707963267948966)

# Where the choices of a rule are in its number, two bits each: `ultralif.ops.launch` writes it.
MEMBRANE = tl.constexpr(0)
SOFT = tl.constexpr(1)
RESET = tl.constexpr(2)
DETACH = tl.constexpr(3)
CURVE = tl.constexpr(4)
CLIPPED = tl.constexpr(5)
UNIT = tl.constexpr(6)
RATE = tl.constexpr(7)
CENTERED = tl.constexpr(8)
LEAK_FORM = tl.constexpr(9)
AT_SPIKE = tl.constexpr(10)
ADAPT = tl.constexpr(11)
LATE = tl.constexpr(12)
SHARP = tl.constexpr(13)
SAME = tl.constexpr(14)
"""All lanes have the same constants; or those of a program, decoded by `held`."""


@triton.constexpr_function
def bits(rule, choice):
    """Return one choice of a rule."""
    return rule >> 2 * choice & 3


@triton.jit
def instruction(x, CODE: tl.constexpr):
    """Return the result of one instruction of an NVIDIA GPU for x."""
    return tl.inline_asm_elementwise(CODE, "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)


@triton.jit
def exp2(x, NATIVE: tl.constexpr):
    """Return 2**x by one instruction: `tl.exp2` also computes results below 1e-38, which count as 0 here."""
    return instruction(x, "ex2.approx.ftz.f32 $0, $1;") if NATIVE else tl.exp2(x)


@triton.jit
def log2(x, NATIVE: tl.constexpr):
    """Return the binary logarithm by one instruction; `tl.log2` is a polynomial."""
    return instruction(x, "lg2.approx.ftz.f32 $0, $1;") if NATIVE else tl.log2(x)


@triton.jit
def inverse(x, NATIVE: tl.constexpr):
    """Return 1 / x by one instruction."""
    return instruction(x, "rcp.approx.ftz.f32 $0, $1;") if NATIVE else 1.0 / x


@triton.jit
def largest(x, y):
    """Return the larger of two numbers, or NaN if one of them is NaN."""
    return tl.maximum(x, y, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def clamp(x, low, high):
    """Return x where it is within the bounds, else the bound; NaN stays NaN."""
    return tl.minimum(largest(x, low), high, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def arctangent(x, NATIVE: tl.constexpr):
    """Return atan within 1e-7: a polynomial in x on [-1, 1], and in 1 / x outside."""
    steep = tl.abs(x) > 1.0
    y = tl.where(steep, inverse(x, NATIVE), x)
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
def within(mask, t, time, EVEN: tl.constexpr):
    """Return the mask of the lanes that have a step t: all, if the chunks divide the time."""
    if EVEN:
        return mask
    return mask & (tl.zeros_like(mask).to(tl.int32) + t < time)


@triton.jit
def only(inside, x, y, EVEN: tl.constexpr):
    """Return x, or y for steps past the end."""
    return x if EVEN else tl.where(inside, x, y)


@triton.jit
def address(pos, at):
    """Return where the neurons of a step are in memory; ``at`` is (time, outer, inner stride, inner size)."""
    return pos // at[3] * at[1] + pos % at[3] * at[2]


@triton.jit
def fire(base, weight, limit, eps, k, amplitude, RULE: tl.constexpr, NATIVE: tl.constexpr):
    """Return the level P = base + eps log(weight), the curve f(z), f'(z) and the spike.

    eps and its inverse k are in units of log 2. A sigmoid does not wait for the logarithm of P: it is
    weight / (weight + exp((limit - base) / eps)), and its derivative is left to `steepness`.
    """
    level = base
    if bits(RULE, MEMBRANE) == LSE:
        level = base + eps * log2(weight, NATIVE)
    if bits(RULE, CURVE) == ATAN:
        z = (level - limit) * (k * LN2 * HALF_PI)
        steep = 0.5 * inverse(1.0 + z * z, NATIVE)
        gate = steep
        if bits(RULE, SOFT):
            gate = 0.5 + arctangent(z, NATIVE) * (0.5 / HALF_PI)
    elif bits(RULE, CURVE) == TRIANGLE:
        z = clamp((level - limit) * (k * LN2), -1.0, 1.0)
        steep = 1.0 - tl.abs(z)
        gate = 0.5 + z - 0.5 * z * tl.abs(z)
    else:
        gate = weight * inverse(weight + exp2((limit - base) * k, NATIVE), NATIVE)
        steep = gate
    return level, gate, steep, spike_of(level, gate, limit, amplitude, RULE)


@triton.jit
def spike_of(level, gate, limit, amplitude, RULE: tl.constexpr):
    """Return the spike at a level, soft or hard."""
    if bits(RULE, SOFT):
        spike = gate
        if not bits(RULE, UNIT):
            spike = amplitude * gate + (1.0 - amplitude) * 0.5
        if bits(RULE, CLIPPED):
            spike = clamp(spike, 0.0, 1.0)
        return spike
    # If the level is neither above nor below, something is NaN, and so is the sum: a broken network shows.
    return tl.where(level > limit, 1.0, tl.where(level <= limit, 0.0, level + limit))


@triton.jit
def settle(potential, spike, limit, v_reset, RULE: tl.constexpr):
    """Return the membrane after reset."""
    if bits(RULE, RESET) == ZERO:
        return potential * (1.0 - spike) + v_reset * spike
    if bits(RULE, RESET) == SUBTRACT:
        return potential - limit * spike
    return potential


@triton.jit
def saturated(potential, top, eps, k, RULE: tl.constexpr, NATIVE: tl.constexpr):
    """Return the soft minimum of P and a ceiling, its derivative by P, and minus its derivative by eps."""
    least = tl.minimum(potential, top, propagate_nan=tl.PropagateNan.ALL)
    if bits(RULE, MEMBRANE) == MAX:
        below = tl.where(potential < top, 1.0, tl.where(potential == top, 0.5, 0.0))
        return least, below, 0.0 * below
    gap = tl.minimum(tl.abs(potential - top) * k, FAR)
    weight = 1.0 + exp2(-gap, NATIVE)
    large = inverse(weight, NATIVE)
    small = exp2(-gap, NATIVE) * large
    log_weight = log2(weight, NATIVE)
    return least - eps * log_weight, tl.where(potential < top, large, small), LN2 * (log_weight + gap * small)


@triton.jit
def unfire(gs, gv, potential, level, gate, steep, limit, k, amplitude, v_reset, RULE: tl.constexpr):
    """Take the gradient back through reset and spike.

    Return the gradients for the spike, for the level through the spike, for P through the reset, and for the
    threshold through the reset.
    """
    spike = spike_of(level, gate, limit, amplitude, RULE)
    fed, kept, to_limit = gs, gv, 0.0 * gv
    if bits(RULE, RESET) == ZERO:
        kept = gv * (1.0 - spike)
        if not bits(RULE, DETACH):
            fed += gv * (v_reset - potential)
    elif bits(RULE, RESET) == SUBTRACT:
        to_limit = -(gv * spike)
        if not bits(RULE, DETACH):
            fed -= gv * limit
    if bits(RULE, CLIPPED):  # of |A (f - 1/2)| <= 1/2
        inside = tl.abs(amplitude * (gate - 0.5)) <= 0.5
        fed = tl.where(inside, fed, 0.0)
    slope = steep * (k * LN2)
    if bits(RULE, CURVE) == 0:
        slope = gate * (1.0 - gate) * (k * LN2)
    if not bits(RULE, UNIT):
        slope = slope * amplitude
    return fed, fed * slope, kept, to_limit
