"""The runs that there are, by what they mean in the paper's tables, with means and intervals over seeds."""

import gzip
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NamedTuple

from ultralif.errors import InputError
from ultralif.files import BadFile, gunzip, parse_json, read_bytes, write_file
from ultralif.paper.grids import ABLATION, RECIPES, SEED, STATIC, main_variants
from ultralif.paper.published import BASELINES, DATASETS, TIMESTEPS
from ultralif.training.config import RunConfig
from ultralif.training.identity import FIELDS as FIELDS_OF_CONFIG
from ultralif.training.identity import document_id, first_document
from ultralif.training.store import Store

__all__ = ["TIMING", "Interval", "Key", "Results", "from_store", "interval", "paired", "read", "write"]

MOST_SEEDS = 20
MOST_PACKED, MOST_BYTES = 1 << 26, 1 << 28
"""Bytes that a file of results may have, packed and unpacked: 64 and 256 MiB."""
BINARY = {*BASELINES, "LIF learned width", *(variant.label for variant in RECIPES)}
"""Whose spikes are 0 and 1 in training."""
FIELDS = (
    "id",
    "seconds",
    "stacked",
    "eps",
    "leak",
    "accuracy",
    "spike_rate",
    "acs",
    "macs",
    "history_eps",
    "step_ms",
)
TIMING = "timing"
"""The name of the row that holds how long training steps take: see benchmarks/overhead.py."""


class Key(NamedTuple):
    """What a run is in the paper."""

    label: str
    dataset: str
    timesteps: int
    encoding: str


class Interval(NamedTuple):
    """A mean with the half width of its 95 % interval; the width is None for a single value."""

    mean: float
    half: float | None
    seeds: int

    def __str__(self) -> str:
        return f"{self.mean:.2f}{self._width}"

    @property
    def signed(self) -> str:
        """The same as text, with the sign of a difference."""
        return f"{self.mean:+.2f}{self._width}"

    @property
    def _width(self) -> str:
        return "" if self.half is None else f" ± {self.half:.2f}"


def interval(by_seed: Mapping[int, float]) -> Interval | None:
    """Return mean and 95 % interval by Student's t; None without values.

    Example:
        >>> print(interval({42: 1.0, 43: 2.0, 44: 3.0}))
        2.00 ± 2.48
    """
    values = list(by_seed.values())
    if not values:
        return None
    if len(values) == 1:
        return Interval(values[0], None, 1)
    return Interval(
        fmean(values), _student(len(values) - 1) * stdev(values) / math.sqrt(len(values)), len(values)
    )


def paired(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Interval | None:
    """Return the mean difference over the seeds that both have: they saw the same batches and spikes."""
    return interval({seed: ours[seed] - theirs[seed] for seed in sorted(ours.keys() & theirs.keys())})


def _student(freedom: int) -> float:
    """Return the 97.5 % quantile of Student's t."""
    table = (
        12.706,
        4.303,
        3.182,
        2.776,
        2.571,
        2.447,
        2.365,
        2.306,
        2.262,
        2.228,
        2.201,
        2.179,
        2.160,
        2.145,
    )
    return table[freedom - 1] if freedom <= len(table) else 1.96 + 2.4 / freedom


@cache
def _meanings() -> dict[str, tuple[Key, int]]:
    """Return what every run that the tables want means, by its id."""
    found = {}
    for seed in range(SEED, SEED + MOST_SEEDS):
        for dataset in DATASETS:
            for timesteps in TIMESTEPS:
                encodings = ("rate", "rate-normalized") if timesteps == 1 and dataset in STATIC else ("rate",)
                ablated = ABLATION if dataset == "mnist" and timesteps == 1 else ()
                for encoding in encodings:
                    for variant in (*main_variants(), *RECIPES, *ablated):
                        config = variant.config(dataset, timesteps, seed, encoding)
                        key = Key(variant.label, dataset, timesteps, encoding)
                        found[config.id] = found[first_id(config)] = key, seed
    return found


def first_id(config: RunConfig) -> str:
    """Return the name that a run of the paper had in 0.1.0."""
    fields = {name: getattr(config, name) for name in FIELDS_OF_CONFIG}
    return document_id(first_document(fields, config.neuron_options))


class Results:
    """Finished runs of the paper's grids.

    Args:
        rows: what `ultralif.training.Store.rows` returns, or what `read` read.
    """

    def __init__(self, rows: Iterable[Mapping[str, Any]] = ()) -> None:
        self.runs: dict[Key, dict[int, Mapping[str, Any]]] = {}
        self.by_id: dict[str, Mapping[str, Any]] = {}
        self.step_ms: dict[str, dict[str, float]] = {}
        """Milliseconds of a training step by setting and neuron."""
        for row in rows:
            self.add(row)

    def add(self, row: Mapping[str, Any]) -> None:
        """Take in a run if it belongs to the paper and is finished."""
        if row["id"] == TIMING:
            self.step_ms = dict(row["step_ms"])
        meaning = _meanings().get(row["id"])
        if meaning is not None and row.get("status", "done") == "done":
            key, seed = meaning
            self.runs.setdefault(key, {})[seed] = row
            self.by_id[row["id"]] = row

    def accuracy(
        self, label: str, dataset: str, timesteps: int, mode: str | None = None, encoding: str = "rate"
    ) -> dict[int, float]:
        """Return accuracies by seed; without a mode, with the spikes that the network was trained with."""
        return self._values("accuracy", Key(label, dataset, timesteps, encoding), mode)

    def best(
        self, dataset: str, labels: Sequence[str], timesteps: int, mode: str | None = None
    ) -> tuple[str, Interval] | None:
        """Return the label with the best mean accuracy over seeds, and that accuracy."""
        found = [(label, interval(self.accuracy(label, dataset, timesteps, mode))) for label in labels]
        known = [(label, value) for label, value in found if value is not None]
        return max(known, key=lambda pair: pair[1].mean) if known else None

    def spike_rate(
        self, label: str, dataset: str, timesteps: int, mode: str | None = None, encoding: str = "rate"
    ) -> dict[int, float]:
        """Return mean spike rates of the hidden layer by seed."""
        return self._values("spike_rate", Key(label, dataset, timesteps, encoding), mode)

    def eps(self, label: str, dataset: str, timesteps: int, encoding: str = "rate") -> dict[int, float]:
        """Return final temperatures by seed."""
        found = self.runs.get(Key(label, dataset, timesteps, encoding), {})
        return {seed: row["eps"] for seed, row in found.items() if row["eps"] is not None}

    def trajectories(self, label: str, encoding: str = "rate") -> dict[int, list[float]]:
        """Return the temperature of every epoch by seed, on MNIST at T=1."""
        found = self.runs.get(Key(label, "mnist", 1, encoding), {})
        return {seed: row["history_eps"] for seed, row in found.items() if row.get("history_eps")}

    def _values(self, quantity: str, key: Key, mode: str | None) -> dict[int, float]:
        values = {}
        for seed, row in self.runs.get(key, {}).items():
            by_mode = row[quantity]
            own = mode or row.get("mode") or ("hard" if key.label in BINARY else "soft")
            if own in by_mode:
                values[seed] = by_mode[own]
        return dict(sorted(values.items()))

    def first(self, seeds: int) -> "Results":
        """Return the runs of so many seeds, from the paper's on."""
        kept = Results()
        kept.step_ms = self.step_ms
        for by_seed in self.runs.values():
            for seed, row in by_seed.items():
                if seed < SEED + seeds:
                    kept.add(row)
        return kept

    def missing(self, configs: Iterable[RunConfig]) -> list[RunConfig]:
        """Return those of the runs that are not there."""
        return [config for config in configs if not self._has(config)]

    def _has(self, config: RunConfig) -> bool:
        meaning = _meanings().get(config.id)
        return meaning is not None and meaning[1] in self.runs.get(meaning[0], {})


def from_store(store: Store) -> Results:
    """Collect the paper's runs of a store, with the paths of the temperature where a figure shows them."""
    results = Results()
    for row in store.rows():
        meaning = _meanings().get(row["id"])
        if meaning and meaning[0].dataset == "mnist" and meaning[0].timesteps == 1 and row["eps"] is not None:
            row["history_eps"] = [epoch["eps"] for epoch in store.read(row["id"])[3]]
        results.add(row)
    return results


def write(path: Path, rows: Iterable[Mapping[str, Any]]) -> int:
    """Write runs as one compact file, a line each, and return how many."""
    lines = []
    for row in rows:
        operations = row["energy"]["operations"] if "energy" in row else {}
        kept = {name: row[name] for name in FIELDS if name in row}
        kept |= {k: {m: round(o[k]) for m, o in operations.items()} for k in ("macs", "acs") if operations}
        lines.append(json.dumps(_rounded(kept), separators=(",", ":"), sort_keys=True))
    lines.sort()
    write_file(path, gzip.compress(("\n".join(lines) + "\n").encode(), mtime=0))
    return len(lines)


def read(path: Path) -> list[dict[str, Any]]:
    """Read what `write` wrote."""
    try:
        text = gunzip(read_bytes(path, MOST_PACKED), str(path), MOST_BYTES)
        rows = [
            parse_json(line, f"line {i} of {path}") for i, line in enumerate(text.splitlines(), 1) if line
        ]
    except BadFile as error:
        raise InputError(
            f"{error}; a file of results is gzipped JSON lines, as ultralif.paper.results.write makes them: "
            "give that, or a folder of runs"
        ) from error
    for i, row in enumerate(rows, 1):
        if not isinstance(row, dict):
            raise InputError(f"row {i} of {path} is not the result of a run, but {type(row).__name__}")
    return rows


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {name: _rounded(entry) for name, entry in value.items()}
    return [_rounded(entry) for entry in value] if isinstance(value, list) else value
