"""Ultradiscretized neurons: log-sum-exp membranes whose gradients are exact."""

import math
from typing import Literal, get_args

import torch
from torch import Tensor

from ultralif.errors import check_choice
from ultralif.functional.scan import Constant, over_time, rest
from ultralif.functional.surrogate import straight_through
from ultralif.maxplus import hard_spike, lse, soft_spike

__all__ = [
    "LeakForm",
    "Mode",
    "Neighborhood",
    "fire",
    "ultradlif",
    "ultradlif_step",
    "ultralif",
    "ultralif_step",
]

Mode = Literal["soft", "hard", "tropical"]
Neighborhood = Literal["ring", "grid"]
LeakForm = Literal["factor", "shift"]


def fire(
    membrane: Tensor, threshold: Constant, eps: Constant, v_reset: Constant, mode: Mode
) -> tuple[Tensor, Tensor]:
    r"""Return the spike and the membrane after reset (eqs. 17, 18).

    .. math:: s = \sigma((\tilde V - \theta)/\epsilon), \quad V = \tilde V (1 - s) + V_{reset} s

    Outside of soft mode the spike is binary. It is differentiated as if it were soft, but its reset is
    not: the derivative of a step that the membrane does not take would grow with every time step.
    """
    spike = _spike(membrane, threshold, eps, mode)
    return spike, _reset(membrane, spike, v_reset, mode)


def _fire_late(
    membrane: Tensor, v: Tensor, threshold: Constant, eps: Constant, v_reset: Constant, mode: Mode
) -> tuple[Tensor, Tensor]:
    """Reset by the spike of the previous step, then fire (eqs. 23, 24), where `fire` follows eq. 18."""
    v = _reset(membrane, _spike(v, threshold, eps, mode), v_reset, mode)
    return _spike(v, threshold, eps, mode), v


def _spike(v: Tensor, threshold: Constant, eps: Constant, mode: Mode) -> Tensor:
    soft = soft_spike(v, threshold, eps)
    return soft if mode == "soft" else straight_through(hard_spike(v, threshold), soft)


def _reset(membrane: Tensor, spike: Tensor, v_reset: Constant, mode: Mode) -> Tensor:
    fired = spike if mode == "soft" else spike.detach()
    return membrane * (1 - fired) + v_reset * fired


def _soft_max(terms: Tensor, eps: Constant, mode: Mode) -> Tensor:
    """Reduce the first axis by log-sum-exp, or by its eps -> 0 limit in tropical mode."""
    return terms.amax(0) if mode == "tropical" else lse(terms, eps, dim=0)


def _log(leak: Constant) -> Constant:
    return torch.log(leak) if isinstance(leak, Tensor) else math.log(leak)


def ultralif_step(
    current: Tensor,
    v: Tensor,
    *,
    eps: Constant,
    leak: Constant,
    threshold: Constant,
    v_reset: Constant = 0.0,
    mode: Mode = "soft",
    delayed_reset: bool = False,
) -> tuple[Tensor, Tensor]:
    r"""Advance UltraLIF by one step (definition 4.1) and return the spike and the membrane.

    .. math:: \tilde V = \mathrm{LSE}_\epsilon(V + \log \tau_0, I)

    Args:
        current: ``[B, *features]``.
        v: membrane, like ``current``.
        eps: temperature > 0.
        leak: decay factor tau_0 in (0, 1).
        threshold: spike threshold.
        v_reset: potential after a spike.
        mode: ``soft``; ``hard``, the same membrane with binary spikes; ``tropical``, the maximum in
            place of the log-sum-exp, with binary spikes.
        delayed_reset: reset by the previous step's spike, as the paper's architecture section has it
            (eqs. 23, 24) where its definition uses the new one.
    """
    check_choice("mode", mode, get_args(Mode))
    terms = torch.stack((v + _log(leak), current))
    membrane = _soft_max(terms, eps, mode)
    if delayed_reset:
        return _fire_late(membrane, v, threshold, eps, v_reset, mode)
    return fire(membrane, threshold, eps, v_reset, mode)


def ultradlif_step(
    current: Tensor,
    v: Tensor,
    *,
    eps: Constant,
    threshold: Constant,
    leak: Constant | None = None,
    v_reset: Constant = 0.0,
    mode: Mode = "soft",
    neighborhood: Neighborhood = "ring",
    centered: bool = False,
    leak_form: LeakForm = "factor",
    delayed_reset: bool = False,
) -> tuple[Tensor, Tensor]:
    r"""Advance UltraDLIF by one step (definition 4.2) and return the spike and the membrane.

    .. math:: \tilde V_i = \mathrm{LSE}_\epsilon(V_{i-1}, V_i, V_{i+1}) + I_i

    Args:
        current: ``[B, *features]``; neighbours stand on the last axis.
        v: membrane, like ``current``.
        eps: temperature > 0.
        threshold: spike threshold.
        leak: UltraDPLIF's decay factor in (0, 1); None, no decay.
        v_reset: potential after a spike.
        mode: as in `ultralif_step`.
        neighborhood: ``ring``: three terms along the last axis. ``grid``: five terms over the last two,
            from 2-D diffusion at its balanced coefficient 1/5. Both are periodic.
        centered: subtract ``eps * log(n)``, the mean-preserving form: without it an undriven layer
            rises by that much at every step. Nothing is subtracted in tropical mode, its limit.
        leak_form: ``factor`` decays to ``V * leak``, ``shift`` to ``V + log(leak)``.
        delayed_reset: as in `ultralif_step`.
    """
    check_choice("mode", mode, get_args(Mode))
    check_choice("neighborhood", neighborhood, get_args(Neighborhood))
    check_choice("leak_form", leak_form, get_args(LeakForm))
    decayed = v
    if leak is not None:
        decayed = v * leak if leak_form == "factor" else v + _log(leak)
    terms = _neighbors(decayed, neighborhood)
    coupled = _soft_max(terms, eps, mode)
    if centered and mode != "tropical":
        coupled = coupled - eps * math.log(terms.shape[0])
    membrane = coupled + current
    if delayed_reset:
        return _fire_late(membrane, v, threshold, eps, v_reset, mode)
    return fire(membrane, threshold, eps, v_reset, mode)


def _neighbors(v: Tensor, neighborhood: Neighborhood) -> Tensor:
    """Stack a membrane and its periodic neighbours on a new first axis."""
    around = [v.roll(1, -1), v, v.roll(-1, -1)]
    if neighborhood == "grid":
        around += [v.roll(1, -2), v.roll(-1, -2)]
    return torch.stack(around)


ultralif = over_time(rest)(ultralif_step)
ultradlif = over_time(rest)(ultradlif_step)
