"""What can go wrong outside of the library: bad input, and jobs that cannot be finished."""

__all__ = ["InputError", "JobError", "check_choice", "need"]

from collections.abc import Collection
from importlib import import_module
from types import ModuleType


class InputError(ValueError):
    """The caller gave something that cannot be used; the message names it and the remedy."""


class JobError(RuntimeError):
    """A job could not be finished, through no fault of its input; the message says what to do."""


def check_choice(argument: str, value: str, choices: Collection[str]) -> None:
    """Raise an InputError unless an argument has one of its values."""
    if value not in choices:
        raise InputError(f"{argument} must be one of {', '.join(choices)}, got {value!r}")


def need(module: str, extra: str) -> ModuleType:
    """Import a module of an optional extra, or say how to install it.

    Args:
        module: the module's name, such as ``matplotlib.pyplot``.
        extra: the extra of this package that brings it.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise JobError(
            f"this needs {module.partition('.')[0]}; install it with: pip install 'ultralif[{extra}]' (in a "
            f"checkout: '.[{extra}]')"
        ) from error
