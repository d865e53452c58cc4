"""Draw the three figures of the front page from data in the repository: ``python docs/images/front.py``."""

import json
import re
from pathlib import Path
from statistics import fmean
from typing import Any

from ultralif.report.canvas import STYLES, new_figure, save_figure

ROOT = Path(__file__).parents[2]


def bars(axis: Any, values: dict[str, float], colors: list[str], form: str) -> None:
    """Draw named bars, the first at the top, each with its number."""
    drawn = axis.barh(list(values), list(values.values()), color=colors)
    axis.bar_label(drawn, [form.format(value) for value in values.values()], fontsize=8, padding=2)
    axis.invert_yaxis()
    axis.tick_params(labelsize=8)
    axis.set_xlim(right=1.18 * max(values.values()))


def depth(path: Path) -> None:
    """Draw what the study of depth found: binary accuracy of a VGG on CIFAR-10 at T=1, best first."""
    found: dict[str, list[float]] = {}
    for line in (ROOT / "results" / "deep.jsonl").read_text().splitlines():
        row = json.loads(line)
        cell = row["cell"]
        if (cell["study"], cell["timesteps"], row["base"]["optimizer"]) == ("T", 1, "sgd"):
            found.setdefault(cell["method"], []).append(row["accuracy"])
    ranked = sorted(found, key=lambda name: -fmean(found[name]))
    values = {f"{name} ({len(found[name])})": fmean(found[name]) for name in ranked}
    colors = [STYLES.get(name.split(",")[0], ("#C8CCD2",))[0] for name in ranked]
    figure, axes = new_figure(1, width=6.2, height=2.6)
    bars(axes[0, 0], values, colors, "{:.1f} %")
    axes[0, 0].set_title("Binary spikes, six convolutions, CIFAR-10, T=1, tuned alike (seeds)", fontsize=9)
    save_figure(figure, path)


def speed(path: Path) -> None:
    """Draw the time of a layer, forward and backward, beside other libraries."""
    panels = (
        ("fastpath-h200.json", "called", 4096, "H200, 128 x 4096, called from Python"),
        ("performance-cpu.json", "layer", 1024, "one CPU thread, 128 x 1024"),
    )
    figure, axes = new_figure(2, width=4.4, height=2.6)
    for axis, (file, part, features, title) in zip(axes[0], panels, strict=True):
        rows = json.loads((ROOT / "docs" / "results" / file).read_text())["rows"]
        there = {
            row["subject"]: row["ms"]
            for row in rows
            if (row["part"], row.get("time"), row.get("features"), row.get("dtype"))
            == (part, 30, features, "float32")
        }
        names = (
            "UltraLIF",
            "UltraDLIF",
            "LIF",
            "SpikingJelly LIF",
            "snnTorch Leaky",
            "norse LIF",
            "UltraLIF loop",
        )
        values = {name: there[name] for name in names if name in there}
        bars(axis, values, [STYLES.get(name, ("#C8CCD2",))[0] for name in values], "{:.3g} ms")
        axis.set_title(f"T=30, {title}", fontsize=9)
    save_figure(figure, path)


def microcontroller(path: Path) -> None:
    """Draw the additions of C networks beside the multiplications of dense ones, from the page of results."""
    page = (ROOT / "docs" / "results" / "deployment.md").read_text()
    row = re.search(
        r"\| MNIST, T=10 \| UltraLIF \| hard \| \d+ \| \d+ \| (\d+) \| (\d+) \| .*? (\d+) \|$", page, re.M
    )
    conv = re.search(
        r"\| additions of a weight \| ([\d,]+) a digit; the dense network multiplies ([\d,]+)", page
    )
    if row is None or conv is None:
        raise SystemExit("docs/results/deployment.md has not the rows that are drawn")
    values = {
        "784-64-10, additions in C": int(row[1]),
        "784-64-10, dense": int(row[2]),
        "vgg5, half width: additions in C": int(conv[1].replace(",", "")),
        "vgg5, half width: dense": int(conv[2].replace(",", "")),
    }
    figure, axes = new_figure(1, width=6.2, height=2.2)
    own, other = STYLES["UltraLIF"][0], "#C8CCD2"
    bars(
        axes[0, 0],
        {name: value / 1000 for name, value in values.items()},
        [own, other, own, other],
        "{:,.0f}",
    )
    axes[0, 0].set_title("Cortex-M3, a digit of MNIST: thousands of operations", fontsize=9)
    save_figure(figure, path)


def main() -> None:
    """Draw all three."""
    here = Path(__file__).parent / "front"
    here.mkdir(exist_ok=True)
    depth(here / "depth.png")
    speed(here / "speed.png")
    microcontroller(here / "microcontroller.png")


if __name__ == "__main__":
    main()
