"""Pictures of neurons and networks: spikes, mechanisms, a trained network, its boundaries, events."""

import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ultralif import plot
from ultralif.analysis import BoundarySlice
from ultralif.errors import InputError
from ultralif.functional import Mode, dspike_curve
from ultralif.maxplus import hard_spike, soft_spike
from ultralif.nn import LIF, DSpike, Network, Neuron, SoftLIF, UltraDLIF, UltraLIF
from ultralif.report.canvas import new_figure, save_figure, shades, style_of

__all__ = ["boundary_figure", "events_figure", "mechanism_figure", "network_figure", "spike_figure"]

THRESHOLD, SLOPE, SHARPNESS = 0.5, 10.0, 4.0
TEMPERATURES = (1.0, 0.3, 0.1)
MOST_FRAMES = 30


def spike_figure(path: Path) -> Path:
    """Draw spikes, and the slopes that the backward pass uses: Heaviside, surrogates, soft spikes."""
    v = torch.linspace(-0.5, 1.5, 801, dtype=torch.float64)
    figure, axes = new_figure(2)
    left, right = axes[0]
    for color, eps in zip(shades(len(TEMPERATURES)), TEMPERATURES, strict=True):
        spike = soft_spike(v, THRESHOLD, eps)
        left.plot(v, spike, color=color, label=f"soft, eps {eps:g}")
        right.plot(v, spike * (1 - spike) / eps, color=color, label=f"exact, eps {eps:g}")
    curve = dspike_curve(v, THRESHOLD, SHARPNESS)
    sigmoid = soft_spike(v, THRESHOLD, 1 / SLOPE)
    left.plot(v, hard_spike(v, THRESHOLD), "k--", lw=1.3, label="Heaviside")
    left.plot(
        v, curve.where((v >= 0) & (v <= 1), torch.nan), **_line("DSpikePlus"), label="DSpike's curve, k 4"
    )
    right.axhline(0, color="black", ls="--", lw=1.3, label="Heaviside: 0")
    right.plot(v, sigmoid * (1 - sigmoid), **_line("LIF"), label="LIF's surrogate, slope 10")
    slope = torch.gradient(curve, spacing=(v,))[0]
    right.plot(
        v, slope.where((v >= 0) & (v <= 1), torch.nan), **_line("DSpikePlus"), label="DSpike's surrogate"
    )
    left.set(title="forward: the spike", xlabel="membrane V", ylabel="s", ylim=(-0.05, 1.05))
    right.set(title="backward: ds/dV", xlabel="membrane V")
    for axis in (left, right):
        axis.axvline(THRESHOLD, color="0.8", lw=0.8, zorder=0)
        axis.legend(fontsize=7, frameon=False, loc="upper left")
    right.set_ylim(top=3.2)
    return save_figure(figure, path)


def _line(neuron: str) -> dict[str, str]:
    return {name: value for name, value in style_of(neuron).items() if name != "marker"}


def mechanism_figure(path: Path) -> Path:
    """Draw membranes and spikes of six neurons for one current."""
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
        "UltraDLIF, centred, eps 0.1": UltraDLIF(eps=0.1, centered=True),
    }
    neurons["UltraLIF, tropical"].mode = "tropical"
    figure, axes = new_figure(2, 3, height=2.1)
    time = range(len(current))
    for axis, (name, neuron) in zip(axes.flat, neurons.items(), strict=True):
        (shown,) = plot.record(neuron, current)
        color = style_of(name.replace(",", ""))["color"]
        axis.bar(time, current[:, 0, 2].tolist(), width=1.0, color="0.88", label="current")
        axis.plot(time, shown.membrane[:, 0, 2], color=color, lw=1.4, label="membrane, after reset")
        spikes = shown.spikes[:, 0, 2]
        axis.vlines(time, 1.15, 1.15 + 0.3 * spikes, color=color, lw=2.5)
        axis.axhline(THRESHOLD, color="0.6", lw=0.8, ls="--")
        axis.text(39.5, 1.5, f"{float(spikes.sum()):.1f} spikes", ha="right", va="bottom", fontsize=7)
        axis.set_title(name, fontsize=9, loc="left")
        axis.set(ylim=(-0.3, 1.5), xlim=(-0.5, 39.5))
    axes[0, 0].legend(fontsize=7, frameon=False, loc="upper right")
    figure.supxlabel("time step", fontsize=9)
    return save_figure(figure, path)


def network_figure(path: Path, net: Network, x: Tensor, shape: tuple[int, ...] | None = None) -> Path:
    """Draw the first layer of a trained network: raster, membranes, firing rates, weights.

    Args:
        path: the picture.
        net: the network, in the mode to show.
        x: a batch ``[T, B, *input]``; the first sample is shown, with the neurons whose spikes vary most,
            and rates are over all.
        shape: of the input as a picture, without time.
    """
    shown = plot.record(net, x)[0]
    figure, axes = new_figure(2, 2)
    plot.raster(shown, axes=axes[0, 0])
    restless = shown.spikes[:, 0].flatten(1).var(0, correction=0).topk(min(3, net.sizes[1])).indices
    plot.traces(shown, neurons=restless.tolist(), axes=axes[0, 1])
    plot.spike_count(shown, axes=axes[1, 0])
    plot.weights(net, shape or (net.sizes[0],), axes=axes[1, 1])
    titles = ("spikes of one sample", "membranes", "firing rates over the batch", "weights, by neuron")
    for axis, title in zip(axes.flat, titles, strict=True):
        axis.set_title(title, fontsize=9)
    return save_figure(figure, path)


def events_figure(path: Path, frames: Tensor) -> Path:
    """Draw event frames ``[T, 2, H, W]`` as pictures over time, ON events red and OFF events blue."""
    if frames.dim() != 4 or frames.shape[1] != 2:
        raise InputError(f"frames must be [T, 2, H, W], got {tuple(frames.shape)}; take one sample first")
    every = math.ceil(len(frames) / MOST_FRAMES)
    steps = range(0, len(frames), every)
    columns = min(len(steps), 6)
    rows = math.ceil(len(steps) / columns)
    signed = (frames[:, 1] - frames[:, 0]).float().cpu()
    far = float(signed.abs().max()) or 1.0
    figure, axes = new_figure(columns, rows, width=1.5, height=1.6)
    for axis in axes.flat:
        axis.set_axis_off()
    for axis, step in zip(axes.flat, steps, strict=False):
        axis.imshow(signed[step].numpy(), cmap="RdBu_r", vmin=-far, vmax=far)
        axis.set_title(f"t = {step}", fontsize=7)
    return save_figure(figure, path)


def boundary_figure(path: Path, places: Tensor, extent: float, slices: dict[Mode, BoundarySlice]) -> Path:
    """Draw the slices of `ultralif.analysis.boundary_slices` side by side.

    Colours are classes, paler where the margin is small; lines are where two scores cross; grey cells tie.
    """
    if not all(bool(cut.margin.isfinite().all()) for cut in slices.values()):
        raise InputError("the scores of the network are NaN or infinite; train it again")
    figure, axes = new_figure(len(slices))
    box = (-extent, extent, -extent, extent)
    for axis, (name, cut) in zip(axes[0], slices.items(), strict=True):
        alpha = 0.25 + 0.75 * (cut.margin / cut.margin.max().clamp_min(1e-30)).sqrt().numpy()
        axis.imshow(cut.labels.numpy(), cmap="tab10", vmin=0, vmax=9, origin="lower", extent=box, alpha=alpha)
        tied = torch.where(cut.tied, 1.0, torch.nan).numpy()
        axis.imshow(tied, cmap="gray", vmin=0, vmax=2, origin="lower", extent=box)
        edge = torch.where(cut.boundary, 1.0, torch.nan).numpy()
        axis.imshow(edge, cmap="gray", vmin=1, vmax=2, origin="lower", extent=box, interpolation="nearest")
        axis.plot(*places.T, "wo", ms=6, mec="k")
        axis.set_title(f"{name} (classes: {len(torch.unique(cut.labels))})", fontsize=9)
        axis.set(xticks=[], yticks=[])
    return save_figure(figure, path)
