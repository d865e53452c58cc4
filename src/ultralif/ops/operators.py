"""Express each neuron in terms of the recurrence in `ultralif.ops.rule`, and build its operator.

An operator runs a neuron over a sequence, with a kernel if there is one and with its definition otherwise.
"""

from collections.abc import Callable, Mapping
from inspect import Parameter, Signature, signature
from typing import Literal, NamedTuple, ParamSpec, Protocol, TypedDict, TypeVar, Unpack, cast, get_args

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
from ultralif.ops.constants import Learned, Value
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
is_tracing: Callable[[], bool] = vars(torch.jit)["is_tracing"]  # untyped there
S = TypeVar("S", Tensor, AdaptiveState)
P = ParamSpec("P")


class Recipe(NamedTuple):
    """A neuron's constants and rule, in terms of the recurrence."""

    constants: Constants
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


def operator(reference: OverTime[S, P]) -> Callable[[Callable[..., Recipe | None]], Operator[S, P]]:
    """Build an operator from a recipe; without a kernel, the reference runs or raises its error.

    There is no kernel if the recipe is None or no implementation for the device supports its rule. The recipe
    function receives the current, and every argument of the reference by name. It returns None to leave the
    call to the definition, which may reject an argument.
    """

    def decorate(recipe: Callable[..., Recipe | None]) -> Operator[S, P]:
        constants: list[Parameter] = [
            p for p in signature(reference).parameters.values() if p.kind is p.KEYWORD_ONLY
        ]
        defaults = {p.name: p.default for p in constants if p.default is not p.empty}
        required = {p.name for p in constants} - defaults.keys()

        def complete(current: Tensor, given: Mapping[str, object]) -> Recipe | None:
            if not required <= given.keys() <= required | defaults.keys():
                return None
            found = recipe(current, **{**defaults, **given})
            return found if found and autograd.is_fused(current, found.rule) else None

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
                along_last = cast(Callable[..., tuple[Tensor, S]], _along_last)
                return along_last(run, axis, current, v0, rate, kwargs)
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
        run.__doc__ = f"Run `ultralif.functional.{name}`, with a kernel if there is one."
        return run

    return decorate


def _check_shapes(current: Tensor, given: Mapping[str, object]) -> None:
    """Reject constants that do not broadcast against a step, because kernels do not check them."""
    step = current.shape[1:]
    for name, constant in given.items():
        if not isinstance(constant, Tensor | Learned):
            continue
        shape = tuple(shape_of(constant))
        sizes = zip(reversed(shape), reversed(step), strict=False)
        if len(shape) > len(step) or any(size not in (1, n) for size, n in sizes):
            raise InputError(
                f"{name} must be a number or broadcast against the features {tuple(step[1:])}, got shape "
                f"{shape}; pass one entry for all neurons or one for each"
            )


def _along_last(
    run: Callable[..., tuple[Tensor, Tensor]],
    axis: int,
    current: Tensor,
    v0: Tensor | None,
    rate: bool,
    given: Mapping[str, object],
) -> tuple[Tensor, Tensor]:
    """Run an operator whose neurons are coupled along another axis, by moving that axis to the end."""

    def moved(constant: object) -> object:
        if isinstance(constant, Learned):
            return constant._replace(raw=cast(Tensor, moved(constant.raw)))
        if not isinstance(constant, Tensor) or constant.numel() == 1:
            return constant
        full = constant.reshape((1,) * (current.dim() - 2 - constant.dim()) + constant.shape)
        return full.movedim(axis, -1)

    start = None if v0 is None else v0.movedim(axis, -1)
    arguments = {name: moved(value) for name, value in given.items()} | {"coupled_axis": -1}
    out, last = run(current.movedim(axis, -1), start, rate, **arguments)
    return out.movedim(-1, axis), last.movedim(-1, axis)


def prepare(
    operator: Callable[..., object],
    current: Tensor,
    given: Mapping[str, object],
    parameters: Mapping[str, Tensor | None],
) -> autograd.Repeated | None:
    """Return a repeatable call of an operator from rest, or None."""
    recipe = getattr(operator, "recipe", None)
    found = None if recipe is None or _needs_definition(current) else recipe(current, given)
    return None if found is None else autograd.repeated(current, found.constants, found.rule, parameters)


def _needs_definition(current: Tensor) -> bool:
    """Return whether the call is empty, exported, traced or transformed: then only PyTorch operators work."""
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
    constants = Constants(*[c.to(dtype) if isinstance(c, Tensor) else c for c in recipe.constants])
    rule = recipe.rule._replace(rate=True) if rate else recipe.rule
    out, last = autograd.run(current, state, constants, rule)
    return out, cast(S, AdaptiveState(*last) if rule.adapt else last[0])


MODES, SURROGATES = get_args(Mode), get_args(SurrogateName)
RESETS = tuple(reset.name.lower() for reset in rules.Reset)


class _Firing(TypedDict):
    """How every neuron fires and resets."""

    mode: Mode
    v_reset: Constant
    reset: Reset
    detach_reset: bool | None
    delayed_reset: bool


class _SurrogateFiring(_Firing):
    """The arguments of LIF."""

    leak: Value
    threshold: Value
    surrogate: Surrogate
    surrogate_slope: Value


def _recipe(
    constants: Constants,
    rule: Rule,
    resets: tuple[str, ...],
    *,
    mode: Mode,
    v_reset: Constant,
    reset: Reset,
    detach_reset: bool | None,
    delayed_reset: bool,
) -> Recipe | None:
    """Complete a rule with how the neuron fires; None leaves the call to the neuron's definition."""
    modes = ("hard", "soft") if rule.membrane == Membrane.ADD else MODES
    delayed = delayed_reset and reset != "none"
    if delayed and (reset == "saturate" or rule.ring or rule.adapt):
        return None
    if mode not in modes or reset not in resets or isinstance(v_reset, Tensor):
        return None
    complete = rule._replace(
        soft=mode == "soft",
        reset=rules.Reset[reset.upper()],
        detach=mode != "soft" if detach_reset is None else detach_reset,
        delayed=delayed,
        v_reset=v_reset,
    )
    return Recipe(constants, complete)


def _membrane(mode: Mode) -> Membrane:
    return Membrane.MAX if mode == "tropical" else Membrane.LSE


@operator(functional.ultralif)
def ultralif(
    current: Tensor, *, eps: Value, leak: Value, threshold: Value, v_sat: Value, **firing: Unpack[_Firing]
) -> Recipe | None:
    """Express UltraLIF as a rule."""
    constants = Constants(eps, leak, threshold, v_sat if firing["reset"] == "saturate" else 1.0)
    return _recipe(constants, Rule(_membrane(firing["mode"])), RESETS, **firing)


@operator(functional.softlif)
def softlif(
    current: Tensor, *, eps: Value, leak: Value, threshold: Value, v_sat: Value, **firing: Unpack[_Firing]
) -> Recipe | None:
    """Express SoftLIF as a rule."""
    constants = Constants(eps, leak, threshold, v_sat if firing["reset"] == "saturate" else 1.0)
    return _recipe(constants, Rule(Membrane.ADD), RESETS, **firing)


@operator(functional.ultradlif)
def ultradlif(
    current: Tensor,
    *,
    eps: Value,
    leak: Value | None,
    threshold: Value,
    coupled_axis: int,
    centered: bool,
    **firing: Unpack[_Firing],
) -> Recipe | None:
    """Express UltraDLIF as a rule."""
    if coupled_axis != -1:
        return None
    constants = Constants(eps, 1.0 if leak is None else leak, threshold, 1.0)
    membrane = _membrane(firing["mode"])
    rule = Rule(membrane, centered=centered, leaks=leak is not None, ring=current.shape[-1])
    return _recipe(constants, rule, RESETS[:3], **firing)


def _with_surrogate(
    rule: Rule,
    *,
    leak: Value,
    threshold: Value,
    surrogate: Surrogate,
    surrogate_slope: Value,
    **firing: Unpack[_Firing],
) -> Recipe | None:
    """Express LIF and AdaLIF as a rule: the temperature is the inverse of the slope."""
    if callable(surrogate) or surrogate not in SURROGATES:
        return None
    if surrogate == "superspike" and firing["mode"] == "soft":
        return None
    if isinstance(surrogate_slope, Learned):
        eps: Value = surrogate_slope._replace(inverse=not surrogate_slope.inverse)
    else:
        eps = 1 / surrogate_slope
    rule = rule._replace(curve=Curve[surrogate.upper()])
    return _recipe(Constants(eps, leak, threshold, 1.0), rule, RESETS[:3], **firing)


@operator(functional.lif)
def lif(current: Tensor, **given: Unpack[_SurrogateFiring]) -> Recipe | None:
    """Express LIF as a rule."""
    return _with_surrogate(Rule(Membrane.ADD), **given)


@operator(functional.adalif)
def adalif(
    current: Tensor, *, adapt_strength: Value, adapt_decay: Value, **given: Unpack[_SurrogateFiring]
) -> Recipe | None:
    """Express AdaLIF as a rule."""
    if not (isinstance(adapt_strength, float | int) and isinstance(adapt_decay, float | int)):
        return None
    rule = Rule(Membrane.ADD, adapt=True, adapt_strength=adapt_strength, adapt_decay=adapt_decay)
    return _with_surrogate(rule, **given)


@operator(functional.dspike)
def dspike(
    current: Tensor, *, leak: Value, threshold: Value, sharpness: Value, **firing: Unpack[_Firing]
) -> Recipe | None:
    """Express DSpike as a rule."""
    constants = Constants(sharpness, leak, threshold, 1.0)
    return _recipe(constants, Rule(Membrane.ADD, clipped=True, sharp=True), RESETS[:3], **firing)
