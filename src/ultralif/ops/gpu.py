"""The recurrence on a GPU, by Triton's kernels."""

from collections.abc import Sequence

from torch import Tensor

from ultralif.ops.plan import Plan, find_plan, forget
from ultralif.ops.recurrence import Constants, Rule

__all__ = ["backward", "find_plan", "forget", "forward", "takes"]


def takes(rule: Rule) -> bool:
    """Tell whether the kernels compute a rule."""
    return True


def forward(
    current: Tensor, state: Tensor | None, constants: Constants, rule: Rule, plan: Plan | None = None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return the spikes, the last state and, for long rings or sequences, membranes for `backward`."""
    return (plan or find_plan(current, state, constants, rule)).forward(current, state, constants)


def backward(
    grad_out: Tensor | None,
    grad_state: Tensor | None,
    current: Tensor,
    state: Tensor | None,
    constants: Constants,
    rule: Rule,
    learned: Sequence[bool],
    kept: tuple[Tensor | None, Tensor | None] = (None, None),
    plan: Plan | None = None,
) -> tuple[Tensor, Tensor | None, list[Tensor | None]]:
    """Return the gradients for current, state and constants.

    ``kept`` has the spikes, if the membrane follows from them, and the membranes that `forward` returned.
    """
    plan = plan or find_plan(current, state, constants, rule)
    return plan.backward(grad_out, grad_state, current, state, constants, learned, kept)
