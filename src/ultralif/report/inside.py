"""Look inside a trained network on test samples: spikes, membranes, decisions, boundaries."""

import base64
import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ultralif import plot
from ultralif.analysis import boundary_slices
from ultralif.data import Dataset
from ultralif.errors import InputError, JobError
from ultralif.nn import NEURONS, Network, mode
from ultralif.report.gather import Entry
from ultralif.training.batches import EVALUATION, inputs, load_data, make_loader
from ultralif.training.networks import find_run

__all__ = ["Subject", "choose", "look", "observe", "slices"]

MOST_STEPS, MOST_NEURONS, HELD_STEPS = 60, 64, 10
MOST_VALUES = 2560
"""Largest number of values (steps x neurons, over all layers) shown for a sample, to keep the page small."""
RESOLUTION = 64
MARGINS = 7
"""The highest margin level; level and class together fit in one byte."""


class Subject(NamedTuple):
    """A trained network and the first batch of its test set, encoded as in the evaluation."""

    network: Network
    x: Tensor
    """``[T, B, *shape]``"""
    labels: Tensor
    dataset: Dataset


def choose(entries: Sequence[Entry], most: int) -> list[Entry]:
    """Choose runs to show: for each dataset, the best network with soft spikes, then the best binary one.

    The second best of both kinds follow, and so on.
    """
    best: dict[tuple[str, str], Entry] = {}
    for entry in sorted(entries, key=_own_accuracy, reverse=True):
        if entry.folder is not None and entry.config.model == "mlp":
            best.setdefault((entry.config.dataset, entry.config.neuron), entry)
    order = []
    seen: Counter[tuple[str, bool]] = Counter()
    for (dataset, neuron), entry in best.items():
        binary = NEURONS[neuron].modes[0] != "soft"
        order.append((seen[dataset, binary], binary, dataset, entry))
        seen[dataset, binary] += 1
    return [entry for *_, entry in sorted(order, key=lambda each: each[:3])[:most]]


def _own_accuracy(entry: Entry) -> float:
    return entry.result.own.accuracy or 0.0


def look(entry: Entry, data_dir: Path | None = None) -> Subject:
    """Load a run's network and data.

    Args:
        entry: a run whose folder is on this machine.
        data_dir: a folder to search first for the data.
    """
    if entry.folder is None:
        raise InputError(f"run {entry.config.id} has no folder here, so its network cannot be loaded")
    network = find_run(entry.folder).network
    if not isinstance(network, Network):
        raise InputError(
            f"run {entry.config.id} is a {type(network).__name__}; only perceptrons can be shown"
        )
    data = load_data(entry.config, torch.device("cpu"), data_dir)
    batches = make_loader(entry.config, data, data.dataset.test, training=False).epoch(EVALUATION)
    x, labels = next(iter(batches))
    return Subject(network, inputs(x, entry.config), labels, data.dataset)


def observe(subject: Subject, samples: int) -> dict[str, Any]:
    """Return each mode's spikes, membranes and decisions for samples of different classes, ready for JSON.

    Spikes and membranes are base64-encoded bytes, ``[samples, steps, neurons]``: a spike is ``byte / 255``, a
    membrane ``low + byte / 255 * (high - low)``.
    """
    chosen = _of_different_classes(subject.labels, samples)
    x = subject.x[:, chosen]
    steps = min(len(x), MOST_STEPS)
    modes = {}
    for name in next(subject.network.layers())[1].modes:
        with mode(subject.network, name):
            recorded = plot.record(subject.network, x)
            neurons = min(MOST_NEURONS, max(1, MOST_VALUES // (steps * len(recorded))))
            layers = [_layer(shown, steps, neurons) for shown in recorded]
            modes[name] = {"layers": layers, "decided": subject.network(x).argmax(1).tolist()}
    names = subject.dataset.class_names
    return {
        "steps": steps,
        "classes": list(names),
        "labels": subject.labels[chosen].tolist(),
        "samples": [int(index) for index in chosen],
        "pictures": [_picture(x[:, i], subject.dataset.test.is_events) for i in range(len(chosen))],
        "modes": modes,
    }


def _of_different_classes(labels: Tensor, count: int) -> list[int]:
    """Return the first sample of each class, in test set order, followed by further samples."""
    first = {int(label): i for i, label in reversed(list(enumerate(labels.tolist())))}
    order = sorted(first.values())
    return (order + [i for i in range(len(labels)) if i not in first.values()])[:count]


def _layer(shown: plot.Recording, steps: int, neurons: int) -> dict[str, Any]:
    spikes, membrane = (
        values.flatten(2)[:steps, :, :neurons].transpose(0, 1).float()
        for values in (shown.spikes, shown.membrane)
    )
    low, high = float(membrane.min()), float(membrane.max())
    return {
        "neurons": spikes.shape[2],
        "all": shown.spikes.flatten(2).shape[2],
        "threshold": float(torch.as_tensor(shown.threshold).mean()),
        "low": low,
        "high": high,
        "spikes": _bytes(spikes),
        "membrane": _bytes((membrane - low) / max(high - low, 1e-12)),
    }


def _bytes(values: Tensor) -> str:
    """Return values in [0, 1] as base64-encoded bytes."""
    return _encoded((values.clamp(0, 1) * 255).round())


def _encoded(values: Tensor) -> str:
    return base64.b64encode(values.to(torch.uint8).contiguous().numpy().tobytes()).decode()


def _picture(x: Tensor, is_events: bool) -> dict[str, Any]:
    """Return an input ``[T, *shape]`` as a greyscale picture: its mean over time, or channels over time."""
    side = math.isqrt(x.shape[1])
    if x.dim() == 2 and not is_events and side * side == x.shape[1]:
        x = x.view(-1, side, side)  # a flattened square image
    grey = x.float().flatten(0, -3).mean(0) if x.dim() > 2 else x.float().T
    return {"height": grey.shape[0], "width": grey.shape[1], "grey": _bytes(grey / (grey.max() or 1.0))}


def slices(subject: Subject) -> dict[str, Any]:
    """Return the predicted classes in the plane through three samples, each averaged over time.

    A cell is the byte ``8 * class + margin``, with a margin from 0 (classes tie) to 7. The first row is the
    bottom one.
    """
    chosen = _of_different_classes(subject.labels, 3)
    held = min(len(subject.x), HELD_STEPS)
    modes = next(subject.network.layers())[1].modes
    places, extent, cuts = boundary_slices(
        subject.network,
        subject.x[:, chosen].mean(0).flatten(1),
        timesteps=held,
        resolution=RESOLUTION,
        modes=modes,
    )
    cells = {}
    for name, cut in cuts.items():
        margin = (cut.margin / cut.margin.max().clamp_min(1e-30)).sqrt() * MARGINS
        cells[name] = _encoded(8 * cut.labels + margin.round())
    return {
        "resolution": RESOLUTION,
        "steps": held,
        "extent": extent,
        "places": places.tolist(),
        "labels": subject.labels[chosen].tolist(),
        "classes": list(subject.dataset.class_names),
        "cells": cells,
    }


def look_if_possible(entry: Entry, data_dir: Path | None, notes: list[str]) -> Subject | None:
    """Return the result of `look`, or None after adding a note with the reason."""
    try:
        subject = look(entry, data_dir)
        if not all(
            bool(shown.membrane.isfinite().all()) for shown in plot.record(subject.network, subject.x)
        ):
            raise InputError("its membranes are NaN or infinite")
        return subject
    except (InputError, JobError) as error:
        notes.append(f"Spikes of {entry.config.id} are not shown: {error}.")
        return None
