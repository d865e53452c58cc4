"""Draw the figures of the front pages from data in the repository: ``python docs/images/front.py``.

All are drawn 4.6 inches wide, so that their words can be read on a phone, and on white, so that they can be
read in dark mode.
"""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from ultralif.report.canvas import STYLES, new_figure, save_figure

ROOT = Path(__file__).parents[2]
WIDTH = 4.6  # inches
OTHERS = "#5F6670"
QUANTILE = 2.776  # of Student's t with four degrees of freedom: a 95 % interval over five seeds


def dots(
    axis: Any, values: Mapping[str, tuple[float, float, float]], colors: Sequence[str], form: str
) -> None:
    """Draw a dot for each name, the first at the top, with a line from its lower to its upper bound."""
    for place, ((value, low, high), color) in enumerate(zip(values.values(), colors, strict=True)):
        axis.plot([low, high], [place, place], color=color, lw=2.5, solid_capstyle="round", alpha=0.6)
        axis.plot(value, place, "o", color=color, ms=7)
        axis.annotate(form.format(value), (high, place), (7, 0), textcoords="offset points", va="center")
    axis.set_yticks(range(len(values)), list(values))
    axis.invert_yaxis()
    axis.margins(y=0.12)
    axis.grid(axis="x", alpha=0.3)
    axis.tick_params(axis="y", length=0)


def board(path: Path) -> None:
    """Draw instructions for one digit, the spiking network beside the dense one."""
    measured = json.loads((ROOT / "docs" / "results" / "board.json").read_text())
    boards = measured["vgg5, one time step"]["boards"]
    spiking = [boards[name]["instructions"] / 1e6 for name in ("m0plus", "m3", "m4")]
    page = (ROOT / "docs" / "results" / "deployment.md").read_text()
    (cells,) = re.findall(r"^\| CMSIS-NN int8[^|]* \|([-\d. |]+)", page, flags=re.MULTILINE)
    dense = [float(cell) for cell in cells.split("|")[:4] if "-" not in cell]
    names = ("Cortex-M0+", "Cortex-M3", "Cortex-M4")
    figure, axes = new_figure(1, width=WIDTH, height=2.3)
    axis, color = axes[0, 0], STYLES["UltraLIF"][0]
    for place, (few, many) in enumerate(zip(spiking, dense, strict=True)):
        axis.plot([few, many], [place, place], color="#C8CCD2", lw=2, zorder=1)
        axis.plot(few, place, "o", color=color, ms=9, label="" if place else "spiking network, our C")
        axis.plot(many, place, "s", color=OTHERS, ms=8, label="" if place else "dense int8 network, CMSIS-NN")
        axis.annotate(
            f"{many / few:.1f} times fewer",
            ((few * many) ** 0.5, place),
            (0, 6),
            textcoords="offset points",
            ha="center",
        )
    axis.set_xscale("log")
    axis.set_xticks([1, 2, 5, 10, 20, 30], ["1", "2", "5", "10", "20", "30"])
    axis.minorticks_off()
    axis.set_xlim(0.8, 40)
    axis.set_yticks(range(3), names)
    axis.invert_yaxis()
    axis.margins(y=0.25)
    axis.set_xlabel("million instructions for one MNIST digit (logarithmic)")
    axis.xaxis.label.set_size(9)
    axis.tick_params(axis="y", length=0)
    figure.legend(loc="outside upper center", ncols=2, frameon=False, fontsize=9, handletextpad=0.2)
    save_figure(figure, path)


def depth(path: Path) -> None:
    """Draw binary accuracy of a VGG on CIFAR-10 at T=1 by method, best first."""
    found: dict[str, list[float]] = {}
    for line in (ROOT / "research" / "results" / "deep.jsonl").read_text().splitlines():
        row = json.loads(line)
        cell = row["cell"]
        kind = cell["study"], cell["timesteps"], row["base"]["optimizer"], cell["held"]
        if kind == ("T", 1, "sgd", False):
            found.setdefault(cell["method"], []).append(row["accuracy"])
    words = {
        "LIF, atan": "LIF, arctangent surrogate",
        "LIF, learned width": "LIF, learned surrogate width",
        "sigmoid": "sigmoid network",
    }
    ranked = sorted(found, key=lambda name: -fmean(found[name]))
    values = {}
    for name in ranked:
        mean, half = fmean(found[name]), QUANTILE * stdev(found[name]) / len(found[name]) ** 0.5
        values[words.get(name, name)] = mean, mean - half, mean + half
    colors = [STYLES.get(name.split(",")[0], (OTHERS,))[0] for name in ranked]
    figure, axes = new_figure(1, width=WIDTH, height=2.4)
    dots(axes[0, 0], values, colors, "{:.1f}")
    axes[0, 0].set_xlabel("test accuracy with binary spikes, %")
    axes[0, 0].set_xlim(78, 85.6)
    save_figure(figure, path)


def speed(path: Path) -> None:
    """Draw the time of a layer, forward and backward, in multiples of a copy."""
    figure, axes = new_figure(1, 2, width=WIDTH, height=2.7)
    panels = (
        ("fastpath-h200.json", "device", 4096, "H200, the GPU's time alone"),
        ("compiled-cpu.json", "layer", 1024, "one CPU thread"),
    )
    for axis, (file, part, features, title) in zip(axes[:, 0], panels, strict=True):
        rows = json.loads((ROOT / "docs" / "results" / file).read_text())["rows"]
        setting = (part, 30, features, "float32")
        there = {
            row["subject"]: [row[key] for key in ("ms", "low", "high")]
            for row in rows
            if (row["part"], row.get("time"), row.get("features"), row.get("dtype")) == setting
        }
        copy = there["copy"][0]
        words = {
            "UltraLIF": "UltraLIF",
            "UltraDLIF": "UltraDLIF",
            "LIF": "LIF (ours)",
            "SpikingJelly LIF, compiled": "SpikingJelly, compiled",
            "SpikingJelly LIF": "SpikingJelly",
            "snnTorch Leaky, compiled": "snnTorch, compiled",
            "snnTorch Leaky": "snnTorch",
            "norse LIF": "norse",
            "UltraLIF loop": "UltraLIF, plain PyTorch",
        }
        names = [name for name in words if name in there]
        values = {words[name]: tuple(ms / copy for ms in there[name]) for name in names}
        colors = [STYLES.get(name, (OTHERS,))[0] for name in names]
        if features == 1024:
            axis.set_xscale("log")
            axis.set_xticks([2, 5, 10, 20, 50], ["2", "5", "10", "20", "50"])
            axis.minorticks_off()
            axis.set_xlim(2, 75)
        else:
            axis.set_xlim(1, 2)
        dots(axis, values, colors, "{:.1f}" if features == 1024 else "{:.2f}")
        axis.set_title(title, fontsize=10, loc="left")
        axis.set_xlabel("time of a layer, in multiples of a plain copy", fontsize=9)
    save_figure(figure, path)


def main() -> None:
    """Draw all of them."""
    here = Path(__file__).parent / "front"
    here.mkdir(exist_ok=True)
    for draw in (board, depth, speed):
        draw(here / f"{draw.__name__}.png")


if __name__ == "__main__":
    main()
