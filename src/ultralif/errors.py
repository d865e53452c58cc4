"""Errors that are not bugs: bad input, jobs that cannot be finished, and running out of memory."""

__all__ = [
    "DataWarning",
    "InputError",
    "JobError",
    "check_choice",
    "check_flag",
    "check_range",
    "is_out_of_memory",
    "need",
]

import errno
import re
from collections.abc import Collection
from importlib import import_module
from types import ModuleType


class InputError(ValueError):
    """The caller passed something that cannot be used; the message names it and the fix."""


class DataWarning(UserWarning):
    """Data or numbers that are probably wrong; they are used anyway, and the message says what to check."""


class JobError(RuntimeError):
    """A job could not be finished although its input is valid; the message says what to do."""


def check_choice(argument: str, value: str, choices: Collection[str]) -> None:
    """Raise an InputError unless an argument has one of the allowed values."""
    if value not in choices:
        raise InputError(f"{argument} must be one of {', '.join(choices)}, got {value!r}")


def check_flag(argument: str, value: object) -> None:
    """Raise a TypeError unless an argument is True or False; most other values would count as True."""
    if not isinstance(value, bool):
        raise TypeError(f"{argument} must be True or False, got {value!r}")


def check_range(argument: str, value: int, least: int, most: int) -> None:
    """Raise an InputError unless a number is within its limits."""
    if not least <= value <= most:
        raise InputError(f"{argument} must be from {least:,} to {most:,}, got {value}")


_TOO_LARGE = re.compile(
    r"not enough memory|out of memory|can.?t allocate memory|cannot allocate memory|failed to allocate"
    r"|unable to allocate|bad_alloc|ALLOC_FAILED|DefaultCPUAllocator|size calculation overflowed"
    r"|multiplication overflow|possibly overflow|array is too big|Maximum allowed dimension exceeded",
    re.IGNORECASE,
)
"""Phrases that torch, numpy, C++ and the system use to report that memory ran out."""


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error means that memory ran out, or that no machine could meet the request."""
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    said = isinstance(error, RuntimeError | ValueError | OverflowError) and _TOO_LARGE.search(str(error))
    return isinstance(error, MemoryError) or bool(said)


def need(module: str, extra: str) -> ModuleType:
    """Import a module from an optional extra, or raise an error that says how to install it.

    Args:
        module: the module's name, such as ``matplotlib.pyplot``.
        extra: the extra of this package that installs it.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise JobError(
            f"this needs {module.partition('.')[0]}; install it with: pip install 'ultralif[{extra}]' (in a "
            f"checkout: '.[{extra}]')"
        ) from error
