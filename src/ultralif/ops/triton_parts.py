"""What the Triton kernels of all neurons are made of: fast functions, loads, spike."""

import triton
import triton.language as tl

__all__ = [
    "ADD",
    "LN2",
    "LSE",
    "MAX",
    "constant",
    "exp2",
    "fire",
    "inverse",
    "largest",
    "log2",
    "within",
]

LSE = tl.constexpr(0)
MAX = tl.constexpr(1)
ADD = tl.constexpr(2)
LN2 = tl.constexpr(0.6931471805599453)


@triton.jit
def exp2(x, NATIVE: tl.constexpr):
    """Return 2**x by one instruction: `tl.exp2` takes care of results below 1e-38, which are nothing here."""
    if NATIVE:
        return tl.inline_asm_elementwise(
            "ex2.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )
    return tl.exp2(x)


@triton.jit
def log2(x, NATIVE: tl.constexpr):
    """Return log2 by one instruction: `tl.log2` is a polynomial."""
    if NATIVE:
        return tl.inline_asm_elementwise(
            "lg2.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )
    return tl.log2(x)


@triton.jit
def inverse(x, NATIVE: tl.constexpr):
    """Return 1 / x by one instruction."""
    if NATIVE:
        return tl.inline_asm_elementwise(
            "rcp.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )
    return 1.0 / x


@triton.jit
def largest(x, y):
    """Return the larger of two, or NaN if one of them is."""
    return tl.maximum(x, y, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def within(mask, t, time, EVEN: tl.constexpr):
    """Return the mask of the lanes that have a step t: all, if the chunks divide the time."""
    if EVEN:
        return mask
    return mask & (tl.zeros_like(mask).to(tl.int32) + t < time)


@triton.jit
def constant(pointer, feature, run, mask):
    """Load a constant of which each entry serves a run of features."""
    return tl.load(pointer + feature // run, mask=mask, other=1.0).to(tl.float32)


@triton.jit
def fire(
    base,
    weight,
    limit,
    eps,
    k,
    amplitude,
    MEMBRANE: tl.constexpr,
    SOFT: tl.constexpr,
    UNIT: tl.constexpr,
    NATIVE: tl.constexpr,
):
    """Return P, sigmoid(z) and the spike; eps and its inverse k are in units of log 2.

    sigmoid(z) = weight / (weight + exp((limit - base) / eps)) does not wait for the logarithm.
    """
    potential = base
    if MEMBRANE == LSE:
        potential = base + eps * log2(weight, NATIVE)
    gate = weight * inverse(weight + exp2((limit - base) * k, NATIVE), NATIVE)
    spike = gate
    if not SOFT:
        # What is neither above nor below has a NaN in it, and so has the sum: a broken network shows.
        spike = tl.where(potential > limit, 1.0, tl.where(potential <= limit, 0.0, potential + limit))
    elif not UNIT:
        spike = amplitude * gate + (1.0 - amplitude) * 0.5
    return potential, gate, spike
