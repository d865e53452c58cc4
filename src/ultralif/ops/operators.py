"""Each neuron as an instance of the one recurrence in `ultralif.ops.rule`, and as an operator.

An operator runs a neuron over a sequence, with a kernel if there is one and with its definition otherwise.
"""

from collections.abc import Callable
from inspect import Parameter, Signature, signature
from typing import Any, Literal, NamedTuple, ParamSpec, Protocol, TypeVar, cast, get_args

import torch
from torch import Tensor

from ultralif import functional
from ultralif.errors import InputError, check_choice
from ultralif.functional import (
    AdaptiveState,
    Constant,
    Mode,
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
    """A neuron's constants and rule, in terms of the recurrence."""

    eps: Any
    leak: Any
    threshold: Any
    amplitude: Any
    rule: Rule | None
    """None if the definition must run or refuse an argument."""


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


def operator(reference: OverTime[S, P]) -> Callable[[Callable[..., Recipe | None]], Operator[S, P]]:
    """Make an operator from a recipe; without a kernel, the reference runs or raises its error.

    There is none where the recipe is None, or where no implementation for the device takes its rule. The
    recipe takes the current, and every argument of the reference by name.
    """

    def decorate(recipe: Callable[..., Recipe | None]) -> Operator[S, P]:
        constants: list[Parameter] = [
            p for p in signature(reference).parameters.values() if p.kind is p.KEYWORD_ONLY
        ]
        defaults = {p.name: p.default for p in constants if p.default is not p.empty}
        required = {p.name for p in constants} - defaults.keys()

        def complete(current: Tensor, given: dict[str, Any]) -> Recipe | None:
            if not required <= given.keys() <= required | defaults.keys():
                return None
            found = recipe(current, **{**defaults, **given})
            return found if found and found.rule and autograd.is_fused(current, found.rule) else None

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
            if fused and 2 - current.dim() <= axis < -1:
                return _along_last(run, axis, current, v0, rate, kwargs)
            if fused:
                _check_shapes(current, kwargs)
            found = complete(current, kwargs) if fused else None
            if found is not None:
                return _integrate(current, v0, rate, found)
            for name, given in kwargs.items():
                if isinstance(given, Learned):
                    kwargs[name] = given.value()
            spikes, state = reference(current, v0, *args, **kwargs)
            return (spikes.mean(0) if rate else spikes), state

        name: str = getattr(reference, "__name__")  # noqa: B009 - the protocol of functions has none
        run.__name__ = run.__qualname__ = name
        vars(run)["recipe"] = complete
        leading: list[Parameter] = [
            p for p in signature(run).parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD
        ]
        vars(run)["__signature__"] = Signature([*leading, *constants])
        run.__doc__ = f"Run `ultralif.functional.{name}`, by a kernel where there is one."
        return run

    return decorate


def _check_shapes(current: Tensor, given: dict[str, Any]) -> None:
    """Refuse constants that do not broadcast against a step, because kernels do not check them."""
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
    """Return a repeatable call of an operator from rest, or None."""
    recipe = getattr(operator, "recipe", None)
    found = None if recipe is None or _needs_definition(current) else recipe(current, given)
    if found is None:
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
    rule = cast(Rule, recipe.rule)
    rule = rule._replace(rate=True) if rate else rule
    out, last = autograd.run(current, state, constants, rule)
    return out, cast(S, AdaptiveState(*last) if rule.adapt else last[0])


MODES, SURROGATES = get_args(Mode), get_args(SurrogateName)
RESETS = tuple(reset.name.lower() for reset in rules.Reset)


def _rule(
    membrane: Membrane,
    resets: tuple[str, ...],
    *,
    mode: Mode,
    v_reset: Constant,
    reset: Reset,
    detach_reset: bool | None,
    delayed_reset: bool,
    **choices: Any,
) -> Rule | None:
    """Return the rule of a neuron; None if its definition must run or refuse an argument."""
    modes = ("hard", "soft") if membrane == Membrane.ADD else MODES
    delayed = delayed_reset and reset != "none"
    if delayed and (reset == "saturate" or "ring" in choices or "adapt" in choices):
        return None
    if mode not in modes or reset not in resets or isinstance(v_reset, Tensor):
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


def _membrane(mode: Mode) -> Membrane:
    return Membrane.MAX if mode == "tropical" else Membrane.LSE


@operator(functional.ultralif)
def ultralif(
    current: Tensor, *, eps: Any, leak: Any, threshold: Any, v_sat: Any, **firing: Any
) -> Recipe | None:
    """Express UltraLIF by the rule."""
    amplitude = v_sat if firing["reset"] == "saturate" else 1.0
    return Recipe(eps, leak, threshold, amplitude, _rule(_membrane(firing["mode"]), RESETS, **firing))


@operator(functional.softlif)
def softlif(
    current: Tensor, *, eps: Any, leak: Any, threshold: Any, v_sat: Any, **firing: Any
) -> Recipe | None:
    """Express SoftLIF by the rule."""
    amplitude = v_sat if firing["reset"] == "saturate" else 1.0
    return Recipe(eps, leak, threshold, amplitude, _rule(Membrane.ADD, RESETS, **firing))


@operator(functional.ultradlif)
def ultradlif(
    current: Tensor, *, eps: Any, leak: Any, threshold: Any, coupled_axis: int, **firing: Any
) -> Recipe | None:
    """Express UltraDLIF by the rule."""
    if coupled_axis != -1:
        return None
    firing |= {"ring": current.shape[-1], "leaks": leak is not None}
    rule = _rule(_membrane(firing["mode"]), RESETS[:3], **firing)
    return Recipe(eps, 1.0 if leak is None else leak, threshold, 1.0, rule)


def _lif(
    current: Tensor,
    *,
    leak: Any,
    threshold: Any,
    surrogate: Surrogate,
    surrogate_slope: Any,
    **firing: Any,
) -> Recipe | None:
    """Express LIF by the rule: its temperature is the inverse of the slope."""
    if callable(surrogate) or surrogate not in SURROGATES:
        return None
    if isinstance(surrogate_slope, Learned):
        eps: Any = surrogate_slope._replace(inverse=not surrogate_slope.inverse)
    else:
        eps = 1 / surrogate_slope
    rule = _rule(Membrane.ADD, RESETS[:3], curve=Curve[surrogate.upper()], **firing)
    return Recipe(eps, leak, threshold, 1.0, rule)


lif = operator(functional.lif)(_lif)


@operator(functional.adalif)
def adalif(current: Tensor, *, adapt_strength: Any, adapt_decay: Any, **others: Any) -> Recipe | None:
    """Express AdaLIF by the rule."""
    if any(isinstance(constant, Tensor | Learned) for constant in (adapt_strength, adapt_decay)):
        return None
    return _lif(current, adapt=True, adapt_strength=adapt_strength, adapt_decay=adapt_decay, **others)


@operator(functional.dspike)
def dspike(current: Tensor, *, leak: Any, threshold: Any, sharpness: Any, **firing: Any) -> Recipe | None:
    """Express DSpike by the rule."""
    rule = _rule(Membrane.ADD, RESETS[:3], clipped=True, sharp=True, **firing)
    return Recipe(sharpness, leak, threshold, 1.0, rule)
