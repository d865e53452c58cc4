"""Check values against the annotations of a class, and convert them, with clear errors."""

import math
from functools import cache
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from ultralif.errors import InputError, check_choice

__all__ = ["validate"]

_WORDS: dict[type, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a finite number",
    str: "a name",
    NoneType: "None",
}


def validate(owner: type, name: str, value: object) -> object:
    """Convert a value to the type of its field: 1 to 1.0, a list to a tuple.

    Args:
        owner: its fields are annotated with bool, int, float, str, Literal, None, or tuples of them.
        name: the field.
        value: what was given for it.
    """
    kind = _kind(owner, name)
    if kind.many and isinstance(value, list | tuple):
        return tuple(_single(name, entry, kind) for entry in value)
    if kind.many and value is not None:
        raise InputError(f"{name} must be a list, each entry {_WORDS[kind.types[0]]}, got {value!r}")
    return _single(name, value, kind)


class _Kind(NamedTuple):
    """The kinds of values of a field."""

    types: tuple[type, ...]
    choices: tuple[str, ...]
    many: bool
    """A tuple of such values."""


@cache
def _kind(owner: type, name: str) -> _Kind:
    hint = get_type_hints(owner)[name]
    types: list[type] = []
    choices: tuple[str, ...] = ()
    many = False
    for option in get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,):
        if get_origin(option) is Literal:
            choices = get_args(option)
            types.append(str)
        elif get_origin(option) is tuple:
            many = True
            types.append(get_args(option)[0])
        else:
            types.append(option)
    return _Kind(tuple(types), choices, many)


def _single(name: str, value: object, kind: _Kind) -> object:
    types = kind.types
    if value is None and NoneType in types:
        return None
    if isinstance(value, bool):
        if bool in types:
            return value
    elif isinstance(value, str) and str in types:
        if kind.choices:
            check_choice(name, value, kind.choices)
        return value
    elif isinstance(value, Integral) and int in types:
        return int(value)
    elif isinstance(value, Real) and float in types and _is_finite(value):
        return float(value) + 0.0  # -0.0 becomes 0.0
    raise InputError(f"{name} must be {' or '.join(_WORDS[one] for one in types)}, got {value!r}")


def _is_finite(value: Real) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number beyond all floats
        return False
