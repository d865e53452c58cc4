"""``ultralif models``: trained networks that ship with the library or were fetched."""

from pathlib import Path

from ultralif.cli.output import echo, print_json, print_table
from ultralif.cli.parse import Actions
from ultralif.names import MODES

__all__ = ["COMMAND"]


def list_(json: bool = False) -> None:
    """List the trained networks; ul.load(name) returns one.

    Args:
        json: print one JSON document.
    """
    from ultralif.training.config import RunConfig
    from ultralif.training.zoo import cards

    if json:
        print_json([{"name": name, **card} for name, card in cards().items()])
        return
    rows = []
    for name, card in cards().items():
        accuracy = card["accuracy"]
        cells = (f"{accuracy[mode]:.2f}" if mode in accuracy else None for mode in MODES)
        config = RunConfig.from_dict(card["config"])
        rows.append((name, config.model, config.neuron, *cells))
    print_table(("name", "model", "neuron", "soft %", "hard %", "tropical %"), rows)


def show_model(name: str, /, json: bool = False) -> None:
    """Show a network's card: its results, its hash, and the command that trained it.

    Args:
        name: a name from ``ultralif models list``.
        json: print one JSON document.
    """
    from ultralif.training.zoo import cards, read_model

    read_model(name)  # raises an error if the file is damaged
    card = {"name": name, **cards()[name]}
    if json:
        print_json(card)
        return
    for key, value in card.items():
        echo(f"{key:10} {value}")


def get_model(name: str, folder: Path, /) -> None:
    """Fetch a network that is too large to ship with the library from a folder.

    Args:
        name: a name in the folder's index, such as cifar10/vgg11r-t4.
        folder: a folder that contains an index.json and the networks.
    """
    from ultralif.training import zoo

    echo(f"{zoo.get_model(name, folder)}; ul.load({name!r}) returns it")


COMMAND: Actions = {"list": list_, "show": show_model, "get": get_model}
