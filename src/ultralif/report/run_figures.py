"""Plot runs: accuracy over time steps, and accuracy against spikes."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ultralif.report.canvas import new_figure, save_figure, style_of
from ultralif.report.gather import Entry, differences, label_of
from ultralif.report.statistics import interval
from ultralif.training.result import Result

__all__ = ["accuracy_figure", "energy_figure"]


class _RunKind(NamedTuple):
    """A kind of run: runs of the same kind differ only in their seed."""

    label: str
    dataset: str
    timesteps: int


def _by_kind(entries: Sequence[Entry]) -> dict[_RunKind, dict[int, Result]]:
    """Return the finished runs by kind and seed."""
    found: dict[_RunKind, dict[int, Result]] = {}
    for entry, apart in zip(entries, differences(entries), strict=True):
        config = entry.config
        if entry.result.status == "done":
            kind = _RunKind(label_of(config, apart), config.dataset, config.timesteps)
            found.setdefault(kind, {})[config.seed] = entry.result
    return found


def accuracy_figure(path: Path, entries: Sequence[Entry]) -> Path:
    """Plot test accuracy over time steps, one panel per dataset: means with 95 % intervals over seeds."""
    kinds = _by_kind(entries)
    datasets = list(dict.fromkeys(kind.dataset for kind in kinds))
    figure, axes = new_figure(len(datasets), width=3.4)
    for axis, dataset in zip(axes[0], datasets, strict=True):
        here = {kind: runs for kind, runs in kinds.items() if kind.dataset == dataset}
        times = sorted({kind.timesteps for kind in here})
        for label in dict.fromkeys(kind.label for kind in here):
            points = []
            for place, time in enumerate(times):
                mean = _mean(here.get(_RunKind(label, dataset, time), {}), "accuracy")
                if mean is not None:
                    points.append((place, *mean))
            if points:
                x, y, half = zip(*points, strict=True)
                axis.errorbar(x, y, half, **style_of(label), ms=4, lw=1.1, label=label)
        axis.set_xticks(range(len(times)), [str(time) for time in times])
        axis.set(title=dataset, xlabel="time steps T", ylabel="test accuracy %")
    _legend(figure, axes)
    return save_figure(figure, path, math=False)


def energy_figure(path: Path, entries: Sequence[Entry], dataset: str) -> Path:
    """Plot test accuracy against T times spike rate, one panel per T; each point is a kind of run."""
    here = {kind: runs for kind, runs in _by_kind(entries).items() if kind.dataset == dataset}
    times = sorted({kind.timesteps for kind in here})
    figure, axes = new_figure(len(times), height=3.4)
    for axis, time in zip(axes[0], times, strict=True):
        for kind, runs in here.items():
            accuracy, rate = _mean(runs, "accuracy"), _mean(runs, "spike_rate")
            if kind.timesteps == time and accuracy is not None and rate is not None:
                axis.plot(time * rate[0], accuracy[0], **style_of(kind.label), ms=5, lw=0, label=kind.label)
        axis.set(title=f"{dataset}, T={time}", xlabel="T x spike rate", ylabel="test accuracy %")
    _legend(figure, axes)
    return save_figure(figure, path, math=False)


def _mean(runs: Mapping[int, Result], name: str) -> tuple[float, float] | None:
    """Return a metric's mean over seeds, in the training mode, and the half width of its interval."""
    values = {seed: value for seed, run in runs.items() if (value := getattr(run.own, name)) is not None}
    found = interval(values)
    return None if found is None else (found.mean, found.half or 0.0)


def _legend(figure: Any, axes: Any) -> None:
    """Put one legend below all panels."""
    found = {
        label: handle
        for axis in axes.flat
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    figure.legend(found.values(), found, loc="outside lower center", ncols=4, fontsize=8, frameon=False)
