"""``ultralif models``: trained networks that come with the library."""

from ultralif.cli.output import echo, print_json, print_table
from ultralif.cli.parse import Actions, dispatch
from ultralif.names import MODES

__all__ = ["COMMAND", "main"]


def main(argv: list[str]) -> None:
    """List the networks, or show one."""
    dispatch(COMMAND, argv, "models")


def list_(json: bool = False) -> None:
    """List the trained networks; ul.load(name) returns one.

    Args:
        json: print one JSON document.
    """
    from ultralif.training.zoo import cards

    if json:
        print_json([{"name": name, **card} for name, card in cards().items()])
        return
    rows = []
    for name, card in cards().items():
        accuracy = card["accuracy"]
        cells = (f"{accuracy[mode]:.2f}" if mode in accuracy else None for mode in MODES)
        rows.append((name, card["config"]["neuron"], *cells))
    print_table(("name", "neuron", "soft %", "hard %", "tropical %"), rows)


def show_model(name: str, /, json: bool = False) -> None:
    """Show the card of a network: its numbers, its hash, and the command that made it.

    Args:
        name: as ``ultralif models list`` prints it.
        json: print one JSON document.
    """
    from ultralif.training.zoo import cards, read_model

    read_model(name)  # it is there and whole
    card = {"name": name, **cards()[name]}
    if json:
        print_json(card)
        return
    for key, value in card.items():
        echo(f"{key:10} {value}")


COMMAND: Actions = {"list": list_, "show": show_model}
