"""Adam and SGD for all parameters at once, using torch's fused kernels.

`torch.optim` does the same arithmetic, but creating one of its optimizers imports torch's compiler, which
takes longer than training a small network.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

__all__ = ["SGD", "Adam", "Group", "Optimizer"]

_KERNELS = cast(Any, torch)  # the fused kernels are not in torch's type stubs
FEW = 16
"""Maximum number of tensors for our kernel; for so few, torch's would leave most of the GPU idle."""


def _is_plain(x: Tensor) -> bool:
    return x.dtype == torch.float32 and x.is_contiguous()


@dataclass(frozen=True)
class Group:
    """Parameters that share a learning rate factor and a weight decay."""

    parameters: Sequence[Tensor]
    speed: float = 1.0
    decay: float = 0.0


class _Move(NamedTuple):
    """One group's arguments for a step: parameters, their state, gradients and numbers."""

    columns: list[list[Tensor]]
    grads: list[Tensor]
    decay: float
    rate: Any


class Optimizer:
    """Updates parameters along their gradients; a parameter without a gradient does not change.

    Args:
        groups: the parameters, each in one group.
    """

    slots = 0
    """Number of state tensors per parameter, each of the parameter's size."""

    def __init__(self, groups: Iterable[Group]) -> None:
        self.groups = [group for group in groups if group.parameters]
        self.kept = [
            [[torch.zeros_like(p) for p in group.parameters] for _ in range(self.slots)]
            for group in self.groups
        ]
        device = self.groups[0].parameters[0].device
        self.steps = torch.zeros((), device=device)
        # A recorded step reads its learning rate from GPU memory.
        self.rates = [torch.zeros((), device=device) for _ in self.groups]

    def set_rate(self, rate: float) -> None:
        """Set the learning rate; each group multiplies it by its speed."""
        for group, own in zip(self.groups, self.rates, strict=True):
            own.fill_(rate * group.speed)
        self._numbers = [rate * group.speed for group in self.groups]

    def begin(self) -> None:
        """Start a step: count it and clear the gradients."""
        self.steps += 1
        for group in self.groups:
            for parameter in group.parameters:
                parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Finish the step started by `begin`: update the parameters."""
        on_gpu = self.steps.is_cuda
        moves = []
        for i, (group, kept) in enumerate(zip(self.groups, self.kept, strict=True)):
            moved = [k for k, p in enumerate(group.parameters) if p.grad is not None]
            if moved:
                columns = [[column[k] for k in moved] for column in (group.parameters, *kept)]
                grads = [cast(Tensor, group.parameters[k].grad) for k in moved]
                rate = self.rates[i] if on_gpu else self._numbers[i]
                moves.append(_Move(columns, grads, group.decay, rate))
        self._move(moves)

    def _move(self, moves: list[_Move]) -> None:
        raise NotImplementedError

    def tensors(self) -> dict[str, Tensor]:
        """Return, by name, all tensors except parameters that a step changes; copy into them to restore."""
        named = {
            f"{slot}.{i}.{k}": tensor
            for i, columns in enumerate(self.kept)
            for slot, column in enumerate(columns)
            for k, tensor in enumerate(column)
        }
        return {"steps": self.steps, **named}


class Adam(Optimizer):
    """Adam with torch's defaults; the weight decay is decoupled, as in AdamW."""

    slots = 2

    def _move(self, moves: list[_Move]) -> None:
        count = sum(len(move.grads) for move in moves)
        plain = all(_is_plain(x) for move in moves for x in (*move.columns[0], *move.grads))
        if self.steps.is_cuda and 0 < count <= FEW and plain:
            self._move_at_once(moves)
            return
        for (parameters, first, second), grads, decay, rate in moves:
            _KERNELS._fused_adamw_(
                parameters,
                grads,
                first,
                second,
                [],
                [self.steps] * len(grads),
                lr=rate,
                beta1=0.9,
                beta2=0.999,
                weight_decay=decay,
                eps=1e-8,
                amsgrad=False,
                maximize=False,
            )

    def _move_at_once(self, moves: list[_Move]) -> None:
        """Update all groups with one kernel."""
        from ultralif.stack.fused_step import adam

        columns: tuple[list[Tensor], ...] = ([], [], [], [])
        rates, decays = [], []
        for (parameters, first, second), grads, decay, rate in moves:
            for column, own in zip(columns, (parameters, grads, first, second), strict=True):
                column += own
            rates += [rate] * len(grads)
            decays += [decay] * len(grads)
        tensors, slopes, firsts, seconds = columns
        adam(tensors, slopes, firsts, seconds, self.steps, rates, decays)


class SGD(Optimizer):
    """SGD with a Nesterov momentum of 0.9; the weight decay is part of the gradient."""

    slots = 1

    def _move(self, moves: list[_Move]) -> None:
        for (parameters, momentum), grads, decay, rate in moves:
            _KERNELS._fused_sgd_(
                parameters,
                grads,
                momentum,
                weight_decay=decay,
                momentum=0.9,
                lr=rate,
                dampening=0.0,
                nesterov=True,
                maximize=False,
                is_first_step=False,
            )
