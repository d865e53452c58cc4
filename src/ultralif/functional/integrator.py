"""A leaky integrator: a membrane that never fires, whose potential is the output."""

from torch import Tensor

from ultralif.functional.scan import Constant, over_time, rest

__all__ = ["leaky_integrator", "leaky_integrator_step"]


def leaky_integrator_step(current: Tensor, v: Tensor, *, leak: Constant) -> tuple[Tensor, Tensor]:
    r"""Advance a leaky integrator, :math:`v \leftarrow \tau v + I`; return the membrane twice.

    The first is the output of the step, the second the state of the next one.

    Args:
        current: ``[B, *features]``.
        v: membrane, with the shape of ``current``.
        leak: decay factor tau in (0, 1).

    Example:
        >>> import torch
        >>> leaky_integrator_step(torch.ones(1), torch.ones(1), leak=0.5)[0]
        tensor([1.5000])
    """
    v = leak * v + current
    return v, v


leaky_integrator = over_time(rest)(leaky_integrator_step)
