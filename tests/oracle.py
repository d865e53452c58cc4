"""Every neuron a second time, in numpy and straight from the paper: what the library is judged by.

Nothing here looks at the library. Loops over time and neighbours are written out, log-sum-exp is
numpy's own. Section and equation numbers are the paper's; open points follow the library's arguments.
"""

from collections.abc import Callable

import numpy as np

Array = np.ndarray
Trace = tuple[Array, Array]
"""Spikes ``[T, B, *features]`` and the membrane after the last reset ``[B, *features]``."""


def sigmoid(x: Array) -> Array:
    return np.where(x >= 0, 1, np.exp(-np.abs(x))) / (1 + np.exp(-np.abs(x)))


def lse(terms: list[Array], eps: Array | float) -> Array:
    """Equation 3."""
    return eps * np.logaddexp.reduce([term / eps for term in terms])


def heaviside(x: Array) -> Array:
    return np.where(x > 0, 1.0, 0.0)


def maximum(terms: list[Array], mode: str, eps: Array | float) -> Array:
    return np.maximum.reduce(terms) if mode == "tropical" else lse(terms, eps)


def spike(v: Array, threshold: Array | float, eps: Array | float, mode: str) -> Array:
    """Equation 17, or its limit."""
    return sigmoid((v - threshold) / eps) if mode == "soft" else heaviside(v - threshold)


def unroll(
    membrane: Callable[[Array, Array], Array],
    fire: Callable[[Array], Array],
    current: Array,
    v0: Array,
    *,
    threshold,
    v_reset=0.0,
    reset="zero",
    delayed_reset=False,
    ceiling: Callable[[Array], Array] | None = None,
) -> Trace:
    """Integrate, fire, reset: equations 16 to 18, or in the order of equations 23 and 24."""
    v, spikes = v0, []
    for x in current:
        potential = membrane(v, x)
        s = fire(v if delayed_reset else potential)
        v = {
            "zero": lambda p, s: p * (1 - s) + v_reset * s,
            "subtract": lambda p, s: p - threshold * s,
            "none": lambda p, s: p,
            "saturate": lambda p, s: ceiling(p),
        }[reset](potential, s)
        spikes.append(fire(v) if delayed_reset else s)
    return np.array(spikes), v


def minimum(v: Array, v_sat: Array | float, mode: str, eps: Array | float) -> Array:
    """The soft minimum: -LSE(-v, -v_sat), or its limit."""
    return -maximum([-v, np.broadcast_to(-np.asarray(v_sat), v.shape)], mode, eps)


def ultralif(current: Array, v0: Array, *, eps, leak, threshold, mode="soft", v_sat=2.0, **reset) -> Trace:
    """Definition 4.1."""
    return unroll(
        lambda v, x: maximum([v + np.log(leak), x], mode, eps),
        lambda v: spike(v, threshold, eps, mode),
        current,
        v0,
        threshold=threshold,
        ceiling=lambda p: minimum(p, v_sat, mode, eps),
        **reset,
    )


def ultradlif(
    current: Array,
    v0: Array,
    *,
    eps,
    threshold,
    leak=None,
    mode="soft",
    coupled_axis=-1,
    centered=False,
    **reset,
) -> Trace:
    """Definition 4.2; with a leak, appendix D.5."""

    def couple(v: Array) -> Array:
        last = np.moveaxis(v, coupled_axis, -1)
        places = [[(i + by) % last.shape[-1] for i in range(last.shape[-1])] for by in (-1, 0, 1)]
        around = [np.moveaxis(last[..., near], -1, coupled_axis) for near in places]
        offset = eps * np.log(3) if centered and mode != "tropical" else 0.0
        return maximum(around, mode, eps) - offset

    def membrane(v: Array, x: Array) -> Array:
        return couple(v if leak is None else leak * v) + x

    def fire(v: Array) -> Array:
        return spike(v, threshold, eps, mode)

    return unroll(membrane, fire, current, v0, threshold=threshold, **reset)


def softlif(current: Array, v0: Array, *, eps, leak, threshold, mode="soft", v_sat=2.0, **reset) -> Trace:
    """LIF's membrane with the spike of equation 17."""
    return unroll(
        lambda v, x: leak * v + x,
        lambda v: spike(v, threshold, eps, mode),
        current,
        v0,
        threshold=threshold,
        ceiling=lambda p: minimum(p, v_sat, mode, eps),
        **reset,
    )


def primitive(z: Array, surrogate: str) -> Array:
    """The integral, from -infinity to z, of the surrogate's derivative."""
    if surrogate == "sigmoid":
        return sigmoid(z)
    if surrogate == "atan":
        return 0.5 + np.arctan(np.pi * z / 2) / np.pi
    inside = np.where(z < 0, (1 + z) ** 2 / 2, 1 - (1 - z) ** 2 / 2)
    return np.where(z <= -1, 0.0, np.where(z >= 1, 1.0, inside))


def surrogate_spike(v: Array, threshold, mode: str, surrogate: str, surrogate_slope) -> Array:
    """Heaviside, or in soft mode the surrogate's primitive."""
    return (
        primitive(surrogate_slope * (v - threshold), surrogate)
        if mode == "soft"
        else heaviside(v - threshold)
    )


def lif(
    current: Array,
    v0: Array,
    *,
    leak,
    threshold,
    mode="hard",
    surrogate="atan",
    surrogate_slope=2.0,
    **reset,
) -> Trace:
    """Appendix D.4, LIF."""
    return unroll(
        lambda v, x: leak * v + x,
        lambda v: surrogate_spike(v, threshold, mode, surrogate, surrogate_slope),
        current,
        v0,
        threshold=threshold,
        **reset,
    )


def dspike(current: Array, v0: Array, *, leak, threshold, sharpness=4.0, mode="hard", **reset) -> Trace:
    """Appendix D.4, DSpike."""

    def curve(v: Array) -> Array:
        normed = v / (2 * threshold)
        edge = np.tanh(sharpness / 2)
        found = (np.tanh(sharpness * (normed - 0.5)) + edge) / (2 * edge)
        return np.clip(found, 0.0, 1.0)

    fire = curve if mode == "soft" else lambda v: heaviside(v - threshold)
    return unroll(lambda v, x: leak * v + x, fire, current, v0, threshold=threshold, **reset)


def adalif(
    current: Array,
    v0: Array,
    *,
    leak,
    threshold,
    adapt_strength=0.1,
    adapt_decay=0.9,
    v_reset=0.0,
    mode="hard",
    surrogate="atan",
    surrogate_slope=2.0,
    reset="zero",
    delayed_reset=False,
) -> Trace:
    """Appendix D.4, AdaLIF; its indices literally."""
    v, b, s, spikes = v0, np.zeros_like(v0), np.zeros_like(v0), []
    for x in current:
        b_next = adapt_decay * b + (1 - adapt_decay) * s
        theta = threshold + adapt_strength * b

        def fire(v: Array, theta: Array = theta) -> Array:
            return surrogate_spike(v, theta, mode, surrogate, surrogate_slope)

        v, b = leak * v + x, b_next
        by = s if delayed_reset else fire(v)
        after = {"zero": v * (1 - by) + v_reset * by, "subtract": v - theta * by, "none": v}[reset]
        s = fire(after if delayed_reset else v)
        v = after
        spikes.append(s)
    return np.array(spikes), v
