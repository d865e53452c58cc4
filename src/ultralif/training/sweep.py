"""Grids of runs, and their grouping into stacks. Needs no torch."""

from collections.abc import Sequence

from ultralif.errors import InputError
from ultralif.names import GROUPS
from ultralif.training.config import RunConfig
from ultralif.training.store import Store

__all__ = ["GROUPS", "grid", "halves", "plan"]


def grid(
    base: RunConfig,
    neurons: Sequence[str],
    timesteps: Sequence[int],
    sparsities: Sequence[float],
    seeds: Sequence[int],
) -> list[RunConfig]:
    """Return every combination, each once.

    Args:
        base: the config that has all other values.
        neurons: neurons' names, or ``all``, ``ultra``, ``baselines``, ``every``.
        timesteps: numbers of time steps T.
        sparsities: weights lambda of the penalty on spikes.
        seeds: the seeds.
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
    """Return the stacks that are still to be trained: runs that share data, order and schedule go together.

    Args:
        configs: all runs that are wanted.
        store: runs that are finished there are left out.
        largest: how many members of one seed a stack may have.
        seeds: how many seeds a stack may have; a GPU trains several in little more time than one.
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
    """Cut a stack of two or more in two: its seeds if it has several, or else its members."""
    seeds = sorted({config.seed for config in stack})
    first = set(seeds[: len(seeds) // 2])
    if first:
        return [c for c in stack if c.seed in first], [c for c in stack if c.seed not in first]
    return list(stack[: len(stack) // 2]), list(stack[len(stack) // 2 :])
