"""The network argument of a command: sizes, a file or a run."""

import re
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from ultralif.cli.output import say
from ultralif.errors import InputError
from ultralif.files import parse_json, read_bytes, shown
from ultralif.training.store import NoSuchRun

if TYPE_CHECKING:
    from torch import nn

    from ultralif.functional import Mode
    from ultralif.nn import Network, Neuron
    from ultralif.training.config import RunConfig

__all__ = ["Source", "load_module", "load_network", "pick_layer", "save_network"]


_MOST = 1 << 33
"""Bytes that a file of parameters may have: 8 GiB."""


class Source(NamedTuple):
    """A network, the arguments that would build it again, and the config of its run, where known."""

    network: "Network"
    arguments: dict[str, Any] | None
    config: "RunConfig | None" = None


def load_network(
    source: str, neuron: str = "UltraLIF", seed: int = 0, runs_dir: Path | None = None
) -> Source:
    """Return the network that an argument names; its weights are finite.

    Args:
        source: sizes for a random network, such as 784-64-10; a file that `save_network` or NIR wrote; a
            run's folder or name; or the name of a network that comes with the library.
        neuron: of a random network.
        seed: of a random network.
        runs_dir: where runs are kept.
    """
    from ultralif.nn import Network
    from ultralif.training.build import network_arguments

    if re.fullmatch(r"\d+(-\d+){2,}", source):
        return _random_network(source, neuron, seed)
    if Path(source).is_file() and Path(source).suffix != ".nir":
        return _read_file(Path(source))
    network, config = load_module(source, runs_dir)
    if not isinstance(network, Network):
        raise InputError(
            f"{source} is a {type(network).__name__}, and this command takes multilayer perceptrons; in "
            f"Python, ultralif.load({source!r}) returns it"
        )
    return Source(network, None if config is None else network_arguments(config), config)


def load_module(source: str, runs_dir: Path | None = None) -> "tuple[nn.Module, RunConfig | None]":
    """Return the module of a run, of a file or of the library, and the run's config; its weights are finite.

    Args:
        source: a file, a run's folder or name, or the name of a network that comes with the library.
        runs_dir: where runs are kept.
    """
    if Path(source).is_file() and Path(source).suffix != ".nir":
        return _read_file(Path(source)).network, None
    from ultralif.loading import find_trained

    try:
        network, config, diverged = find_trained(source, runs_dir)
    except NoSuchRun as error:
        raise InputError(
            f"{source!r} is neither sizes, such as 784-64-10, nor a file, nor a run, nor a model; see: "
            "ultralif runs list, ultralif models list"
        ) from error
    if diverged:
        say(f"the loss of run {source} diverged; these are its weights before that")
    _check_finite(source, network)
    return network, config


def _check_finite(source: object, network: "nn.Module") -> None:
    if not all(bool(parameter.isfinite().all()) for parameter in network.parameters()):
        raise InputError(f"{source} has weights that are NaN or infinite; train it again")


def _random_network(source: str, neuron: str, seed: int) -> Source:
    import torch

    from ultralif.nn import Network

    sizes = [int(size) for size in source.split("-")]
    torch.manual_seed(seed)
    try:
        return Source(Network(sizes, neuron), {"sizes": sizes, "neuron": neuron})
    except ValueError as error:
        raise InputError(str(error)) from error


def _read_file(path: Path) -> Source:
    """Read safetensors whose metadata has a mode, and as JSON the arguments of `ultralif.Network`."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    from ultralif.nn import Network, set_mode

    content = read_bytes(path, _MOST)
    try:
        tensors = load(content)
        size = int.from_bytes(content[:8], "little")  # of the header, which is sound by now
        described = parse_json(content[8 : 8 + size], shown(path))["__metadata__"]
        arguments = parse_json(described["network"], shown(path))
        network = Network(**arguments)
        network.load_state_dict(tensors)
        set_mode(network, cast("Mode", described["mode"]))
    except (KeyError, RuntimeError, SafetensorError, TypeError, ValueError) as error:
        raise InputError(
            f"{path} is neither a .nir file nor what 'ultralif analyze prune --out' writes: {error!r}"
        ) from error
    _check_finite(path, network)
    return Source(network, arguments)


def pick_layer(network: "Network", layer: int) -> "tuple[nn.Linear, Neuron[Any]]":
    """Return a spiking layer's linear map and neurons."""
    layers = list(network.layers())
    if not 0 <= layer < len(layers):
        raise InputError(f"layer must be between 0 and {len(layers) - 1}, got {layer}")
    return layers[layer]


def save_network(network: "Network", arguments: dict[str, Any] | None, path: Path) -> None:
    """Write a network so that `load_network` can read it."""
    from safetensors.torch import save

    from ultralif.files import write_file

    if arguments is None:
        raise InputError(f"a network from NIR cannot be written to {path}; leave the file out")

    options = dict(arguments.get("neuron_options") or {})
    neurons = [neuron for _, neuron in network.layers()]
    for name in neurons[0].declared():
        value = neurons[0].constant(name)
        if isinstance(value, float):
            options[name] = value  # a fixed number that training changed, as annealing does
    if "parameter_shape" in options:
        shapes = {tuple(shape) for neuron in neurons for _, shape in neuron.shapes()}
        if len(shapes) > 1:
            raise InputError(
                f"layers of different sizes with constants for each neuron, {sorted(shapes)}, cannot be "
                f"written to {path}; leave the file out"
            )
        (options["parameter_shape"],) = shapes
    described = arguments | {"sizes": list(network.sizes), "neuron_options": options}
    metadata = {"network": dumps(described), "mode": neurons[0].mode}
    write_file(path, save(network.state_dict(), metadata))
