"""Signatures of neuron classes, and the error for an unknown argument."""

import inspect
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ultralif.names import ELSEWHERE, similar

__all__ = ["merged_signature", "unexpected_values", "unknown_argument"]

_NAMED = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def merged_signature(cls: type, defaults: Mapping[str, Any]) -> inspect.Signature:
    """Return all arguments of a class: its own, and those that ``**options`` passes to its bases.

    Args:
        cls: the class.
        defaults: values to show in place of None in the signature; a missing ``learn_*`` shows False.
    """
    merged: dict[str, inspect.Parameter] = {}
    for base in cls.__mro__:
        if "__init__" not in vars(base):
            continue
        own = list(inspect.signature(vars(base)["__init__"]).parameters.values())[1:]
        merged = {p.name: p for p in own if p.kind in _NAMED and p.name not in merged} | merged
        if all(p.kind is not inspect.Parameter.VAR_KEYWORD for p in own):
            break
    for name, parameter in merged.items():
        if parameter.default is None and (name in defaults or name.startswith("learn_")):
            merged[name] = parameter.replace(default=defaults.get(name, False))
    return inspect.Signature(sorted(merged.values(), key=lambda p: p.kind))


def unexpected_values(neuron: str, values: Sequence[Any], signature: inspect.Signature) -> TypeError | None:
    """Return the error for positional arguments to a neuron that only accepts keyword arguments.

    Args:
        neuron: the name of the neuron's class.
        values: the values.
        signature: its arguments.

    Example:
        >>> unexpected_values("LIF", [0.9], inspect.signature(lambda *, leak: None))
        TypeError('LIF accepts keyword arguments only, got 0.9; write LIF(leak=...)')
    """
    names = list(signature.parameters)
    if not values or any(p.kind is not p.KEYWORD_ONLY for p in signature.parameters.values()):
        return None
    usual = "leak" if "leak" in names else names[0]
    return TypeError(
        f"{neuron} accepts keyword arguments only, got {', '.join(map(repr, values))}; write "
        f"{neuron}({usual}=...)"
    )


def unknown_argument(neuron: str, name: str, arguments: Iterable[str]) -> TypeError:
    """Return the error for an unknown argument, with the name that was probably meant.

    Args:
        neuron: the name of the neuron's class.
        name: the argument.
        arguments: the names of its arguments.

    Example:
        >>> unknown_argument("LIF", "beta", ["leak"])
        TypeError("LIF has no argument 'beta'; beta is called leak here")
    """
    arguments = list(arguments)
    said = f"{neuron} has no argument {name!r}; "
    if name in ELSEWHERE:
        ours, remark = ELSEWHERE[name]
        said += f"{name} is called {ours} here"
        if ours not in arguments:
            return TypeError(f"{said}, but {neuron} has none")
        return TypeError(f"{said}: {remark}" if remark else said)
    near = similar(name, arguments)
    return TypeError(said + (f"did you mean {near!r}?" if near else f"it has {', '.join(arguments)}"))
