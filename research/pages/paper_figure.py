"""Draw the figure in research/docs/paper.md about neurons tuned alike."""

from pathlib import Path

from research.pages.paper_parts import NAMES
from research.paper.results import Results
from research.studies.tables import CONTROLS, tuned_groups
from ultralif.report import new_figure, save_figure

__all__ = ["tuned_figure"]

KINDS = {
    "soft": ("#0072B2", "o", 0.18),
    "trained binary": ("#D55E00", "s", 0.0),
    "trained soft, run binary": ("#80868F", "x", -0.18),
}
"""Colour, marker and shift for each way to train and run a network."""


def tuned_figure(results: Results, path: Path) -> Path:
    """Draw the best Ultra neuron's lead over its control and over the best baseline, with intervals."""
    groups = {(row.dataset, row.timesteps, row.group): row for row in tuned_groups(results.every)}
    order = [*NAMES]
    places = sorted({place[:2] for place in groups}, key=lambda at: (at[1], order.index(at[0])), reverse=True)
    figure, axes = new_figure(1, 2, width=4.6, height=3.4)
    control, baseline = axes[:, 0]
    soft, binary = CONTROLS
    for row, place in enumerate(places):
        ours, theirs = groups[*place, soft], groups[*place, binary]
        for axis, leads in (
            (control, (ours.past, theirs.past)),
            (baseline, (ours.over, theirs.over, ours.binary)),
        ):
            for (kind, (color, marker, shift)), lead in zip(KINDS.items(), leads, strict=False):
                if lead is not None:
                    style = {"color": color, "fmt": marker, "ms": 4, "lw": 1.1}
                    axis.errorbar(lead.mean, row + shift, xerr=lead.half, label=kind, **style)
    for axis, title in (
        (control, "lead over its control without log-sum-exp"),
        (baseline, "lead over the best baseline"),
    ):
        axis.axvline(0, color="black", lw=0.8)
        axis.grid(axis="x", lw=0.3)
        axis.set_xlim(-10, 5)
        axis.set_title(title, fontsize=10)
        axis.set_yticks(range(len(places)), [f"{NAMES[dataset]}, T={time}" for dataset, time in places])
    baseline.set_xlabel("points of test accuracy")
    handles, labels = baseline.get_legend_handles_labels()
    shown = dict(zip(labels, handles, strict=True))
    figure.legend(shown.values(), shown, loc="outside upper center", ncols=3, fontsize=8, frameon=False)
    return save_figure(figure, path)
