"""Adam and SGD for all parameters at once, by torch's fused kernels.

`torch.optim` does the same arithmetic, but making one of its optimizers imports torch's compiler, which takes
longer than training a small network.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor

__all__ = ["SGD", "Adam", "Group", "Optimizer"]

_KERNELS = cast(Any, torch)  # the fused kernels are not in torch's type stubs
FEW = 8
"""Number of tensors up to which our kernel is used; torch's leaves most of a GPU idle for so few."""


def _is_plain(x: Tensor) -> bool:
    return x.dtype == torch.float32 and x.is_contiguous()


@dataclass(frozen=True)
class Group:
    """Parameters that share a factor of the learning rate and a weight decay."""

    parameters: Sequence[Tensor]
    speed: float = 1.0
    decay: float = 0.0


class Optimizer:
    """Takes steps along the gradients; a parameter without a gradient does not change.

    Args:
        groups: the parameters; each is in one group.
    """

    slots = 0
    """Tensors of the size of a parameter that are kept for each."""

    def __init__(self, groups: Iterable[Group]) -> None:
        self.groups = [group for group in groups if group.parameters]
        self.kept = [
            [[torch.zeros_like(p) for p in group.parameters] for _ in range(self.slots)]
            for group in self.groups
        ]
        device = self.groups[0].parameters[0].device
        self.steps = torch.zeros((), device=device)
        # A recorded step reads its rate from the GPU's memory.
        self.rates = [torch.zeros((), device=device) for _ in self.groups]

    def set_rate(self, rate: float) -> None:
        """Set the learning rate; a group's own is this times its speed."""
        for group, own in zip(self.groups, self.rates, strict=True):
            own.fill_(rate * group.speed)
        self._numbers = [rate * group.speed for group in self.groups]

    def zero_grad(self) -> None:
        """Forget the gradients."""
        for group in self.groups:
            for parameter in group.parameters:
                parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Take one step."""
        self.steps += 1
        on_gpu = self.steps.is_cuda
        for i, (group, kept) in enumerate(zip(self.groups, self.kept, strict=True)):
            moved = [k for k, p in enumerate(group.parameters) if p.grad is not None]
            if moved:
                columns = [[column[k] for k in moved] for column in (group.parameters, *kept)]
                grads = [cast(Tensor, group.parameters[k].grad) for k in moved]
                self._move(columns, grads, group, self.rates[i] if on_gpu else self._numbers[i])

    def _move(self, columns: list[list[Tensor]], grads: list[Tensor], group: Group, rate: Any) -> None:
        raise NotImplementedError

    def tensors(self) -> dict[str, Tensor]:
        """Return by name all that a step changes besides the parameters; copy into them to restore it."""
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

    def _move(self, columns: list[list[Tensor]], grads: list[Tensor], group: Group, rate: Any) -> None:
        parameters, first, second = columns
        if self.steps.is_cuda and len(grads) <= FEW and all(_is_plain(x) for x in (*parameters, *grads)):
            from ultralif.ops.step import adam

            adam(parameters, grads, first, second, self.steps, rate, group.decay)
            return
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
            weight_decay=group.decay,
            eps=1e-8,
            amsgrad=False,
            maximize=False,
        )


class SGD(Optimizer):
    """Gradient descent with Nesterov's momentum of 0.9; the weight decay is part of the gradient."""

    slots = 1

    def _move(self, columns: list[list[Tensor]], grads: list[Tensor], group: Group, rate: Any) -> None:
        parameters, momentum = columns
        _KERNELS._fused_sgd_(
            parameters,
            grads,
            momentum,
            weight_decay=group.decay,
            momentum=0.9,
            lr=rate,
            dampening=0.0,
            nesterov=True,
            maximize=False,
            is_first_step=False,
        )
