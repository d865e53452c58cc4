"""Arguments from types: the only module that knows the argument parser."""

import contextlib
import functools
import inspect
import io
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, TypeVar, cast

import tyro

from ultralif.cli.complaint import explain
from ultralif.errors import InputError

__all__ = ["Hidden", "Inline", "Named", "dispatch", "parse", "wide_terminal"]

R = TypeVar("R")
T = TypeVar("T")

Hidden = Annotated[T, tyro.conf.Suppress]
"""A field that is no flag."""
Inline = Annotated[T, tyro.conf.arg(name="")]
"""A dataclass whose fields are flags of the command itself."""
Named = tyro.conf.arg
"""``Annotated[str, Named(name="x")]`` is the flag ``--x``."""


def parse(target: Callable[..., R], argv: Sequence[str], command: str, default: R | None = None) -> R:
    """Call a function, or build a dataclass, from command-line arguments.

    Args:
        target: a typed function or dataclass; its docstrings are the help.
        argv: the arguments after the command.
        command: the command's name, as help shows it.
        default: a dataclass whose values are taken where no argument is given.
    """
    given: dict[str, Any] = {"args": argv, "prog": f"ultralif {command}", "description": _description(target)}
    if isinstance(target, type):  # nothing runs but the constructor, and defaults stay visible
        return _parsed(lambda: cast(R, tyro.cli(target, default=default, **given)), command)
    deferred = _deferred(target)
    return _parsed(lambda: cast(Callable[[], R], tyro.cli(deferred, **given)), command)()


def dispatch(actions: dict[str, Callable[..., Any]], argv: Sequence[str], command: str) -> None:
    """Call one of several functions by the first argument, as in ``ultralif data list``."""
    deferred = {name: _deferred(action) for name, action in actions.items()}
    prog = f"ultralif {command}"
    _parsed(lambda: tyro.extras.subcommand_cli_from_dict(deferred, args=argv, prog=prog), command)()


def _description(target: Callable[..., Any]) -> str:
    """Return the docstring down to the arguments; the parser would leave out the examples."""
    return (inspect.getdoc(target) or "").partition("\nArgs:\n")[0].strip()


def _deferred(target: Callable[..., R]) -> Callable[..., Callable[[], R]]:
    """Take a function's arguments now and call it later, outside of the parser."""

    @functools.wraps(target)
    def take(*args: Any, **kwargs: Any) -> Callable[[], R]:
        return functools.partial(target, *args, **kwargs)

    return take


def _parsed(parser: Callable[[], R], command: str) -> R:
    """Turn the parser's framed complaint into an error of one line."""
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            return parser()
    except SystemExit as exit_:
        if exit_.code in (0, None):
            raise
    complaint = io.StringIO()
    with wide_terminal(), contextlib.redirect_stderr(complaint), contextlib.suppress(SystemExit):
        parser()  # once more, so that no line of the complaint is broken
    raise InputError(explain(complaint.getvalue(), f"ultralif {command}"))


@contextlib.contextmanager
def wide_terminal() -> Iterator[None]:
    """Let the parser print lines of any length."""
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = "10000"
    try:
        yield
    finally:
        del os.environ["COLUMNS"]
        if before is not None:
            os.environ["COLUMNS"] = before
