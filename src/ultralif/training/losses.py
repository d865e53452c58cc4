"""Losses and readouts: plain named functions, and masks that exclude the padding of shorter samples.

A network's output is ``[T, B, *outputs]``. A readout turns it into ``[B, *outputs]``, and a loss compares
that with the targets. Without a readout, a loss compares every step with targets over time.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

import torch
from torch import Tensor
from torch.nn import functional

from ultralif.errors import InputError
from ultralif.functional import Mode, leaky_integrator
from ultralif.ops.autograd import runs_triton

if TYPE_CHECKING:
    from ultralif.training.config import RunConfig
    from ultralif.training.members import Members, Single

__all__ = [
    "LOSSES",
    "READOUTS",
    "Loss",
    "Losses",
    "Objective",
    "Readout",
    "Task",
    "bce",
    "count_correct",
    "cross_entropy",
    "find_loss",
    "find_readout",
    "last",
    "leaky",
    "log_rates",
    "maximum",
    "mean",
    "member_losses",
    "mse",
    "rate_mse",
    "step_mask",
    "tet",
]


class Loss(Protocol):
    """A loss: a function of scores, targets and, if samples differ in length, a mask."""

    def __call__(self, scores: Tensor, targets: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return a single number."""


class Readout(Protocol):
    """A readout: a function from the outputs of all steps to one output for each sample."""

    def __call__(self, steps: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return ``[B, *outputs]`` for ``[T, B, *outputs]``."""


def step_mask(lengths: Tensor, timesteps: int | None = None) -> Tensor:
    """Return the mask ``[T, B]`` for samples of the given lengths; True marks valid steps.

    Example:
        >>> step_mask(torch.tensor([1, 3])).T
        tensor([[ True, False, False],
                [ True,  True,  True]])
    """
    if lengths.dim() != 1 or not lengths.numel() or int(lengths.min()) < 1:
        raise InputError(f"lengths must be positive numbers of steps [B], got {lengths}")
    most = int(lengths.max()) if timesteps is None else timesteps
    return torch.arange(most, device=lengths.device)[:, None] < lengths


def mean(steps: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return the mean over time; with a mask, over the valid steps."""
    if mask is None:
        return steps.mean(0)
    weights = _weights(mask, steps)
    return (steps * weights).sum(0) / weights.sum(0)


def last(steps: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return the last step; with a mask, the last valid step of each sample."""
    if mask is None:
        return steps[-1]
    _weights(mask, steps)
    time = torch.arange(len(mask), device=mask.device)[:, None]
    latest = (time * mask).amax(0)
    return steps[latest, torch.arange(steps.shape[1], device=steps.device)]


def maximum(steps: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return the maximum over time; with a mask, over the valid steps."""
    if mask is None:
        return steps.amax(0)
    return steps.masked_fill(_weights(mask, steps) == 0, -torch.inf).amax(0)


def leaky(steps: Tensor, mask: Tensor | None = None, leak: float = 0.9) -> Tensor:
    """Return the last membrane potential of a leaky integrator, see `ultralif.LeakyIntegrator`."""
    return last(leaky_integrator(steps, leak=leak)[0], mask)


def cross_entropy(
    scores: Tensor, targets: Tensor, mask: Tensor | None = None, label_smoothing: float = 0.0
) -> Tensor:
    """Return the mean cross-entropy of scores ``[..., classes]``.

    Args:
        scores: ``[B, classes]``, or ``[T, B, classes]`` for targets over time.
        targets: integer classes, without the last axis, or probabilities in the shape of the scores.
        mask: ``[T, B]``, for scores over time.
        label_smoothing: as in `torch.nn.functional.cross_entropy`.
    """
    leading = scores.shape[:-1]
    whole = not targets.is_floating_point()
    if (whole and targets.shape != leading) or (not whole and targets.shape != scores.shape):
        raise InputError(
            f"cross-entropy needs classes {tuple(leading)} or probabilities {tuple(scores.shape)} for scores "
            f"{tuple(scores.shape)}, got targets {targets.dtype} of shape {tuple(targets.shape)}; choose a "
            "readout that fits the targets, or another loss"
        )
    flat = scores.reshape(-1, scores.shape[-1])
    wanted = targets.reshape(-1) if whole else targets.reshape(flat.shape).to(flat.dtype)
    return _average(_each_entropy(flat, wanted, label_smoothing).view(leading), mask)


def _each_entropy(scores: Tensor, targets: Tensor, smoothing: float) -> Tensor:
    """Return the cross-entropies of scores ``[N, classes, ...]``."""
    try:
        return functional.cross_entropy(scores, targets, reduction="none", label_smoothing=smoothing)
    except IndexError as error:
        raise InputError(
            f"the classes of a batch are {int(targets.min())} to {int(targets.max())}, but net returns "
            f"{scores.shape[1]} scores; classes are numbered from 0"
        ) from error


def mse(scores: Tensor, targets: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return the mean squared error; targets have the shape of the scores."""
    _check_alike("mse", scores, targets)
    return _average((scores - targets).square(), mask)


def bce(scores: Tensor, targets: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return the mean binary cross-entropy of logits, for targets with several labels.

    Targets have the shape of the scores: 1 for each label that applies and 0 for the others.
    """
    _check_alike("bce", scores, targets)
    wanted = targets.to(scores.dtype)
    return _average(functional.binary_cross_entropy_with_logits(scores, wanted, reduction="none"), mask)


def tet(scores: Tensor, targets: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return the mean of the cross-entropies of all steps (temporal efficient training, Deng et al. 2022).

    Args:
        scores: the scores of every step, ``[T, B, classes]``.
        targets: classes ``[B]`` or probabilities ``[B, classes]``, the same for all steps.
        mask: ``[T, B]``.
    """
    if scores.dim() != 3:
        raise InputError(
            f"tet needs the scores of every step [T, B, classes], got shape {tuple(scores.shape)}; let the "
            "network return them, without a mean over time"
        )
    return cross_entropy(scores, targets.expand(len(scores), *targets.shape), mask)


def rate_mse(
    scores: Tensor, targets: Tensor, mask: Tensor | None = None, *, correct: float = 1.0, other: float = 0.0
) -> Tensor:
    """Return the mean squared error between spike rates and a target rate for each class.

    This is the usual loss for networks whose last layer spikes.

    Args:
        scores: spike rates of the output neurons, ``[B, classes]``.
        targets: classes ``[B]``.
        mask: ``[T, B]``, for rates and classes over time.
        correct: the rate of the correct class.
        other: the rate of the other classes.
    """
    if targets.is_floating_point() or targets.shape != scores.shape[:-1]:
        raise InputError(
            f"rate-mse needs classes {tuple(scores.shape[:-1])} as integers, got {targets.dtype} of "
            f"shape {tuple(targets.shape)}; use mse for other targets"
        )
    wanted = functional.one_hot(targets, scores.shape[-1]).to(scores.dtype) * (correct - other) + other
    return mse(scores, wanted, mask)


@dataclass(frozen=True)
class Task:
    """The task of the user's own network."""

    loss: Callable[..., Tensor]
    readout: Callable[..., Tensor] | None
    """None: the loss compares every step with targets over time."""
    metrics: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    keep_best: str | None = None
    """The validation quantity by which the final parameters are chosen."""

    @property
    def has_classes(self) -> bool:
        """True if the targets are classes, so that accuracy is defined."""
        return self.loss in (cross_entropy, tet, rate_mse) and self.readout is not None

    @property
    def is_usual(self) -> bool:
        """True for the cross-entropy of the mean scores, which has faster implementations."""
        return self.loss is cross_entropy and self.readout is mean

    @property
    def needs_steps(self) -> bool:
        """True if the task needs more than the mean output."""
        return self.loss is tet or self.readout is not mean

    def scores(self, steps: Tensor, mask: Tensor | None) -> Tensor:
        """Return the scores to compare with the targets: the readout of all steps, or the net's outputs."""
        if self.readout is None or (steps.dim() < 3 and self.readout is mean):
            return steps
        if steps.dim() < 3:
            raise InputError(
                f"readout needs the outputs of every step [T, B, ...], but net returns {tuple(steps.shape)}; "
                "return the outputs of every step, or leave readout out"
            )
        return cast(Tensor, call(self.readout, steps, mask=mask))

    def loss_of(self, steps: Tensor, targets: Tensor, mask: Tensor | None, smoothing: float = 0.0) -> Tensor:
        """Return the loss for a network's outputs."""
        if self.loss is cross_entropy:
            kept = mask if self.readout is None else None
            return cross_entropy(self.scores(steps, mask), targets, kept, smoothing)
        if self.loss is tet:
            return tet(steps, targets, mask)
        kept = mask if self.readout is None else None
        return cast(Tensor, call(self.loss, self.scores(steps, mask), targets, mask=kept))

    def metrics_of(self, scores: Tensor, targets: Tensor, mask: Tensor | None) -> dict[str, float]:
        """Return the user's metrics for the scores on a whole set."""
        return {name: float(call(one, scores, targets, mask=mask)) for name, one in self.metrics.items()}


def call(function: Callable[..., Any], *given: Tensor, mask: Tensor | None) -> Any:
    """Call a loss, readout or metric; a user's function needs ``mask`` only if there is a mask."""
    return function(*given) if mask is None else function(*given, mask=mask)


LOSSES: dict[str, Callable[..., Tensor]] = {
    "cross-entropy": cross_entropy,
    "mse": mse,
    "bce": bce,
    "tet": tet,
    "rate-mse": rate_mse,
}
"""The losses by name. `tet` uses the scores of every step, the others those after the readout."""

READOUTS: dict[str, Callable[..., Tensor]] = {"mean": mean, "last": last, "max": maximum, "leaky": leaky}
"""The readouts by name."""


def find_loss(loss: str | Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return the loss with that name; a function is returned unchanged."""
    return _find("loss", loss, LOSSES)


def find_readout(readout: str | Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return the readout with that name; a function is returned unchanged."""
    return _find("readout", readout, READOUTS)


def _find(
    argument: str, value: str | Callable[..., Tensor], known: dict[str, Callable[..., Tensor]]
) -> Callable[..., Tensor]:
    if callable(value):
        return value
    if value not in known:
        raise InputError(f"{argument} must be one of {', '.join(known)} or a function, got {value!r}")
    return known[value]


def _weights(mask: Tensor, steps: Tensor) -> Tensor:
    """Return a mask as numbers that broadcast against ``[T, B, *outputs]``."""
    if mask.shape != steps.shape[:2]:
        raise InputError(
            f"mask must be [T, B] = {tuple(steps.shape[:2])}, got shape {tuple(mask.shape)}; see step_mask"
        )
    if not bool(mask.any(0).all()):
        raise InputError("mask has samples without any valid step; leave them out of the batch")
    return mask.to(steps.dtype).view(*mask.shape, *[1] * (steps.dim() - 2))


def _average(each: Tensor, mask: Tensor | None) -> Tensor:
    """Return the mean of all valid entries, weighting every sample equally, whatever its length."""
    if mask is None:
        return each.mean()
    return mean(each, mask).mean()


def _check_alike(loss: str, scores: Tensor, targets: Tensor) -> None:
    if scores.shape != targets.shape:
        raise InputError(
            f"{loss} needs targets in the shape of the scores, {tuple(scores.shape)}, got "
            f"{tuple(targets.shape)}; add or remove axes, or choose another readout"
        )


STIFFNESS = 0.15
"""Weight of the squared difference between the logarithms of a layer's rate and its goal."""


def log_rates(rates: Tensor) -> Tensor:
    """Return the logarithms of spike rates, finite even for silent layers."""
    return (rates + 1e-3).log()


class Objective(NamedTuple):
    """The objective: the form of the cross-entropy, and each member's penalties, ``[M]``."""

    sparsity: Tensor
    volume: Tensor
    ones: Tensor
    """The gradient of the sum of all losses."""
    uses_volume: bool
    smoothing: float = 0.0
    """Label smoothing."""
    by_step: bool = False
    """Use the mean of each step's cross-entropy instead of the cross-entropy of the mean scores."""
    rate_goals: Tensor | None = None
    """The logarithm of each hidden layer's goal rate in the loss, ``[layers, M]``."""

    @classmethod
    def of(
        cls, configs: Sequence["RunConfig"], like: Tensor, rate_goals: Tensor | None = None
    ) -> "Objective":
        """Collect the penalties of the members, in their order."""
        return cls(
            like.new_tensor([config.sparsity for config in configs]),
            like.new_tensor([config.volume_reg for config in configs]),
            like.new_ones(len(configs)),
            any(config.volume_reg for config in configs),
            configs[0].label_smoothing,
            configs[0].loss == "tet",
            rate_goals,
        )

    def penalties(self, members: "Members", rates: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Return the penalties of all members, ``[M]``, and their mean spike."""
        rate = members.hidden_rate(rates)
        total = self.sparsity * rate
        if self.rate_goals is not None:
            distance = log_rates(members.layer_rates(rates)) - self.rate_goals
            total = total + STIFFNESS * distance.square().sum(0)
        if self.uses_volume:
            from ultralif.nn.volume import volume_regularizer

            volumes = torch.stack([volume_regularizer(weight) for weight in members.first_weights()])
            total = total + self.volume * volumes
        return total, rate


class Losses(NamedTuple):
    """Loss, hits and spike rate of each member on a batch, ``[M]``."""

    loss: Tensor
    correct: Tensor
    """Samples of the batch that were classified correctly."""
    rate: Tensor
    """Mean spike of the hidden neurons."""


def member_losses(
    members: "Members",
    x: Tensor,
    labels: Tensor,
    objective: Objective,
    mode: Mode | None,
    mask: Tensor | None = None,
) -> Losses:
    r"""Return each member's cross-entropy plus :math:`\lambda \bar s` (section 6).

    Members share no parameters, so each one's gradient of the summed losses equals that of its own loss.

    Args:
        members: the networks.
        x: a batch in the form that the networks expect.
        labels: classes ``[B]`` or probabilities ``[B, classes]``, optionally with a leading axis of batches.
        objective: the loss.
        mode: the mode of the neurons; None keeps their own.
        mask: the valid steps ``[T, B]``.
    """
    from ultralif.training.members import Single

    if isinstance(members, Single) and (mask is not None or not members.task.is_usual):
        return _task_losses(members, x, labels, mask, objective, mode)
    if can_be_fused(members, x, labels, objective):
        from ultralif.stack import Stack
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
    penalties, rate = objective.penalties(members, out.rates)
    loss = entropy.mean(1) + penalties
    classes = labels.argmax(2) if labels.is_floating_point() else labels
    correct = (out.logits.detach().argmax(2) == classes).sum(1)
    return Losses(loss, correct, rate.detach())


def _task_losses(
    single: "Single", x: Tensor, targets: Tensor, mask: Tensor | None, objective: Objective, mode: Mode | None
) -> Losses:
    """Return a network's losses for the user's own task, or for samples of different lengths."""
    steps, rates = single.outputs(x, mode, mask)
    task = single.task
    loss = task.loss_of(steps, targets, mask, objective.smoothing)
    if loss.dim():
        raise InputError(f"loss must return a single number, got shape {tuple(loss.shape)}")
    penalties, rate = objective.penalties(single, rates)
    total = loss.view(1) + penalties
    correct = torch.zeros_like(rate)
    if task.has_classes:
        correct = count_correct(task, steps.detach(), targets, mask).sum().view(1)
    return Losses(total, correct, rate.detach())


def count_correct(task: Task, steps: Tensor, targets: Tensor, mask: Tensor | None) -> Tensor:
    """Return, for each sample, whether its class has the highest score."""
    scores = task.scores(steps, mask)
    return scores.argmax(-1) == (targets.argmax(-1) if targets.is_floating_point() else targets)


def can_be_fused(members: "Members", x: Tensor, labels: Tensor, objective: Objective) -> bool:
    """Return whether one kernel computes readout and loss: on GPUs, for one spiking layer and labels."""
    if x.dtype == torch.float64 or not runs_triton(x):
        return False
    from ultralif.stack import Stack
    from ultralif.stack.fused_step import MOST_CLASSES

    if not isinstance(members, Stack):
        return False

    return (
        members.readout == "linear"
        and len(members.neurons) == 1
        and members.sizes[-1] <= MOST_CLASSES
        and not (objective.by_step or objective.uses_volume or labels.is_floating_point())
        and objective.rate_goals is None
    )


def _entropies(logits: Tensor, labels: Tensor, smoothing: float) -> Tensor:
    """Return the cross-entropy ``[M, B]`` of scores ``[M, B, classes]``."""
    by_class = logits.mT.contiguous()  # [M, classes, B]: a few classes are a short axis to sum along
    target = labels.mT.to(logits.dtype) if labels.is_floating_point() else labels
    return _each_entropy(by_class, target, smoothing)
