"""The runs that a report is about: from a store, from folders of runs, from files of results."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from ultralif.errors import InputError
from ultralif.nn import NEURONS
from ultralif.nn.parameters import LOG, LOGIT
from ultralif.paper.grids import BASE, runs_of
from ultralif.paper.published import DATASETS
from ultralif.paper.results import MOST_SEEDS, TIMING, Key, Results, first_id, read
from ultralif.training.checkpoint import Damaged
from ultralif.training.config import RunConfig
from ultralif.training.energy import E_AC, E_MAC
from ultralif.training.store import Run, Store

__all__ = ["Entry", "Gathered", "as_results", "differences", "gather", "unnamed"]

NAMED = ("dataset", "neuron", "timesteps", "seed", "sparsity")
"""The fields that have columns of their own."""
FORMS = {form.prefix: form for form in (LOG, LOGIT)}


@dataclass(frozen=True)
class Entry:
    """A run in a report."""

    config: RunConfig
    result: Mapping[str, Any]
    history: Sequence[Mapping[str, Any]] = ()
    learned: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """The constants that its neurons learned: the mean of each layer."""
    weights: str | None = None
    """SHA-256 of its file of weights."""
    folder: Path | None = None
    """None for a run of which only the results are here."""


class Gathered(NamedTuple):
    """The runs of a report, each once, and what came with them."""

    entries: list[Entry]
    notes: list[str]
    """What a reader must know, such as which are left out."""
    timings: list[Mapping[str, Any]]
    """Rows of files of results that say how long training steps take."""


def gather(sources: Sequence[str], runs_dir: Path | None = None) -> Gathered:
    """Find the runs that are named.

    Args:
        sources: names of runs, their folders, folders that hold runs, or files of results (.jsonl.gz); none,
            every run of the store.
        runs_dir: the store.
    """
    store = Store(runs_dir)
    found: dict[str, Entry] = {}
    rest = Gathered([], [], [])
    for source in sources or [str(store.root)]:
        for entry in _read(source, store, rest):
            found.setdefault(entry.config.id, entry)
    if not found:
        where = ", ".join(sources) or store.root
        why = "".join(f" {note}" for note in rest.notes)
        raise InputError(f"there are no runs in {where}; train one with: ultralif train.{why}")
    return rest._replace(entries=list(found.values()))


def _read(source: str, store: Store, rest: Gathered) -> Iterable[Entry]:
    path = Path(source)
    if path.is_file():
        return _from_file(path, rest)
    if (path / "manifest.json").is_file():
        return [_entry(Store(path.parent), path.name)]
    if path.is_dir() or path == store.root:
        return _from_store(Store(path), rest.notes)
    return [_entry(store, source)]


def _from_store(store: Store, notes: list[str]) -> Iterable[Entry]:
    for row in store.rows():
        try:
            yield _entry(store, row["id"])
        except Damaged as error:
            notes.append(f"Left out: {error}.")


def _entry(store: Store, name: str) -> Entry:
    run: Run = store.read(name)
    weights = hashlib.sha256(run.contents.file).hexdigest()
    learned = _learned(run.contents.tensors(), run.config)
    return Entry(run.config, run.result, run.history, learned, weights, store.path(run.config.id))


def _learned(tensors: Mapping[str, Tensor], config: RunConfig) -> dict[str, list[float]]:
    """Read the constants from their parameters, ``neurons.<layer>.<form>_<name>``."""
    found: dict[str, list[float]] = {}
    for key, raw in sorted(tensors.items()):
        owner, _, parameter = key.rpartition(".")
        prefix, _, name = parameter.partition("_")
        if owner.startswith("neurons.") and prefix in FORMS:
            value = FORMS[prefix].to_value(raw)
            if name == "eps":
                value = value.clamp(config.eps_min, config.eps_max)
            found.setdefault(name, []).append(float(f"{float(value.mean()):.5g}"))
    return found


def _from_file(path: Path, rest: Gathered) -> Iterable[Entry]:
    rows: list[dict[str, Any]] = []
    for row in read(path):
        (rest.timings if row.get("id") == TIMING else rows).append(row)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    rest.notes.append(f"{path.name} (SHA-256 {digest}) keeps neither devices nor checksums of its runs.")
    configs = _paper_configs({str(row.get("id")) for row in rows})
    known = [(row, configs[row["id"]]) for row in rows if row.get("id") in configs]
    if len(known) < len(rows):
        rest.notes.append(
            f"Left out: {len(rows) - len(known)} rows of {path.name} that no table of the paper has."
        )
    for row, config in known:
        try:
            result = _completed(row, config)
        except (KeyError, TypeError, AttributeError) as error:
            raise InputError(
                f"{path} has a row for run {config.id} that is not a result ({error!r}); write the file again"
            ) from error
        yield Entry(config, result, [{"eps": eps} for eps in row.get("history_eps", ())])


def _paper_configs(ids: set[str]) -> dict[str, RunConfig]:
    """Return the paper's configs of those names; five seeds are made in a moment, all of them are not."""
    for seeds in (5, MOST_SEEDS):
        planned = runs_of("all", seeds)
        configs = {name: config for config in planned for name in (config.id, first_id(config))}
        if ids <= configs.keys():
            break
    return configs


def _completed(row: Mapping[str, Any], config: RunConfig) -> dict[str, Any]:
    """Return a row of a file of results as a store would have it, as far as the file goes."""
    operations = {
        mode: {"macs": macs, "acs": acs, "picojoules": macs * E_MAC + acs * E_AC}
        for mode, macs in row.get("macs", {}).items()
        if (acs := row.get("acs", {}).get(mode)) is not None
    }
    sops = {mode: config.timesteps * rate for mode, rate in row["spike_rate"].items()}
    return {
        **{name: getattr(config, name) for name in NAMED},
        "status": "done",
        "mode": config.mode or NEURONS[config.neuron].modes[0],
        "epochs": config.epochs,
        "accuracy": row["accuracy"],
        "eps": row["eps"],
        "energy": {"relative_sops": sops, "operations": operations},
        **row,
    }


def differences(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    """Return, for each run, its fields that have no column and that set it apart from runs like it."""
    groups: dict[tuple[str, str], list[RunConfig]] = {}
    for entry in entries:
        groups.setdefault((entry.config.dataset, entry.config.neuron), []).append(entry.config)
    varying = {group: _varying([unnamed(config) for config in configs]) for group, configs in groups.items()}
    return [
        {
            name: value
            for name, value in unnamed(entry.config).items()
            if name in varying[entry.config.dataset, entry.config.neuron]
        }
        for entry in entries
    ]


def unnamed(config: RunConfig) -> dict[str, Any]:
    """Return the fields and options without a column that differ from those of 0.1.0."""
    return {name: value for name, value in config.changes().items() if name not in NAMED}


def _varying(settings: Sequence[Mapping[str, Any]]) -> set[str]:
    """Return the names of those settings that are not the same in all."""
    names = {name for each in settings for name in each}
    return {name for name in names if len({str(each.get(name)) for each in settings}) > 1}


def as_results(entries: Sequence[Entry], timings: Sequence[Mapping[str, Any]] = ()) -> Results:
    """Return all runs as the paper's figures want them; those that are not the paper's by a label of ours."""
    results = Results(timings)
    for entry, apart in zip(entries, differences(entries), strict=True):
        row = {**entry.result}
        if row["eps"] is not None:
            row["history_eps"] = [epoch["eps"] for epoch in entry.history]
        if _may_be_the_papers(entry.config):
            results.add(row)
        if entry.config.id not in results.by_id and row["status"] == "done":
            key = Key(_label(entry.config, apart), entry.config.dataset, entry.config.timesteps, "rate")
            results.runs.setdefault(key, {})[entry.config.seed] = row
    return results


def _may_be_the_papers(config: RunConfig) -> bool:
    """Tell quickly what is none of the paper's runs; `Results` makes thousands of configs to know."""
    return config.epochs == BASE.epochs and config.dataset in DATASETS


def _label(config: RunConfig, apart: Mapping[str, Any]) -> str:
    penalty = {"lambda": f"{config.sparsity:g}"} if config.sparsity else {}
    return " ".join([config.neuron, *(f"{name}={value}" for name, value in {**penalty, **apart}.items())])
