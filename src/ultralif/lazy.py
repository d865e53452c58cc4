"""Import the names of packages on first use, so that commands can run without torch."""

from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any

__all__ = ["lazy"]


def lazy(
    package: str, homes: Mapping[str, str], submodules: Iterable[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return a package's ``__getattr__`` and ``__dir__``.

    Args:
        package: its name.
        homes: the submodule that defines each public name.
        submodules: submodules that are themselves public names of the package.
    """

    def find(name: str) -> Any:
        if name in submodules:
            return import_module(f"{package}.{name}")
        if name in homes:
            return getattr(import_module(f"{package}.{homes[name]}"), name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return find, lambda: sorted({*homes, *submodules})
