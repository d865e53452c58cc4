"""Draw figures about the theory: convergence, the activation family, rings without input, growth."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from research.claims.activations import dilation, soft_step, softplus
from research.claims.convergence import Convergence, compare_with_limit
from research.claims.undriven import undriven_ring
from ultralif.analysis import Growth, Plane, growth
from ultralif.functional import Mode
from ultralif.nn import LIF, Neuron, UltraDLIF, UltraLIF
from ultralif.report import new_figure, save_figure, shades

__all__ = [
    "FIGURES",
    "activation_figure",
    "convergence_figure",
    "growth_figure",
    "undriven_figure",
]

WIDTH = 4.6  # inches: narrow enough to be read on a phone
WARM_TO_COLD = (1.0, 0.3, 0.1, 0.03, 0.01, 0.001)


def convergence_figure(path: Path) -> Path:
    """Draw UltraLIF from eps 1 to 0.001 against its max-plus limit, and the errors with their bounds."""
    generator = torch.Generator().manual_seed(3)
    current = 0.8 * torch.randn(20, generator=generator, dtype=torch.float64)
    current = torch.where(
        (current - 0.5).abs() < 0.12, current - 0.25, current
    )  # stay away from the threshold
    figure, axes = new_figure(1, 2, width=WIDTH, height=3.2)
    _draw_trajectories(axes[0, 0], compare_with_limit(current, WARM_TO_COLD))
    _draw_errors(axes[1, 0], current, torch.logspace(0, -3, 60, dtype=torch.float64).tolist())
    return save_figure(figure, path)


def _draw_trajectories(axis: Any, shown: Convergence) -> None:
    t = torch.arange(1, len(shown.limit.p) + 1)
    for color, eps, soft in zip(shades(len(shown.eps)), shown.eps, shown.soft, strict=True):
        axis.plot(t, soft.p, color=color, lw=1.2, label=f"eps {eps:g}")
    first = shown.proved.index(True)
    low, high = shown.limit.p - shown.bounds[first].p, shown.limit.p + shown.bounds[first].p
    axis.fill_between(t, low, high, color="tab:green", alpha=0.35, label=f"bound, eps {shown.eps[first]:g}")
    axis.plot(t, shown.limit.p, "k.", ms=5, label="max-plus limit")
    axis.axhline(0.5, color="0.6", lw=0.8, ls="--")
    axis.set(
        xlabel="step", ylabel="membrane before reset", title="UltraLIF approaches max-plus", ylim=(-0.3, 2)
    )
    axis.set_xticks(range(0, 21, 5))
    axis.legend(fontsize=8, frameon=False, ncols=3, loc="upper left")


def _draw_errors(axis: Any, current: Tensor, ladder: list[float]) -> None:
    kept, near = compare_with_limit(current, ladder), compare_with_limit(torch.tensor([0.499]), ladder)
    axis.loglog(ladder, _worst_errors(kept), "k", label="20 steps, off the threshold")
    proved = [(e, float(b.v.max())) for e, b, ok in zip(ladder, kept.bounds, kept.proved, strict=True) if ok]
    axis.loglog(*zip(*proved, strict=True), color="tab:green", label="corrected bound, where proved")
    axis.loglog(ladder, _worst_errors(near), "tab:red", label="one step, I = 0.499")
    axis.loglog(ladder, [e * math.log(2) for e in ladder], "tab:red", ls=":", label="paper's bound for it")
    axis.set(xlabel="eps", ylabel="greatest error", title="where the paper's bound breaks", ylim=(1e-9, 2))
    axis.legend(fontsize=8, frameon=False, loc="lower right")


def _worst_errors(shown: Convergence) -> list[float]:
    return [float((soft.v - shown.limit.v).abs().max()) for soft in shown.soft]


def activation_figure(path: Path) -> Path:
    """Draw the activation family: softplus to ReLU, sigmoid to step, soft dilation to dilation."""
    figure, axes = new_figure(1, 3, width=WIDTH, height=2.2)
    first, second, third = axes[:, 0]
    x = torch.linspace(-2, 2, 401, dtype=torch.float64)
    bumps = torch.zeros(64, dtype=torch.float64)
    bumps[[8, 9, 30, 47]] = torch.tensor([1.0, 0.4, 0.7, -0.6], dtype=torch.float64)
    members = (
        (first, x, softplus, "L(0, x): softplus to ReLU"),
        (second, x, soft_step, "its slope, the spike: sigmoid to step"),
        (third, bumps, lambda v, eps: dilation(v, eps, 2), "L over neighbours: dilation"),
    )
    levels = (1.0, 0.3, 0.1, 0.0)
    for axis, values, member, title in members:
        for color, eps in zip(shades(len(levels)), levels, strict=True):
            axis.plot(x if values is x else range(64), member(values, eps), color=color, label=f"eps {eps:g}")
        axis.set_title(title, fontsize=10)
    third.plot(range(64), bumps, "k:", lw=1, label="input")
    third.legend(fontsize=8, frameon=False, ncols=3, loc="upper right")
    third.set_ylim(top=3.2)
    first.legend(fontsize=8, frameon=False)
    return save_figure(figure, path)


def undriven_figure(path: Path) -> Path:
    """Draw a ring without input over time: max-plus powers, the drift at finite eps, the centred form."""
    v0 = torch.full((32,), -2.5, dtype=torch.float64)
    v0[[6, 20]] = torch.tensor([-0.4, -0.9], dtype=torch.float64)
    cases: tuple[tuple[str, dict[str, Any]], ...] = (
        ("max-plus, no leak", {}),
        ("max-plus, leak 0.9", {"leak": 0.9}),
        ("eps 0.1: drifts up", {"eps": 0.1}),
        ("eps 0.1, centred: no drift", {"eps": 0.1, "centered": True}),
    )
    figure, axes = new_figure(2, 2, width=WIDTH / 2, height=2.2)
    for axis, (title, options) in zip(axes.flat, cases, strict=True):
        rows = undriven_ring(v0, 16, **options)
        shown = axis.imshow(rows.numpy(), aspect="auto", origin="lower", vmin=-3.0, vmax=1.0, cmap="viridis")
        axis.set_title(title, fontsize=9)
        axis.set(xlabel="neuron", ylabel="step", yticks=range(0, 17, 4))
    figure.colorbar(shown, ax=axes, label="membrane", shrink=0.8)
    return save_figure(figure, path)


def growth_figure(path: Path) -> Path:
    """Draw the number of rasters of 4 neurons with 2 constant inputs over time, with the proved bounds."""
    torch.manual_seed(1)
    linear = nn.Linear(2, 4, dtype=torch.float64)
    nn.init.normal_(linear.weight)
    origin, right, up = (
        torch.zeros(2).double(),
        torch.tensor([1.0, 0.0]).double(),
        torch.tensor([0.0, 1.0]).double(),
    )
    points = Plane(origin, right, up).grid(6.0, 240).flatten(0, 1)
    steps = [1, 2, 3, 4, 6, 8, 12, 16]
    cases: tuple[tuple[str, Neuron[Any], Mode], ...] = (
        ("UltraLIF, tropical", UltraLIF(), "tropical"),
        ("UltraLIF, soft (eps 0.3)", UltraLIF(eps=0.3), "soft"),
        ("UltraDLIF, tropical", UltraDLIF(), "tropical"),
        ("UltraDLIF, soft (eps 0.3)", UltraDLIF(eps=0.3), "soft"),
        ("additive LIF", LIF(), "hard"),
    )
    figure, axes = new_figure(1, width=WIDTH, height=3.2)
    axis = axes[0, 0]
    for name, neuron, spike_mode in cases:
        rows = growth(linear, neuron, points, steps, spike_mode=spike_mode)
        (line,) = axis.plot(steps, [row.found for row in rows], marker=".", label=name)
        _draw_bound(axis, rows, line.get_color())
    axis.set(xlabel="steps T", ylabel="rasters found", xticks=steps, yscale="log", ylim=(8, 2e4))
    axis.legend(fontsize=8, frameon=False)
    axis.set_title("spike rasters of constant inputs (dotted: bound)", fontsize=9)
    return save_figure(figure, path)


def _draw_bound(axis: Any, rows: Sequence[Growth], color: Any) -> None:
    known = [(row.steps, row.bound) for row in rows if row.bound is not None and row.bound < 1e5]
    if len(known) > 1:
        axis.plot(*zip(*known, strict=True), color=color, ls=":", lw=1)


FIGURES = {
    "convergence": convergence_figure,
    "activations": activation_figure,
    "undriven": undriven_figure,
    "growth": growth_figure,
}
"""The figures that need no trained network, by name."""
