"""The result of a network that was just trained: its numbers, its constants, its code and device."""

import platform
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ultralif import __version__
from ultralif.training.config import RunConfig
from ultralif.training.evaluate import Evaluation
from ultralif.training.result import CONSTANTS, LearnedConstants, ModeResult, Result
from ultralif.training.schedule import hard_epochs
from ultralif.training.single import neurons_of

__all__ = ["by_mode", "constants_of", "environment", "make_result"]


def environment(device: torch.device, precision: str, checksum: str) -> dict[str, Any]:
    """Return the code, device, precision and data behind a result."""
    return {
        "ultralif": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine(),
        "precision": precision,
        "threads": torch.get_num_threads(),
        "data_sha256": checksum,
    }


def constants_of(network: nn.Module, *, learned: bool = False) -> dict[str, list[float]]:
    """Return the constants of a network's neurons by name: for each spiking layer the mean over its neurons.

    Args:
        network: the network.
        learned: only those that are learned.
    """
    found: dict[str, list[float]] = {}
    for neuron in neurons_of(network):
        for name in neuron.declared():
            if not learned or neuron.learned(name) is not None:
                value = neuron.constant(name)
                mean = value if isinstance(value, float | int) else value.detach().double().mean()
                found.setdefault("slope" if name == "surrogate_slope" else name, []).append(float(mean))
    return found


def make_result(
    config: RunConfig,
    network: nn.Module,
    path: Path,
    evaluation: Evaluation,
    validation: Evaluation | None,
    **rest: Any,
) -> Result:
    """Put together the result of a run.

    Args:
        config: its config.
        network: its network, trained.
        path: its folder.
        evaluation: its numbers on the test set.
        validation: its numbers on the held-out part, if there is one.
        rest: ``status``, ``epochs``, ``seconds``, ``stacked``, ``environment``.
    """
    neuron = neurons_of(network)[0]
    mode = "hard" if hard_epochs(config) else neuron.mode
    constants = {name: values[0] for name, values in constants_of(network).items() if name in CONSTANTS}
    return Result(
        id=config.id,
        dataset=config.dataset,
        neuron=config.neuron,
        timesteps=config.timesteps,
        seed=config.seed,
        sparsity=config.sparsity,
        mode=mode,
        by_mode=by_mode(evaluation, validation),
        hits=evaluation.hits.get(mode),
        constants=LearnedConstants(**constants),
        config=config.to_dict(),
        path=str(path),
        ann_picojoules=evaluation.energy["ann_picojoules"],
        finished=time.time(),
        **rest,
    )


def by_mode(evaluation: Evaluation, validation: Evaluation | None = None) -> dict[str, ModeResult]:
    """Return what an evaluation found, by mode."""
    energy = evaluation.energy
    return {
        mode: ModeResult(
            accuracy,
            evaluation.spike_rate[mode],
            tuple(evaluation.spike_rates[mode]),
            energy["operations"][mode],
            energy["relative_sops"][mode],
            energy["snn_picojoules"][mode],
            None if validation is None else validation.accuracy[mode],
            energy["layers"][mode],
        )
        for mode, accuracy in evaluation.accuracy.items()
    }
