"""A sample as a picture: an image, event frames over time, or a raster of spikes."""

import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ultralif.data.dataset import Dataset
from ultralif.data.split import Split
from ultralif.errors import InputError, JobError, need
from ultralif.files import drafted

__all__ = ["draw"]

_MOST_FRAMES = 30
_POLARITIES = ("#2166ac", "#b2182b")
"""OFF in blue, ON in red: a pair that the colour-blind can tell apart."""


def draw(dataset: Dataset, split: Split, index: int, path: Path) -> None:
    """Draw one sample into a picture file; its name's ending chooses the format."""
    if not 0 <= index < len(split):
        raise InputError(f"index must be in 0 to {len(split) - 1}, got {index}")
    sample = split.batch([index]).cpu().numpy()
    label = int(split.labels[index])
    title = f"{dataset.name}, sample {index}, class {label}: {dataset.class_names[label]}"
    if not split.is_events:
        figure = _image(sample[0])
    elif len(dataset.shape) == 1:
        figure = _raster(sample[:, 0])
    else:
        figure = _frames(sample[:, 0])
    figure.suptitle(title)
    try:
        with drafted(path) as draft:
            figure.savefig(draft, dpi=120)
    except InputError:
        raise
    except ValueError as error:
        raise JobError(f"{path} cannot be written: {error}; choose a name such as sample.png") from error


def _figure(width: float, height: float) -> Any:
    return need("matplotlib.figure", "plot").Figure(figsize=(width, height), layout="constrained")


def _image(pixels: NDArray[np.uint8]) -> Any:
    figure = _figure(4, 4.3)
    axes = figure.add_subplot()
    axes.imshow(pixels.transpose(1, 2, 0).squeeze(), cmap="gray", vmin=0, vmax=255)
    axes.set_axis_off()
    return figure


def _raster(counts: NDArray[np.float32]) -> Any:
    """Draw spikes ``[T, channels]`` as dots whose size is the count."""
    figure = _figure(7, 4.3)
    axes = figure.add_subplot()
    step, channel = np.nonzero(counts)
    size = np.clip(4000 / counts.shape[1], 4, 60) * counts[step, channel]
    axes.scatter(step, channel, s=size, c="black", marker="|", linewidths=1)
    axes.set(xlabel="time step", ylabel="channel", xlim=(-0.5, len(counts) - 0.5))
    return figure


def _frames(counts: NDArray[np.float32]) -> Any:
    """Draw frames ``[T, 2, H, W]`` side by side, ON events red and OFF events blue."""
    shown = np.unique(np.linspace(0, len(counts) - 1, min(len(counts), _MOST_FRAMES)).round().astype(int))
    columns = min(len(shown), 10)
    rows = math.ceil(len(shown) / columns)
    figure = _figure(1.3 * columns + 0.4, 1.5 * rows + 0.6)
    top = max(float(counts.max()), 1.0)
    for place, step in enumerate(shown, 1):
        axes = figure.add_subplot(rows, columns, place)
        axes.imshow(_colours(counts[step] / top))
        axes.set_title(f"t = {step}", fontsize=7)
        axes.set_axis_off()
    figure.supxlabel("red: ON, blue: OFF", fontsize=7)
    return figure


def _colours(frame: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return ``[H, W, 3]``: white paper with ink of two colours, darker where there were more events."""
    inks = [[int(code[i : i + 2], 16) / 255 for i in (1, 3, 5)] for code in _POLARITIES]
    absorbed = np.einsum("phw,pc->hwc", np.sqrt(frame), 1 - np.array(inks))
    colours: NDArray[np.float32] = np.clip(1 - absorbed, 0, 1).astype(np.float32)
    return colours
