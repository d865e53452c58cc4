"""Arguments from types: the only module that knows the argument parser."""

import contextlib
import functools
import io
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import tyro

from ultralif.errors import InputError

__all__ = ["dispatch", "parse"]

R = TypeVar("R")


def parse(target: Callable[..., R], argv: Sequence[str], command: str, default: R | None = None) -> R:
    """Call a function, or build a dataclass, from command-line arguments.

    Args:
        target: a typed function or dataclass; its docstrings are the help.
        argv: the arguments after the command.
        command: the command's name, as help shows it.
        default: a dataclass whose values are taken where no argument is given.
    """
    prog = f"ultralif {command}"
    if isinstance(target, type):  # nothing runs but the constructor, and defaults stay visible
        return _parsed(lambda: cast(R, tyro.cli(target, args=argv, prog=prog, default=default)))
    return _parsed(lambda: tyro.cli(_deferred(target), args=argv, prog=prog))()


def dispatch(actions: dict[str, Callable[..., Any]], argv: Sequence[str], command: str) -> None:
    """Call one of several functions by the first argument, as in ``ultralif data list``."""
    deferred = {name: _deferred(action) for name, action in actions.items()}
    prog = f"ultralif {command}"
    _parsed(lambda: tyro.extras.subcommand_cli_from_dict(deferred, args=argv, prog=prog))()


def _deferred(target: Callable[..., R]) -> Callable[..., Callable[[], R]]:
    """Take a function's arguments now and call it later, outside of the parser."""

    @functools.wraps(target)
    def take(*args: Any, **kwargs: Any) -> Callable[[], R]:
        return functools.partial(target, *args, **kwargs)

    return take


def _parsed(parser: Callable[[], R]) -> R:
    """Turn the parser's framed complaint into an error of one line."""
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            return parser()
    except SystemExit as exit_:
        if exit_.code in (0, None):
            raise
        lines = (line.strip("│╭╮╰╯─ ") for line in complaint.getvalue().splitlines())
        raise InputError("; ".join(line for line in lines if line)) from None
