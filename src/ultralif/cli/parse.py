"""Make arguments from types; the only module that uses the argument parser."""

import ast
import contextlib
import dataclasses
import functools
import inspect
import io
import re
import textwrap
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    NoReturn,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

import tyro
from tyro import _errors as errors
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from ultralif.errors import InputError
from ultralif.names import similar

__all__ = [
    *("Actions", "Flag", "Hidden", "Inline", "Named", "Names", "Positional"),
    *("describe_flags", "dispatch", "parse", "print_completion"),
]

R = TypeVar("R")
T = TypeVar("T")

Actions = dict[str, Callable[..., Any]]
"""The functions of a command such as ``ultralif runs list``, by their names."""
Hidden = Annotated[T, tyro.conf.Suppress]
"""A field that is not a flag."""
Inline = Annotated[T, tyro.conf.arg(name="")]
"""A dataclass whose fields are flags of the command itself."""
Positional = Annotated[T, tyro.conf.Positional]
"""``Positional[str]`` is a word without a flag."""
Named = tyro.conf.arg
"""``Annotated[str, Named(name="x")]`` is the flag ``--x``."""


def _listed(kind: Callable[[str], Any], metavar: str, count: int | None = None) -> Any:
    """Describe a list of values separated by commas or spaces."""

    def read(words: list[str]) -> tuple[Any, ...]:
        parts = [part for word in words if word.strip(",") for part in word.strip(",").split(",")]
        values = tuple(kind(part.strip()) for part in parts)
        if count not in (None, len(values)):
            raise ValueError(f"{' '.join(words)!r} are not {count}")
        return values

    form = f"{metavar},..." if count is None else ",".join([metavar] * count)
    return PrimitiveConstructorSpec(
        nargs="*",
        metavar=form,
        instance_from_str=read,
        is_instance=lambda value: isinstance(value, tuple),
        str_from_instance=lambda value: [",".join(map(str, value))],
    )


Names = Annotated[tuple[str, ...], _listed(str, "NAME")]
"""Names separated by commas or spaces."""
_REGISTRY = ConstructorRegistry()


@_REGISTRY.primitive_rule
def _numbers(info: PrimitiveTypeInfo) -> Any:
    """Accept every tuple of numbers as ``1,2,3`` or ``1 2 3``."""
    kinds = get_args(info.type)
    if get_origin(info.type) is not tuple or kinds[0] not in (int, float):
        return None
    return _listed(kinds[0], kinds[0].__name__.upper(), None if Ellipsis in kinds else len(kinds))


def parse(target: Callable[..., R], argv: Sequence[str], command: str, default: R | None = None) -> R:
    """Call a function, or build a dataclass, from command-line arguments.

    Args:
        target: a typed function or dataclass; its docstrings are the help.
        argv: the arguments after the command.
        command: the command's name, as help shows it.
        default: a dataclass with the values of arguments that are not given.
    """
    description = _description(target)
    with errors.on_parse_error(_Complaint(command, lambda: _flags(target))):
        if isinstance(target, type):  # only the constructor runs, and help shows the defaults
            return cast(R, _cli(target, argv, command, description=description, default=default))
        call = cast(Callable[[], R], _cli(_deferred(target), argv, command, description=description))
    return call()


def dispatch(actions: Actions, argv: Sequence[str], command: str) -> None:
    """Call one of several functions by the first argument, as in ``ultralif data list``."""
    action = actions.get(argv[0]) if argv else None
    asked = f"{command} {argv[0]}" if action else command
    with errors.on_parse_error(_Complaint(asked, lambda: _flags(action) if action else list(actions))):
        call = _cli(_union(actions), argv, command)
    call()


def print_completion(commands: dict[str, Callable[..., Any] | Actions], shell: str) -> None:
    """Print the script that completes all commands in a shell.

    Args:
        commands: the function, dataclass or actions of each command.
        shell: bash, zsh or fish.
    """
    targets = {name: _group(to) if isinstance(to, dict) else to for name, to in commands.items()}
    how = {"config": (tyro.conf.OmitSubcommandPrefixes,)}
    with contextlib.suppress(SystemExit):  # when it is printed
        _cli(_union(targets), ["--tyro-print-completion", shell], "", **how)


class Flag(NamedTuple):
    """A flag as help shows it."""

    usage: str
    default: str
    meaning: str

    def text(self, full: bool) -> str:
        """Return its description, or the first clause of it, and its default."""
        first = self.meaning if full else re.split(r"(?<=\w)\. |; ", self.meaning)[0]
        first += "" if first.endswith(".") else "."
        return f"{first} (default: {self.default})" if self.default else first


def describe_flags(target: type) -> dict[str, Flag]:
    """Return the flags of a dataclass, by name, in the order of its fields."""
    hints, meanings = get_type_hints(target, include_extras=True), _field_docs(target)
    flags = {}
    for each in dataclasses.fields(target):
        extras = getattr(hints[each.name], "__metadata__", ())
        if any(extra is tyro.conf.Suppress for extra in extras):
            continue
        name = next((extra.name for extra in extras if getattr(extra, "name", None)), each.name)
        name = name.replace("_", "-")
        form = _form(hints[each.name])
        shown = each.default
        if isinstance(shown, bool):
            usage, default = f"--{'no-' if shown else ''}{name}", ""
        else:
            usage = f"--{name} {form}"
            default = ",".join(map(str, shown)) if isinstance(shown, tuple) else str(shown)
        default = "" if shown is dataclasses.MISSING or not shown else default
        flags[name] = Flag(usage, default, meanings.get(each.name, ""))
    return flags


def _form(hint: Any) -> str:
    """Return the form of a flag's value, such as ``INT`` or ``adam|sgd``."""
    if get_origin(hint) is Annotated:
        inner, *extras = get_args(hint)
        made = (extra.metavar for extra in extras if isinstance(extra, PrimitiveConstructorSpec))
        return next(made, None) or _form(inner)
    parts = [part for part in get_args(hint) if part is not type(None)]
    if get_origin(hint) is Literal:
        return "|".join(map(str, parts))
    if get_origin(hint) is tuple:
        return f"{_form(parts[0])},..." if Ellipsis in parts else ",".join(map(_form, parts))
    if parts:
        return "|".join(map(_form, parts))
    return {bool: "True|False", int: "INT", float: "FLOAT", str: "NAME"}.get(hint, "PATH")


def _field_docs(target: type) -> dict[str, str]:
    """Return the docstring below each field of a dataclass and its bases."""
    docs = {}
    for base in reversed(target.__mro__[:-1]):
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        body = tree.body if isinstance(tree, ast.ClassDef) else []
        for node, after in pairwise(body):
            match node, after:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=text)):
                    docs[name] = " ".join(str(text).split())
    return docs


def _cli(target: Any, argv: Sequence[str], command: str, **how: Any) -> Any:
    return tyro.cli(target, args=argv, prog=f"ultralif {command}".strip(), registry=_REGISTRY, **how)


def _union(actions: Actions) -> Any:
    """Return the type that the parser turns into subcommands."""
    names = {name: _deferred(to) if not isinstance(to, type) else to for name, to in actions.items()}
    return Union[  # noqa: UP007 (of a tuple that is made here)
        tuple(
            Annotated[Any, tyro.conf.subcommand(name=name, constructor=to, description=_description(to))]
            for name, to in names.items()
        )
    ]


def _group(actions: Actions) -> Callable[..., Any]:
    """Return a function with actions as its subcommands."""

    def group(action: Any) -> Any:
        return action

    group.__annotations__ = {"action": _union(actions)}
    return group


def _description(target: Callable[..., Any]) -> str:
    """Return the docstring up to the arguments; the parser would omit the examples."""
    return (inspect.getdoc(target) or "").partition("\nArgs:\n")[0].strip()


def _deferred(target: Callable[..., R]) -> Callable[..., Callable[[], R]]:
    """Parse a function's arguments now and call it later, outside of the parser."""

    @functools.wraps(target)
    def take(*args: Any, **kwargs: Any) -> Callable[[], R]:
        return functools.partial(target, *args, **kwargs)

    return take


def _flags(target: Callable[..., Any]) -> list[str]:
    """Return the flags of a function or dataclass, as its help lists them."""
    text = io.StringIO()
    with contextlib.redirect_stdout(text), contextlib.suppress(SystemExit):
        _cli(target, ["--help"], "")
    return re.findall(r"(?m)^\W*(--[a-z][\w-]*)", text.getvalue())


class _Complaint:
    """Turn an error of the parser into one line.

    Args:
        command: the command whose help the line recommends.
        known: returns the flags or actions to suggest.
    """

    def __init__(self, command: str, known: Callable[[], list[str]]) -> None:
        self.command = command
        self.known = known

    def __call__(self, event: errors.ParseErrorEvent) -> NoReturn:
        sentence = self.explain(event).rstrip(".")
        end = "" if sentence.endswith("?") else ";"
        raise InputError(f"{sentence}{end} see: ultralif {self.command} --help")

    def explain(self, event: errors.ParseErrorEvent) -> str:
        match event:
            case errors.MissingArgs():
                *most, last = [_wanted(missing.arg) for missing in event.missing_arguments]
                return f"ultralif {self.command} needs {', '.join(most)}{' and ' if most else ''}{last}"
            case errors.MissingSubcommand():
                return f"missing action; choose one of {', '.join(self.known())}"
            case errors.UnrecognizedArgs():
                words = event.tokens
                return self.unknown(next((word for word in words if word.startswith("-")), words[0]))
            case errors.InvalidChoice():
                choices = [name for name in _choices(event.argument) if name != "None"]
                flag = event.argument.display_name()
                return f"{flag} must be one of {', '.join(choices)}, got {event.value!r}"
            case errors.BadValue():
                return f"{event.argument.display_name()} needs a value"
            case errors.InstantiationFailure(argument=argument) if argument is not None:
                got = re.search(r"(['\"]).*\1", event.message.partition("\n")[0])  # as Python writes strings
                kind = _spell_kind(argument.lowered.metavar or "")
                return f"{argument.display_name()} takes {kind}" + (f", got {got[0]}" if got else "")
            case errors.InstantiationFailure():
                return event.message
        return "the arguments cannot be understood"

    def unknown(self, word: str) -> str:
        """Return the message for an unknown word, with a similar known one."""
        known = list(dict.fromkeys(self.known()))
        flag, word = word.partition("=")[0], word if word.isprintable() else repr(word)
        near = similar(flag, known)
        if near:
            return f"{word} is not known; did you mean {near}?"
        actions = [name for name in known if not name.startswith("-")]
        return f"{word} is not known" + (f"; choose one of {', '.join(actions)}" if actions else "")


def _choices(argument: Any) -> list[str]:
    """Return the choices of an argument, in the order of its type."""
    return re.findall(r"[^{},|]+", argument.lowered.metavar)


def _wanted(argument: Any) -> str:
    """Describe a required argument."""
    if argument.is_positional():
        text = argument.field.helptext
        text = " ".join((text() if callable(text) else text or "").split()).rstrip(".")
        name = argument.display_name().rpartition(".")[2]
        return f"{name.upper()} ({text})"
    if argument.lowered.choices:
        return f"{argument.display_name()} ({', '.join(argument.lowered.choices)})"
    return f"{argument.display_name()} {argument.lowered.metavar}"


_KINDS = {"INT": "a whole number", "FLOAT": "a number", "PATH": "a path", "STR": "a name", "NAME": "a name"}


def _spell_kind(metavar: str) -> str:
    """Describe in words the value of a flag, which the parser writes as ``{None}|FLOAT``.

    Example:
        >>> _spell_kind("{None}|FLOAT"), _spell_kind("{None}|FLOAT,FLOAT"), _spell_kind("INT,...")
        ('a number', '2 numbers', 'whole numbers')
    """
    words = re.findall(r"[A-Z]+", metavar.replace("None", ""))
    if not words or words[0] not in _KINDS:
        return metavar
    name = _KINDS[words[0]]
    if "..." in metavar:
        return f"{name[2:]}s"
    return name if len(words) == 1 else f"{len(words)} {name[2:]}s"
