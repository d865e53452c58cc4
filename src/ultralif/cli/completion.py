"""``ultralif completion``: shell scripts that complete commands, actions, flags and choices."""

from collections.abc import Sequence
from importlib import import_module
from typing import Literal

from ultralif.cli import COMMANDS
from ultralif.cli.output import echo
from ultralif.cli.parse import flags_of, parse

__all__ = ["COMMAND", "main"]

SCRIPTS = {
    "bash": """\
_ultralif() {
  local words="$(ultralif completion --line "${COMP_WORDS[@]:1:COMP_CWORD-1}" 2>/dev/null)"
  COMPREPLY=($(compgen -W "$words" -- "${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _ultralif ultralif
""",
    "zsh": """\
#compdef ultralif
_ultralif() {
  local -a found=(${(f)"$(ultralif completion --line ${words[2,CURRENT-1]} 2>/dev/null)"})
  if (( $#found )); then compadd -a found; else _files; fi
}
compdef _ultralif ultralif
""",
    "fish": """\
complete -c ultralif -a '(ultralif completion --line (commandline -opc)[2..] 2>/dev/null)'
""",
}


def main(argv: list[str]) -> None:
    """Print a completion script, or the candidates for the next word of a command line."""
    if argv[:1] == ["--line"]:
        for word in _candidates(argv[1:]):
            echo(word)
    else:
        parse(completion, argv, "completion")


def completion(shell: Literal["bash", "zsh", "fish"], /) -> None:
    """Print a shell script that completes commands, actions, flags and choices with the TAB key.

    Examples:
      ultralif completion bash >> ~/.bashrc
      ultralif completion zsh >> ~/.zshrc
      ultralif completion fish > ~/.config/fish/completions/ultralif.fish

    Args:
        shell: bash, zsh or fish.
    """
    for line in SCRIPTS[shell].splitlines():
        echo(line)


def _candidates(words: Sequence[str]) -> list[str]:
    """Return the words that may follow, or none if a free-form value is expected."""
    if not words:
        return ["--help", "--version", *COMMANDS]
    if words[0] not in COMMANDS:
        return []
    target = import_module(f"ultralif.cli.{words[0]}").COMMAND
    if isinstance(target, dict):
        if len(words) == 1:
            return ["--help", *target]
        if words[1] not in target:
            return []
        target = target[words[1]]
    flags = flags_of(target).values()
    before = next((flag for flag in flags if flag.written == words[-1]), None)
    if before is not None and (before.choices or before.alone is None):
        return list(before.choices)
    places = [choice for flag in flags if flag.is_word for choice in flag.choices]
    return ["--help", *places, *(flag.written for flag in flags if not flag.is_word)]


COMMAND = completion
