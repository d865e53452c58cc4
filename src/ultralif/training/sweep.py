"""Many runs: which ones, in which stacks, and how long they will take."""

import time
from collections.abc import Sequence
from dataclasses import fields

import torch

from ultralif.data import DATASETS
from ultralif.errors import InputError
from ultralif.nn import NEURONS, Stack, find_neuron
from ultralif.training.build import build_network, pick_device
from ultralif.training.config import RunConfig
from ultralif.training.step import Penalties, make_optimizer, stack_loss
from ultralif.training.store import Store

__all__ = ["estimate", "grid", "plan"]

ULTRA = ("UltraLIF", "UltraPLIF", "UltraDLIF", "UltraDPLIF")
BASELINES = ("LIF", "PLIF", "AdaLIF", "FullPLIF", "DSpike", "DSpikePlus")
GROUPS = {"all": (*BASELINES, *ULTRA), "ultra": ULTRA, "baselines": BASELINES, "every": tuple(NEURONS)}
"""Names for several neurons: the paper's ten, its four, its six, and all that there are."""

SHARED = frozenset(
    (
        "dataset",
        "timesteps",
        "seed",
        "epochs",
        "batch_size",
        "learning_rate",
        "schedule",
        "precision",
        "validation",
        "hidden",
        "readout",
        "encoding",
        "gain",
        "augment",
        "split",
        "binary_events",
        "hard_epochs",
    )
)
"""The fields that all members of a stack have in common; in the others they may differ."""


def grid(
    base: RunConfig,
    neurons: Sequence[str],
    timesteps: Sequence[int],
    sparsities: Sequence[float],
    seeds: Sequence[int],
) -> list[RunConfig]:
    """Return every combination, each once.

    Args:
        base: everything else.
        neurons: neurons' names, or ``all``, ``ultra``, ``baselines``, ``every``.
        timesteps: the T.
        sparsities: the lambda.
        seeds: the seeds.
    """
    names = [
        name
        for given in neurons
        for name in (GROUPS[given] if given in GROUPS else (find_neuron(given).__name__,))
    ]
    configs = [
        base.with_(neuron=name, timesteps=time_, sparsity=sparsity, seed=seed)
        for seed in seeds
        for time_ in timesteps
        for name in names
        for sparsity in sparsities
    ]
    return list({config.id: config for config in configs}.values())


def plan(configs: Sequence[RunConfig], store: Store, largest: int = 64) -> list[list[RunConfig]]:
    """Return the stacks that are still to be trained: runs that share data, order and schedule go together.

    Args:
        configs: all runs that are wanted.
        store: runs that are finished there are left out.
        largest: how many members a stack may have.
    """
    if largest < 1:
        raise InputError(f"largest must be at least 1, got {largest}")
    done = store.done([config.id for config in configs])
    stacks: dict[tuple[object, ...], list[RunConfig]] = {}
    for config in configs:
        if config.id not in done:
            stacks.setdefault(_shared(config), []).append(config)
    return [
        members[start : start + largest]
        for members in stacks.values()
        for start in range(0, len(members), largest)
    ]


def _shared(config: RunConfig) -> tuple[object, ...]:
    return tuple(getattr(config, field.name) for field in fields(config) if field.name in SHARED)


def estimate(stack: Sequence[RunConfig], device: str = "auto") -> float:
    """Return about how many seconds a stack will train, from a few steps on made-up input."""
    shared, place = stack[0], pick_device(device)
    spec = DATASETS[shared.dataset]
    size = 1
    for n in spec.shape:
        size *= n
    networks = Stack([build_network(config, (size, spec.classes)) for config in stack]).to(place)
    optimizer = make_optimizer(networks, shared)
    penalties = Penalties.of(stack, networks.weights[0])
    x = (torch.rand(shared.timesteps, shared.batch_size, size, device=place) < 0.1).float()
    labels = torch.randint(spec.classes, (shared.batch_size,), device=place)
    best = float("inf")
    for _ in range(4):
        began = time.perf_counter()
        optimizer.zero_grad()
        torch.autograd.backward([stack_loss(networks, x, labels, penalties, None).loss.sum()])
        optimizer.step()
        if place.type == "cuda":
            torch.cuda.synchronize(place)
        best = min(best, time.perf_counter() - began)
    samples = spec.sizes[0] * (1 - shared.validation)
    return best * shared.epochs * -(-samples // shared.batch_size)
