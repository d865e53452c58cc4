"""Ultradiscretized neurons: log-sum-exp membranes with exact gradients."""

import math
from typing import get_args

import torch
from torch import Tensor

from ultralif.errors import check_choice
from ultralif.functional.reset import Reset, fire, saturate
from ultralif.functional.scan import Constant, over_time, rest
from ultralif.functional.spike import Mode, tempered_spike
from ultralif.maxplus import lse

__all__ = ["log_decay", "ultradlif", "ultradlif_step", "ultralif", "ultralif_step"]


def _soft_max(terms: Tensor, eps: Constant, mode: Mode) -> Tensor:
    """Reduce the first axis by log-sum-exp, or by its eps -> 0 limit in tropical mode."""
    return terms.amax(0) if mode == "tropical" else lse(terms, eps, dim=0)


def _log(leak: Constant) -> Constant:
    return torch.log(leak) if isinstance(leak, Tensor) else math.log(leak)


def log_decay(leak: Constant, eps: Constant) -> Constant:
    r"""Return :math:`\log(\tau_0) / \epsilon`, the logarithm of UltraLIF's decay.

    UltraLIF's membrane is linear in :math:`u = e^{V/\epsilon}`: without reset,
    :math:`u \leftarrow \lambda u + e^{I/\epsilon}` with :math:`\log \lambda` as returned.

    Example:
        >>> round(log_decay(0.9, 0.1), 3)
        -1.054
    """
    return _log(leak) / eps


def ultralif_step(
    current: Tensor,
    v: Tensor,
    *,
    eps: Constant,
    leak: Constant,
    threshold: Constant,
    v_reset: Constant = 0.0,
    mode: Mode = "soft",
    reset: Reset = "zero",
    detach_reset: bool | None = None,
    delayed_reset: bool = False,
    v_sat: Constant = 2.0,
) -> tuple[Tensor, Tensor]:
    r"""Advance UltraLIF by one step (definition 4.1) and return the spike and the membrane.

    .. math:: \tilde V = \mathrm{LSE}_\epsilon(V + \log \tau_0, I)

    Args:
        current: ``[B, *features]``.
        v: membrane, with the shape of ``current``.
        eps: temperature > 0.
        leak: decay factor tau_0 in (0, 1).
        threshold: spike threshold.
        v_reset: potential after a spike, for ``reset="zero"``.
        mode: ``soft``; ``hard``, the same membrane with binary spikes; ``tropical``, the maximum in
            place of the log-sum-exp, with binary spikes.
        reset: ``zero``, ``subtract`` (the threshold), ``none``, or ``saturate``, a soft minimum with
            ``v_sat`` that needs no spike.
        detach_reset: do not differentiate the reset with respect to the spike. None: detach binary spikes.
        delayed_reset: reset by the previous step's spike, as in the paper's architecture section (eqs. 23,
            24). The paper's definition resets by the new spike.
        v_sat: the ceiling of ``reset="saturate"``.

    Example:
        >>> import torch
        >>> constants = {"eps": 0.2, "leak": 0.9, "threshold": 0.5}
        >>> ultralif_step(torch.tensor([0.6]), torch.zeros(1), mode="tropical", **constants)
        (tensor([1.]), tensor([0.]))
    """
    check_choice("mode", mode, get_args(Mode))

    def spike(v: Tensor) -> Tensor:
        return tempered_spike(v, threshold, eps, mode)

    def ceiling(potential: Tensor) -> Tensor:
        return saturate(potential, v_sat, eps, mode)

    earlier = spike(v) if delayed_reset else None
    potential = _soft_max(torch.stack((v + _log(leak), current)), eps, mode)
    return fire(potential, spike, earlier, threshold, v_reset, mode, reset, detach_reset, ceiling)


def ultradlif_step(
    current: Tensor,
    v: Tensor,
    *,
    eps: Constant,
    threshold: Constant,
    leak: Constant | None = None,
    v_reset: Constant = 0.0,
    mode: Mode = "soft",
    coupled_axis: int = -1,
    centered: bool = False,
    reset: Reset = "zero",
    detach_reset: bool | None = None,
    delayed_reset: bool = False,
) -> tuple[Tensor, Tensor]:
    r"""Advance UltraDLIF by one step (definition 4.2) and return the spike and the membrane.

    .. math:: \tilde V_i = \mathrm{LSE}_\epsilon(V_{i-1}, V_i, V_{i+1}) + I_i

    Args:
        current: ``[B, *features]``.
        v: membrane, with the shape of ``current``.
        eps: temperature > 0.
        threshold: spike threshold.
        leak: decay factor in (0, 1); None means no decay.
        v_reset: potential after a spike, for ``reset="zero"``.
        mode: as in `ultralif_step`.
        coupled_axis: the axis along which neighbours are coupled, as a negative index: -3 is the channel axis
            of ``[C, H, W]``. The neurons along it form a ring.
        centered: subtract ``eps * log(3)``, which preserves the mean; otherwise the membranes of a layer
            without input rise by that amount at every step. In tropical mode, the limit eps -> 0, nothing is
            subtracted.
        reset: ``zero``, ``subtract`` (the threshold) or ``none``.
        detach_reset: as in `ultralif_step`.
        delayed_reset: as in `ultralif_step`.

    Example:
        >>> import torch
        >>> rest = torch.zeros(1, 4)
        >>> ultradlif_step(rest, rest, eps=0.2, threshold=0.5, centered=True)[0].shape
        torch.Size([1, 4])
    """
    check_choice("mode", mode, get_args(Mode))

    def spike(v: Tensor) -> Tensor:
        return tempered_spike(v, threshold, eps, mode)

    earlier = spike(v) if delayed_reset else None
    decayed = v if leak is None else v * leak
    coupled = _soft_max(_neighbors(decayed, coupled_axis), eps, mode)
    if centered and mode != "tropical":
        coupled = coupled - eps * math.log(3)
    return fire(coupled + current, spike, earlier, threshold, v_reset, mode, reset, detach_reset)


def _neighbors(v: Tensor, axis: int) -> Tensor:
    """Stack a membrane and its periodic neighbours along a new first axis."""
    return torch.stack((v.roll(1, axis), v, v.roll(-1, axis)))


ultralif = over_time(rest)(ultralif_step)
ultradlif = over_time(rest)(ultradlif_step)
