"""The options of a neuron: its keyword arguments, checked, and completed with the defaults of its class.

Only this module asks the classes of neurons, so only new configs need torch; stored ones are complete.
"""

import inspect
import math
from collections.abc import Iterable, Mapping
from functools import cache
from numbers import Integral, Real
from typing import Any, cast

from ultralif.errors import InputError
from ultralif.names import similar

__all__ = [
    "RESERVED",
    "CompleteOptions",
    "check_options",
    "class_defaults",
    "complete",
    "example",
    "known_options",
]

RESERVED = {
    "mode": "the field mode",
    "eps_range": "the fields eps_min and eps_max",
    "parameter_shape": "the field per_neuron",
    "time_constants": "ul.train with a network of your own, whose neurons have them",
    "batch_first": "nothing: batches of a run have time first",
    "check_finite": "nothing: a run that diverges is noticed without it",
    "backend": "nothing: it does not change a run",
}
"""Arguments of neurons that are not options of a run, and what to use instead."""
_PAPER = ("coupling", "leak_form", "leak_parameter", "sharpness_parameter", "adapt_late", "scaled_surrogate")
RESERVED |= dict.fromkeys((*_PAPER, "clipped", "clamp"), "a neuron of your own, made with ul.Stepped")


OPEN = object()
"""In place of a default that JSON cannot express, and for an argument without one: the class decides."""


class CompleteOptions(dict[str, Any]):
    """Every option of a neuron, as a stored config lists them; nothing is left to look up in its class."""


def class_defaults(neuron: str) -> dict[str, Any]:
    """Return the options of a neuron's class with their defaults, as JSON has them, or `OPEN`."""
    from ultralif.nn import find_neuron

    return _signature(cast(Any, find_neuron(neuron)))


@cache
def _signature(kind: Any) -> dict[str, Any]:
    found = {}
    for name, parameter in inspect.signature(kind).parameters.items():
        if name in RESERVED or parameter.kind is not inspect.Parameter.KEYWORD_ONLY:
            continue
        default = parameter.default
        learned = name.removeprefix("learn_")
        if learned != name and default is None:
            default = {"slope": "surrogate_slope"}.get(learned, learned) in kind.learns
        found[name] = list(default) if isinstance(default, tuple) else default if _is_plain(default) else OPEN
    return found


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, bool | int | float | str | list)


def known_options() -> set[str]:
    """Return the names of the options that any registered neuron has."""
    return set(_all_options())


def example(name: str) -> Any:
    """Return the default of an option for the first neuron that has it; None if none has, or any will do."""
    found = _all_options().get(name)
    return None if found is OPEN else found


def _all_options() -> dict[str, Any]:
    """Return the options of all neurons, each with the default of the first that has it."""
    from ultralif.nn.network import NEURONS

    found: dict[str, Any] = {}
    for neuron in NEURONS:
        found = class_defaults(neuron) | found
    return found


def check_options(neuron: str, options: Mapping[str, Any], fields: Iterable[str]) -> dict[str, Any]:
    """Return options as JSON has them; refuse unknown names and bad values.

    An option that only other neurons have is refused later, by `complete`: a sweep has one set of options,
    and changes the neuron.

    Args:
        neuron: the neuron's name.
        options: by the names of the neuron's arguments.
        fields: the fields of a config, for a hint.
    """
    if isinstance(options, CompleteOptions) or not options:
        return CompleteOptions(options) if options else {}
    own = class_defaults(neuron)
    known = _all_options() | own
    checked = {}
    for name, value in options.items():
        if name in RESERVED:
            raise InputError(f"{name} is not an option of a run; use {RESERVED[name]}")
        if name not in known:
            near = similar(name, [*fields, *own])
            hint = f"did you mean {near!r}?" if near else f"its options are {', '.join(sorted(own))}"
            raise InputError(f"{name!r} is not a field of a run's config, nor an option of {neuron}; {hint}")
        checked[name] = _plain(name, value, None if known[name] is OPEN else known[name])
    return checked


def complete(neuron: str, options: Mapping[str, Any], defaults: Mapping[str, Any]) -> CompleteOptions:
    """Return every option of a neuron, sorted by name: those given, and the defaults of the others."""
    for name in options:
        if name not in defaults:
            raise InputError(f"{name} is not an argument of {neuron}; leave it out for this neuron")
    known = {name: value for name, value in defaults.items() if value is not OPEN}
    return CompleteOptions(sorted({**known, **options}.items()))


def _plain(name: str, value: Any, default: Any) -> Any:
    """Return an option's value as JSON has it, in the type of its default."""
    if isinstance(value, list | tuple) and (default is None or isinstance(default, list)):
        return [_plain(name, entry, None) for entry in value]
    if value is None and not isinstance(default, float | str | list) and type(default) is not int:
        return None
    if isinstance(value, bool):
        if default is None or isinstance(default, bool):
            return value
    elif isinstance(value, str):
        if default is None or isinstance(default, str):
            return value
    elif isinstance(value, Real) and not isinstance(default, bool | str | list):
        return _number(name, value, whole=isinstance(default, int))
    raise InputError(f"{name} must be {_KINDS.get(type(default), 'a plain value')}, got {value!r}")


_KINDS: dict[type, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a finite number",
    str: "a name",
    list: "a list of numbers",
}


def _number(name: str, value: Real, *, whole: bool) -> float | int:
    if whole and isinstance(value, Integral):
        return int(value)
    try:
        number = float(value) + 0.0  # so that -0.0 is 0.0
    except OverflowError:
        number = math.inf
    if not math.isfinite(number) or whole:
        raise InputError(f"{name} must be {_KINDS[int if whole else float]}, got {value!r}")
    return number
