"""Create flags from typed dataclass fields and function parameters, and parse them in one pass."""

import ast
import inspect
import re
import shutil
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, fields, is_dataclass
from itertools import pairwise
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

from ultralif.cli.output import echo
from ultralif.errors import InputError
from ultralif.names import similar

__all__ = [
    *("Actions", "Alone", "Flag", "Hidden", "Positional", "advised", "argument_docs", "asks_for_help"),
    *("dispatch", "flags_of", "parse", "print_flags", "print_help", "read", "refuse_unknown", "run"),
]

R = TypeVar("R")
T = TypeVar("T")
Actions = dict[str, Callable[..., None]]
"""The functions of a command with actions, such as ``ultralif runs list``, by name."""
Hidden = Annotated[T, "hidden"]
"""A field that is not a flag."""
Positional = Annotated[T, "positional"]
"""``Positional[str]`` is a positional argument."""


class Alone(str):
    """``Annotated[str, Alone("here")]``: the value of a flag that is passed without a value."""


_KINDS: dict[Any, tuple[str, str]] = {
    bool: ("True|False", "switch"),
    float: ("FLOAT", "number"),
    int: ("INT", "whole number"),
    Path: ("PATH", "path"),
    str: ("NAME", "name"),
}
"""The name of each type in help and in messages."""
_SWITCH = {"True": True, "False": False, "None": None}


class Flag(NamedTuple):
    """A flag or a positional argument."""

    name: str
    kind: Callable[[str], object] = str
    """Converts one word to a value; bool makes the flag a switch."""
    size: int | None = 1
    """The number of its values; None means any number."""
    choices: tuple[str, ...] = ()
    has_none: bool = False
    """Whether None is a valid value."""
    alone: object = None
    """Its value if no word follows; None means that a word is required."""
    is_word: bool = False
    default: object = None
    meaning: str = ""

    @property
    def written(self) -> str:
        """The flag as the user types it."""
        return self.name.upper() if self.is_word else f"--{self.name.replace('_', '-')}"

    @property
    def usage(self) -> str:
        """The flag and the form of its values."""
        if self.is_word:
            form = self.written if self.size else f"{self.written} ..."
            return form if self.default is MISSING else f"[{form}]"
        if self.kind is bool and not self.has_none:
            return self.written.replace("--", "--no-", 1) if self.default is True else self.written
        form = "|".join(self.choices) or _KINDS.get(self.kind, ("VALUE", ""))[0]
        form = f"{form},..." if self.size is None else ",".join([form] * self.size)
        return f"{self.written} {form}" if self.alone is None else f"{self.written} [{form}]"

    @property
    def clause(self) -> str:
        """The first clause of its description."""
        return re.split(r"(?<=\w)\. |; ", self.meaning)[0].rstrip(". ")

    def text(self, full: bool = True) -> str:
        """Return its description, or only the first clause, and its default."""
        text = self.meaning if full else self.clause
        if re.match("[a-z]+ ", text):
            text = text[0].upper() + text[1:]
        text = text.rstrip(".") + "."
        if self.default is MISSING:
            return text if self.is_word else f"{text} (required)"
        if not self.default or self.default is True:
            return text
        shown = ",".join(map(str, self.default)) if isinstance(self.default, tuple | list) else self.default
        return f"{text} (default: {shown})"

    def value(self, words: Sequence[str], written: str) -> object:
        """Convert words to a value, or raise an InputError.

        Args:
            words: the words after the flag.
            written: the flag as the user wrote it.
        """
        if not words and self.alone is not None:
            return self.alone
        parts = [part for word in words for part in (word.split(",") if self.size != 1 else [word])]
        parts = [part.strip() for part in parts if part or self.size == 1]
        if not parts:
            raise InputError(f"{written} needs a value")
        if self.has_none and parts == ["None"]:
            return None
        choices, read = self.choices, self.kind
        if self.kind is bool:
            parts = [part.capitalize() if part.capitalize() in _SWITCH else part for part in parts]
            choices, read = tuple(_SWITCH)[: 3 if self.has_none else 2], _SWITCH.__getitem__
        if wrong := [part for part in parts if choices and part not in choices]:
            raise InputError(f"{written} must be one of {', '.join(choices)}, got {wrong[0]!r}")
        try:
            values = tuple(map(read, parts))
        except ValueError:
            values = ()
        if len(values) != (self.size or len(parts)):
            kind = _KINDS.get(self.kind, ("", "value"))[1]
            wanted = f"a {kind}" if self.size == 1 else f"{self.size or ''} {kind}s".strip()
            raise InputError(f"{written} expects {wanted}, got {' '.join(words)!r}")
        return values[0] if self.size == 1 else values


def read(flags: Mapping[str, Flag], argv: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """Parse arguments; return their values by name, and the words that do not belong to a known flag.

    Args:
        flags: the flags by name.
        argv: the arguments. A flag consumes as many of the following words as it has values.

    Example:
        >>> read({"hidden": Flag("hidden", int, None)}, ["--hidden", "8", "4", "--eps", "0.5"])
        ({'hidden': (8, 4)}, ['--eps', '0.5'])
    """
    values: dict[str, Any] = {}
    places = [flag for flag in flags.values() if flag.is_word]
    known = {name: flag for name, flag in flags.items() if not flag.is_word}
    unknown: list[str] = []
    loose: list[str] = []
    rest = list(argv)
    while rest:
        word = rest.pop(0)
        if not word.startswith("--"):
            loose.append(word)
            continue
        written, joined, value = word.partition("=")
        name = written[2:].replace("-", "_")
        flag, opposite = known.get(name), known.get(name.removeprefix("no_"))
        if flag is None and opposite is not None and opposite.kind is bool and not joined:
            values[opposite.name] = False
            continue
        own = [value] if joined else _words_after(flag, rest, bool(places))
        if flag is None:
            unknown += [word, *own]
        else:
            values[flag.name] = flag.value(own, written)
    for place in places:
        own, loose = (loose, []) if place.size is None else (loose[:1], loose[1:])
        if own:
            values[place.name] = tuple(own) if place.size is None else place.value(own, place.written)
    return values, unknown + loose


def _words_after(flag: Flag | None, rest: list[str], has_places: bool) -> list[str]:
    """Remove a flag's values from the words after it, and return them.

    Args:
        flag: the flag, or None for an unknown one, which consumes all words up to the next flag.
        rest: the words after it.
        has_places: there are positional arguments, so a switch only consumes True, False or None.
    """
    found: list[str] = []
    most = float("inf") if flag is None or flag.size is None else flag.size
    while rest and not rest[0].startswith("--") and sum(word.count(",") + 1 for word in found) < most:
        if flag is not None and flag.kind is bool and has_places and rest[0].capitalize() not in _SWITCH:
            break
        found.append(rest.pop(0))
    return found


def refuse_unknown(words: Sequence[str], flags: Mapping[str, Flag]) -> None:
    """Raise an InputError for the first unknown word, with the most similar flag."""
    if words:
        known = [flag.written for flag in flags.values() if not flag.is_word]
        near = similar(words[0].partition("=")[0], known)
        hint = f"; did you mean {near}?" if near and words[0].startswith("--") else ""
        raise InputError(f"{words[0]} is not known{hint}")


@contextmanager
def advised(command: str) -> Iterator[None]:
    """Append a pointer to the command's help to any InputError."""
    try:
        yield
    except InputError as error:
        end = "" if str(error).endswith("?") else ";"
        raise InputError(f"{error}{end} see: ultralif {command} --help") from None


def parse(target: Callable[..., R], argv: Sequence[str], command: str) -> R:
    """Call a function, or construct a dataclass, with command-line arguments.

    Args:
        target: a typed function or dataclass; its docstrings provide the help.
        argv: the arguments after the command.
        command: the command's name, for help.
    """
    flags = flags_of(target)
    if asks_for_help(argv):
        print_help(target, command, {"options": [flag for flag in flags.values() if not flag.is_word]})
        raise SystemExit(0)
    with advised(command):
        values, unknown = read(flags, argv)
        refuse_unknown(unknown, flags)
        missing = [flag for flag in flags.values() if flag.default is MISSING and flag.name not in values]
        if missing:
            *most, last = [f"{x.written} ({x.clause})" if x.is_word else x.usage for x in missing]
            raise InputError(f"ultralif {command} needs {', '.join(most)}{' and ' if most else ''}{last}")
    return _call(target, values)


def run(target: Callable[..., object] | Actions, argv: Sequence[str], command: str) -> None:
    """Run a command: its function, or the action named by the first argument."""
    if isinstance(target, dict):
        dispatch(target, argv, command)
    else:
        parse(target, argv, command)


def dispatch(actions: Actions, argv: Sequence[str], command: str) -> None:
    """Call the function named by the first argument, as in ``ultralif data list``."""
    if argv and argv[0] in actions:
        parse(actions[argv[0]], argv[1:], f"{command} {argv[0]}")
    elif asks_for_help(argv):
        echo(f"usage: ultralif {command} ACTION [--help]")
        echo()
        for name, action in actions.items():
            echo(f"  {name:{max(map(len, actions))}}  {(inspect.getdoc(action) or '').splitlines()[0]}")
        raise SystemExit(0)
    else:
        near = similar(argv[0], actions) if argv else None
        hint = f"did you mean {near}?" if near else f"choose one of {', '.join(actions)}"
        with advised(command):
            raise InputError(f"{f'{argv[0]} is not known' if argv else 'missing action'}; {hint}")


def asks_for_help(argv: Sequence[str]) -> bool:
    """Return whether any argument asks for help."""
    return any(word in ("-h", "--help", "--help-all") for word in argv)


def print_help(
    target: Callable[..., object], command: str, groups: Mapping[str, Sequence[Flag]], full: bool = True
) -> None:
    """Print the description of a command and its flags.

    Args:
        target: the command's function or dataclass.
        command: the command's name.
        groups: the flags by title.
        full: print full descriptions instead of their first clauses.
    """
    words = [flag for flag in flags_of(target).values() if flag.is_word]
    echo(" ".join([f"usage: ultralif {command}", *(flag.usage for flag in words), "[--flag value ...]"]))
    echo()
    for line in _description(target).splitlines():
        echo(line)
    for title, shown in {"arguments": words, **groups}.items():
        if shown:
            echo()
            echo(f"{title}:")
        print_flags(shown, full)


def print_flags(flags: Iterable[Flag], full: bool = True) -> None:
    """Print each flag with its description, or only the description's first clause."""
    column, width = 30, min(max(shutil.get_terminal_size((100, 24)).columns, 60), 110)
    for flag in flags:
        usage = f"  {flag.usage}"
        if len(usage) > column:
            echo(usage)
            usage = ""
        for line in textwrap.wrap(flag.text(full), width - column - 1):
            echo(f"{usage:{column}} {line}")
            usage = ""


def argument_docs(documented: object) -> dict[str, str]:
    """Extract the description of each argument from a docstring."""
    _, _, arguments = inspect.cleandoc(getattr(documented, "__doc__", None) or "").partition("\nArgs:\n")
    block = re.split(r"\n(?=\S)", arguments, maxsplit=1)[0]
    found = re.findall(r"(?ms)^    (\w+): (.*?)(?=^    \w|\Z)", block)
    return {name: " ".join(text.replace("``", "").split()) for name, text in found}


def flags_of(target: Callable[..., object]) -> dict[str, Flag]:
    """Return the flags of a function or dataclass by name.

    A dataclass argument contributes its own flags; the target's flags override them.
    """
    flags: dict[str, Flag] = {}
    for each in _members(target):
        if each.is_group:
            flags |= flags_of(each.hint)
        elif (flag := _flag(each)) is not None:
            flags[flag.name] = flag
        else:
            flags.pop(each.name, None)
    return flags


class _Member(NamedTuple):
    """A parameter of a function, or a field of a dataclass."""

    name: str
    hint: Any
    default: object
    is_word: bool
    meaning: str

    @property
    def is_group(self) -> bool:
        """Whether it is a dataclass, whose fields become flags of the command."""
        return is_dataclass(self.hint)


def _members(target: Callable[..., object]) -> Iterator[_Member]:
    hints = get_type_hints(target, include_extras=True)
    if isinstance(target, type) and is_dataclass(target):
        docs = _field_docs(target)
        for each in fields(target):
            if each.default_factory is MISSING:  # flags cannot represent mappings
                yield _Member(each.name, hints[each.name], each.default, False, docs.get(each.name, ""))
        return
    docs = argument_docs(target)
    for name, given in inspect.signature(target).parameters.items():
        default = MISSING if given.default is given.empty else given.default
        is_word = given.kind is given.POSITIONAL_ONLY
        yield _Member(name, hints[name], default, is_word, docs.get(name, ""))


def _flag(member: _Member) -> Flag | None:
    """Return the flag for a parameter or field; None if it is hidden."""
    hint, extras = member.hint, list[Any]()
    if get_origin(hint) is Annotated:
        hint, *extras = get_args(hint)
    if "hidden" in extras:
        return None
    parts = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    (kind,) = [part for part in parts if part is not NoneType]
    size: int | None = 1
    choices: tuple[str, ...] = ()
    if get_origin(kind) is tuple:
        size = None if Ellipsis in get_args(kind) else len(get_args(kind))
        kind = get_args(kind)[0]
    if get_origin(kind) is Literal:
        choices = tuple(map(str, get_args(kind)))
        kind = type(get_args(kind)[0])
    alone = next((str(extra) for extra in extras if isinstance(extra, Alone)), True if kind is bool else None)
    is_word = member.is_word or "positional" in extras
    return Flag(
        member.name, kind, size, choices, len(parts) > 1, alone, is_word, member.default, member.meaning
    )


def _call(target: Callable[..., R], values: Mapping[str, object]) -> R:
    """Call a function with values by name; its dataclass arguments are constructed from the same values."""
    words, options = [], {}
    for each in _members(target):
        if each.is_group:
            options[each.name] = _call(each.hint, values)
        elif each.name in values and each.is_word:
            words.append(values[each.name])
        elif each.name in values:
            options[each.name] = values[each.name]
    return target(*words, **options)


def _description(target: Callable[..., object]) -> str:
    """Return the docstring before the arguments."""
    return (inspect.getdoc(target) or "").partition("\nArgs:\n")[0].strip()


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
