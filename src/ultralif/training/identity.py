"""The identity of a run: a hash of what differs from ultralif 0.1.0.

`baseline` keeps the defaults of 0.1.0, so neither a new option nor another default changes the name or the
meaning of a run.
"""

import hashlib
import inspect
import json
import math
import sys
from collections.abc import Mapping
from functools import cache
from numbers import Integral, Real
from typing import Any, cast

from ultralif.errors import InputError
from ultralif.names import similar
from ultralif.training.baseline import FIELDS, FIRST_FIELDS, OF_SCHEMA_1, OPTIONS, READINGS, RESERVED

__all__ = [
    "SCHEMA",
    "arguments",
    "changed_options",
    "check_options",
    "document_id",
    "example",
    "first_document",
    "known_options",
]

SCHEMA = 2
"""Version of a stored config: 1 has all 45 fields of 0.1.0, 2 has what differs from `baseline`."""

_LEARNED = {"slope": "surrogate_slope"}


def document_id(document: Mapping[str, Any]) -> str:
    """Return the name of a run from its stored config, of any schema: 12 digits of a hash of the document."""
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()[:12]


def first_document(fields: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the config that 0.1.0 stored for these values: all of its fields, whatever their values."""
    values = {**FIRST_FIELDS, **dict.fromkeys(OF_SCHEMA_1), **fields, **options}
    return {"schema": 1, **json.loads(json.dumps(values))}


def known_options() -> set[str]:
    """Return the names of the options that the neurons of 0.1.0, and those that are registered, have."""
    names = {name for options in OPTIONS.values() for name in options}
    network = sys.modules.get("ultralif.nn.network")  # without it nothing is registered
    for neuron in network.NEURONS if network else ():
        names |= set(_live(neuron))
    return names - RESERVED.keys()


def check_options(neuron: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options as they are stored; refuse unknown names and bad values.

    Args:
        neuron: the neuron's name.
        options: by the names of the neuron's arguments.
    """
    checked = {}
    known = known_options() if options else set()
    table = OPTIONS.get(neuron) or (_live(neuron) if options else {})
    for name, value in options.items():
        if name in RESERVED:
            raise InputError(f"{name} is not an option of a run; use {RESERVED[name]}")
        if name not in known and name not in _live(neuron):
            raise _unknown(neuron, name)
        if value is not None or name not in OF_SCHEMA_1:
            checked[name] = _plain(name, value, table[name] if name in table else example(name))
    return dict(sorted(checked.items()))


def changed_options(neuron: str, options: Mapping[str, Any], defaults: str) -> dict[str, Any]:
    """Return the options of a neuron that differ from 0.1.0.

    Args:
        neuron: the neuron's name.
        options: those that are given.
        defaults: where the others come from: ``current``, or the name of a reading.
    """
    base = OPTIONS.get(neuron)
    if base is None:  # 0.1.0 did not have this neuron: nothing to compare the options with
        _check_names(neuron, options, _live(neuron))
        return dict(options)
    if defaults in READINGS:
        _check_names(neuron, options, base)
        resolved = READINGS[defaults].get(neuron, {}) | dict(options)
    else:
        live = _live(neuron)
        _check_names(neuron, options, live)
        resolved = {name: value for name, value in live.items() if name in base} | dict(options)
    return {name: value for name, value in sorted(resolved.items()) if value != base.get(name, _UNKNOWN)}


def arguments(neuron: str, options: Mapping[str, Any], defaults: str) -> dict[str, Any]:
    """Return the keyword arguments that build a neuron with these options, see `changed_options`."""
    live = _live(neuron)
    _check_names(neuron, options, live)
    if defaults == "current" or neuron not in OPTIONS:
        return dict(options)
    table = OPTIONS[neuron] | READINGS[defaults].get(neuron, {})
    base = {name: value for name, value in table.items() if name in live}
    return {name: tuple(v) if isinstance(v, list) else v for name, v in (base | dict(options)).items()}


_UNKNOWN = object()


@cache
def _signature(kind: Any) -> dict[str, Any]:
    """Return the options of a neuron's class with their defaults, as they are now."""
    found = {}
    for name, parameter in inspect.signature(kind).parameters.items():
        if name in RESERVED or parameter.kind is not inspect.Parameter.KEYWORD_ONLY:
            continue
        default = parameter.default
        learned = name.removeprefix("learn_")
        if learned != name and default is None:
            default = _LEARNED.get(learned, learned) in kind.learns
        found[name] = list(default) if isinstance(default, tuple) else default
    return found


def _live(neuron: str) -> dict[str, Any]:
    from ultralif.nn import find_neuron

    return _signature(cast(Any, find_neuron(neuron)))


def example(name: str) -> Any:
    """Return the value of an option in 0.1.0 for the first neuron that has it; None if none has."""
    return next((options[name] for options in OPTIONS.values() if name in options), None)


def _check_names(neuron: str, options: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    for name in options:
        if name not in known and name not in _live(neuron):
            if name in known_options():
                raise InputError(f"{name} is not an argument of {neuron}; leave it out for this neuron")
            raise _unknown(neuron, name)


def _unknown(neuron: str, name: str) -> InputError:
    near = similar(name, [*FIELDS, *_live(neuron)])
    hint = f"did you mean {near!r}?" if near else f"its options are {', '.join(sorted(_live(neuron)))}"
    return InputError(f"{name!r} is not a field of a run's config, nor an option of {neuron}; {hint}")


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
