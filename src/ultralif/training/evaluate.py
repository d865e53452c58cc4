"""Accuracy, spike rates and cost of networks in each of their modes."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ultralif.data import Split
from ultralif.functional import Mode
from ultralif.names import MODES
from ultralif.training.config import RunConfig
from ultralif.training.energy import ann_energy, relative_sops, snn_energy
from ultralif.training.feed import EVALUATION, Data, batches, inputs, make_loaders
from ultralif.training.hits import pack_hits
from ultralif.training.members import Members
from ultralif.training.meter import Meter, make_meter

__all__ = ["Evaluation", "accuracies", "evaluate"]


@dataclass(frozen=True)
class Evaluation:
    """Evaluation of one member of a stack on a set of samples."""

    accuracy: dict[str, float]
    """Percent, for each mode that the neuron has."""
    spike_rate: dict[str, float]
    """Mean over all hidden neurons."""
    spike_rates: dict[str, list[float]]
    """Mean of each spiking layer."""
    energy: dict[str, Any]
    """The paper's T * rate and picojoules, and counted operations, for each mode."""
    hits: dict[str, str]
    """The samples classified correctly in each mode, see `ultralif.training.hits`."""


@torch.no_grad()
def evaluate(
    members: Members, configs: Sequence[RunConfig], data: Data, split: str = "test"
) -> list[Evaluation]:
    """Evaluate every member on the whole test or validation set, in all its modes.

    Args:
        members: the networks.
        configs: their configs, in the order of their places.
        data: where the samples are.
        split: ``test`` or ``validation``.
    """
    samples = data.dataset.test if split == "test" else data.validation
    assert samples is not None  # noqa: S101 - the caller asked for a validation set
    shared, places = configs[0], range(len(members))
    modes = [mode for mode in MODES if any(mode in members.modes(place) for place in places)]
    correct: dict[Mode, list[Tensor]] = {mode: [] for mode in modes}
    spikes: dict[Mode, list[Tensor]] = {mode: [] for mode in modes}
    meter = make_meter(members, shared.timesteps)
    for x, labels in batches(make_loaders(members, configs, data, samples, training=False), EVALUATION):
        x = inputs(x, shared)
        meter.read(x, labels.shape[-1])
        labels = members.spread(labels)
        for mode in modes:
            with meter.watching(mode), _autocast(shared, x):
                out = members(x, mode)
            correct[mode].append(out.logits.argmax(2) == labels)
            spikes[mode].append(torch.stack([rate.mean(2).sum(0) for rate in out.rates]))
    rates = {mode: torch.stack(parts).sum(0) / len(samples) for mode, parts in spikes.items()}
    hits = {mode: torch.cat(parts, 1).cpu().numpy() for mode, parts in correct.items()}
    return [
        _summary(
            meter,
            place,
            shared.timesteps,
            {mode: hits[mode][place] for mode in members.modes(place)},
            {mode: rates[mode][:, place].tolist() for mode in members.modes(place)},
        )
        for place in places
    ]


@torch.no_grad()
def accuracies(
    members: Members,
    configs: Sequence[RunConfig],
    data: Data,
    samples: Split,
    mode: Mode | None,
    epoch: int = EVALUATION,
) -> list[float]:
    """Return the accuracy of every member on a set in one mode, in percent.

    Args:
        members: the networks.
        configs: their configs, in the order of their places.
        data: where the samples are from.
        samples: the set.
        mode: of the neurons; None, their own.
        epoch: the epoch that seeds the spikes of the encoding.
    """
    device, shared = samples.labels.device, configs[0]
    batch = _largest_batch(data, shared) if device.type == "cuda" else 256
    correct = torch.zeros(len(members), device=device)
    loaders = make_loaders(members, configs, data, samples, training=False, batch=batch)
    for x, labels in batches(loaders, epoch):
        x = inputs(x, shared)
        with _autocast(shared, x):
            out = members(x, mode)
        correct += (out.logits.argmax(2) == members.spread(labels)).sum(1)
    return [100 * count / len(samples) for count in correct.tolist()]


def _largest_batch(data: Data, config: RunConfig) -> int:
    """Return as many samples as make half a gigabyte of inputs: a GPU is quicker with few large batches."""
    return max(256, 2**27 // (config.timesteps * data.sizes[0])) if config.model == "mlp" else 256


def _summary(
    meter: Meter,
    place: int,
    timesteps: int,
    hits: dict[Mode, NDArray[np.bool_]],
    rates: dict[Mode, list[float]],
) -> Evaluation:
    modes = [mode for mode in MODES if mode in hits]
    widths, synapses = meter.widths(), meter.synapses()
    hidden = {mode: rates[mode][: len(widths)] for mode in modes}
    weights = [width / sum(widths) for width in widths]
    mean = {m: math.fsum(w * r for w, r in zip(weights, hidden[m], strict=True)) for m in modes}
    energy: dict[str, Any] = {
        "relative_sops": {m: relative_sops(timesteps, mean[m]) for m in modes},
        "snn_picojoules": {m: snn_energy(timesteps, mean[m], synapses) for m in modes},
        "ann_picojoules": ann_energy(synapses),
        "operations": {m: meter.operations(place, m, hidden[m]) for m in modes},
        "layers": {m: meter.by_layer(m) for m in modes},
    }
    return Evaluation(
        {m: 100 * int(hits[m].sum()) / len(hits[m]) for m in modes},
        {m: mean[m] for m in modes},
        {m: rates[m] for m in modes},
        energy,
        {m: pack_hits(hits[m]) for m in modes},
    )


def _autocast(config: RunConfig, x: Tensor) -> torch.autocast:
    """Evaluate models of `ultralif.models` in the precision in which they were trained."""
    half = config.precision == "bfloat16" and config.model != "mlp"
    return torch.autocast(x.device.type, torch.bfloat16, enabled=half)
