"""Accuracy, spike rates and cost of networks in each of their modes."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from ultralif.functional import Mode
from ultralif.nn import Stack
from ultralif.training.config import RunConfig
from ultralif.training.energy import ann_energy, count_operations, relative_sops, snn_energy
from ultralif.training.feed import EVALUATION, Data, batches, inputs, make_loaders

__all__ = ["Evaluation", "evaluate"]

MODES: tuple[Mode, ...] = ("soft", "hard", "tropical")


@dataclass(frozen=True)
class Evaluation:
    """What one member of a stack did on a set of samples."""

    accuracy: dict[str, float]
    """Percent, for each mode that the neuron has."""
    spike_rate: dict[str, float]
    """Mean over all hidden neurons."""
    spike_rates: dict[str, list[float]]
    """Mean of each spiking layer."""
    energy: dict[str, Any]
    """The paper's T * rate and picojoules, and counted operations, for each mode."""


@torch.no_grad()
def evaluate(stack: Stack, configs: Sequence[RunConfig], data: Data, split: str = "test") -> list[Evaluation]:
    """Evaluate every member on the whole test or validation set, in all its modes.

    Args:
        stack: the members.
        configs: their configs, in the order of the stack's places.
        data: where the samples are.
        split: ``test`` or ``validation``.
    """
    samples = data.dataset.test if split == "test" else data.validation
    assert samples is not None  # noqa: S101 - the caller asked for a validation set
    shared = configs[0]
    correct = {mode: torch.zeros(len(stack), device=samples.labels.device) for mode in MODES}
    spikes: dict[str, list[Tensor]] = {mode: [] for mode in MODES}
    loaders = make_loaders(stack, configs, data, samples, training=False)
    nonzero, binary = torch.zeros(stack.batches), True
    for x, labels in batches(loaders, EVALUATION):
        x = inputs(x, shared)
        of_batch = x.reshape(stack.batches, -1)
        size = of_batch.shape[1] // labels.shape[-1] * len(samples)
        nonzero += of_batch.count_nonzero(1).cpu() / size
        binary = binary and bool(((x == 0) | (x == 1)).all())
        labels = stack.spread(labels)
        for mode in MODES:
            out = stack(x, mode)
            correct[mode] += (out.logits.argmax(2) == labels).sum(1)
            spikes[mode].append(torch.stack([rate.mean(2).sum(0) for rate in out.rates]))
    rates = {mode: torch.stack(parts).sum(0) / len(samples) for mode, parts in spikes.items()}
    return [
        _summary(
            stack,
            place,
            configs[place],
            {mode: 100 * correct[mode][place].item() / len(samples) for mode in MODES},
            {mode: rates[mode][:, place].tolist() for mode in MODES},
            float(nonzero[place * stack.batches // len(stack)]),
            binary,
        )
        for place in range(len(stack))
    ]


def _summary(
    stack: Stack,
    place: int,
    config: RunConfig,
    accuracy: dict[Mode, float],
    rates: dict[Mode, list[float]],
    density: float,
    input_binary: bool,
) -> Evaluation:
    _, neuron = next(stack.members[place].layers())
    modes = [mode for mode in MODES if mode in neuron.modes]
    sizes, time = stack.sizes, config.timesteps
    synapses = sum(a * b for a, b in pairwise(sizes))
    hidden = len(config.hidden)
    weights = [size / sum(config.hidden) for size in config.hidden]
    mean = {m: math.fsum(w * r for w, r in zip(weights, rates[m][:hidden], strict=True)) for m in modes}
    operations = {
        mode: count_operations(
            sizes, time, density, rates[mode][:hidden], input_binary=input_binary, binary=mode != "soft"
        )
        for mode in modes
    }
    energy: dict[str, Any] = {
        "relative_sops": {m: relative_sops(time, mean[m]) for m in modes},
        "snn_picojoules": {m: snn_energy(time, mean[m], synapses) for m in modes},
        "ann_picojoules": ann_energy(synapses),
        "operations": {
            m: {"macs": o.macs, "acs": o.acs, "picojoules": o.energy} for m, o in operations.items()
        },
    }
    return Evaluation(
        {m: accuracy[m] for m in modes}, {m: mean[m] for m in modes}, {m: rates[m] for m in modes}, energy
    )
