"""Collect the runs for a report from a store or from run folders."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ultralif.errors import InputError
from ultralif.files import visible
from ultralif.training.checkpoint import Damaged
from ultralif.training.config import RunConfig, document_id
from ultralif.training.evaluate import constants_of
from ultralif.training.networks import restore
from ultralif.training.result import Result
from ultralif.training.store import Run, Store

if TYPE_CHECKING:
    from torch import nn

__all__ = ["Entry", "FoundRuns", "differences", "gather", "label_of", "unnamed"]

MOST_NETWORKS = 32
"""Number of networks kept in memory to be reused for other runs' weights."""
NAMED = ("dataset", "neuron", "timesteps", "seed", "sparsity")
"""The fields that have their own columns."""


@dataclass(frozen=True)
class Entry:
    """A run in a report."""

    config: RunConfig
    result: Result
    history: Sequence[Mapping[str, object]] = ()
    learned: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """The constants that its neurons learned, averaged over each layer."""
    weights: str | None = None
    """SHA-256 of its weight file."""
    folder: Path | None = None
    """None for a run whose folder is not on this machine."""


class FoundRuns(NamedTuple):
    """The runs in a report, without duplicates, and notes for the reader, for example on omitted runs."""

    entries: list[Entry]
    notes: list[str]


def gather(
    sources: Sequence[str],
    runs_dir: Path | None = None,
    filters: Mapping[str, object] | None = None,
) -> FoundRuns:
    """Find the named runs.

    Args:
        sources: names of runs, their folders, or folders that contain runs; empty means every run in the
            store.
        runs_dir: the store.
        filters: the required ``dataset``, ``neuron`` and so on; None matches any value.
    """
    store = Store(runs_dir)
    found: dict[str, Entry] = {}
    notes: list[str] = []
    for source in sources or [str(store.root)]:
        for entry in _read(source, store, notes, filters or {}):
            found.setdefault(entry.result.id, entry)
    if not found:
        where = ", ".join(sources) or store.root
        why = "".join(f" {note}" for note in notes)
        raise InputError(f"there are no runs in {where} that match; train one with: ultralif train.{why}")
    return FoundRuns(list(found.values()), notes)


def _read(source: str, store: Store, notes: list[str], filters: Mapping[str, object]) -> Iterable[Entry]:
    path = Path(source)
    if (path / "manifest.json").is_file():
        named = [_entry(Store(path.parent), path.name)]
    elif path.is_dir() or path == store.root:
        return _from_store(Store(path), notes, filters)
    else:
        named = [_entry(store, source)]
    return [
        entry
        for entry in named
        if all(wanted in (None, getattr(entry.result, name)) for name, wanted in filters.items())
    ]


def _from_store(store: Store, notes: list[str], filters: Mapping[str, object]) -> Iterable[Entry]:
    networks: dict[str, nn.Module] = {}
    for name in store.names(**filters):
        try:
            yield _entry(store, name, networks)
        except (Damaged, InputError) as error:  # damaged, or its neuron is unknown here
            notes.append(f"Left out: run {visible(str(name))}, {visible(str(error))}.")


def _entry(store: Store, name: str, networks: "dict[str, nn.Module] | None" = None) -> Entry:
    run = store.read(name)
    weights = hashlib.sha256(run.contents.file).hexdigest()
    try:
        learned = constants_of(_network(run, {} if networks is None else networks), learned=True)
    except InputError:  # the network or the data are the user's own, and not stored with the run
        learned = {}
    rounded = {key: [float(f"{value:.5g}") for value in values] for key, values in learned.items()}
    return Entry(run.config, run.result, run.history, rounded, weights, Path(run.result.path))


def _network(run: Run, networks: "dict[str, nn.Module]") -> "nn.Module":
    """Return a run's trained network; reuse an existing one, because building one takes longer."""
    kind = document_id({**run.config.to_dict(), "seed": 0})
    if len(networks) > MOST_NETWORKS:
        networks.clear()
    networks[kind] = restore(run, networks.get(kind))
    return networks[kind]


def differences(entries: Sequence[Entry]) -> list[dict[str, object]]:
    """Return, for each run, the fields that have no column and differ between similar runs."""
    settings = [unnamed(entry.config) for entry in entries]
    groups: dict[tuple[str, str], list[Mapping[str, object]]] = {}
    for entry, own in zip(entries, settings, strict=True):
        groups.setdefault((entry.config.dataset, entry.config.neuron), []).append(own)
    varying = {group: _varying(alike) for group, alike in groups.items()}
    return [
        {n: x for n, x in own.items() if n in varying[entry.config.dataset, entry.config.neuron]}
        for entry, own in zip(entries, settings, strict=True)
    ]


def unnamed(config: RunConfig) -> dict[str, object]:
    """Return the fields and options that have no column and differ from their defaults."""
    return {name: value for name, value in config.changes().items() if name not in NAMED}


def _varying(settings: Sequence[Mapping[str, object]]) -> set[str]:
    """Return the names of the settings that differ between runs."""
    names = {name for each in settings for name in each}
    return {name for name in names if len({str(each.get(name)) for each in settings}) > 1}


def label_of(config: RunConfig, apart: Mapping[str, object]) -> str:
    """Return the label of a run in figures: its neuron, its penalty, and how it differs from others."""
    penalty = {"lambda": f"{config.sparsity:g}"} if config.sparsity else {}
    return " ".join([config.neuron, *(f"{name}={value}" for name, value in {**penalty, **apart}.items())])
