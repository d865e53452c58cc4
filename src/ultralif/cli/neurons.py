"""``ultralif neurons``: the neurons of the library, and the options of one."""

import inspect
import re
from typing import Any, NamedTuple

from ultralif.cli.output import echo, print_json, print_table
from ultralif.cli.parse import parse
from ultralif.training.config import known_options, spelled

__all__ = ["COMMAND", "NeuronOption", "main", "neuron_options"]


class NeuronOption(NamedTuple):
    """An option of a neuron."""

    name: str
    default: Any
    meaning: str


def main(argv: list[str]) -> None:
    """List the neurons, or the options of one."""
    parse(neurons, argv, "neurons")


def neurons(name: str | None = None, /, json: bool = False) -> None:
    """List the neurons, or show the options of one with their defaults.

    Examples:
      ultralif neurons
      ultralif neurons UltraLIF
      ultralif train --neuron UltraLIF --eps 0.5 --no-learn-eps

    Args:
        name: a neuron; without it, all are listed.
        json: print one JSON document.
    """
    from ultralif.nn import NEURONS

    if name is not None:
        found = neuron_options(spelled("neuron", name))
        if json:
            print_json([option._asdict() for option in found])
            return
        for option in found:
            echo(f"--{option.name.replace('_', '-')} (default: {option.default})")
            echo(f"    {option.meaning}")
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
    echo("options of one: ultralif neurons UltraLIF")


def neuron_options(name: str) -> list[NeuronOption]:
    """Return the options of a neuron that a run may set, from its signature and docstrings."""
    from ultralif.nn import find_neuron

    kind: Any = find_neuron(name)
    known, meanings = known_options(), _meanings(kind)
    return [
        NeuronOption(each.name, each.default, meanings.get(each.name, ""))
        for each in inspect.signature(kind).parameters.values()
        if each.name in known
    ]


def _meanings(kind: type) -> dict[str, str]:
    """Return the description of each argument from the docstrings of a class and its bases."""
    meanings: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        _, _, arguments = inspect.cleandoc(vars(base).get("__doc__") or "").partition("\nArgs:\n")
        block = re.split(r"\n(?=\S)", arguments, maxsplit=1)[0]
        for argument, text in re.findall(r"(?ms)^    (\w+): (.*?)(?=^    \w|\Z)", block):
            meanings[argument] = " ".join(text.replace("``", "").split())
    return meanings


COMMAND = neurons
