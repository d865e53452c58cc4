"""The network that a command is given: where sizes, files and runs become modules."""

import re
from json import dumps, loads
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ultralif.errors import InputError

if TYPE_CHECKING:
    from torch import nn

    from ultralif.nn import Network, Neuron

__all__ = ["Source", "load_network", "pick_layer", "save_network"]


class Source(NamedTuple):
    """A network, and the arguments that would build it again."""

    network: "Network"
    arguments: dict[str, Any]


def load_network(source: str, neuron: str = "UltraLIF", seed: int = 0) -> Source:
    """Return the network that an argument names: sizes for a random one, or a file of weights.

    A file is safetensors whose metadata has, under ``network``, the arguments of `ultralif.Network` as JSON.
    """
    import torch

    from ultralif.nn import Network

    if re.fullmatch(r"\d+(-\d+){2,}", source):
        sizes = [int(size) for size in source.split("-")]
        torch.manual_seed(seed)
        try:
            return Source(Network(sizes, neuron), {"sizes": sizes, "neuron": neuron})
        except ValueError as error:
            raise InputError(str(error)) from error
    path = Path(source)
    if not path.is_file():
        raise InputError(f"source {source!r} is neither sizes, such as 784-64-10, nor a file of weights")
    from safetensors import SafetensorError, safe_open
    from safetensors.torch import load_file

    try:
        with safe_open(path, "pt") as file:
            arguments = loads((file.metadata() or {})["network"])
        network = Network(**arguments)
        network.load_state_dict(load_file(path))
    except (KeyError, RuntimeError, SafetensorError, TypeError, ValueError) as error:
        raise InputError(
            f"source {source!r} is not a network that 'ultralif analyze prune --out' writes: {error!r}"
        ) from error
    return Source(network, arguments)


def pick_layer(network: "Network", layer: int) -> "tuple[nn.Linear, Neuron[Any]]":
    """Return a spiking layer's linear map and neurons."""
    layers = list(network.layers())
    if not 0 <= layer < len(layers):
        raise InputError(f"layer must lie between 0 and {len(layers) - 1}, got {layer}")
    return layers[layer]


def save_network(network: "Network", arguments: dict[str, Any], path: Path) -> None:
    """Write a network so that `load_network` can read it."""
    from safetensors.torch import save_file

    path.parent.mkdir(parents=True, exist_ok=True)
    described = dumps(arguments | {"sizes": list(network.sizes)})
    save_file(network.state_dict(), path, metadata={"network": described})
