"""Operators made from recipes: each runs a neuron over a sequence, by a kernel or by its definition."""

from collections.abc import Callable
from inspect import Parameter, Signature, signature
from typing import Any, Concatenate, Literal, NamedTuple, ParamSpec, Protocol, TypeVar, cast, get_args

import torch
from torch import Tensor

from ultralif.errors import InputError, check_choice
from ultralif.functional import AdaptiveState, Constant, compute_dtype
from ultralif.functional.scan import OverTime
from ultralif.ops import autograd, dispatch
from ultralif.ops.constants import Learned
from ultralif.ops.layout import has_gap
from ultralif.ops.recurrence import Constants, Rule

__all__ = ["Backend", "Operator", "Recipe", "is_tracing", "operator", "prepare"]

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
            found = recipe(current, *args, **kwargs) if fused else None
            if found is not None and dispatch.is_fused(current, found.rule):
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


class Repeated:
    """A call from rest that is repeated many times: its rule, constants and plans are kept."""

    def __init__(self, recipe: Recipe, names: dict[int, str]) -> None:
        self.constants, self.rule = Constants(*recipe[:4]), recipe.rule
        self.tensors = [c.raw if isinstance(c, Learned) else None for c in self.constants]
        self.raws = [(names[id(raw)], raw) for raw in self.tensors if raw is not None]
        self.plans: dict[Any, Any] = {}

    def __call__(self, current: Tensor, parameters: dict[str, Any]) -> Tensor | None:
        """Return the spikes; None if a parameter was replaced or the call is not a plain one."""
        for name, raw in self.raws:
            if parameters[name] is not raw:
                return None
        return autograd.repeat(current, self.tensors, self.constants, self.rule, self.plans)


def prepare(
    operator: Callable[..., Any], current: Tensor, given: dict[str, Any], parameters: dict[str, Any]
) -> Repeated | None:
    """Return a call of an operator that can be repeated, if its constants are numbers and parameters."""
    recipe = getattr(operator, "recipe", None)
    if recipe is None or _needs_definition(current):
        return None
    found = recipe(current, **given)
    if found is None or not dispatch.is_fused(current, found.rule):
        return None
    names = {id(parameter): name for name, parameter in parameters.items()}
    for constant in found[:4]:
        if isinstance(constant, Tensor):
            return None
        if isinstance(constant, Learned) and (
            id(constant.raw) not in names or has_gap(tuple(constant.raw.shape))
        ):
            return None
    return Repeated(found, names)


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
