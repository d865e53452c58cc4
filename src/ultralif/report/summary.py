"""Summarise runs as a table for a paper: one row per kind of run, with mean and interval over seeds."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from functools import partial

from ultralif.data.table import PREFIX
from ultralif.names import MODES, find_name
from ultralif.report.statistics import interval
from ultralif.report.table import Table
from ultralif.training.config import RunConfig
from ultralif.training.result import Result

__all__ = ["BY", "summarize"]

BY = ("dataset", "neuron", "timesteps", "sparsity")
"""The settings by which runs are grouped into rows by default."""
LONG = {"T": "timesteps", "lambda": "sparsity"}
"""The names that tables use for some settings."""


def summarize(results: Sequence[Result], by: Sequence[str] = BY) -> Table:
    """Return the mean and 95 % interval over seeds for each kind of run, as trained and in every mode.

    Args:
        results: the runs; diverged runs are omitted, with a note.
        by: settings of a run, such as neuron, timesteps, hidden or eps. Runs with equal settings share a row.
    """
    given = {name for result in results for name in result.config.get("neuron_options", {})}
    known = sorted({*(each.name for each in fields(RunConfig)), *LONG, *given} - {"seed", "neuron_options"})
    by = [LONG.get(name, name) for name in (find_name("setting", name, known) for name in by)]
    done = [result for result in results if result.status == "done"]
    groups: dict[tuple[str, ...], list[Result]] = {}
    for result in done:
        settings = _settings(result)
        groups.setdefault(tuple(_text(settings.get(name)) for name in by), []).append(result)
    modes = [mode for mode in MODES if any(mode in result.accuracy for result in done)]
    titles = _titles(done)
    rows = []
    for kind, group in sorted(groups.items(), key=lambda item: [_order(cell) for cell in item[0]]):
        mean = partial(_mean, mixed=bool(_differing(group)))
        accuracies = (mean([result.accuracy.get(mode) for result in group]) for mode in modes)
        own = mean([result.own.accuracy for result in group])
        rate = mean([result.own.spike_rate for result in group], digits=3)
        shown = (titles.get(cell, cell) for cell in kind)
        rows.append((*shown, str(len({result.seed for result in group})), own, *accuracies, rate))
    short = {name: word for word, name in LONG.items()}
    columns = (
        *(short.get(name, name) for name in by),
        "seeds",
        "accuracy %",
        *(f"{mode} %" for mode in modes),
        "rate",
    )
    notes = []
    if rows:
        notes.append(
            "Accuracy and rate as trained, then the accuracy of the same weights in each mode; ±: 95 % "
            "interval over seeds."
        )
    if len(done) < len(results):
        notes.append(f"{len(results) - len(done)} diverged runs are omitted.")
    mixed = sorted({name for group in groups.values() for name in _differing(group)})
    if mixed:
        notes.append(
            f"Some rows mix runs that differ in {', '.join(mixed)}, so they have no interval; add these "
            "settings to --by, or filter the runs."
        )
    datasets = sorted({result.dataset_title for result in done})
    on = f" on {datasets[0]}" if len(datasets) == 1 else ""
    return Table("runs", f"Test accuracy (%){on}; ±: 95 % interval over seeds", columns, rows, notes)


def _titles(results: Iterable[Result]) -> dict[str, str]:
    """Return readable names for the user's own data and networks, if the names are unique."""
    named = {result.dataset: result.dataset_title for result in results}
    named |= {str(one.config.get("model")): str(one.environment.get("model")) for one in results}
    count = Counter(named.values())
    return {name: title for name, title in named.items() if name.startswith(PREFIX) and count[title] == 1}


def _settings(result: Result) -> dict[str, object]:
    """Return a run's settings by name."""
    config = dict(result.config)
    options = config.pop("neuron_options", {})
    named = {name: getattr(result, name) for name in BY}
    return {**config, **(options if isinstance(options, Mapping) else {}), **named}


def _differing(group: Sequence[Result]) -> set[str]:
    """Return the settings, other than the seed, in which a group's runs differ."""
    settings = [_settings(result) for result in group]
    names = {name for each in settings for name in each} - {"seed", "schema"}
    return {name for name in names if len({_text(each.get(name)) for each in settings}) > 1}


def _mean(values: Iterable[float | None], digits: int = 2, *, mixed: bool = False) -> str:
    there = [value for value in values if value is not None]
    found = interval(dict(enumerate(there)))
    if found is None:
        return "-"
    return f"{found.mean:.{digits}f}" + ("" if mixed or found.half is None else f" ± {found.half:.{digits}f}")


def _text(value: object) -> str:
    if isinstance(value, list | tuple):
        return " ".join(map(_text, value))
    return "default" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _order(cell: str) -> tuple[float, str]:
    """Sort numbers by value, before names."""
    try:
        return float(cell), ""
    except ValueError:
        return float("inf"), cell
