"""The command line: one file per command, imported when the command is called."""

import io
import os
import signal
import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from types import FrameType
from typing import TextIO

from ultralif import __version__
from ultralif.errors import DataWarning, InputError, JobError, is_out_of_memory
from ultralif.files import visible
from ultralif.names import similar

__all__ = ["COMMANDS", "main"]

COMMANDS: dict[str, str] = {
    "train": "train one network, by default on built-in data",
    "eval": "evaluate a run again, in the modes soft, hard and tropical",
    "sweep": "train a grid of networks, many at a time",
    "report": "show runs in an HTML page or as figures",
    "neurons": "list the neurons, or show the options of one",
    "models": "list, show and fetch pretrained networks",
    "runs": "list, show, compare, remove and export runs",
    "export": "convert a trained network to C, NIR, ONNX or torch.export",
    "data": "list, fetch, check and show datasets",
    "analyze": "show a network's regions, volumes and decision boundaries, or prune it",
    "bench": "time a layer of neurons against other libraries and a plain copy",
    "completion": "print a shell script that completes commands and flags",
}
"""Every command with its description; ``ultralif.cli.<command>`` implements it."""

EXAMPLES: dict[str, str] = {
    "ultralif train": "a first network, in half a minute",
    "ultralif train --neuron UltraDLIF --timesteps 1": "another neuron, one time step",
    "ultralif sweep --neurons all --seeds 3 --epochs 30": "all neurons side by side",
    "ultralif runs list": "what was trained",
}
"""First commands to try, printed when no command is given."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 0 for success, 1 if the job failed, 2 for bad input."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # escape characters that an old terminal cannot show
            stream.reconfigure(errors="backslashreplace")
    try:
        if argv is None:
            signal.signal(signal.SIGINT, _interrupt)
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            code = _run(list(sys.argv[1:] if argv is None else argv))
        if sys.stdout is not None:  # standard output may be closed
            sys.stdout.flush()
        if argv is None:  # an exception during interpreter shutdown would be printed
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        return code
    except KeyboardInterrupt:
        return _fail("interrupted", 130)
    except BrokenPipeError:  # the reader closed the pipe, as `head` does
        _drop_output()
        return 0
    except Exception as error:
        if signal.getsignal(signal.SIGINT) is _end:
            # Compiled code in an import swallowed the interrupt and left the import broken.
            return _fail("interrupted", 130)
        message, code = _explain(error)
        if message is None:
            raise
        return _fail(message, code)


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt at the first Ctrl-C; let a second one end the process without a message."""
    signal.signal(signal.SIGINT, _end)
    raise KeyboardInterrupt


def _end(number: int, frame: FrameType | None) -> None:
    """End the process immediately."""
    os._exit(130)


def _explain(error: Exception) -> tuple[str | None, int]:
    """Return the message for an error, or None for a bug, and the exit code."""
    match error:
        case InputError():
            return str(error), 2
        case JobError():
            return str(error), getattr(error, "code", 1)
        case _ if is_out_of_memory(error):
            return "out of memory: reduce the batch size or the layer sizes", 1
        case OSError():
            if error.filename is None:
                _drop_output()
            place = error.filename or "the output"
            return f"{place} cannot be used ({error.strerror}); free some space, or choose another place", 1
    return None, 1


def _drop_output() -> None:
    """Discard buffered output that can no longer be written."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(args: list[str]) -> int:
    if not args or args[0] in ("-h", "--help"):
        print(_overview())
        return 0
    if args[0] in ("-V", "--version"):
        print(f"ultralif {__version__}")
        return 0
    command = args[0]
    if command not in COMMANDS:
        near = similar(command, COMMANDS)
        hint = f"did you mean '{near}'?" if near else f"choose one of {', '.join(COMMANDS)}"
        raise InputError(f"there is no command '{command}'; {hint}")
    module = import_module(f"ultralif.cli.{command}")
    if hasattr(module, "main"):  # it parses its own arguments
        module.main(args[1:])
    else:
        import_module("ultralif.cli.parse").run(module.COMMAND, args[1:], command)
    return 0


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Print a warning on one line, with its source if it comes from another library."""
    source = "" if issubclass(category, DataWarning) else f"{filename}:{lineno}: "
    print(f"ultralif: warning: {source}{visible(' '.join(str(message).split()))}", file=sys.stderr)


def _fail(message: str, code: int) -> int:
    print(f"ultralif: {visible(' '.join(message.split()))}", file=sys.stderr)
    return code


def _overview() -> str:
    width = max(map(len, COMMANDS))
    lines = ["Spiking neural networks with exact gradients.", "", "usage: ultralif COMMAND [--help]", ""]
    lines += [f"  {name:{width}}  {text}" for name, text in COMMANDS.items()]
    lines += ["", "try:"]
    wide = max(map(len, EXAMPLES))
    lines += [f"  {command:{wide}}  # {text}" for command, text in EXAMPLES.items()]
    return "\n".join(lines)
