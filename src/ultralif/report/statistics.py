"""Means with 95 % confidence intervals by Student's t. Does not need torch."""

import math
from collections.abc import Mapping
from functools import cache
from statistics import fmean, stdev
from typing import NamedTuple

__all__ = ["Interval", "interval", "probability_within", "quantile"]

LEVEL = 0.95
"""Confidence level of every interval."""
MOST_FREEDOM = 1000
"""Limit on the degrees of freedom, at which Student's distribution is practically normal."""


class Interval(NamedTuple):
    """A mean and the half width of its 95 % interval, which is None for a single value."""

    mean: float
    half: float | None
    seeds: int
    p: float | None = None
    """Two-sided probability of a mean at least this far from 0 if there were no difference."""

    def __str__(self) -> str:
        return f"{self.mean:.2f}{self._width}"

    @property
    def signed(self) -> str:
        """The interval as text, with an explicit sign, for differences."""
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


def interval(by_seed: Mapping[int, float], over_images: float = 0.0) -> Interval | None:
    """Return the mean and the 95 % interval by Student's t, or None if there are no values.

    Args:
        by_seed: the values.
        over_images: the additional variance of the mean due to the choice of test samples.

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


@cache
def quantile(freedom: int, level: float = LEVEL) -> float:
    """Return the t for which Student's variable is within ±t with the given probability, by bisection."""
    low, high = 0.0, 1.0
    while probability_within(high, freedom) < level:
        high *= 2
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if probability_within(middle, freedom) < level else (low, middle)
    return (low + high) / 2


def probability_within(t: float, freedom: int) -> float:
    """Return the probability that Student's t is between -t and t, for integer degrees of freedom."""
    angle = math.atan(t / math.sqrt(freedom))
    cosine, odd = math.cos(angle), freedom % 2
    term, total = (cosine, cosine if freedom > 1 else 0.0) if odd else (1.0, 1.0)
    for k in range(2 + odd, freedom - 1, 2):
        term *= (k - 1) / k * cosine**2
        total += term
    total *= math.sin(angle)
    return min(1.0, 2 / math.pi * (angle + total) if odd else total)
