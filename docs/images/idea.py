"""Draw idea.png: what a temperature does to a spike and to a membrane. Run it from anywhere."""

from pathlib import Path

import matplotlib.pyplot as plt
import torch
from matplotlib.axes import Axes

from ultralif import functional
from ultralif.maxplus import hard_spike, soft_spike

TEMPERATURES = (1.0, 0.3, 0.1, 0.01)
COLORS = ("#0072B2", "#009E73", "#E69F00", "#D55E00")  # Okabe and Ito: told apart by every eye
LEAK, THRESHOLD = 0.9, 0.5


def draw_spikes(axes: Axes) -> None:
    """Draw the hard spike, the surrogate that stands in for it backward, and soft spikes."""
    v = torch.linspace(-1.6, 2.0, 601)
    for eps, color in zip(TEMPERATURES, COLORS, strict=True):
        axes.plot(v, soft_spike(v, THRESHOLD, eps), color=color, label=f"soft, eps = {eps:g}")
    axes.plot(v, soft_spike(v, THRESHOLD, 0.1), ":", color="0.35", lw=2.5, label="surrogate of LIF")
    axes.plot(v, hard_spike(v, THRESHOLD), "--", color="black", lw=1.5, label="hard, LIF")
    axes.axvline(THRESHOLD, color="0.85", zorder=0)
    axes.text(THRESHOLD + 0.03, 0.02, "threshold", color="0.4")
    axes.set(title="A spike", xlabel="membrane potential V", ylabel="spike s")
    axes.legend(loc="upper left", frameon=False)


def draw_membranes(axes: Axes) -> None:
    """Draw the membrane of UltraLIF for a current of pulses, and its max-plus limit."""
    current = torch.full((36, 1, 1), -1.5)
    for start, height in ((2, 0.3), (12, 0.1), (16, 0.45), (26, 0.8)):
        current[start : start + 2] = height
    time = torch.arange(len(current))

    def trace(eps: float, mode: functional.Mode) -> torch.Tensor:
        v, membranes = torch.zeros(1, 1), []
        for x in current:
            _, v = functional.ultralif_step(x, v, eps=eps, leak=LEAK, threshold=THRESHOLD, mode=mode)
            membranes.append(v)
        return torch.stack(membranes).flatten()

    axes.bar(time, current.flatten() + 1.5, bottom=-1.5, width=1.0, color="0.9", label="current I")
    for eps, color in zip(TEMPERATURES, COLORS, strict=True):
        axes.plot(time, trace(eps, "soft"), color=color)
    axes.plot(time, trace(1.0, "tropical"), "--", color="black", lw=1.5, label="limit: max(V + log leak, I)")
    axes.axhline(THRESHOLD, color="0.85", zorder=0)
    axes.text(4.5, THRESHOLD + 0.03, "threshold", color="0.4")
    axes.annotate(
        "a spike, then reset", (26, 0.0), (20, -1.1), arrowprops={"arrowstyle": "->", "color": "0.4"}
    )
    axes.set(title="A membrane, UltraLIF", xlabel="time step", ylabel="membrane V, after reset")
    axes.set(xlim=(0, 35), ylim=(-1.5, 1.3))
    axes.legend(loc="upper left", frameon=False, ncols=2)


def main() -> None:
    """Write idea.png next to this file."""
    plt.rcParams.update({"font.size": 11, "axes.spines.top": False, "axes.spines.right": False})
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
    draw_spikes(left)
    draw_membranes(right)
    figure.savefig(Path(__file__).with_name("idea.png"), dpi=120)


if __name__ == "__main__":
    main()
