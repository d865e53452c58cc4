"""Packages whose names are imported when they are first used, so that commands can answer without torch."""

import warnings
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any

__all__ = ["lazy"]


def lazy(
    package: str,
    homes: Mapping[str, str],
    submodules: Iterable[str] = (),
    *,
    stars: Iterable[str] = (),
    leaving: Mapping[str, str] | None = None,
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return a package's ``__getattr__`` and ``__dir__``.

    Args:
        package: its name.
        homes: the submodule that defines each public name.
        submodules: those that are names of the package themselves.
        stars: submodules all of whose public names are names of the package.
        leaving: names that the package will not have in its next version, and the submodule that keeps them.
    """
    leaving = leaving or {}

    def inside(module: str) -> Any:
        return import_module(f"{package}.{module}")

    def find(name: str) -> Any:
        if name in submodules:
            return inside(name)
        if name in leaving:
            text = (
                f"{package}.{name} is going to be {package}.{leaving[name]}.{name} only; take it from there"
            )
            warnings.warn(text, DeprecationWarning, stacklevel=2)
            return getattr(inside(leaving[name]), name)
        if name in homes:
            return getattr(inside(homes[name]), name)
        if not name.startswith("_"):
            for module in map(inside, stars):
                if name in module.__all__:
                    return getattr(module, name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    def listed() -> list[str]:
        names = {name for module in map(inside, stars) for name in module.__all__}
        return sorted(names.union(homes, submodules, ("__version__",) if stars else ()) - leaving.keys())

    return find, listed
