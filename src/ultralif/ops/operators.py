"""Each neuron as an instance of the one recurrence in `ultralif.ops.rule`, and as an operator.

An operator runs a neuron over a sequence, by a kernel where there is one and else by its definition.
"""

from collections.abc import Callable
from inspect import Parameter, Signature, signature
from typing import Any, Concatenate, Literal, NamedTuple, ParamSpec, Protocol, TypeVar, cast, get_args

import torch
from torch import Tensor

from ultralif import functional
from ultralif.errors import InputError, check_choice
from ultralif.functional import (
    AdaptiveState,
    Constant,
    Coupling,
    LeakForm,
    Mode,
    Neighborhood,
    Reset,
    Surrogate,
    SurrogateName,
    compute_dtype,
)
from ultralif.functional.scan import OverTime
from ultralif.ops import autograd
from ultralif.ops import rule as rules
from ultralif.ops.constants import Learned
from ultralif.ops.layout import shape_of
from ultralif.ops.rule import Constants, Curve, Membrane, Rule

__all__ = [
    "Backend",
    "Operator",
    "Recipe",
    "adalif",
    "dspike",
    "is_tracing",
    "lif",
    "operator",
    "prepare",
    "softlif",
    "ultradlif",
    "ultralif",
]

Backend = Literal["auto", "reference"]
BACKENDS = get_args(Backend)
is_tracing: Callable[[], bool] = vars(torch.jit)["is_tracing"]  # without types there
S = TypeVar("S", Tensor, AdaptiveState)
P = ParamSpec("P")


class Recipe(NamedTuple):
    """A neuron's constants and rule, in the terms of the recurrence."""

    eps: Constant
    leak: Constant
    threshold: Constant
    amplitude: Constant
    rule: Rule


class Operator(Protocol[S, P]):
    """A neuron over a sequence of currents, as `ultralif.functional` defines it."""

    def __call__(
        self,
        current: Tensor,
        v0: S | None = None,
        rate: bool = False,
        backend: Backend = "auto",
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> tuple[Tensor, S]:
        """Return the spikes (or their mean over time) and the last state."""


def operator(
    reference: OverTime[S, P],
) -> Callable[[Callable[Concatenate[Tensor, P], Recipe | None]], Operator[S, P]]:
    """Make an operator from a recipe; where there is no kernel, the reference runs or raises its error.

    There is none where the recipe is None, or where no implementation for the device takes its rule.
    """

    def decorate(recipe: Callable[Concatenate[Tensor, P], Recipe | None]) -> Operator[S, P]:
        def run(
            current: Tensor,
            v0: S | None = None,
            rate: bool = False,
            backend: Backend = "auto",
            *args: P.args,
            **kwargs: P.kwargs,
        ) -> tuple[Tensor, S]:
            check_choice("backend", backend, BACKENDS)
            fused = backend == "auto" and not _needs_definition(current)
            axis = cast(int, kwargs.get("coupled_axis", -1))
            is_feature = 2 - current.dim() <= axis < -1
            if fused and is_feature and kwargs.get("neighborhood", "ring") == "ring":
                return _along_last(run, axis, current, v0, rate, kwargs)
            if fused:
                _check_shapes(current, kwargs)
            found = recipe(current, *args, **kwargs) if fused else None
            if found is not None and autograd.is_fused(current, found.rule):
                return _integrate(current, v0, rate, found)
            for name, given in kwargs.items():
                if isinstance(given, Learned):
                    kwargs[name] = given.value()
            spikes, state = reference(current, v0, *args, **kwargs)
            return (spikes.mean(0) if rate else spikes), state

        run.__name__ = run.__qualname__ = recipe.__name__
        vars(run)["recipe"] = recipe
        first: list[Parameter] = [
            p for p in signature(run).parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD
        ]
        vars(run)["__signature__"] = Signature([*first, *list(signature(recipe).parameters.values())[1:]])
        run.__doc__ = f"Run `ultralif.functional.{recipe.__name__}`, by a kernel where there is one."
        return run

    return decorate


def _check_shapes(current: Tensor, given: dict[str, Any]) -> None:
    """Refuse constants that do not broadcast against a step: kernels read them without looking again."""
    step = current.shape[1:]
    for name, constant in given.items():
        if not isinstance(constant, Tensor | Learned):
            continue
        shape = tuple(shape_of(constant))
        sizes = zip(reversed(shape), reversed(step), strict=False)
        if len(shape) > len(step) or any(size not in (1, n) for size, n in sizes):
            raise InputError(
                f"{name} must be a number or broadcast against the features {tuple(step[1:])}, got the shape "
                f"{shape}; pass one entry for all neurons or one for each"
            )


def _along_last(
    run: Callable[..., tuple[Tensor, Any]],
    axis: int,
    current: Tensor,
    v0: Any,
    rate: bool,
    given: dict[str, Any],
) -> tuple[Tensor, Any]:
    """Run an operator whose neurons are coupled along another axis than the last; it is moved to the end."""

    def moved(constant: Any) -> Any:
        if isinstance(constant, Learned):
            return constant._replace(raw=moved(constant.raw))
        if not isinstance(constant, Tensor) or constant.numel() == 1:
            return constant
        full = constant.reshape((1,) * (current.dim() - 2 - constant.dim()) + constant.shape)
        return full.movedim(axis, -1)

    start = None if v0 is None else v0.movedim(axis, -1)
    arguments = {name: moved(value) for name, value in given.items()} | {"coupled_axis": -1}
    out, last = run(current.movedim(axis, -1), start, rate, **arguments)
    return out.movedim(-1, axis), last.movedim(-1, axis)


def prepare(
    operator: Callable[..., Any], current: Tensor, given: dict[str, Any], parameters: dict[str, Any]
) -> autograd.Repeated | None:
    """Return a call of an operator from rest that can be repeated; None if it can't."""
    recipe = getattr(operator, "recipe", None)
    if recipe is None or _needs_definition(current):
        return None
    found = recipe(current, **given)
    if found is None or not autograd.is_fused(current, found.rule):
        return None
    return autograd.repeated(current, Constants(*found[:4]), found.rule, parameters)


def _needs_definition(current: Tensor) -> bool:
    """Tell whether the call is empty, or exported, traced or transformed: only PyTorch's operators work."""
    return (
        is_tracing()
        or current.numel() == 0
        or torch.compiler.is_exporting()
        or torch._C._are_functorch_transforms_active()
    )


def _integrate(current: Tensor, v0: S | None, rate: bool, recipe: Recipe) -> tuple[Tensor, S]:
    state = None
    dtype = compute_dtype(current.dtype)
    if v0 is not None:
        stacked = v0.unsqueeze(0) if isinstance(v0, Tensor) else torch.stack(v0)
        if stacked.shape[1:] != current.shape[1:]:
            raise InputError(
                f"v0 must have the shape of one step of the current, {tuple(current.shape[1:])}, got "
                f"{tuple(stacked.shape[1:])}; expand it"
            )
        state = stacked.to(dtype)
    constants = Constants(*[c.to(dtype) if isinstance(c, Tensor) else c for c in recipe[:4]])
    rule = recipe.rule._replace(rate=True) if rate else recipe.rule
    out, last = autograd.run(current, state, constants, rule)
    return out, cast(S, AdaptiveState(*last) if rule.adapt else last[0])


MODES = get_args(Mode)
LEAK_FORMS = tuple(form.name.lower() for form in rules.LeakForm if form)
"""The words that kernels know; with any other the definition runs."""
COUPLINGS, SURROGATES = get_args(Coupling), get_args(SurrogateName)
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
    delayed = delayed_reset and reset != "none"
    if delayed and (reset == "saturate" or "ring" in choices or "adapt" in choices):
        return None
    if not known or isinstance(v_reset, Tensor):
        return None
    return Rule(
        membrane,
        mode == "soft",
        reset=rules.Reset[reset.upper()],
        detach=mode != "soft" if detach_reset is None else detach_reset,
        delayed=delayed,
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
    """Give UltraLIF in the terms of the rule."""
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
    """Give UltraDLIF in the terms of the rule."""
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
        leak_form=rules.LeakForm.NO_LEAK if leak is None else rules.LeakForm[leak_form.upper()],
        at_spike=coupling == "spike",
    )
    return _recipe(eps, 1.0 if leak is None else leak, threshold, 1.0, rule)


def _surrogate(
    surrogate: SurrogateName, slope: Constant, scaled: bool
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
    """Give LIF in the terms of the rule."""
    if callable(surrogate) or surrogate not in SURROGATES:
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
    """Give AdaLIF in the terms of the rule."""
    if callable(surrogate) or surrogate not in SURROGATES or not _are_numbers(adapt_strength, adapt_decay):
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
    """Give DSpike in the terms of the rule."""
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
    """Give SoftLIF in the terms of the rule."""
    rule = _rule(Membrane.ADD, BINARY, mode, v_reset, reset, detach_reset, delayed_reset, RESETS)
    return _recipe(eps, leak, threshold, v_sat if reset == "saturate" else 1.0, rule)
