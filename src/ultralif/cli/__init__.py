"""The command line: one thin file a command, loaded when it is called."""

import difflib
import sys
from collections.abc import Sequence
from importlib import import_module

from ultralif import __version__
from ultralif.errors import InputError, JobError

__all__ = ["COMMANDS", "main"]

COMMANDS: dict[str, str] = {"export": "take a trained network to C, NIR, ONNX or torch.export"}
"""Every command with its description; ``ultralif.cli.<command>`` has its ``main(argv)``."""

EXAMPLES: dict[str, str] = {}
"""What to try first, printed when no command is given."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 0 done, 1 the job failed, 2 bad input."""
    args = list(sys.argv[1:] if argv is None else argv)
    if not args or args[0] in ("-h", "--help"):
        print(_overview())
        return 0
    if args[0] in ("-V", "--version"):
        print(f"ultralif {__version__}")
        return 0
    command = args[0]
    if command not in COMMANDS:
        near = difflib.get_close_matches(command, COMMANDS, n=1)
        hint = f"did you mean '{near[0]}'?" if near else f"choose one of {', '.join(COMMANDS)}"
        return _fail(f"there is no command '{command}'; {hint}", 2)
    try:
        import_module(f"ultralif.cli.{command}").main(args[1:])
    except InputError as error:
        return _fail(str(error), 2)
    except JobError as error:
        return _fail(str(error), 1)
    except KeyboardInterrupt:
        return _fail("interrupted", 130)
    except BrokenPipeError:  # the reader went away, as `head` does
        sys.stderr.close()
        return 0
    return 0


def _fail(message: str, code: int) -> int:
    print(f"ultralif: {' '.join(message.split())}", file=sys.stderr)
    return code


def _overview() -> str:
    width = max(map(len, [*COMMANDS, *EXAMPLES]), default=0)
    lines = ["Spiking neural networks with exact gradients.", "", "usage: ultralif COMMAND [--help]", ""]
    lines += [f"  {name:{width}}  {text}" for name, text in COMMANDS.items()]
    lines += ["", "try:"]
    lines += [f"  {command:{width}}  # {text}" for command, text in EXAMPLES.items()]
    return "\n".join(lines)
