"""The loss of every member: cross-entropy and penalties."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from ultralif.functional import Mode
from ultralif.nn.volume import volume_regularizer
from ultralif.ops.autograd import runs_triton
from ultralif.stack import Stack
from ultralif.training.config import RunConfig
from ultralif.training.members import Members

__all__ = ["Losses", "Objective", "member_losses"]


class Objective(NamedTuple):
    """The objective: the form of the cross-entropy, and the penalties of each member, ``[M]``."""

    sparsity: Tensor
    volume: Tensor
    ones: Tensor
    """The gradient of the sum of all losses."""
    uses_volume: bool
    smoothing: float = 0.0
    """Label smoothing."""
    by_step: bool = False
    """Take the mean of the cross-entropies of all steps, in place of the cross-entropy of the mean scores."""

    @classmethod
    def of(cls, configs: Sequence[RunConfig], like: Tensor) -> "Objective":
        """Collect the penalties of the members, in the order of their places."""
        return cls(
            like.new_tensor([config.sparsity for config in configs]),
            like.new_tensor([config.volume_reg for config in configs]),
            like.new_ones(len(configs)),
            any(config.volume_reg for config in configs),
            configs[0].label_smoothing,
            configs[0].loss == "tet",
        )


class Losses(NamedTuple):
    """Loss, hits and spike rate of each member on a batch, ``[M]``."""

    loss: Tensor
    correct: Tensor
    """Samples of the batch that were classified correctly."""
    rate: Tensor
    """Mean spike of the hidden neurons."""


def member_losses(
    members: Members, x: Tensor, labels: Tensor, objective: Objective, mode: Mode | None
) -> Losses:
    r"""Return for each member the cross-entropy plus :math:`\lambda \bar s` (section 6).

    Members share no parameter, so the gradient of the sum is for each the gradient of its own loss.

    Args:
        members: the networks.
        x: a batch, as they read it.
        labels: classes ``[B]``, or probabilities ``[B, classes]``; or such for each batch.
        objective: the loss.
        mode: of the neurons; None, their own.
    """
    if can_be_fused(members, x, labels, objective):
        from ultralif.stack.fused_step import readout_loss

        assert isinstance(members, Stack)  # noqa: S101 - no others can
        rates = members.rates(x, mode)[-1].contiguous()
        by_batch = labels.reshape(members.batches, -1)
        given = rates, members.weights[-1], members.biases[-1], by_batch, objective.sparsity
        return Losses(*readout_loss(*given, objective.smoothing, objective.ones))
    out = members(x, mode, by_step=objective.by_step)
    labels = members.spread(labels)
    if out.by_step is not None and objective.by_step:
        steps = len(out.by_step)
        repeated = labels.expand(steps, *labels.shape).flatten(0, 1)
        entropy = _entropies(out.by_step.flatten(0, 1), repeated, objective.smoothing)
        entropy = entropy.view(steps, *labels.shape[:2]).mean(0)
    else:
        entropy = _entropies(out.logits, labels, objective.smoothing)
    rate = members.hidden_rate(out.rates)
    loss = entropy.mean(1) + objective.sparsity * rate
    if objective.uses_volume:
        volumes = torch.stack([volume_regularizer(weight) for weight in members.first_weights()])
        loss = loss + objective.volume * volumes
    classes = labels.argmax(2) if labels.is_floating_point() else labels
    correct = (out.logits.detach().argmax(2) == classes).sum(1)
    return Losses(loss, correct, rate.detach())


def can_be_fused(members: Members, x: Tensor, labels: Tensor, objective: Objective) -> bool:
    """Tell whether one kernel computes readout and loss: on a GPU, for one spiking layer and plain labels."""
    if x.dtype == torch.float64 or not runs_triton(x) or not isinstance(members, Stack):
        return False
    from ultralif.stack.fused_step import MOST_CLASSES

    return (
        members.readout == "linear"
        and len(members.neurons) == 1
        and members.sizes[-1] <= MOST_CLASSES
        and not (objective.by_step or objective.uses_volume or labels.is_floating_point())
    )


def _entropies(logits: Tensor, labels: Tensor, smoothing: float) -> Tensor:
    """Return the cross-entropy ``[M, B]`` of scores ``[M, B, classes]``."""
    by_class = logits.mT.contiguous()  # [M, classes, B]: a few classes are a short axis to sum along
    target = labels.mT.to(logits.dtype) if labels.is_floating_point() else labels
    return cross_entropy(by_class, target, reduction="none", label_smoothing=smoothing)
