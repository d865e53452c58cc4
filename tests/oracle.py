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


def neighbors(v: Array, neighborhood: str) -> list[Array]:
    """The neuron, and its two or four nearest ones on a periodic ring or grid, by plain indices."""
    width = v.shape[-1]
    left = [(i - 1) % width for i in range(width)]
    right = [(i + 1) % width for i in range(width)]
    around = [v[..., left], v, v[..., right]]
    if neighborhood == "grid":
        height = v.shape[-2]
        around.append(v[..., [(i - 1) % height for i in range(height)], :])
        around.append(v[..., [(i + 1) % height for i in range(height)], :])
    return around


def unroll(
    membrane: Callable[[Array, Array], Array],
    fire: Callable[[Array], Array],
    current: Array,
    v0: Array,
    v_reset: float,
    delayed_reset: bool = False,
) -> Trace:
    """Integrate, fire, reset: equations 16 to 18, or in the order of equations 23 and 24."""
    v, spikes = v0, []
    for x in current:
        potential = membrane(v, x)
        s = fire(v if delayed_reset else potential)
        v = potential * (1 - s) + v_reset * s
        spikes.append(fire(v) if delayed_reset else s)
    return np.array(spikes), v


def ultralif(
    current: Array, v0: Array, *, eps, leak, threshold, v_reset=0.0, mode="soft", delayed_reset=False
) -> Trace:
    """Definition 4.1."""
    return unroll(
        lambda v, x: maximum([v + np.log(leak), x], mode, eps),
        lambda v: spike(v, threshold, eps, mode),
        current,
        v0,
        v_reset,
        delayed_reset,
    )


def ultradlif(
    current: Array,
    v0: Array,
    *,
    eps,
    threshold,
    leak=None,
    v_reset=0.0,
    mode="soft",
    neighborhood="ring",
    centered=False,
    leak_form="factor",
    delayed_reset=False,
) -> Trace:
    """Definition 4.2; with a leak, appendix D.5."""

    def membrane(v: Array, x: Array) -> Array:
        if leak is not None:
            v = leak * v if leak_form == "factor" else v + np.log(leak)
        around = neighbors(v, neighborhood)
        offset = eps * np.log(len(around)) if centered and mode != "tropical" else 0.0
        return maximum(around, mode, eps) - offset + x

    return unroll(membrane, lambda v: spike(v, threshold, eps, mode), current, v0, v_reset, delayed_reset)


def softlif(current: Array, v0: Array, *, eps, leak, threshold, v_reset=0.0, mode="soft") -> Trace:
    """LIF's membrane with the spike of equation 17."""
    return unroll(lambda v, x: leak * v + x, lambda v: spike(v, threshold, eps, mode), current, v0, v_reset)


def lif(current: Array, v0: Array, *, leak, threshold, v_reset=0.0) -> Trace:
    """Appendix D.4, LIF."""
    return unroll(lambda v, x: leak * v + x, lambda v: heaviside(v - threshold), current, v0, v_reset)


def dspike(current: Array, v0: Array, *, leak, threshold, sharpness=4.0, v_reset=0.0, mode="hard") -> Trace:
    """Appendix D.4, DSpike."""

    def curve(v: Array) -> Array:
        normed = v / (2 * threshold)
        edge = np.tanh(sharpness / 2)
        return (np.tanh(sharpness * (normed - 0.5)) + edge) / (2 * edge)

    fire = curve if mode == "soft" else lambda v: heaviside(v - threshold)
    return unroll(lambda v, x: leak * v + x, fire, current, v0, v_reset)


def adalif(
    current: Array,
    v0: Array,
    *,
    leak,
    threshold,
    adapt_strength=0.1,
    adapt_decay=0.9,
    adapt_late=False,
    v_reset=0.0,
) -> Trace:
    """Appendix D.4, AdaLIF; its indices literally, or with the adaptation one step earlier."""
    v, b, s, spikes = v0, np.zeros_like(v0), np.zeros_like(v0), []
    for x in current:
        b_next = adapt_decay * b + (1 - adapt_decay) * s
        theta = threshold + adapt_strength * (b if adapt_late else b_next)
        potential = leak * v + x
        s = heaviside(potential - theta)
        v, b = potential * (1 - s) + v_reset * s, b_next
        spikes.append(s)
    return np.array(spikes), v
