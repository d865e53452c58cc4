"""Differences over seeds and over test images, corrected for the number of comparisons."""

from collections.abc import Mapping, Sequence
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from ultralif.errors import InputError
from ultralif.report import Interval, interval
from ultralif.training import unpack_hits

__all__ = [
    "Interval",
    "Scores",
    "holm",
    "images",
    "interval",
    "paired",
    "two_ways",
]


class Scores(dict[int, float]):
    """Accuracies by seed, in percent, and the test samples that were classified correctly, if known.

    Args:
        accuracies: the accuracy for each seed.
        hits: the samples that were classified correctly, packed, for the seeds that recorded them.
        share: for networks without hits, the variance of a difference over test samples as a fraction of its
            value for independent test sets, divided by the number of samples.
    """

    def __init__(
        self, accuracies: Mapping[int, float], hits: Mapping[int, str] | None = None, share: float = 0.0
    ) -> None:
        super().__init__(accuracies)
        self.hits = dict(hits or {})
        self.share = share


def paired(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Interval | None:
    """Return the mean difference over common seeds, whose runs see the same batches and spikes.

    The interval covers seeds; for `Scores` it covers seeds and test samples.
    """
    difference = {seed: ours[seed] - theirs[seed] for seed in sorted(ours.keys() & theirs.keys())}
    if isinstance(ours, Scores) and isinstance(theirs, Scores):
        return interval(difference, images(ours, theirs))
    return interval(difference)


def images(ours: Scores, theirs: Scores) -> float:
    """Return the variance that the choice of test samples adds to a mean difference over seeds.

    It is computed from the samples that both networks, or only one, classified correctly for each seed. If
    these were not recorded, it is a fraction of the variance for independent test sets. It is 0 for networks
    with equal accuracies for every seed, because they are the same network.
    """
    seeds = sorted(ours.keys() & theirs.keys())
    if all(ours[seed] == theirs[seed] for seed in seeds):
        return 0.0
    if not all(seed in each.hits for seed in seeds for each in (ours, theirs)):
        own = (fmean(each[seed] * (100 - each[seed]) for seed in seeds) for each in (ours, theirs))
        return max(ours.share, theirs.share) * sum(own)
    if len(seeds) < 2:
        return 0.0
    mine, other = (np.stack([unpack_hits(each.hits[seed]) for seed in seeds]) for each in (ours, theirs))
    if mine.shape != other.shape:
        raise InputError(f"hits must refer to the same samples, got {mine.shape} and {other.shape}")
    return two_ways(100 * (mine.astype(np.float64) - other))


def two_ways(values: NDArray[np.float64]) -> float:
    """Return the variance of the mean of ``[seeds, samples]`` that is due to the samples alone.

    As in an analysis of variance by seed and sample, this is the variance of the samples' means over seeds,
    minus the part due to chance within a sample, which belongs to the variance between seeds. The result is
    at least 0.
    """
    seeds, samples = map(int, values.shape)
    by_sample, by_seed = values.mean(0), values.mean(1, keepdims=True)
    rest = ((values - by_sample - by_seed + values.mean()) ** 2).sum() / ((seeds - 1) * (samples - 1))
    return max(0.0, float(by_sample.var(ddof=1) - rest / seeds) / samples)


def holm(probabilities: Sequence[float]) -> list[float]:
    """Return p-values corrected for their number by Holm's rule; those below 0.05 are significant.

    Example:
        >>> holm([0.01, 0.04, 0.03])
        [0.03, 0.06, 0.06]
    """
    corrected, largest, count = [0.0] * len(probabilities), 0.0, len(probabilities)
    for rank, place in enumerate(sorted(range(count), key=lambda i: probabilities[i])):
        largest = max(largest, min(1.0, (count - rank) * probabilities[place]))
        corrected[place] = largest
    return corrected
