"""The code of a user's classes and functions as text, by which a run notices changes."""

import ast
import functools
import inspect
import sys
import textwrap
from collections.abc import Iterator
from types import CodeType, FunctionType
from typing import Any

__all__ = ["code_of"]


def code_of(thing: Any) -> str:
    """Return the code of a class or function without comments, and of all user code that it uses.

    Example:
        >>> def factor():
        ...     return 2
        >>> def scale(x):
        ...     return factor() * x
        >>> "factor" in code_of(scale)
        True
    """
    seen: dict[Any, str] = {}
    _collect(thing, seen)
    return "\n".join(seen.values())


def _collect(thing: Any, seen: dict[Any, str]) -> None:
    if id(thing) in seen:
        return
    if isinstance(thing, functools.partial):
        seen[id(thing)] = f"partial {_plain(thing.args)} {_plain(thing.keywords)}"
        _collect(thing.func, seen)
    elif isinstance(thing, type):
        seen[id(thing)] = thing.__qualname__
        for kind in filter(_is_users, thing.__mro__):
            for name, member in sorted(vars(kind).items()):
                member = getattr(member, "__func__", getattr(member, "fget", member))
                if isinstance(member, FunctionType):
                    _collect(member, seen)
                elif not name.startswith("__"):
                    seen[id(thing)] += f" {name}={_plain(member)}"
    elif isinstance(thing, FunctionType):
        seen[id(thing)] = _text(thing)
        if _is_users(thing):
            _follow(thing, seen)
    elif callable(thing):  # an object of the user's, such as a module that is a loss
        seen[id(thing)] = _plain(getattr(thing, "__dict__", {}))
        _collect(getattr(thing, "__func__", type(thing)), seen)


def _follow(function: FunctionType, seen: dict[Any, str]) -> None:
    """Collect what a function takes from its module and from the functions around it."""
    names = set(_names(function.__code__))
    values = {name: function.__globals__[name] for name in names if name in function.__globals__}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        values[name] = cell.cell_contents
    given = _plain([function.__defaults__, function.__kwdefaults__])
    seen[id(function)] += f" {given} {_plain(values)}"
    for _, value in sorted(values.items()):
        if isinstance(value, type | FunctionType | functools.partial) and _is_users(value):
            _collect(value, seen)


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _plain(value: Any) -> str:
    """Return numbers and texts as text, also inside lists and dictionaries; leave everything else out."""
    if isinstance(value, dict):
        parts = ((name, _plain(value[name])) for name in sorted(value, key=str))
        return str([(name, text) for name, text in parts if text])
    if isinstance(value, list | tuple):
        return str([_plain(entry) for entry in value])
    return repr(value) if isinstance(value, bool | int | float | str | bytes | None) else ""


def _is_users(thing: Any) -> bool:
    """Return whether code is the user's, and not that of an installed library."""
    module = getattr(getattr(thing, "func", thing), "__module__", None) or ""
    name = module.partition(".")[0]
    if name == "__main__":
        return True
    file = getattr(sys.modules.get(module), "__file__", None) or ""
    known = name in ("torch", "ultralif", "builtins") or name in sys.stdlib_module_names
    return not known and "site-packages" not in file


def _text(function: FunctionType) -> str:
    try:
        return ast.dump(ast.parse(textwrap.dedent(inspect.getsource(function))))
    except (OSError, SyntaxError, TypeError):
        code = function.__code__
        return f"{function.__qualname__} {code.co_code.hex()} {_plain(code.co_consts)} {code.co_names}"
