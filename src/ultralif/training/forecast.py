"""Estimates of training time, measured by a few real steps on random data."""

import time
from collections.abc import Sequence
from itertools import pairwise
from math import prod

import torch

from ultralif.data import DATASETS, Dataset, Split
from ultralif.data.split import Events, Images
from ultralif.data.table import Spec
from ultralif.training.build import build_networks, step_work
from ultralif.training.config import RunConfig
from ultralif.training.device import arithmetic, pick_device
from ultralif.training.feed import Data
from ultralif.training.job import Job
from ultralif.training.loop import prepare_epoch
from ultralif.training.step import steps

__all__ = ["estimate"]

STEPS = 6
ENOUGH = 2.0
"""Seconds after which measuring ends."""


def estimate(stacks: Sequence[Sequence[RunConfig]], device: str = "auto") -> list[float]:
    """Return about how many seconds each stack will train, without loading and evaluation."""
    known: dict[tuple[str, ...], float] = {}
    for stack in stacks:
        key = _key(stack)
        if key not in known:
            known[key] = _step_seconds(stack, pick_device(device))
    return [known[_key(stack)] * _steps(stack[0]) for stack in stacks]


def _key(stack: Sequence[RunConfig]) -> tuple[str, ...]:
    """Return what the time of a step depends on."""
    return tuple(config.with_(seed=0, sparsity=0.0).id for config in stack)


def _steps(config: RunConfig) -> int:
    samples = int(DATASETS[config.dataset].sizes[0] * (1 - config.validation))
    return config.epochs * -(-samples // config.batch_size)


def _step_seconds(stack: Sequence[RunConfig], device: torch.device) -> float:
    networks = build_networks(stack, device)
    with arithmetic(device, stack[0].precision, step_work(stack)):
        job = Job.begin(stack, networks, _made_up(stack[0], device), device)
        prepare_epoch(job)
        ends: list[float] = []
        for _ in steps(job)(job):
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            ends.append(time.perf_counter())
            if len(ends) > 1 and ends[-1] - ends[0] > ENOUGH:
                break
    return min(end - start for start, end in pairwise(ends))  # the first step also compiles and allocates


def _made_up(config: RunConfig, device: torch.device) -> Data:
    """Return a few batches of noise of the shape of a dataset."""
    spec, generator = DATASETS[config.dataset], torch.Generator().manual_seed(0)
    count = STEPS * config.batch_size
    labels = torch.randint(spec.classes, (count,), generator=generator).to(device)
    store = (_events if spec.is_events else _images)(spec, count, config.timesteps, generator, device)
    split = Split(store, labels, torch.arange(count, device=device))
    dataset = Dataset(
        spec.name, spec.shape, spec.classes, spec.class_names, split, split, "", spec.normalization, None
    )
    return Data(dataset, split, None)


def _images(
    spec: Spec, count: int, timesteps: int, generator: torch.Generator, device: torch.device
) -> Images:
    pixels = torch.randint(256, (count, *spec.shape), generator=generator, dtype=torch.uint8)
    pixels *= (
        torch.rand(count, *spec.shape, generator=generator) < 0.25
    )  # about this share of a digit is not black
    return Images(pixels.to(device))


def _events(
    spec: Spec, count: int, timesteps: int, generator: torch.Generator, device: torch.device
) -> Events:
    cells = timesteps * prod(spec.shape)
    each = min(cells, 2000)
    keys = torch.randint(cells, (count * each,), generator=generator, dtype=torch.int32)
    offsets = each * torch.arange(count + 1)
    counts = torch.ones(count * each, dtype=torch.uint8)
    return Events(offsets.to(device), keys.to(device), counts.to(device), timesteps, spec.shape)
