"""Measured runs by table cell."""

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

from research.paper.grids import CLIPPED, CONSTANT, SEED, STATIC, Key, key_of
from research.paper.published import BASELINES, ULTRA
from research.paper.statistics import Interval, Scores, interval, paired
from ultralif.data import DATASETS, available
from ultralif.training import Result, RunConfig, Store

__all__ = [
    "ABSENT",
    "NOT_RUN",
    "SHARE",
    "Gain",
    "Key",
    "Results",
    "difference",
    "from_store",
    "number",
    "scores",
]

ABSENT, NOT_RUN = "no data here", "not run"
SHARE = {"n-mnist": 0.18, "shd": 0.36}
OTHER_SHARE = 0.05
"""The variance of a difference over test samples, as a fraction of its value for independent test sets.

It is used for runs that did not record which samples were classified correctly, and is the largest fraction
found for pairs of neurons that did. It is small because all networks see the same samples. It is larger for
events, whose spikes are not random."""


class Gain(NamedTuple):
    """The best Ultra neuron compared with the best baseline, both chosen by mean test accuracy."""

    ultra: str
    baseline: str
    difference: Interval


class Results:
    """Finished runs of the paper's grids.

    Args:
        results: results such as `ultralif.training.Store.rows` returns.
        step_ms: milliseconds per training step, by setting and neuron.
    """

    def __init__(
        self, results: Iterable[Result] = (), step_ms: Mapping[str, Mapping[str, float]] | None = None
    ) -> None:
        self.runs: dict[Key, dict[int, Result]] = {}
        self.by_id: dict[str, Result] = {}
        """The runs of the paper."""
        self.others: list[Result] = []
        """Other runs, such as those of the studies."""
        self.step_ms = dict(step_ms or {})
        for result in results:
            self.add(result)

    def add(self, result: Result) -> bool:
        """Add a run if it is finished and belongs to the paper; return whether it was added."""
        key = key_of(result.config)
        if key is None:
            self.others.append(result)
        if key is None or result.status != "done":
            return False
        self.runs.setdefault(key, {})[result.seed] = result
        self.by_id[result.id] = result
        return True

    @property
    def every(self) -> list[Result]:
        """All runs, from the paper and from the studies."""
        return [*self.by_id.values(), *self.others]

    def nothing(self, dataset: str) -> str:
        """Explain why a cell is empty: not run yet, or no data on this machine."""
        ran = any(key.dataset == dataset for key in self.runs)
        return NOT_RUN if ran or available(dataset) else ABSENT

    def accuracy(
        self, label: str, dataset: str, timesteps: int, mode: str | None = None, encoding: str = "rate"
    ) -> Scores:
        """Return accuracies by seed; the mode defaults to the one used in training."""
        return scores(self.runs.get(Key(label, dataset, timesteps, encoding), {}), mode)

    def best_epoch(
        self, label: str, dataset: str, timesteps: int, encoding: str = CLIPPED
    ) -> dict[int, float]:
        """Return the test accuracy of the best epoch by seed, for runs in the author's reading."""
        found = self.runs.get(Key(label, dataset, timesteps, encoding), {})
        return {seed: best for seed, run in sorted(found.items()) if (best := run.by_epoch.best) is not None}

    def best(
        self,
        dataset: str,
        labels: Sequence[str],
        timesteps: int,
        mode: str | None = None,
        encoding: str = "rate",
    ) -> tuple[str, Interval] | None:
        """Return the label with the best mean accuracy over seeds, and that accuracy."""
        found = [
            (label, interval(self.accuracy(label, dataset, timesteps, mode, encoding))) for label in labels
        ]
        known = [(label, value) for label, value in found if value is not None]
        return max(known, key=lambda pair: pair[1].mean) if known else None

    def gain(
        self, dataset: str, timesteps: int, mode: str | None = None, encoding: str = "rate"
    ) -> Gain | None:
        """Return the difference between the best Ultra neuron and the best baseline.

        This is the only definition of a gain. The best of each group is chosen by mean accuracy, with the
        Ultra neurons in the given mode and the baselines as trained. The difference is paired by seed.
        """
        base = self.best(dataset, BASELINES, timesteps, encoding=encoding)
        ultra = self.best(dataset, ULTRA, timesteps, mode, encoding)
        if base is None or ultra is None:
            return None
        difference = paired(
            self.accuracy(ultra[0], dataset, timesteps, mode, encoding),
            self.accuracy(base[0], dataset, timesteps, encoding=encoding),
        )
        return None if difference is None else Gain(ultra[0], base[0], difference)

    def spike_rate(
        self, label: str, dataset: str, timesteps: int, mode: str | None = None, encoding: str = "rate"
    ) -> dict[int, float]:
        """Return mean spike rates of the hidden layer by seed."""
        found = self.runs.get(Key(label, dataset, timesteps, encoding), {})
        return {
            seed: rate
            for seed, run in sorted(found.items())
            if (one := run.by_mode.get(mode or run.mode)) and (rate := one.spike_rate) is not None
        }

    def eps(self, label: str, dataset: str, timesteps: int, encoding: str = "rate") -> dict[int, float]:
        """Return final temperatures by seed."""
        found = self.runs.get(Key(label, dataset, timesteps, encoding), {})
        return {seed: eps for seed, result in found.items() if (eps := result.constants.eps) is not None}

    def draw_spread(self, dataset: str, timesteps: int) -> tuple[float, int] | None:
        """Return the standard deviation of an accuracy over random draws of the test set's spikes.

        It is estimated from runs in the author's reading, whose last epoch was measured with two draws; the
        number of these runs is returned too. The result is None without such runs and for events, which are
        not random.
        """
        found = [
            last - own
            for key, runs in self.runs.items()
            if key[1:] == (dataset, timesteps, CLIPPED) and dataset in STATIC
            for run in runs.values()
            if (last := run.by_epoch.last) is not None and (own := run.own.accuracy) is not None
        ]
        return (math.sqrt(fmean(value**2 for value in found) / 2), len(found)) if found else None

    def trajectories(self, label: str, encoding: str = "rate") -> dict[int, list[float]]:
        """Return the temperature after every epoch by seed, on MNIST at T=1."""
        paths = {}
        for seed, result in self.runs.get(Key(label, "mnist", 1, encoding), {}).items():
            known = [value for value in result.by_epoch.eps or () if value is not None]
            if known:
                paths[seed] = known
        return paths

    def as_written(self) -> "Results":
        """Return only the runs that follow the text."""
        view = Results(step_ms=self.step_ms)
        view.runs = {key: runs for key, runs in self.runs.items() if key.encoding not in (CLIPPED, CONSTANT)}
        return view

    def as_released(self) -> "Results":
        """Return only the runs in the author's reading, under the cells of the paper as written.

        Runs of its separate temperature system keep their cells.
        """
        view, places = Results(), {CLIPPED: "rate", CONSTANT: CONSTANT}
        for key, by_seed in self.runs.items():
            if key.encoding in places:
                view.runs[key._replace(encoding=places[key.encoding])] = by_seed
        return view

    def first(self, seeds: int) -> "Results":
        """Return the runs of the first seeds, starting with the paper's."""
        return Results((run for run in self.by_id.values() if run.seed < SEED + seeds), self.step_ms)

    def missing(self, configs: Iterable[RunConfig]) -> list[RunConfig]:
        """Return the missing runs."""
        return [config for config in configs if not self._has(config)]

    def _has(self, config: RunConfig) -> bool:
        key = key_of(config.to_dict())
        return key is not None and config.seed in self.runs.get(key, {})


def scores(by_seed: Mapping[int, Result], mode: str | None = None) -> Scores:
    """Return test accuracies by seed; the mode defaults to the one used in training."""
    found = {seed: (run, run.by_mode.get(mode or run.mode)) for seed, run in sorted(by_seed.items())}
    values = {seed: x for seed, (_, one) in found.items() if one and (x := one.accuracy) is not None}
    hits = {seed: run.hits for seed, (run, _) in found.items() if run.hits and mode in (None, run.mode)}
    share = 0.0
    for run in by_seed.values():
        share = SHARE.get(run.dataset, OTHER_SHARE) / DATASETS[run.dataset].sizes[1]
    return Scores(values, hits, share)


def from_store(store: Store) -> Results:
    """Collect the paper's runs from a store."""
    return Results(store.rows())


def number(value: float | None) -> str:
    """Format a percentage, if there is one."""
    return "-" if value is None else f"{value:.2f}"


def difference(measured: Interval | None, theirs: float | None) -> str:
    """Format the difference between a measurement and a published number."""
    return "-" if measured is None or theirs is None else f"{measured.mean - theirs:+.2f}"
