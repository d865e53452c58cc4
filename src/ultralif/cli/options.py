"""Arguments of neurons as flags: ``--eps 0.5 --no-learn-eps``, whatever neuron has them."""

import difflib
from collections.abc import Collection, Sequence
from typing import Any

from ultralif.errors import InputError
from ultralif.training.identity import example, known_options

__all__ = ["describe_options", "split_options"]

_SWITCH = {"True": True, "False": False, "None": None}


def describe_options() -> str:
    """Return the part of a command's help that lists the options."""
    lines = [
        f"  --{_flag(name)} {_KINDS.get(type(example(name)), 'VALUE')}" for name in sorted(known_options())
    ]
    return "\n".join(
        [
            "Options of the neuron, for those that have them; --dry-run prints their values:",
            *lines,
        ]
    )


def split_options(argv: Sequence[str], fields: Collection[str]) -> tuple[list[str], dict[str, Any]]:
    """Return the words that are the command's own, and the neuron options that the others give.

    Args:
        argv: the arguments of a command.
        fields: the names of the command's own flags.

    Example:
        >>> split_options(["--eps", "0.5", "--epochs", "3", "--no-learn-eps"], ["epochs"])
        (['--epochs', '3'], {'eps': 0.5, 'learn_eps': False})
    """
    known = known_options() - set(fields)
    words, options = [], {}
    rest = list(argv)
    while rest:
        word = rest.pop(0)
        flag, _, joined = word.partition("=")
        name = flag.removeprefix("--").replace("-", "_")
        if not flag.startswith("--") or (name not in known and name.removeprefix("no_") not in known):
            _check_spelling(flag, name, fields, known)
            words.append(word)
        elif name not in known:
            options[name.removeprefix("no_")] = False
        else:
            values = [joined] if joined else _values(name, rest)
            options[name] = _value(flag, example(name), values)
    return words, options


def _values(name: str, rest: list[str]) -> list[str]:
    """Take the values that follow a flag."""
    most = len(rest) if isinstance(example(name), list) else 1
    values: list[str] = []
    while rest and len(values) < most and not rest[0].startswith("--"):
        values.append(rest.pop(0))
    return values


def _value(flag: str, default: Any, values: Sequence[str]) -> Any:
    """Return what the words after a flag say, in the type of the option's default."""
    if isinstance(default, list):
        return [_number(flag, part) for value in values for part in value.split(",") if part]
    if not values:
        if isinstance(default, float | str):
            raise InputError(f"{flag} needs a value")
        return True
    (value,) = values
    switch = value.capitalize()
    if isinstance(default, bool):
        if switch not in _SWITCH:
            raise InputError(f"{flag} must be one of {', '.join(_SWITCH)}, got {value!r}")
        return _SWITCH[switch]
    if switch == "None" or (default is None and switch in _SWITCH):
        return _SWITCH[switch]
    if default is None:
        try:
            return float(value)
        except ValueError:
            return value
    return value if isinstance(default, str) else _number(flag, value)


def _number(flag: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise InputError(f"{flag} takes a number, got {value!r}") from None


def _check_spelling(flag: str, name: str, fields: Collection[str], known: Collection[str]) -> None:
    """Refuse a flag that is none of the command's, and nearly that of an option."""
    if not flag.startswith("--") or name in fields or name.removeprefix("no_") in fields:
        return
    near = difflib.get_close_matches(name, [*fields, *known], n=1)
    if near and near[0] in known:
        raise InputError(f"{flag} is not known; did you mean --{_flag(near[0])}?")


def _flag(name: str) -> str:
    return name.replace("_", "-")


_KINDS: dict[type, str] = {bool: "{True,False}", float: "FLOAT", int: "INT", str: "STR", list: "FLOAT FLOAT"}
