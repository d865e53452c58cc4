"""A reader for pickled data that runs nothing: calls are noted, never made."""

import pickletools
import struct
from pathlib import Path
from typing import Any

from ultralif.data.files import damaged

__all__ = ["Noted", "read_pickle"]


class Noted:
    """A call that a pickle asks for, and the state it wants to set: kept as data."""

    def __init__(self, callee: object, args: object) -> None:
        self.callee = callee
        self.args = args
        self.state: Any = None


def read_pickle(data: bytes, path: Path) -> object:
    """Return what a pickle describes: numbers, strings, lists, tuples, dictionaries, noted calls.

    It knows the opcodes that Python 2 used for plain containers, and no others; nothing is imported and
    nothing is called, whatever the file says. An array is a `Noted` call whose state ends with the array's
    bytes, as a string of latin-1.
    """
    try:
        return _Machine().run(data)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError, struct.error) as error:
        raise damaged(path, f"is not a pickle of plain data ({error})") from error


class _Machine:
    """The stack of a pickle in the making."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}

    def run(self, data: bytes) -> object:
        for opcode, argument, _ in pickletools.genops(data):
            if opcode.name == "STOP":
                break
            self.step(opcode.name, argument)
        return self.stack.pop()

    def step(self, name: str, argument: Any) -> None:
        """Take one opcode, as `pickletools` describes them."""
        stack = self.stack
        match name:
            case "PROTO":
                pass
            case "MARK":
                self.marks.append(len(stack))
            case "BINPUT" | "LONG_BINPUT":
                self.memo[argument] = stack[-1]
            case "BINGET" | "LONG_BINGET":
                stack.append(self.memo[argument])
            case "APPEND" | "APPENDS":
                items = self.popped(1 if name == "APPEND" else None)
                stack[-1].extend(items)
            case "SETITEM" | "SETITEMS":
                items = self.popped(2 if name == "SETITEM" else None)
                stack[-1].update(zip(items[::2], items[1::2], strict=True))
            case "TUPLE" | "TUPLE1" | "TUPLE2" | "TUPLE3":
                size = None if name == "TUPLE" else int(name[-1])
                stack.append(tuple(self.popped(size)))
            case "REDUCE":
                stack.append(Noted(*self.popped(2)))
            case "BUILD":
                state = stack.pop()
                stack[-1].state = state
            case _:
                stack.append(_literal(name, argument))

    def popped(self, count: int | None) -> list[Any]:
        """Take the topmost items off the stack; None takes all above the last mark."""
        start = self.marks.pop() if count is None else len(self.stack) - count
        if start < 0:
            raise IndexError("the stack is too short")
        items = self.stack[start:]
        del self.stack[start:]
        return items


_EMPTY = {"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple}
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_VALUES = {"BININT", "BININT1", "BININT2", "BINSTRING", "SHORT_BINSTRING", "GLOBAL"}


def _literal(name: str, argument: Any) -> Any:
    if name in _EMPTY:
        return _EMPTY[name]()
    if name in _CONSTANTS:
        return _CONSTANTS[name]
    if name in _VALUES:
        return argument
    raise ValueError(f"opcode {name}")
