"""One-line plots of spikes, membranes, images over time, weights and temperatures.

Each function draws on the given ``axes``, or on new ones, and returns them. Lines that are not data use the
colours of matplotlib's style, so that ``plt.style.use("dark_background")`` works; data use colours that
colour-blind readers can tell apart (Okabe and Ito).

Example:
    >>> import matplotlib
    >>> matplotlib.use("agg")
    >>> import torch, ultralif as ul
    >>> net = ul.Network((64, 16, 10), neuron="UltraLIF")
    >>> hidden, = ul.plot.record(net, torch.rand(20, 1, 64))
    >>> ul.plot.raster(hidden).get_ylabel(), ul.plot.traces(hidden).get_xlabel()
    ('neuron', 'time step')
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ultralif.errors import InputError, need
from ultralif.nn.recording import Recording, record
from ultralif.training.checkpoint import read_folder
from ultralif.training.result import Result
from ultralif.training.store import Store

if TYPE_CHECKING:
    from matplotlib.animation import FuncAnimation
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

__all__ = ["Recording", "animate", "raster", "record", "spike_count", "temperature", "traces", "weights"]

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
MOST_BARS = 20


def raster(spikes: Tensor | Recording, *, sample: int = 0, axes: "Axes | None" = None) -> "Axes":
    """Draw when each neuron of a layer fired; the size of a dot shows the size of a soft spike.

    Args:
        spikes: ``[T, N]``, ``[T, B, *features]`` or a recording.
        sample: the index of the sample to show.
        axes: the axes to draw on.

    Example:
        >>> axes = raster(torch.rand(20, 8).round())
    """
    shown = _of_sample(spikes.spikes if isinstance(spikes, Recording) else spikes, sample)
    axes = _axes(axes)
    step, neuron = torch.nonzero(shown > 0.02, as_tuple=True)
    size = min(max(1200 / shown.shape[1], 2), 60) * shown[step, neuron]
    axes.scatter(step, neuron, s=size, color=COLORS[0], marker="o", linewidths=0)
    axes.set(xlabel="time step", ylabel="neuron", xlim=(-0.5, len(shown) - 0.5))
    axes.set_ylim(-0.5, shown.shape[1] - 0.5)
    return axes


def traces(
    membrane: Tensor | Recording,
    spikes: Tensor | None = None,
    *,
    threshold: float | None = None,
    neurons: Sequence[int] | None = None,
    sample: int = 0,
    axes: "Axes | None" = None,
) -> "Axes":
    """Draw membranes over time, with a tick above for every spike.

    Args:
        membrane: ``[T, N]``, ``[T, B, *features]``, or a recording, which includes spikes and threshold.
        spikes: the spikes, in the same shape.
        threshold: the threshold, drawn as a line.
        neurons: the neurons to show; None means the first three.
        sample: the index of the sample to show.
        axes: the axes to draw on.

    Example:
        >>> axes = traces(torch.rand(20, 8), neurons=(0, 1))
    """
    if isinstance(membrane, Recording):
        spikes = membrane.spikes
        if threshold is None:
            threshold = float(torch.as_tensor(membrane.threshold).mean())
        membrane = membrane.membrane
    lines = _of_sample(membrane, sample)
    chosen = range(min(3, lines.shape[1])) if neurons is None else neurons
    if not all(0 <= neuron < lines.shape[1] for neuron in chosen):
        raise InputError(f"neurons {list(chosen)} must be from 0 to {lines.shape[1] - 1}")
    fired = None if spikes is None else _of_sample(spikes, sample)
    axes = _axes(axes)
    top = max(float(lines.max()), threshold or 0.0)
    gap = 0.06 * max(top - float(lines.min()), 1e-6)
    for i, neuron in enumerate(chosen):
        color = COLORS[i % len(COLORS)]
        axes.plot(lines[:, neuron], color=color, label=f"neuron {neuron}")
        if fired is not None:
            steps = torch.nonzero(fired[:, neuron] > 0.5).flatten()
            axes.plot(steps, [top + (i + 1) * gap] * len(steps), "|", color=color, ms=7, mew=2)
    if threshold is not None:
        axes.axhline(threshold, color=_ink(), lw=1, ls="--", alpha=0.6, label="threshold")
    axes.set(xlabel="time step", ylabel="membrane, after reset")
    axes.set_ylim(top=top + (len(chosen) + 4) * gap)  # room for the legend above the ticks
    axes.legend(
        frameon=False, fontsize="x-small", loc="upper left", ncols=4, columnspacing=1.0, handlelength=1.2
    )
    return axes


def animate(
    frames: Tensor, path: str | Path | None = None, *, milliseconds: int = 100, axes: "Axes | None" = None
) -> "FuncAnimation":
    """Show images over time, write them to a file if one is given, and return matplotlib's animation.

    Args:
        frames: ``[T, H, W]``, or ``[T, C, H, W]`` with one channel, two (events: OFF and ON) or three (RGB).
        path: a .gif file.
        milliseconds: the duration of each image.
        axes: the axes to draw on.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "frames.gif"
        >>> _ = animate(torch.rand(3, 8, 8), path)
        >>> path.exists()
        True
    """
    if path is not None and Path(path).suffix != ".gif":
        raise InputError(f"path must end in .gif, got {str(path)!r}")
    animation = need("matplotlib.animation", "plot")
    pictures = [_picture(frame) for frame in _frames(frames)]
    axes = _axes(axes)
    axes.set_axis_off()
    far = max(float(abs(picture).max()) for picture in pictures) or 1.0
    polar = frames.dim() == 4 and frames.shape[1] == 2
    shown = axes.imshow(
        pictures[0], cmap="RdBu_r" if polar else "gray", vmin=-far if polar else 0.0, vmax=far
    )

    def draw(step: int) -> "tuple[Artist, ...]":
        shown.set_data(pictures[step])
        return (axes.set_title(f"t = {step}", fontsize="small"), shown)

    film: FuncAnimation = animation.FuncAnimation(
        axes.figure, draw, frames=len(pictures), interval=milliseconds, blit=False
    )
    if path is not None:
        film.save(path, writer=animation.PillowWriter(fps=1000 / milliseconds))
    return film


def spike_count(
    spikes: Tensor | Recording,
    *,
    sample: int | None = None,
    labels: Sequence[str] = (),
    axes: "Axes | None" = None,
) -> "Axes":
    """Draw how often each neuron fired: bars for a few neurons, or a histogram of rates for many.

    Args:
        spikes: ``[T, N]``, ``[T, B, *features]`` or a recording.
        sample: the index of the sample to show; None means the mean over all samples.
        labels: names of the neurons, such as classes.
        axes: the axes to draw on.

    Example:
        >>> axes = spike_count(torch.rand(20, 8).round())
    """
    train = spikes.spikes if isinstance(spikes, Recording) else spikes
    if train.dim() > 2:
        train = train.flatten(2).mean(1) if sample is None else _of_sample(train, sample)
    rates = train.detach().float().mean(0).cpu().numpy()
    axes = _axes(axes)
    if len(rates) <= MOST_BARS:
        axes.bar(range(len(rates)), rates * len(train), color=COLORS[0])
        names = list(labels) or [str(i) for i in range(len(rates))]
        axes.set_xticks(range(len(rates)), names, rotation=45 if max(map(len, names)) > 3 else 0)
        axes.set(xlabel="" if labels else "neuron", ylabel=f"spikes in {len(train)} steps")
        return axes
    axes.hist(rates, bins=30, color=COLORS[0])
    axes.axvline(float(rates.mean()), color=_ink(), lw=1, ls="--", label=f"mean {float(rates.mean()):.3f}")
    axes.set(xlabel="spikes per step", ylabel="neurons")
    axes.legend(frameon=False, fontsize="small")
    return axes


def weights(
    net: nn.Module | Tensor, shape: Sequence[int] | None = None, *, most: int = 64, axes: "Axes | None" = None
) -> "Axes":
    """Draw the weights of each neuron of the first layer as an image, positive in red and negative in blue.

    Args:
        net: a network, a linear layer, or weights ``[N, inputs]``.
        shape: the shape of the input: ``(H, W)``; ``(C, H, W)``, whose channels are summed; ``(N,)``, which
            draws one line per neuron; or None, a square.
        most: the maximum number of neurons to draw.
        axes: the axes to draw on.

    Example:
        >>> axes = weights(torch.rand(4, 9))
    """
    rows = _first_weights(net)[:most].detach().float().cpu()
    side = math.isqrt(rows.shape[1])
    size = tuple(shape) if shape is not None else (side, side)
    if math.prod(size) != rows.shape[1]:
        raise InputError(f"shape {size} does not match the {rows.shape[1]} inputs; pass shape=(H, W)")
    sheet = rows if len(size) == 1 else _tiled(rows.reshape(len(rows), -1, *size[-2:]).sum(1))
    far = float(sheet.nan_to_num().abs().max()) or 1.0
    axes = _axes(axes)
    aspect: Literal["auto", "equal"] = "auto" if len(size) == 1 else "equal"
    axes.imshow(sheet.numpy(), cmap="RdBu_r", vmin=-far, vmax=far, interpolation="nearest", aspect=aspect)
    if len(size) == 1:
        axes.set(xlabel="input", ylabel="neuron")
    else:
        axes.set_axis_off()
    return axes


def _tiled(tiles: Tensor) -> Tensor:
    """Arrange pictures ``[N, H, W]`` in a square, separated by NaN."""
    columns = math.ceil(math.sqrt(len(tiles)))
    rows = math.ceil(len(tiles) / columns)
    height, width = tiles.shape[1] + 1, tiles.shape[2] + 1
    blank = torch.full((rows * columns, height, width), torch.nan)
    blank[: len(tiles), :-1, :-1] = tiles
    return blank.view(rows, columns, height, width).transpose(1, 2).flatten(2).flatten(0, 1)


def temperature(
    *runs: Result | str | Path, runs_dir: str | Path | None = None, axes: "Axes | None" = None
) -> "Axes":
    """Plot the temperatures of runs against the epoch.

    Args:
        runs: results, folders, or the names of runs.
        runs_dir: the folder in which names are looked up; None means ``$ULTRALIF_RUNS`` or ``./runs``.
        axes: the axes to draw on.

    Example:
        >>> import tempfile, ultralif as ul
        >>> run = ul.train(ul.RunConfig(epochs=2), runs_dir=(folder := tempfile.mkdtemp()))
        >>> temperature(run, runs_dir=folder).get_xlabel()
        'epoch'
    """
    if not runs:
        raise InputError("temperature needs at least one run; pass what ultralif.train returned")
    paths = [(run, _history(run, runs_dir)) for run in runs]
    axes = _axes(axes)
    for i, (run, epochs) in enumerate(paths):
        values = [epoch["eps"] for epoch in epochs]
        if not values or values[0] is None:
            raise InputError(f"run {_name(run)} has no temperature to plot: its neurons do not use one")
        axes.plot(
            range(1, len(values) + 1), values, color=COLORS[i % len(COLORS)], marker=".", label=_name(run)
        )
    axes.set(xlabel="epoch", ylabel="temperature eps")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, fontsize="small")
    return axes


def _history(run: Result | str | Path, runs_dir: str | Path | None) -> list[dict[str, Any]]:
    path = Path(run.path if isinstance(run, Result) else run)
    if not path.is_dir():
        store = Store(runs_dir)
        path = store.path(store.find(path.name if isinstance(run, Result) else str(run)))
    history: list[dict[str, Any]] = read_folder(path).documents["history"]
    return history


def _name(run: Result | str | Path) -> str:
    if isinstance(run, Result):
        return f"{run.neuron}, {run.dataset}, T={run.timesteps}, seed {run.seed}"
    return Path(run).name


def _of_sample(values: Tensor, sample: int) -> Tensor:
    """Return one sample of ``[T, B, *features]`` as ``[T, N]``."""
    if values.dim() < 2:
        raise InputError(f"expected [T, N] or [T, B, *features], got shape {tuple(values.shape)}")
    if values.dim() > 2:
        if not -values.shape[1] <= sample < values.shape[1]:
            raise InputError(f"sample {sample} must be from 0 to {values.shape[1] - 1}")
        values = values[:, sample].flatten(1)
    return values.detach().float().cpu()


def _frames(frames: Tensor) -> Tensor:
    if frames.dim() not in (3, 4) or (frames.dim() == 4 and frames.shape[1] not in (1, 2, 3)):
        raise InputError(
            f"frames must be [T, H, W] or [T, C, H, W] with 1 to 3 channels, got {tuple(frames.shape)}; take "
            "one sample out of a batch first"
        )
    return frames.detach().float().cpu()


def _picture(frame: Tensor) -> NDArray[np.float32]:
    """Return a frame in a form that matplotlib can draw; events become ON minus OFF."""
    if frame.dim() == 2:
        return frame.numpy()
    if len(frame) == 2:
        return (frame[1] - frame[0]).numpy()
    return frame.permute(1, 2, 0).squeeze(-1).numpy()


def _first_weights(net: nn.Module | Tensor) -> Tensor:
    if isinstance(net, Tensor):
        return net.flatten(1)
    for module in net.modules():
        if isinstance(module, nn.Linear | nn.Conv2d):
            return module.weight.flatten(1)
    raise InputError(f"net is a {type(net).__name__} without weights; pass a network or a linear layer")


def _axes(axes: "Axes | None") -> "Axes":
    return need("matplotlib.pyplot", "plot").subplots(layout="constrained")[1] if axes is None else axes


def _ink() -> str:
    """Return the text colour of the current style."""
    return str(need("matplotlib", "plot").rcParams["text.color"])
