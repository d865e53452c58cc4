"""Learning rate, temperature and mode of each epoch."""

import math

from ultralif.functional import Mode
from ultralif.training.config import RunConfig

__all__ = ["epoch_mode", "learning_rate", "temperature"]


def learning_rate(config: RunConfig, epoch: int) -> float:
    """Return the learning rate of an epoch: constant, or falling along half a cosine."""
    if config.schedule == "constant":
        return config.learning_rate
    return config.learning_rate * 0.5 * (1 + math.cos(math.pi * epoch / config.epochs))


def temperature(config: RunConfig, epoch: int) -> float | None:
    """Return the temperature that annealing prescribes for an epoch, counted from 0, if it does."""
    if config.anneal is None:
        return None
    first, last = config.anneal
    done = epoch / max(1, config.epochs - 1)
    return float(first * (last / first) ** done)


def epoch_mode(config: RunConfig, epoch: int) -> Mode | None:
    """Return ``hard`` for the last epochs of a run that is hardened; None, the neurons' own mode."""
    return "hard" if epoch >= config.epochs - config.hard_epochs else None
