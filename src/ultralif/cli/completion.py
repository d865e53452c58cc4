"""``ultralif completion``: a script that lets a shell complete commands, actions, flags and choices."""

from importlib import import_module
from typing import Literal

from ultralif.cli import COMMANDS
from ultralif.cli.parse import parse, print_completion

__all__ = ["COMMAND", "main"]


def main(argv: list[str]) -> None:
    """Print a script for a shell."""
    parse(completion, argv, "completion")


def completion(shell: Literal["bash", "zsh", "fish"], /) -> None:
    """Print a script that lets a shell complete commands, actions, flags and choices with the TAB key.

    Examples:
      ultralif completion bash >> ~/.bashrc
      ultralif completion zsh > ~/.zfunc/_ultralif
      ultralif completion fish > ~/.config/fish/completions/ultralif.fish

    Args:
        shell: bash, zsh or fish.
    """
    print_completion({name: import_module(f"ultralif.cli.{name}").COMMAND for name in COMMANDS}, shell)


COMMAND = completion
