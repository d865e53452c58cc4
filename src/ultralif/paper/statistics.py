"""Means and differences over seeds and over test images, corrected for the number of comparisons."""

import math
from collections.abc import Mapping, Sequence
from functools import cache
from statistics import fmean, stdev
from typing import TYPE_CHECKING, NamedTuple

from ultralif.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = [
    "Interval",
    "Scores",
    "holm",
    "images",
    "interval",
    "paired",
    "probability_within",
    "quantile",
    "two_ways",
]

LEVEL = 0.95
"""Confidence level of every interval."""
MOST_FREEDOM = 1000
"""Degrees of freedom beyond which Student's distribution is the normal one."""


class Interval(NamedTuple):
    """A mean with the half width of its 95 % interval; the width is None for a single value."""

    mean: float
    half: float | None
    seeds: int
    p: float | None = None
    """Two-sided probability of a mean at least this far from 0 if there were no difference."""

    def __str__(self) -> str:
        return f"{self.mean:.2f}{self._width}"

    @property
    def signed(self) -> str:
        """The same as text, with the sign of a difference."""
        return f"{self.mean:+.2f}{self._width}"

    @property
    def low(self) -> float:
        """Lower end; minus infinity for a single value, which has no interval."""
        return -math.inf if self.half is None else self.mean - self.half

    @property
    def high(self) -> float:
        """Upper end."""
        return math.inf if self.half is None else self.mean + self.half

    @property
    def _width(self) -> str:
        return "" if self.half is None else f" ± {self.half:.2f}"


class Scores(dict[int, float]):
    """Accuracies by seed, in percent, and what is known of the test samples behind them.

    Args:
        accuracies: by seed.
        hits: by seed the samples that were classified correctly, packed, for those that kept them.
        share: the variance of a difference over test samples, for networks that did not keep them, as a part
            of that of two networks with test sets of their own; divided by the number of samples.
    """

    def __init__(
        self, accuracies: Mapping[int, float], hits: Mapping[int, str] | None = None, share: float = 0.0
    ) -> None:
        super().__init__(accuracies)
        self.hits = dict(hits or {})
        self.share = share


def interval(by_seed: Mapping[int, float], over_images: float = 0.0) -> Interval | None:
    """Return mean and 95 % interval by Student's t; None without values.

    Args:
        by_seed: the values.
        over_images: the variance of their mean that other test samples would add (`images`).

    Example:
        >>> print(interval({42: 1.0, 43: 2.0, 44: 3.0}))
        2.00 ± 2.48
    """
    values = list(by_seed.values())
    if not values:
        return None
    mean, count = fmean(values), len(values)
    if count == 1:
        return Interval(mean, None, 1)
    over_seeds, freedom = stdev(values) ** 2 / count, count - 1
    tried = [(math.sqrt(over_seeds), freedom)]
    if over_images:  # with Satterthwaite's degrees of freedom; never narrower than over seeds alone
        both = over_seeds + over_images
        of_both = freedom * (both / over_seeds) ** 2 if over_seeds else math.inf
        tried.append((math.sqrt(both), int(min(of_both, MOST_FREEDOM))))
    half = max(quantile(freedom) * error for error, freedom in tried)
    chances = []
    for error, freedom in tried:
        t = abs(mean) / error if error else math.inf if mean else 0.0
        chances.append(1 - probability_within(t, freedom))
    return Interval(mean, half, count, max(chances))


def paired(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Interval | None:
    """Return the mean difference over common seeds, whose runs have the same batches and spikes.

    Its interval is over seeds; that of `Scores` is over seeds and test samples.
    """
    difference = {seed: ours[seed] - theirs[seed] for seed in sorted(ours.keys() & theirs.keys())}
    if isinstance(ours, Scores) and isinstance(theirs, Scores):
        return interval(difference, images(ours, theirs))
    return interval(difference)


def images(ours: Scores, theirs: Scores) -> float:
    """Return the variance that the choice of test samples adds to a mean difference over seeds.

    Found from the samples that both classified correctly, or one alone, in every seed. Where these were not
    kept, it is a share of what test sets of their own would add. It is 0 for networks that are level in every
    seed: they are the same.
    """
    seeds = sorted(ours.keys() & theirs.keys())
    if all(ours[seed] == theirs[seed] for seed in seeds):
        return 0.0
    if not all(seed in each.hits for seed in seeds for each in (ours, theirs)):
        own = (fmean(each[seed] * (100 - each[seed]) for seed in seeds) for each in (ours, theirs))
        return max(ours.share, theirs.share) * sum(own)
    if len(seeds) < 2:
        return 0.0
    import numpy as np  # here, so that commands which list runs begin in a moment

    from ultralif.training.hits import unpack_hits

    mine, other = (np.stack([unpack_hits(each.hits[seed]) for seed in seeds]) for each in (ours, theirs))
    if mine.shape != other.shape:
        raise InputError(f"hits must be of the same samples, got {mine.shape} and {other.shape}")
    return two_ways(100 * (mine.astype(np.float64) - other))


def two_ways(values: "NDArray[np.float64]") -> float:
    """Return the variance of the mean of ``[seeds, samples]`` that is due to the samples alone.

    As in an analysis of variance by seed and sample: the variance of the samples' means over seeds, less what
    it has from chance within a sample, which is part of the variance between seeds. At least 0.
    """
    seeds, samples = map(int, values.shape)
    by_sample, by_seed = values.mean(0), values.mean(1, keepdims=True)
    rest = ((values - by_sample - by_seed + values.mean()) ** 2).sum() / ((seeds - 1) * (samples - 1))
    return max(0.0, float(by_sample.var(ddof=1) - rest / seeds) / samples)


@cache
def quantile(freedom: int, level: float = LEVEL) -> float:
    """Return the t that Student's distribution keeps within -t and t with a probability, by bisection."""
    low, high = 0.0, 1.0
    while probability_within(high, freedom) < level:
        high *= 2
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if probability_within(middle, freedom) < level else (low, middle)
    return (low + high) / 2


def probability_within(t: float, freedom: int) -> float:
    """Return the probability that Student's t is between -t and t: a finite sum for whole degrees."""
    angle = math.atan(t / math.sqrt(freedom))
    cosine, odd = math.cos(angle), freedom % 2
    term, total = (cosine, cosine if freedom > 1 else 0.0) if odd else (1.0, 1.0)
    for k in range(2 + odd, freedom - 1, 2):
        term *= (k - 1) / k * cosine**2
        total += term
    total *= math.sin(angle)
    return min(1.0, 2 / math.pi * (angle + total) if odd else total)


def holm(probabilities: Sequence[float]) -> list[float]:
    """Return probabilities corrected for their number by Holm's rule; those below 0.05 are significant.

    Example:
        >>> holm([0.01, 0.04, 0.03])
        [0.03, 0.06, 0.06]
    """
    corrected, largest, count = [0.0] * len(probabilities), 0.0, len(probabilities)
    for rank, place in enumerate(sorted(range(count), key=lambda i: probabilities[i])):
        largest = max(largest, min(1.0, (count - rank) * probabilities[place]))
        corrected[place] = largest
    return corrected
