"""Grids of runs, their grouping into stacks, and estimates of the training time."""

import time
from collections.abc import Sequence
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING

from ultralif.data import DATASETS
from ultralif.data.table import Spec
from ultralif.errors import InputError
from ultralif.names import GROUPS
from ultralif.training.config import RunConfig
from ultralif.training.store import Store

if TYPE_CHECKING:
    import torch

    from ultralif.data.split import Events, Images
    from ultralif.training.batches import Data

__all__ = ["GROUPS", "estimate", "grid", "halves", "plan"]


def grid(
    base: RunConfig,
    neurons: Sequence[str],
    timesteps: Sequence[int],
    sparsities: Sequence[float],
    seeds: Sequence[int],
) -> list[RunConfig]:
    """Return one config for each combination of the given values.

    Args:
        base: the config that supplies all other values.
        neurons: names of neurons, or ``all``, ``ultra``, ``baselines``, ``every``.
        timesteps: numbers of time steps T.
        sparsities: weights lambda of the spike penalty.
        seeds: the seeds.

    Example:
        >>> from ultralif.training import RunConfig
        >>> runs = grid(RunConfig(), neurons=["LIF", "SoftLIF"], timesteps=[1], sparsities=[0.0], seeds=[1])
        >>> len(runs)
        2
    """
    names = [name for given in neurons for name in GROUPS.get(given, (given,))]
    configs = [
        base.with_(neuron=name, timesteps=time_, sparsity=sparsity, seed=seed)
        for seed in seeds
        for time_ in timesteps
        for name in names
        for sparsity in sparsities
    ]
    return list({config.id: config for config in configs}.values())


def plan(
    configs: Sequence[RunConfig], store: Store, largest: int = 64, seeds: int = 1
) -> list[list[RunConfig]]:
    """Return the unfinished stacks: runs that share data, order and schedule are trained together.

    Args:
        configs: all runs to train.
        store: the store whose finished runs are left out.
        largest: the maximum number of members with the same seed in a stack.
        seeds: the maximum number of seeds in a stack; on a GPU, several take little more time than one.

    Example:
        >>> import tempfile
        >>> from ultralif.training import RunConfig, Store
        >>> configs = [RunConfig(neuron=name, epochs=1) for name in ("LIF", "SoftLIF")]
        >>> [len(stack) for stack in plan(configs, Store(tempfile.mkdtemp()))]
        [2]
    """
    if largest < 1:
        raise InputError(f"largest must be at least 1, got {largest}")
    wanted = {config.id: config for config in configs}
    stacks: dict[tuple[object, ...], list[RunConfig]] = {}
    finished = store.finished(wanted)
    for run, config in wanted.items():
        if run not in finished:
            stacks.setdefault((config.seed, config.shared), []).append(config)
    parts = [
        members[start : start + largest]
        for members in stacks.values()
        for start in range(0, len(members), largest)
    ]
    together: dict[tuple[object, ...], list[list[RunConfig]]] = {}
    for part in parts:
        together.setdefault((part[0].shared, len(part)), []).append(part)
    return [
        [config for part in alike[start : start + seeds] for config in part]
        for alike in together.values()
        for start in range(0, len(alike), seeds)
    ]


def halves(stack: Sequence[RunConfig]) -> tuple[list[RunConfig], list[RunConfig]]:
    """Split a stack of two or more members: by seed if it has several seeds, otherwise by member."""
    seeds = sorted({config.seed for config in stack})
    first = set(seeds[: len(seeds) // 2])
    if first:
        return [c for c in stack if c.seed in first], [c for c in stack if c.seed not in first]
    return list(stack[: len(stack) // 2]), list(stack[len(stack) // 2 :])


STEPS = 6
ENOUGH = 2.0
"""Seconds after which the measurement ends."""


def estimate(stacks: Sequence[Sequence[RunConfig]], device: str = "auto") -> list[float]:
    """Estimate each stack's training time in seconds, excluding data loading and evaluation.

    Example:
        >>> from ultralif.training import RunConfig
        >>> (seconds,) = estimate([[RunConfig(epochs=1)]], device="cpu")
        >>> seconds > 0
        True
    """
    from ultralif.training.device import pick_device

    known: dict[tuple[str, ...], float] = {}
    for stack in stacks:
        key = _key(stack)
        if key not in known:
            known[key] = _step_seconds(stack, pick_device(device))
    return [known[_key(stack)] * _steps(stack[0]) for stack in stacks]


def _key(stack: Sequence[RunConfig]) -> tuple[str, ...]:
    """Return the values that determine how long a step takes."""
    return tuple(config.with_(seed=0, sparsity=0.0).id for config in stack)


def _steps(config: RunConfig) -> int:
    samples = int(DATASETS[config.dataset].sizes[0] * (1 - config.validation))
    return config.epochs * -(-samples // config.batch_size)


def _step_seconds(stack: Sequence[RunConfig], device: "torch.device") -> float:
    import torch

    from ultralif.training.device import arithmetic
    from ultralif.training.loop import Job, prepare_epoch, steps
    from ultralif.training.networks import build_networks, step_work

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


def _made_up(config: RunConfig, device: "torch.device") -> "Data":
    """Return a few batches of noise in the shape of a dataset."""
    import torch

    from ultralif.data import Dataset, Split
    from ultralif.training.batches import Data

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
    spec: Spec, count: int, timesteps: int, generator: "torch.Generator", device: "torch.device"
) -> "Images":
    import torch

    from ultralif.data.split import Images

    pixels = torch.randint(256, (count, *spec.shape), generator=generator, dtype=torch.uint8)
    pixels *= (
        torch.rand(count, *spec.shape, generator=generator) < 0.25
    )  # the approximate share of a digit's pixels that are not black
    return Images(pixels.to(device))


def _events(
    spec: Spec, count: int, timesteps: int, generator: "torch.Generator", device: "torch.device"
) -> "Events":
    import torch

    from ultralif.data.split import Events

    cells = timesteps * prod(spec.shape)
    each = min(cells, 2000)
    keys = torch.randint(cells, (count * each,), generator=generator, dtype=torch.int32)
    offsets = each * torch.arange(count + 1)
    counts = torch.ones(count * each, dtype=torch.uint8)
    return Events(offsets.to(device), keys.to(device), counts.to(device), timesteps, spec.shape)
