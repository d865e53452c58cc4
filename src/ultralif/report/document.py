"""Assemble the contents of the browser report as one JSON document."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ultralif.errors import InputError
from ultralif.names import MODES
from ultralif.report.canvas import STYLES
from ultralif.report.gather import NAMED, Entry, differences, unnamed
from ultralif.report.inside import choose, look_if_possible, observe, slices
from ultralif.report.table import Table
from ultralif.training.config import RunConfig
from ultralif.training.result import Result

__all__ = ["References", "Section", "make_document"]

MOST_EPOCHS = 25
"""Largest number of epochs shown for a run, evenly spaced from the first to the last."""
QUANTITIES = ("loss", "accuracy", "spike_rate", "eps", "leak")
NOTES = [
    "Accuracy is measured on the whole test set after the last epoch, never after the best epoch.",
    "Intervals are 95 % confidence intervals over seeds, by Student's t.",
    "Counted energy assumes 4.6 pJ for a multiply-accumulate and 0.9 pJ for an addition (float32 at "
    "45 nm); it does not include the neurons' own arithmetic.",
]


References = Mapping[str, Mapping[str, Mapping[int, float]]]
"""Accuracies in percent by dataset, neuron and number of time steps, for example from a publication."""


@dataclass(frozen=True)
class Section:
    """Additional tables for a report. A column named ``verdict`` is shown in colour, with a filter."""

    title: str
    text: str
    tables: Sequence[Table]


def make_document(
    entries: Sequence[Entry],
    notes: list[str],
    *,
    inside: int = 3,
    samples: int = 4,
    data_dir: Path | None = None,
    sections: Iterable[Section] = (),
    references: References | None = None,
) -> dict[str, Any]:
    """Return the document.

    Args:
        entries: the runs.
        notes: remarks for the reader; one is added for each network that cannot be shown.
        inside: number of trained networks whose spikes are shown.
        samples: number of test samples to show.
        data_dir: a folder to search first for the data.
        sections: additional sections, placed after those about the runs.
        references: accuracies to plot as hollow points next to the measured ones.
    """
    if inside < 0 or samples < 1:
        raise InputError(f"inside must be 0 or more and samples at least 1, got {inside} and {samples}")
    return {
        "runs": _columns(entries),
        "history": _histories(entries),
        "styles": STYLES,
        "references": references or {},
        "networks": _networks(entries, inside, samples, data_dir, notes),
        "sections": [asdict(section) for section in sections],
        "notes": [*NOTES, *dict.fromkeys(notes)],  # after the networks, which may add notes
    }


def _columns(entries: Sequence[Entry]) -> dict[str, object]:
    """Return the runs as columns; shared values are stored once in a pool, and empty columns are omitted."""
    pools: dict[str, Pool] = {"rest": Pool(), "environment": Pool()}
    rows = []
    for entry, varies in zip(entries, _variants(differences(entries)), strict=True):
        result = entry.result
        row = {name: getattr(entry.config, name) for name in NAMED}
        row |= {
            name: getattr(result, name) for name in ("status", "mode", "eps", "leak", "epochs", "stacked")
        }
        row |= {"id": result.id, "seconds": result.seconds, "finished": result.finished or None}
        row |= {"break_even": result.break_even}
        row |= {f"{name}_{mode}": value for mode in MODES for name, value in _by_mode(result, mode).items()}
        row["varies"] = varies
        row |= {"weights": entry.weights, "learned": entry.learned or None}
        row["rest"] = pools["rest"].index(_rest(entry.config))
        if result.environment:
            row["environment"] = pools["environment"].index(dict(result.environment))
        rows.append(row)
    names = dict.fromkeys(name for row in rows for name, value in row.items() if value not in (None, ""))
    columns = {name: [_short(row.get(name)) for row in rows] for name in names}
    return {"columns": columns, "pools": {name: pool.values for name, pool in pools.items()}}


class Pool:
    """A pool that stores each value once."""

    def __init__(self) -> None:
        self.values: list[object] = []

    def index(self, value: object) -> int:
        """Return the index of a value in the pool, adding it if it is new."""
        if value not in self.values:
            self.values.append(value)
        return self.values.index(value)


def _by_mode(result: Result, mode: str) -> dict[str, float | None]:
    one = result.by_mode.get(mode)
    if one is None:
        return {}
    found: dict[str, float | None] = {
        "accuracy": one.accuracy,
        "rate": one.spike_rate,
        "sops": one.relative_sops,
    }
    if one.operations is not None:
        found |= {"nanojoules": one.operations.energy / 1e3}
        found |= {"macs": round(one.operations.macs), "acs": round(one.operations.acs)}
    if one.int8_picojoules is not None:
        found |= {"int8": one.int8_picojoules / 1e3}
    return found


def _variants(apart: Iterable[Mapping[str, object]]) -> Iterator[str]:
    """Yield the settings in which each run differs; shorten long texts and number ambiguous ones."""
    known: dict[str, list[str]] = {}
    for options in apart:
        text = short = _spelled(options)
        if len(options) > 3:
            first = sorted(options, key=lambda name: name != "model")[:2]
            short = f"{_spelled({name: options[name] for name in first})} and {len(options) - 2} more"
        texts = known.setdefault(short, [])
        if text not in texts:
            texts.append(text)
        place = texts.index(text)
        yield f"{short} ({place + 1})" if place else short


def _spelled(options: Mapping[str, object]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {_text(value)}" for name, value in options.items())


def _text(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _rest(config: RunConfig) -> dict[str, object]:
    """Return the non-default fields that have no column, as text and as command-line flags."""
    options = unnamed(config)
    flags = []
    for name, value in options.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            flags.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            flags.append(f"--{flag} {_text(value)}")
    return {"text": _spelled(options), "flags": flags}


def _histories(entries: Sequence[Entry]) -> dict[str, object]:
    """Return a few epochs of every run; a value that never changes is stored once."""
    grids = Pool()
    out: dict[str, list[object]] = {name: [] for name in ("grid", *QUANTITIES)}
    for entry in entries:
        count = len(entry.history)
        shown = min(count, MOST_EPOCHS)
        steps = [round(i * (count - 1) / max(shown - 1, 1)) for i in range(shown)]
        out["grid"].append(grids.index([step + 1 for step in steps]))
        for name in QUANTITIES:
            values = [_measured(entry.history[step].get(name)) for step in steps]
            out[name].append(None if None in values or not values else _collapsed(values))
    return {"grids": grids.values, **out}


def _collapsed(values: list[object]) -> list[object]:
    return values[:1] if len(set(values)) == 1 else values


def _measured(value: object) -> object:
    """Return a number from a run's history; ignore anything else, because the file is untrusted."""
    return _short(float(value)) if isinstance(value, int | float) and abs(value) < 1e300 else None


def _short(value: object) -> object:
    """Round a measurement to five digits, and a timestamp to the second."""
    if not isinstance(value, float):
        return value
    if not math.isfinite(value):
        return None
    return round(value) if abs(value) >= 1e6 else float(f"{value:.5g}")


def _networks(
    entries: Sequence[Entry], most: int, samples: int, data_dir: Path | None, notes: list[str]
) -> list[dict[str, object]]:
    networks: list[dict[str, object]] = []
    for entry in choose(entries, most):
        subject = look_if_possible(entry, data_dir, notes)
        if subject is not None:
            seen = {"observed": observe(subject, samples), "slices": slices(subject)}
            networks.append({"run": entry.result.id, **seen})
    return networks
