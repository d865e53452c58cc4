"""Draw all figures into a folder: runs, trained networks and events."""

import re
from collections.abc import Sequence
from pathlib import Path

from ultralif.data import DATASETS, load
from ultralif.data.files import find
from ultralif.nn import mode
from ultralif.report.figures import events_figure, network_figure
from ultralif.report.gather import Entry
from ultralif.report.inside import choose, look_if_possible
from ultralif.report.run_figures import accuracy_figure, energy_figure

__all__ = ["draw_figures"]

EVENT_STEPS = 30


def draw_figures(
    entries: Sequence[Entry], folder: Path, suffix: str = ".png", data_dir: Path | None = None
) -> tuple[list[Path], list[str]]:
    """Draw every figure for which runs and data exist; return the files and notes on missing figures.

    Args:
        entries: the runs.
        folder: output folder; it is created.
        suffix: .png, .svg or .pdf.
        data_dir: a folder to search first for the data.
    """
    notes: list[str] = []
    drawn: list[Path] = []
    done = [entry for entry in entries if entry.result.status == "done"]
    datasets = list(dict.fromkeys(entry.config.dataset for entry in entries))
    if done:
        drawn.append(accuracy_figure(folder / f"accuracy{suffix}", done))
    for name in dict.fromkeys(entry.config.dataset for entry in done):
        drawn.append(energy_figure(folder / _named("energy", name, suffix), done, name))
    ranked = choose(entries, len(entries))
    for dataset in datasets:
        entry = next((entry for entry in ranked if entry.config.dataset == dataset), None)  # the best
        if entry is None:
            continue
        subject = look_if_possible(entry, data_dir, notes)
        if subject is not None:
            path = folder / _named("network", dataset, suffix)
            with mode(subject.network, "hard"):
                drawn.append(network_figure(path, subject.network, subject.x, subject.dataset.shape))
    for name in datasets:
        spec = DATASETS.get(name)  # None for the user's own data that were not passed
        if (
            spec is not None
            and spec.forms
            and spec.is_events
            and len(spec.shape) == 3
            and find(spec, data_dir) is not None
        ):
            sample = load(name, EVENT_STEPS, data_dir).test.batch([0])[:, 0]
            drawn.append(events_figure(folder / _named("events", name, suffix), sample))
    return drawn, notes


def _named(what: str, dataset: str, suffix: str) -> str:
    """Return a safe file name; the dataset's name comes from a stored run and may contain anything."""
    return f"{what}-{re.sub(r'[^a-z0-9-]+', '-', dataset)}{suffix}"
