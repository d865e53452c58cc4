"""Each neuron as an instance of the one recurrence in `ultralif.ops.recurrence`."""

from typing import Any, get_args

from torch import Tensor

from ultralif import functional
from ultralif.functional import Constant, Coupling, LeakForm, Mode, Neighborhood, Reset, Surrogate
from ultralif.ops import recurrence
from ultralif.ops.constants import Learned
from ultralif.ops.fused import Recipe, operator
from ultralif.ops.recurrence import Curve, Membrane, Rule

__all__ = ["adalif", "dspike", "lif", "softlif", "ultradlif", "ultralif"]

MODES = get_args(Mode)
LEAK_FORMS = tuple(form.name.lower() for form in recurrence.LeakForm if form)
"""The words that kernels know; with any other the definition runs."""
COUPLINGS, SURROGATES = get_args(Coupling), get_args(Surrogate)
RESETS: tuple[Reset, ...] = get_args(Reset)
BINARY: tuple[Mode, ...] = ("hard", "soft")


def _membrane(mode: Mode) -> Membrane:
    return Membrane.MAX if mode == "tropical" else Membrane.LSE


def _rule(
    membrane: Membrane,
    modes: tuple[Mode, ...],
    mode: Mode,
    v_reset: Constant,
    reset: Reset,
    detach_reset: bool | None,
    delayed_reset: bool,
    resets: tuple[Reset, ...] = ("zero", "subtract", "none"),
    **choices: Any,
) -> Rule | None:
    """Return the rule of a neuron; None where its definition has to run, or to refuse an argument."""
    known = mode in modes and reset in resets
    if delayed_reset or not known or isinstance(v_reset, Tensor):
        return None
    return Rule(
        membrane,
        mode == "soft",
        reset=recurrence.Reset[reset.upper()],
        detach=mode != "soft" if detach_reset is None else detach_reset,
        v_reset=v_reset,
        **choices,
    )


def _are_numbers(*constants: Constant) -> bool:
    return not any(isinstance(constant, Tensor | Learned) for constant in constants)


def _recipe(
    eps: Constant, leak: Constant, threshold: Constant, amplitude: Constant, rule: Rule | None
) -> Recipe | None:
    return None if rule is None else Recipe(eps, leak, threshold, amplitude, rule)


@operator(functional.ultralif)
def ultralif(
    current: Tensor,
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
) -> Recipe | None:
    """Give UltraLIF in the terms of the recurrence."""
    rule = _rule(_membrane(mode), MODES, mode, v_reset, reset, detach_reset, delayed_reset, RESETS)
    return _recipe(eps, leak, threshold, v_sat if reset == "saturate" else 1.0, rule)


@operator(functional.ultradlif)
def ultradlif(
    current: Tensor,
    *,
    eps: Constant,
    threshold: Constant,
    leak: Constant | None = None,
    v_reset: Constant = 0.0,
    mode: Mode = "soft",
    coupling: Coupling = "membrane",
    coupled_axis: int = -1,
    neighborhood: Neighborhood = "ring",
    centered: bool = False,
    leak_form: LeakForm = "factor",
    reset: Reset = "zero",
    detach_reset: bool | None = None,
    delayed_reset: bool = False,
) -> Recipe | None:
    """Give UltraDLIF in the terms of the recurrence."""
    if (
        coupled_axis != -1
        or neighborhood != "ring"
        or leak_form not in LEAK_FORMS
        or coupling not in COUPLINGS
    ):
        return None
    rule = _rule(
        _membrane(mode),
        MODES,
        mode,
        v_reset,
        reset,
        detach_reset,
        delayed_reset,
        ring=current.shape[-1],
        centered=centered,
        leak_form=recurrence.LeakForm.NONE if leak is None else recurrence.LeakForm[leak_form.upper()],
        at_spike=coupling == "spike",
    )
    return _recipe(eps, 1.0 if leak is None else leak, threshold, 1.0, rule)


def _surrogate(
    surrogate: Surrogate, slope: Constant, scaled: bool
) -> tuple[Constant, Constant, dict[str, Any]]:
    """Return temperature, height and shape of the curve whose derivative the surrogate is."""
    shape = {"curve": Curve[surrogate.upper()], "unit": scaled}
    if scaled:
        return _inverse(slope), 1.0, shape
    return _inverse(slope), _inverse(_detached(slope)), shape


def _inverse(constant: Constant) -> Constant:
    if isinstance(constant, Learned):
        return constant._replace(inverse=not constant.inverse)
    return 1 / constant


def _detached(constant: Constant) -> Constant:
    if isinstance(constant, Learned):
        return constant._replace(raw=constant.raw.detach())
    return constant.detach() if isinstance(constant, Tensor) else constant


@operator(functional.lif)
def lif(
    current: Tensor,
    *,
    leak: Constant,
    threshold: Constant,
    v_reset: Constant = 0.0,
    surrogate_slope: Constant = 10.0,
    surrogate: Surrogate = "sigmoid",
    scaled_surrogate: bool = False,
    mode: Mode = "hard",
    reset: Reset = "zero",
    detach_reset: bool | None = None,
    delayed_reset: bool = False,
) -> Recipe | None:
    """Give LIF in the terms of the recurrence."""
    if surrogate not in SURROGATES:
        return None
    eps, amplitude, shape = _surrogate(surrogate, surrogate_slope, scaled_surrogate or mode == "soft")
    rule = _rule(Membrane.ADD, BINARY, mode, v_reset, reset, detach_reset, delayed_reset, **shape)
    return _recipe(eps, leak, threshold, amplitude, rule)


@operator(functional.adalif)
def adalif(
    current: Tensor,
    *,
    leak: Constant,
    threshold: Constant,
    adapt_strength: Constant = 0.1,
    adapt_decay: Constant = 0.9,
    adapt_late: bool = False,
    v_reset: Constant = 0.0,
    surrogate_slope: Constant = 10.0,
    surrogate: Surrogate = "sigmoid",
    scaled_surrogate: bool = False,
    mode: Mode = "hard",
    reset: Reset = "zero",
    detach_reset: bool | None = None,
    delayed_reset: bool = False,
) -> Recipe | None:
    """Give AdaLIF in the terms of the recurrence."""
    if surrogate not in SURROGATES or not _are_numbers(adapt_strength, adapt_decay):
        return None
    eps, amplitude, shape = _surrogate(surrogate, surrogate_slope, scaled_surrogate or mode == "soft")
    rule = _rule(
        Membrane.ADD,
        BINARY,
        mode,
        v_reset,
        reset,
        detach_reset,
        delayed_reset,
        adapt=True,
        adapt_strength=adapt_strength,
        adapt_decay=adapt_decay,
        adapt_late=adapt_late,
        **shape,
    )
    return _recipe(eps, leak, threshold, amplitude, rule)


@operator(functional.dspike)
def dspike(
    current: Tensor,
    *,
    leak: Constant,
    threshold: Constant,
    sharpness: Constant = 4.0,
    clipped: bool = True,
    v_reset: Constant = 0.0,
    mode: Mode = "hard",
    reset: Reset = "zero",
    detach_reset: bool | None = None,
    delayed_reset: bool = False,
) -> Recipe | None:
    """Give DSpike in the terms of the recurrence."""
    shape: dict[str, Any] = {"unit": False, "clipped": clipped, "sharp": True}
    rule = _rule(Membrane.ADD, BINARY, mode, v_reset, reset, detach_reset, delayed_reset, **shape)
    return _recipe(sharpness, leak, threshold, 1.0, rule)


@operator(functional.softlif)
def softlif(
    current: Tensor,
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
) -> Recipe | None:
    """Give SoftLIF in the terms of the recurrence."""
    rule = _rule(Membrane.ADD, BINARY, mode, v_reset, reset, detach_reset, delayed_reset, RESETS)
    return _recipe(eps, leak, threshold, v_sat if reset == "saturate" else 1.0, rule)
