"""``ultralif neurons``: the library's neurons and their options."""

import inspect

from ultralif.cli.output import echo, print_json, print_table
from ultralif.cli.parse import Flag, argument_docs, print_flags
from ultralif.training.config import class_defaults, spelled

__all__ = ["COMMAND", "neuron_flags"]


def neurons(name: str | None = None, /, json: bool = False) -> None:
    """List the neurons, or show one neuron's options with their defaults.

    Examples:
      ultralif neurons
      ultralif neurons UltraLIF
      ultralif train --neuron UltraLIF --eps 0.5 --no-learn-eps

    Args:
        name: a neuron; by default, all are listed.
        json: print one JSON document.
    """
    from ultralif.nn import NEURONS

    if name is not None:
        found = neuron_flags(spelled("neuron", name)).values()
        if json:
            print_json([{"name": x.name, "default": x.default, "meaning": x.meaning} for x in found])
            return
        print_flags(found)
        return
    rows = [
        {"name": each, "modes": list(kind.modes), "summary": (inspect.getdoc(kind) or "").splitlines()[0]}
        for each, kind in NEURONS.items()
    ]
    if json:
        print_json(rows)
        return
    print_table(
        ("name", "modes", "summary"), [(r["name"], ", ".join(r["modes"]), r["summary"]) for r in rows]
    )
    echo("for a neuron's options: ultralif neurons UltraLIF")


def neuron_flags(name: str) -> dict[str, Flag]:
    """Return the neuron options that a run may set, from the signature and docstrings."""
    from ultralif.nn import find_neuron

    meanings: dict[str, str] = {}
    for base in reversed(find_neuron(name).__mro__):
        meanings |= argument_docs(base)
    return {
        option: _flag(option, default, meanings.get(option, ""))
        for option, default in class_defaults(name).items()
    }


def _flag(name: str, default: object, meaning: str) -> Flag:
    """Return the flag for an option, with the type of its default."""
    if isinstance(default, list):
        return Flag(name, float, None, default=default, meaning=meaning)
    if isinstance(default, bool):
        return Flag(name, bool, alone=True, default=default, meaning=meaning)
    if isinstance(default, int | float | str):
        kind = str if isinstance(default, str) else float
        return Flag(name, kind, has_none=True, default=default, meaning=meaning)
    return Flag(name, _plain, has_none=True, alone=True, meaning=meaning)


def _plain(word: str) -> float | str | bool:
    """Convert a word to a switch, a number or a name."""
    if word.capitalize() in ("True", "False"):
        return word.capitalize() == "True"
    try:
        return float(word)
    except ValueError:
        return word


COMMAND = neurons
