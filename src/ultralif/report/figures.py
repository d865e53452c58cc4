"""Draw a trained network, its decision boundaries, and events."""

import math
from pathlib import Path

import torch
from torch import Tensor

from ultralif import plot
from ultralif.analysis import BoundarySlice
from ultralif.errors import InputError
from ultralif.functional import Mode
from ultralif.nn import Network
from ultralif.report.canvas import new_figure, save_figure

__all__ = ["boundary_figure", "events_figure", "network_figure"]

MOST_FRAMES = 30


def network_figure(path: Path, net: Network, x: Tensor, shape: tuple[int, ...] | None = None) -> Path:
    """Draw the first layer of a trained network: raster, membranes, firing rates, weights.

    Args:
        path: the output file.
        net: the network, in the mode to show.
        x: a batch ``[T, B, *input]``. The first sample's spikes are shown, with the membranes of the neurons
            whose spikes vary most; rates are averaged over the batch.
        shape: the input's shape as an image, without time.
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


def events_figure(path: Path, frames: Tensor, title: str = "") -> Path:
    """Draw event frames ``[T, 2, H, W]`` as pictures over time, ON events red and OFF events blue."""
    if frames.dim() != 4 or frames.shape[1] != 2:
        raise InputError(f"frames must be [T, 2, H, W], got {tuple(frames.shape)}; select one sample first")
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
    figure.suptitle(title, fontsize=9)
    return save_figure(figure, path)


def boundary_figure(path: Path, places: Tensor, extent: float, slices: dict[Mode, BoundarySlice]) -> Path:
    """Draw the slices of `ultralif.analysis.boundary_slices` side by side.

    Colours show classes, paler where the margin is small. Two scores cross along the lines and tie in grey
    cells.
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
