"""Render the code of a user's classes, functions and modules as text, so that a run can detect changes."""

import ast
import functools
import hashlib
import inspect
import sys
import textwrap
from argparse import Namespace
from collections.abc import Iterator
from types import CodeType, FunctionType, MethodType, ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

__all__ = ["code_of"]


def code_of(*things: Any) -> str:
    """Return the code of classes, functions and objects without comments, and all user code that they use.

    For objects, and for a function's global and enclosing variables, the text also includes numbers,
    strings and arrays. For modules, it includes buffers and frozen parameters as well.

    Example:
        >>> __name__ = "__main__"  # as in a script
        >>> def factor():
        ...     return 2
        >>> def scale(x):
        ...     return factor() * x
        >>> "factor" in code_of(scale)
        True
    """
    seen: Seen = {}
    for thing in things:
        _collect(thing, seen)
    return "\n".join(" ".join(texts) for texts in seen.values())


Seen = dict[int, list[str]]
"""Each object's text fragments, by its id. The first is a number that other objects' text refers to."""


def _collect(thing: Any, seen: Seen) -> None:
    if id(thing) in seen:
        return
    texts = seen[id(thing)] = [str(len(seen))]  # registered first, because it may contain itself
    if isinstance(thing, functools.partial):
        texts.append(f"partial {_value(thing.args, seen)} {_value(thing.keywords, seen)}")
        _collect(thing.func, seen)
    elif isinstance(thing, MethodType):
        _collect(thing.__func__, seen)
        _collect(thing.__self__, seen)
    elif isinstance(thing, type):
        texts.append(thing.__qualname__)
        for kind in filter(_is_users, thing.__mro__):
            for name, member in sorted(vars(kind).items()):
                if isinstance(member, functools.cached_property):
                    member = member.func
                member = getattr(member, "__func__", getattr(member, "fget", member))
                if isinstance(member, FunctionType):
                    _collect(member, seen)
                elif not name.startswith("__"):
                    texts.append(f"{name}={_value(member, seen)}")
    elif isinstance(thing, FunctionType):
        texts.append(_text(thing))
        if _is_users(thing):
            texts.append(_taken_by(thing, seen))
    elif hasattr(thing, "__dict__"):
        texts.append(f"{type(thing).__qualname__} {_value(_attributes(thing), seen)}")
        _collect(type(thing), seen)


def _attributes(thing: Any) -> dict[str, Any]:
    """Return an object's attributes. For a module, leave out its trainable parameters."""
    if not isinstance(thing, nn.Module):
        return dict(vars(thing))
    learned = {name for name, value in thing.named_parameters(recurse=False) if value.requires_grad}
    found: dict[str, Any] = {name: x for name, x in thing._parameters.items() if name not in learned}
    found |= thing._modules | ({} if isinstance(thing, _NormBase) else thing._buffers)
    return found | {name: x for name, x in vars(thing).items() if name[0] != "_" and name != "training"}


_PLACES = (ModuleType, Namespace, SimpleNamespace)
"""Types whose objects have many attributes, of which a function typically uses only some."""
_WHOLE = (tuple, list, dict, Tensor)


def _taken_by(function: FunctionType, seen: Seen) -> str:
    """Return the values that a function uses from its module and from enclosing functions."""
    names = set(_names(function.__code__))
    values = {name: function.__globals__[name] for name in names if name in function.__globals__}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        values[name] = cell.cell_contents
    for name, value in sorted(values.items()):
        whole = callable(value) or isinstance(value, _WHOLE)
        if isinstance(value, _PLACES) or (_is_users(type(value)) and not whole):
            values[name] = {part: x for part, x in getattr(value, "__dict__", {}).items() if part in names}
            _collect(type(value), seen)
    given = _value([function.__defaults__, function.__kwdefaults__], seen)
    return f"{given} {_value(values, seen)}"


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _value(value: Any, seen: Seen) -> str:
    """Return a value as text, descending into lists and dictionaries; "" if it has no text form."""
    if isinstance(value, functools._lru_cache_wrapper):
        value = value.__wrapped__
    if isinstance(value, dict):
        parts = ((name, _value(value[name], seen)) for name in sorted(value, key=str))
        return str([(name, text) for name, text in parts if text])
    if isinstance(value, Namespace | SimpleNamespace):
        return _value(vars(value), seen)
    if isinstance(value, set | frozenset):
        value = sorted(value, key=lambda entry: str(getattr(entry, "__qualname__", entry)))
    if isinstance(value, list | tuple):
        return str([_value(entry, seen) for entry in value])
    if isinstance(value, np.ndarray) and value.dtype.hasobject:
        return _value(value.tolist(), seen)
    if isinstance(value, Tensor | np.ndarray):
        return _digest(value)
    if isinstance(value, complex | int | float | str | bytes | np.generic | torch.dtype | torch.device):
        return repr(value)
    if callable(value) or _is_users(type(value)):
        plain = isinstance(value, type | FunctionType)
        followed = isinstance(value, nn.Module | MethodType | functools.partial)
        if followed or _is_users(value if plain else type(value)):
            _collect(value, seen)
        number = seen.get(id(value), [""])[0]
        return f"{getattr(value, '__qualname__', type(value).__qualname__)} {number}"
    return ""


def _digest(array: Tensor | np.ndarray[Any, Any]) -> str:
    about, content = f"{array.dtype} {tuple(array.shape)}", array
    if isinstance(content, Tensor):
        if content.is_meta:
            return about
        if content.layout != torch.strided:
            entries = content.detach().to_sparse(layout=torch.sparse_coo).coalesce()
            return f"{about} {_digest(entries.indices())} {_digest(entries.values())}"
        content = content.detach().resolve_conj().resolve_neg().cpu().contiguous().view(-1)
        content = content.view(torch.uint8).numpy()
    memory = np.ascontiguousarray(content).reshape(-1).view(np.uint8).data  # not a copy
    return f"{about} {hashlib.sha256(memory).hexdigest()}"


def _is_users(thing: Any) -> bool:
    """Return whether code belongs to the user rather than to an installed library."""
    module = getattr(thing, "__module__", None) or ""
    name = module.partition(".")[0]
    if name == "__main__":
        return True
    file = getattr(sys.modules.get(module), "__file__", None) or ""
    known = name in ("torch", "ultralif", "builtins") or name in sys.stdlib_module_names
    return not known and "site-packages" not in file


def _text(function: FunctionType) -> str:
    if not _is_users(function):
        return f"{function.__module__}.{function.__qualname__}"
    try:
        if function.__name__ != "<lambda>":  # one line may contain several lambdas
            return ast.dump(ast.parse(textwrap.dedent(inspect.getsource(function))))
    except (OSError, SyntaxError, TypeError):
        pass
    return f"{function.__qualname__} {_bytecode(function.__code__)}"


def _bytecode(code: CodeType) -> str:
    constants = [_bytecode(one) if isinstance(one, CodeType) else _value(one, {}) for one in code.co_consts]
    return f"{code.co_code.hex()} {constants} {code.co_names}"
