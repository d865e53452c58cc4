"""Draw the mechanisms in the paper's figures 1 and 2: spikes with their slopes, and membranes over time."""

from pathlib import Path
from typing import Any

import torch

from ultralif import plot
from ultralif.functional import dspike_curve
from ultralif.maxplus import hard_spike, soft_spike
from ultralif.nn import LIF, DSpike, Neuron, SoftLIF, UltraDLIF, UltraLIF
from ultralif.report import new_figure, save_figure, shades, style_of

__all__ = ["mechanism_figure", "spike_figure"]

WIDTH = 4.6  # inches: narrow enough to be read on a phone
THRESHOLD, SLOPE, SHARPNESS = 0.5, 10.0, 4.0
TEMPERATURES = (1.0, 0.3, 0.1)


def spike_figure(path: Path) -> Path:
    """Draw spikes and the slopes used by the backward pass: Heaviside, surrogates and soft spikes."""
    v = torch.linspace(-0.5, 1.5, 801, dtype=torch.float64)
    figure, axes = new_figure(1, 2, width=WIDTH, height=3.2)
    upper, lower = axes[:, 0]
    for color, eps in zip(shades(len(TEMPERATURES)), TEMPERATURES, strict=True):
        spike = soft_spike(v, THRESHOLD, eps)
        upper.plot(v, spike, color=color, label=f"soft, eps {eps:g}")
        lower.plot(v, spike * (1 - spike) / eps, color=color, label=f"exact, eps {eps:g}")
    curve = dspike_curve(v, THRESHOLD, SHARPNESS)
    sigmoid = soft_spike(v, THRESHOLD, 1 / SLOPE)
    upper.plot(v, hard_spike(v, THRESHOLD), "k--", lw=1.3, label="Heaviside")
    upper.plot(
        v, curve.where((v >= 0) & (v <= 1), torch.nan), **_line("DSpikePlus"), label="DSpike's curve, k 4"
    )
    lower.axhline(0, color="black", ls="--", lw=1.3, label="Heaviside: 0")
    lower.plot(v, sigmoid * (1 - sigmoid), **_line("LIF"), label="LIF's surrogate, slope 10")
    slope = torch.gradient(curve, spacing=(v,))[0]
    lower.plot(
        v, slope.where((v >= 0) & (v <= 1), torch.nan), **_line("DSpikePlus"), label="DSpike's surrogate"
    )
    upper.set(title="forward: the spike", xlabel="membrane V", ylabel="s", ylim=(-0.05, 1.05))
    lower.set(title="backward: ds/dV", xlabel="membrane V")
    for axis in (upper, lower):
        axis.axvline(THRESHOLD, color="0.8", lw=0.8, zorder=0)
        axis.legend(fontsize=8, frameon=False, loc="upper left")
    lower.set_ylim(top=3.2)
    return save_figure(figure, path)


def _line(neuron: str) -> dict[str, str]:
    return {name: value for name, value in style_of(neuron).items() if name != "marker"}


def mechanism_figure(path: Path) -> Path:
    """Draw the membranes and spikes of six neurons for the same current."""
    current = torch.zeros(
        40, 1, 5
    )  # only the neuron in the middle is driven; UltraDLIF couples it to its neighbours
    for start, height in ((3, 0.22), (4, 0.22), (5, 0.22), (12, 0.45), (13, 0.45), (22, 0.9), (30, 0.3)):
        current[start, :, 2] = height
    neurons: dict[str, Neuron[Any]] = {
        "LIF": LIF(),
        "DSpike, hard": DSpike(),
        "SoftLIF, eps 0.1": SoftLIF(eps=0.1),
        "UltraLIF, eps 0.1": UltraLIF(eps=0.1),
        "UltraLIF, tropical": UltraLIF(eps=0.1),
        "UltraDLIF, centred": UltraDLIF(eps=0.1, centered=True),
    }
    neurons["UltraLIF, tropical"].mode = "tropical"
    figure, axes = new_figure(2, 3, width=WIDTH / 2, height=1.6)
    time = range(len(current))
    for axis, (name, neuron) in zip(axes.flat, neurons.items(), strict=True):
        (shown,) = plot.record(neuron, current)
        color = style_of(name.replace(",", ""))["color"]
        axis.bar(time, current[:, 0, 2].tolist(), width=1.0, color="0.88", label="current")
        axis.plot(time, shown.membrane[:, 0, 2], color=color, lw=1.4, label="membrane, after reset")
        spikes = shown.spikes[:, 0, 2]
        axis.vlines(time, 1.15, 1.15 + 0.3 * spikes, color=color, lw=2.5)
        axis.axhline(THRESHOLD, color="0.6", lw=0.8, ls="--")
        axis.text(39.5, -0.27, f"{float(spikes.sum()):.1f} spikes", ha="right", va="bottom", fontsize=8)
        axis.set_title(name, fontsize=9, loc="left")
        axis.set(ylim=(-0.3, 1.5), xlim=(-0.5, 39.5))
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=2, fontsize=8, frameon=False)
    figure.supxlabel("time step", fontsize=9)
    return save_figure(figure, path)
