"""Reset: the membrane after a spike, and the order in which neurons fire and reset."""

from collections.abc import Callable
from typing import Literal, get_args

import torch
from torch import Tensor

from ultralif.errors import check_choice
from ultralif.functional.scan import Constant
from ultralif.functional.spike import Mode
from ultralif.maxplus import lse

__all__ = ["Reset", "fire", "saturate"]

Reset = Literal["zero", "subtract", "none", "saturate"]


def fire(
    potential: Tensor,
    spike: Callable[[Tensor], Tensor],
    earlier: Tensor | None,
    threshold: Constant,
    v_reset: Constant,
    mode: Mode,
    reset: Reset = "zero",
    detach_reset: bool | None = None,
    ceiling: Callable[[Tensor], Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    r"""Return the spike and the membrane after reset: the last part of each neuron's step.

    .. math:: V = P (1 - s) + V_{reset} s \;\text{(zero)}, \quad P - \theta s \;\text{(subtract)}, \quad
        P \;\text{(none)}, \quad \mathrm{softmin}_\epsilon(P, V_{sat}) \;\text{(saturate)}

    Args:
        potential: the membrane before reset, P.
        spike: a function that returns the spike of a membrane.
        earlier: the spike of the previous step, for a reset before firing (eqs. 23, 24); None: reset by the
            current spike.
        threshold: the amount that ``subtract`` subtracts from the membrane.
        v_reset: the membrane after a spike for ``zero``.
        mode: the mode, which decides whether spikes are soft.
        reset: ``zero`` (eq. 18), ``subtract``, ``none`` or ``saturate``, which needs no spike.
        detach_reset: do not differentiate the reset with respect to the spike. None: detach binary
            spikes, because that gradient grows with every time step.
        ceiling: a function that returns the membrane for ``saturate``; None: the neuron does not support it.

    Example:
        >>> membrane = torch.tensor([0.2, 0.9])
        >>> fire(membrane, lambda v: (v > 0.5).float(), None, 0.5, 0.0, "hard")
        (tensor([0., 1.]), tensor([0.2000, 0.0000]))
    """
    check_choice("reset", reset, get_args(Reset) if ceiling else get_args(Reset)[:-1])
    detach = mode != "soft" if detach_reset is None else detach_reset

    def after(fired: Tensor) -> Tensor:
        if reset == "none":
            return potential
        if reset == "saturate" and ceiling is not None:
            return ceiling(potential)
        if detach:
            fired = fired.detach()
        if reset == "subtract":
            return potential - threshold * fired
        return potential * (1 - fired) + v_reset * fired

    if earlier is not None:
        v = after(earlier)
        return spike(v), v
    fired = spike(potential)
    return fired, after(fired)


def saturate(potential: Tensor, v_sat: Constant, eps: Constant, mode: Mode) -> Tensor:
    r"""Return the soft minimum of the potential and a ceiling, or the minimum in tropical mode.

    .. math:: V = -\mathrm{LSE}_\epsilon(-P, -V_{sat})

    For :math:`u = e^{V/\epsilon}` it is the Moebius map :math:`u / (1 + u / u_{sat})`. UltraLIF's membrane
    is affine in u, so membrane and reset together are a Moebius map of u that does not depend on the spike.

    Example:
        >>> saturate(torch.tensor([0.5, 3.0]), 2.0, 0.1, "tropical")
        tensor([0.5000, 2.0000])
    """
    top = torch.as_tensor(v_sat, dtype=potential.dtype, device=potential.device).expand_as(potential)
    if mode == "tropical":
        return torch.minimum(potential, top)
    return -lse(torch.stack((-potential, -top)), eps, dim=0)
