"""``ultralif completion``: teach a shell the commands, their actions, flags and choices."""

import contextlib
import io
import re
from importlib import import_module
from typing import Literal

from ultralif.cli import COMMANDS
from ultralif.cli.parse import parse, wide_terminal
from ultralif.data import DATASETS
from ultralif.training.config import NEURON_NAMES

__all__ = ["main"]

Words = dict[str, list[str]]
"""What may follow: after a command, an action (``runs list``) or a flag (``train --precision``)."""


_NAMES = {"--neuron": NEURON_NAMES, "--dataset": tuple(DATASETS)}
"""Flags whose choices stand elsewhere than in the help."""


def main(argv: list[str]) -> None:
    """Print a script for a shell."""
    parse(completion, argv, "completion")


def completion(shell: Literal["bash", "zsh"], /) -> None:
    """Print what makes a shell complete commands, actions, flags and choices with the TAB key.

    Examples:
      ultralif completion bash >> ~/.bashrc
      ultralif completion zsh >> ~/.zshrc

    Args:
        shell: bash or zsh.
    """
    print(_script(known_words(), zsh=shell == "zsh"))


def known_words() -> Words:
    """Read from every command's help what may follow it."""
    words: Words = {"": list(COMMANDS)}
    for command in COMMANDS:
        text = _help(command)
        actions = re.search(r"^usage: .*\{([\w,-]+)\}$", text, re.MULTILINE)
        if actions is None:
            words |= _flags(command, text)
            continue
        words[command] = actions[1].split(",")
        for action in words[command]:
            words |= _flags(f"{command} {action}", _help(command, action))
    return words


def _help(command: str, *action: str) -> str:
    text = io.StringIO()
    with wide_terminal(), contextlib.redirect_stdout(text), contextlib.suppress(SystemExit):
        import_module(f"ultralif.cli.{command}").main([*action, "--help"])
    return text.getvalue()


def _flags(command: str, text: str) -> Words:
    """Find the flags in a help, and the choices of those that have some."""
    flags = re.findall(r"^\W*(--[a-z][\w-]*)(?:, --[\w-]+)*(?: \{([\w,-]+)\}(?!\|))?", text, re.MULTILINE)
    found = {f"{command} {flag}": choices.split(",") for flag, choices in flags if choices}
    found |= {f"{command} {flag}": list(_NAMES[flag]) for flag, _ in flags if flag in _NAMES}
    return {command: [flag for flag, _ in flags], **found}


def _script(words: Words, *, zsh: bool) -> str:
    """Write the function that bash calls, and zsh in the manner of bash."""
    lines = ["autoload -U +X bashcompinit && bashcompinit"] if zsh else []
    lines += ["_ultralif() {", '  local words="" command="${COMP_WORDS[1]}" action="${COMP_WORDS[2]}"']
    lines += ['  [ "$COMP_CWORD" -eq 1 ] && command="" action=""', "  for key in \\"]
    lines += ['    "$command $action ${COMP_WORDS[COMP_CWORD-1]}" "$command ${COMP_WORDS[COMP_CWORD-1]}" \\']
    lines += ['    "$command $action" "$command"; do', '    case "$key" in']
    lines += [f'      "{key}") words="{" ".join(follow)}"; break;;' for key, follow in words.items()]
    lines += [
        "    esac",
        "  done",
        '  COMPREPLY=($(compgen -W "$words" -- "${COMP_WORDS[COMP_CWORD]}"))',
        "}",
    ]
    return "\n".join([*lines, "complete -o default -F _ultralif ultralif"])
