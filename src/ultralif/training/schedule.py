"""Learning rate, temperature and mode of each epoch."""

import math

from ultralif.functional import Mode
from ultralif.training.config import RunConfig

__all__ = ["changes_within", "epoch_mode", "hard_epochs", "learning_rate", "temperature"]


def learning_rate(config: RunConfig, epoch: int, part: float = 0.0) -> float:
    """Return an epoch's learning rate: constant, or falling linearly or along half a cosine.

    Args:
        config: the run's config.
        epoch: counted from 0.
        part: the completed share of the epoch. Warm-up and the linear schedule change the rate within an
            epoch; the cosine schedule does not.
    """
    warm = config.warmup_epochs
    if epoch < warm:
        return config.learning_rate * (epoch + part) / warm
    if config.schedule == "constant":
        return config.learning_rate
    if config.schedule == "linear":
        return config.learning_rate * (1 - (epoch + part - warm) / (config.epochs - warm))
    return config.learning_rate * 0.5 * (1 + math.cos(math.pi * (epoch - warm) / (config.epochs - warm)))


def changes_within(config: RunConfig, epoch: int) -> bool:
    """Return whether the learning rate changes within an epoch."""
    return config.schedule == "linear" or epoch < config.warmup_epochs


def temperature(config: RunConfig, epoch: int) -> float | None:
    """Return the annealed temperature for an epoch, counted from 0; None without annealing."""
    if config.anneal is None:
        return None
    first, last = config.anneal
    done = epoch / max(1, config.epochs - 1)
    return float(first * (last / first) ** done)


def hard_epochs(config: RunConfig) -> int:
    """Return the number of final epochs trained with binary spikes."""
    return max(config.hard_epochs, round(config.hard_share * config.epochs))


def epoch_mode(config: RunConfig, epoch: int) -> Mode | None:
    """Return ``hard`` for the last epochs of a hardened run, otherwise None for the neurons' own mode."""
    return "hard" if epoch >= config.epochs - hard_epochs(config) else None
