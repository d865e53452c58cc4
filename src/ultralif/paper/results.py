"""Measured runs by table cell, with means and intervals over seeds."""

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from statistics import fmean, stdev
from typing import NamedTuple

from ultralif.paper.grids import CLIPPED, SEED, Key, key_of
from ultralif.training.config import RunConfig
from ultralif.training.result import Result
from ultralif.training.store import Store

__all__ = ["Interval", "Key", "Results", "from_store", "interval", "paired"]


class Interval(NamedTuple):
    """A mean with the half width of its 95 % interval; the width is None for a single value."""

    mean: float
    half: float | None
    seeds: int

    def __str__(self) -> str:
        return f"{self.mean:.2f}{self._width}"

    @property
    def signed(self) -> str:
        """The same as text, with the sign of a difference."""
        return f"{self.mean:+.2f}{self._width}"

    @property
    def _width(self) -> str:
        return "" if self.half is None else f" ± {self.half:.2f}"


def interval(by_seed: Mapping[int, float]) -> Interval | None:
    """Return mean and 95 % interval by Student's t; None without values.

    Example:
        >>> print(interval({42: 1.0, 43: 2.0, 44: 3.0}))
        2.00 ± 2.48
    """
    values = list(by_seed.values())
    if not values:
        return None
    if len(values) == 1:
        return Interval(values[0], None, 1)
    return Interval(
        fmean(values), _student(len(values) - 1) * stdev(values) / math.sqrt(len(values)), len(values)
    )


def paired(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Interval | None:
    """Return the mean difference over the seeds that both have: they saw the same batches and spikes."""
    return interval({seed: ours[seed] - theirs[seed] for seed in sorted(ours.keys() & theirs.keys())})


@cache
def _student(freedom: int) -> float:
    """Return the 97.5 % quantile of Student's t, by bisection of its distribution."""
    low, high = 0.0, 20.0
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if _within(middle, freedom) < 0.95 else (low, middle)
    return (low + high) / 2


def _within(t: float, freedom: int) -> float:
    """Return the probability that Student's t is between -t and t: a finite sum for whole degrees."""
    angle = math.atan(t / math.sqrt(freedom))
    cosine, odd = math.cos(angle), freedom % 2
    term, total = (cosine, cosine if freedom > 1 else 0.0) if odd else (1.0, 1.0)
    for k in range(2 + odd, freedom - 1, 2):
        term *= (k - 1) / k * cosine**2
        total += term
    total *= math.sin(angle)
    return 2 / math.pi * (angle + total) if odd else total


class Results:
    """Finished runs of the paper's grids.

    Args:
        results: such as `ultralif.training.Store.rows` returns.
        step_ms: milliseconds of a training step by setting and neuron.
    """

    def __init__(
        self, results: Iterable[Result] = (), step_ms: Mapping[str, Mapping[str, float]] | None = None
    ) -> None:
        self.runs: dict[Key, dict[int, Result]] = {}
        self.by_id: dict[str, Result] = {}
        """Those of the paper."""
        self.step_ms = dict(step_ms or {})
        for result in results:
            self.add(result)

    def add(self, result: Result) -> bool:
        """Take in a run if it belongs to the paper and is finished; tell whether it does."""
        key = key_of(result.config)
        if key is None or result.status != "done":
            return False
        self.runs.setdefault(key, {})[result.seed] = result
        self.by_id[result.id] = result
        return True

    def accuracy(
        self, label: str, dataset: str, timesteps: int, mode: str | None = None, encoding: str = "rate"
    ) -> dict[int, float]:
        """Return accuracies by seed; without a mode, with the spikes that the network was trained with."""
        return self._values("accuracy", Key(label, dataset, timesteps, encoding), mode)

    def best_epoch(
        self, label: str, dataset: str, timesteps: int, encoding: str = CLIPPED
    ) -> dict[int, float]:
        """Return the accuracy of the best epoch on the test set by seed, for runs of the author's reading."""
        found = self.runs.get(Key(label, dataset, timesteps, encoding), {})
        return {seed: best for seed, run in sorted(found.items()) if (best := run.by_epoch.best) is not None}

    def best(
        self, dataset: str, labels: Sequence[str], timesteps: int, mode: str | None = None
    ) -> tuple[str, Interval] | None:
        """Return the label with the best mean accuracy over seeds, and that accuracy."""
        found = [(label, interval(self.accuracy(label, dataset, timesteps, mode))) for label in labels]
        known = [(label, value) for label, value in found if value is not None]
        return max(known, key=lambda pair: pair[1].mean) if known else None

    def spike_rate(
        self, label: str, dataset: str, timesteps: int, mode: str | None = None, encoding: str = "rate"
    ) -> dict[int, float]:
        """Return mean spike rates of the hidden layer by seed."""
        return self._values("spike_rate", Key(label, dataset, timesteps, encoding), mode)

    def eps(self, label: str, dataset: str, timesteps: int, encoding: str = "rate") -> dict[int, float]:
        """Return final temperatures by seed."""
        found = self.runs.get(Key(label, dataset, timesteps, encoding), {})
        return {seed: eps for seed, result in found.items() if (eps := result.constants.eps) is not None}

    def trajectories(self, label: str, encoding: str = "rate") -> dict[int, list[float]]:
        """Return the temperature of every epoch by seed, on MNIST at T=1."""
        paths = {}
        for seed, result in self.runs.get(Key(label, "mnist", 1, encoding), {}).items():
            known = [value for value in result.by_epoch.eps or () if value is not None]
            if known:
                paths[seed] = known
        return paths

    def _values(self, quantity: str, key: Key, mode: str | None) -> dict[int, float]:
        values = {}
        for seed, result in sorted(self.runs.get(key, {}).items()):
            one = result.by_mode.get(mode or result.mode)
            value = None if one is None else getattr(one, quantity)
            if value is not None:
                values[seed] = value
        return values

    def first(self, seeds: int) -> "Results":
        """Return the runs of that many seeds, from the paper's on."""
        return Results((run for run in self.by_id.values() if run.seed < SEED + seeds), self.step_ms)

    def missing(self, configs: Iterable[RunConfig]) -> list[RunConfig]:
        """Return those of the runs that are not there."""
        return [config for config in configs if not self._has(config)]

    def _has(self, config: RunConfig) -> bool:
        key = key_of(config.to_dict())
        return key is not None and config.seed in self.runs.get(key, {})


def from_store(store: Store) -> Results:
    """Collect the paper's runs of a store."""
    return Results(store.rows())
