"""Many runs: which ones, and in which stacks. Needs no torch."""

from collections.abc import Sequence

from ultralif.errors import InputError
from ultralif.training.config import NEURON_NAMES, RunConfig
from ultralif.training.store import Store

__all__ = ["GROUPS", "grid", "plan"]

ULTRA = ("UltraLIF", "UltraPLIF", "UltraDLIF", "UltraDPLIF")
BASELINES = ("LIF", "PLIF", "AdaLIF", "FullPLIF", "DSpike", "DSpikePlus")
GROUPS = {"all": (*BASELINES, *ULTRA), "ultra": ULTRA, "baselines": BASELINES, "every": NEURON_NAMES}
"""Names for several neurons: the paper's ten, its four, its six, and all that there are."""


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
    names = [name for given in neurons for name in GROUPS.get(given, (given,))]
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
    wanted = {config.id: config for config in configs}
    stacks: dict[tuple[object, ...], list[RunConfig]] = {}
    finished = store.finished(wanted)
    for run, config in wanted.items():
        if run not in finished:
            stacks.setdefault(config.shared, []).append(config)
    return [
        members[start : start + largest]
        for members in stacks.values()
        for start in range(0, len(members), largest)
    ]
