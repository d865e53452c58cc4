"""The loss of every member of a stack: cross-entropy and penalties."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from ultralif.functional import Mode
from ultralif.nn import Stack
from ultralif.nn.volume import volume_regularizer
from ultralif.training.config import RunConfig

__all__ = ["Losses", "Penalties", "hidden_rate", "stack_loss"]


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
