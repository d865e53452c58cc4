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
    "bootstrap",
    "holm",
    "interval",
    "mcnemar",
    "paired",
    "probability_within",
    "quantile",
]

LEVEL = 0.95
"""Confidence level of every interval."""


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


def interval(by_seed: Mapping[int, float]) -> Interval | None:
    """Return mean and 95 % interval by Student's t; None without values.

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
    error = stdev(values) / math.sqrt(count)
    t = abs(mean) / error if error else math.inf if mean else 0.0
    return Interval(mean, quantile(count - 1) * error, count, 1 - probability_within(t, count - 1))


def paired(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Interval | None:
    """Return the mean difference over common seeds, whose runs have the same batches and spikes."""
    return interval({seed: ours[seed] - theirs[seed] for seed in sorted(ours.keys() & theirs.keys())})


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


def mcnemar(ours: "NDArray[np.bool_]", theirs: "NDArray[np.bool_]") -> tuple[int, int, float]:
    """Compare two networks on the same samples by McNemar's exact test.

    Returns:
        samples that only the first has right, those that only the second has, and the probability of a split
        at least this uneven if both were equally good.

    Args:
        ours: whether the first has each sample right.
        theirs: the same for the second.
    """
    _check(ours, theirs)
    first, second = int((ours & ~theirs).sum()), int((theirs & ~ours).sum())
    count, few = first + second, min(first, second)
    logs = [math.lgamma(count + 1) - math.lgamma(k + 1) - math.lgamma(count - k + 1) for k in range(few + 1)]
    tail = math.fsum(math.exp(log - count * math.log(2)) for log in logs)
    return first, second, min(1.0, 2 * tail)


def bootstrap(
    ours: "Sequence[NDArray[np.bool_]]",
    theirs: "Sequence[NDArray[np.bool_]]",
    draws: int = 2000,
    seed: int = 0,
) -> tuple[float, float]:
    """Return the 95 % interval of a difference of accuracies, in points, over test samples and seeds.

    Each draw takes as many seeds and as many samples as there are, with replacement; both networks of a seed
    see the same samples.

    Args:
        ours: for each seed whether the first network has each sample right.
        theirs: the same for the second, with the same seeds.
        draws: number of draws.
        seed: seed of the draws.
    """
    import numpy as np

    difference = np.stack([a.astype(np.float32) - b for a, b in zip(ours, theirs, strict=True)])
    generator = np.random.default_rng(seed)
    seeds, samples = difference.shape
    means = np.empty(draws)
    for i in range(draws):
        rows = difference[generator.integers(seeds, size=seeds)].mean(0)
        counts = np.bincount(generator.integers(samples, size=samples), minlength=samples)
        means[i] = 100 * float(rows @ counts) / samples
    low, high = np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def _check(ours: "NDArray[np.bool_]", theirs: "NDArray[np.bool_]") -> None:
    if ours.shape != theirs.shape:
        raise InputError(f"hits must be of the same samples, got {ours.shape} and {theirs.shape}")
