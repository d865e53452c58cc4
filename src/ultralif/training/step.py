"""One step of training: the loss of every member, and the optimizer that serves all."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from ultralif.analysis import volume_regularizer
from ultralif.functional import Mode
from ultralif.nn import Stack
from ultralif.training.config import RunConfig

__all__ = [
    "Losses",
    "Penalties",
    "hidden_rate",
    "learning_rate",
    "make_optimizer",
    "stack_loss",
    "temperature",
]


class Penalties(NamedTuple):
    """What each member adds to its loss, ``[M]``."""

    sparsity: Tensor
    volume: Tensor
    uses_volume: bool

    @classmethod
    def of(cls, configs: Sequence[RunConfig], like: Tensor) -> "Penalties":
        """Collect the penalties of the members, in the order of their places."""
        return cls(
            like.new_tensor([config.sparsity for config in configs]),
            like.new_tensor([config.volume_reg for config in configs]),
            any(config.volume_reg for config in configs),
        )


class Losses(NamedTuple):
    """What a step says of each member, ``[M]``."""

    loss: Tensor
    correct: Tensor
    """Samples of the batch that were classified well."""
    rate: Tensor
    """Mean spike of the hidden neurons."""


def stack_loss(stack: Stack, x: Tensor, labels: Tensor, penalties: Penalties, mode: Mode | None) -> Losses:
    r"""Return for each member the cross-entropy plus :math:`\lambda \bar s` (section 6).

    Members share no parameter, so the gradient of the sum is for each the gradient of its own loss.
    """
    out = stack(x, mode)
    labels = stack.spread(labels)
    by_class = out.logits.mT.contiguous()  # [M, classes, B]: a few classes are a short axis to sum along
    each = cross_entropy(by_class, labels, reduction="none")
    rate = hidden_rate(stack, out.rates)
    loss = each.mean(1) + penalties.sparsity * rate
    if penalties.uses_volume:
        volumes = torch.stack([volume_regularizer(weight) for weight in stack.weights[0]])
        loss = loss + penalties.volume * volumes
    correct = (out.logits.detach().argmax(2) == labels).sum(1)
    return Losses(loss, correct, rate.detach())


def hidden_rate(stack: Stack, rates: Sequence[Tensor]) -> Tensor:
    """Return the mean spike of the hidden neurons, ``[M]``, from the rates of all spiking layers."""
    hidden = [rate.flatten(2) for rate in rates[: len(stack.sizes) - 2]]
    return (hidden[0] if len(hidden) == 1 else torch.cat(hidden, 2)).mean((0, 2))


def make_optimizer(stack: Stack, config: RunConfig, *, capturable: bool = False) -> torch.optim.Adam:
    """Return one fused Adam for the stack: it works element by element, so it is one Adam for each member."""
    rate: float | Tensor = config.learning_rate
    if capturable:
        rate = torch.tensor(rate, device=stack.weights[0].device)
    return torch.optim.Adam(stack.parameters(), lr=rate, fused=True, capturable=capturable)


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
