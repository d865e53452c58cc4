"""Resolve arguments to networks, and paths to the user's own data, models and neurons.

Code is run only from a path given on the command line, never from a path in a stored run or a config file.
"""

import inspect
import re
import sys
from collections.abc import Callable, Sequence
from importlib.util import module_from_spec, spec_from_file_location
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

__all__ = [
    "Source",
    "is_code",
    "is_path",
    "load_module",
    "load_network",
    "make_network",
    "neuron_name",
    "pick_layer",
    "register_dataset",
    "register_model",
    "register_models",
    "register_paths_of",
    "save_network",
]

_PATHS: dict[str, str] = {}
"""The path of the code that builds each user network, by the network's name."""
_MOST = 1 << 33
"""Largest allowed parameter file, in bytes: 8 GiB."""


class Source(NamedTuple):
    """A network, the arguments that would rebuild it, and its run's config, if known."""

    network: "Network"
    arguments: dict[str, Any] | None
    config: "RunConfig | None" = None


def load_network(
    source: str, neuron: str = "UltraLIF", seed: int = 0, runs_dir: Path | None = None
) -> Source:
    """Load the network named by an argument, after checking that its weights are finite.

    Args:
        source: sizes for a random network, such as 784-64-10; a file from `save_network` or a NIR file; a
            run's folder or name; or the name of a network that ships with the library.
        neuron: the neuron of a random network.
        seed: the seed for a random network.
        runs_dir: runs folder.
    """
    from ultralif.nn import Network
    from ultralif.training.networks import network_arguments

    if re.fullmatch(r"\d+(-\d+){2,}", source):
        return _random_network(source, neuron, seed)
    if Path(source).is_file() and Path(source).suffix != ".nir":
        return _read_file(Path(source))
    network, config = load_module(source, runs_dir)
    if not isinstance(network, Network):
        raise InputError(
            f"{source} is a {type(network).__name__}, but this command only supports multilayer perceptrons; "
            f"in Python, ultralif.load({source!r}) returns it"
        )
    return Source(network, None if config is None else network_arguments(config), config)


def load_module(source: str, runs_dir: Path | None = None) -> "tuple[nn.Module, RunConfig | None]":
    """Load a module from a run, a file or the library, with its run's config; its weights must be finite.

    Args:
        source: a file, a run's folder or name, or the name of a network that ships with the library.
        runs_dir: runs folder.
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
        say(f"the loss of run {source} diverged; these are its weights from before the divergence")
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
    """Read a safetensors file whose metadata holds the mode and the `ultralif.Network` arguments as JSON."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    from ultralif.nn import Network, set_mode

    content = read_bytes(path, _MOST)
    try:
        tensors = load(content)
        size = int.from_bytes(content[:8], "little")  # of the header, which `load` has already checked
        described = parse_json(content[8 : 8 + size], shown(path))["__metadata__"]
        arguments = parse_json(described["network"], shown(path))
        network = Network(**arguments)
        network.load_state_dict(tensors)
        set_mode(network, cast("Mode", described["mode"]))
    except (KeyError, RuntimeError, SafetensorError, TypeError, ValueError) as error:
        raise InputError(
            f"{path} is neither a .nir file nor a file from 'ultralif analyze prune --out': {error!r}"
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
        raise InputError(f"a network from NIR cannot be written to {path}; omit the output file")

    options = dict(arguments.get("neuron_options") or {})
    neurons = [neuron for _, neuron in network.layers()]
    for name in neurons[0].declared():
        value = neurons[0].constant(name)
        if isinstance(value, float):
            options[name] = value  # a fixed number that training changed, for example by annealing
    if "parameter_shape" in options:
        shapes = {tuple(shape) for neuron in neurons for _, shape in neuron.shapes()}
        if len(shapes) > 1:
            raise InputError(
                f"layers of different sizes with per-neuron constants, {sorted(shapes)}, cannot be "
                f"written to {path}; omit the output file"
            )
        (options["parameter_shape"],) = shapes
    described = arguments | {"sizes": list(network.sizes), "neuron_options": options}
    metadata = {"network": dumps(described), "mode": neurons[0].mode}
    write_file(path, save(network.state_dict(), metadata))


_CODE = re.compile(r"(.+\.py):(\w+)")


def is_code(value: str) -> bool:
    """Return whether a value names a Python file and an object in it."""
    return bool(_CODE.fullmatch(value))


def is_path(value: str) -> bool:
    """Return whether a dataset is given as a path: a code file, an array file, or a folder."""
    return is_code(value) or value.endswith(".npz") or (Path(value).is_dir() and "/" in value)


def register_dataset(path: str) -> str:
    """Read data, register them, and return their name.

    Args:
        path: an ``.npz`` file or a folder of ``.npy`` files with ``x_train`` (or ``events_train``,
            ``[N, T, ...]``), ``y_train``, ``x_test`` and ``y_test``; or ``file.py:function``, which returns
            the training and the test set.
    """
    from ultralif.data.user_data import read_arrays, register_data

    if is_code(path):
        found = _code(path)()
        if isinstance(found, str):
            return found
        if not isinstance(found, tuple | list) or len(found) != 2:
            raise InputError(f"{path} must return the training and the test set, got {type(found).__name__}")
        return register_data(*found, title=Path(path).name)
    if not Path(path).exists():
        raise InputError(f"dataset {path} does not exist")
    train, test, events = read_arrays(Path(path))
    return register_data(train, test, events=events, title=Path(path).name)


def neuron_name(value: str) -> str:
    """Return the name of a neuron, registering it first if it is given as ``file.py:Class``."""
    if not is_code(value):
        return value
    from ultralif.nn import Neuron, register

    found = _code(value)
    if not (isinstance(found, type) and issubclass(found, Neuron)):
        raise InputError(f"neuron {value} must be a class derived from ultralif.Neuron or ultralif.Stepped")
    return register(found).__name__


def register_model(path: str, config: "RunConfig") -> str:
    """Register the network that ``file.py:Class`` builds, and return its name.

    Args:
        path: the code. It is passed whichever of these arguments its signature accepts: ``classes``,
            ``shape`` (of a sample), ``channels``, ``timesteps`` and ``neuron`` (a name).
        config: the run's config.
    """
    from torch import nn

    from ultralif.training.networks import add_model, find_spec

    spec, make = find_spec(config), _code(path)
    told = {
        "classes": spec.classes,
        "shape": spec.shape,
        "channels": spec.shape[0],
        "timesteps": config.timesteps,
        "neuron": config.neuron,
    }
    accepted = inspect.signature(make).parameters
    given = {name: value for name, value in told.items() if name in accepted}

    def build() -> nn.Module:
        net = make(**given)
        if not isinstance(net, nn.Module):
            raise InputError(f"model {path} must return a torch.nn.Module, got {type(net).__name__}")
        return net

    name = add_model(build, title=Path(path).name)
    _PATHS[name] = path
    return name


def make_network(path: str) -> "nn.Module":
    """Return the network that ``file.py:Class`` builds when called without arguments."""
    from torch import nn

    net = _code(path)()
    if not isinstance(net, nn.Module):
        raise InputError(f"{path} must return a torch.nn.Module, got {type(net).__name__}")
    return net


def register_models(model: str, configs: Sequence["RunConfig"]) -> list["RunConfig"]:
    """Return the runs of a sweep, each with the network that the user's code builds for it.

    Args:
        model: the name that `register_model` returned for one of them.
        configs: the runs. If the code does not accept ``neuron``, one run per T, penalty and seed is kept.
    """
    from ultralif.training.members import neurons_of
    from ultralif.training.networks import build_network

    path = _PATHS[model]
    if "neuron" in inspect.signature(_code(path)).parameters:
        return [config.with_(model=register_model(path, config)) for config in configs]
    neuron = type(neurons_of(build_network(configs[0].with_(model=model)))[0]).__name__
    made = [config.with_(neuron=neuron, model=register_model(path, config)) for config in configs]
    return list({config.id: config for config in made}.values())


def register_paths_of(
    run: str, runs_dir: Path | None, dataset: str | None, model: str | None, neuron: str | None
) -> None:
    """Register the user's own data, network and neuron for a stored run, if their paths are given.

    Args:
        run: its name or folder.
        runs_dir: runs folder.
        dataset: as for `register_dataset`.
        model: as for `register_model`.
        neuron: as for `neuron_name`.
    """
    if neuron is not None:
        neuron_name(neuron)
    if dataset is not None:
        register_dataset(dataset)
    if model is not None:
        from ultralif.training.store import Store

        store, name = Store.holding(run, runs_dir)
        register_model(model, store.read(name).config)


def _code(path: str) -> Callable[..., object]:
    """Return the object that ``file.py:name`` refers to."""
    matched = _CODE.fullmatch(path)
    if matched is None:
        raise InputError(f"{path!r} must be a Python file and a name in it, such as my.py:Net")
    file = Path(matched[1])
    if not file.is_file():
        raise InputError(f"file {file} does not exist")
    name = f"_own_{file.stem}"  # a file called nir.py must not replace the library
    spec = spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise InputError(f"{file} is not a Python file")
    module = module_from_spec(spec)
    sys.modules.setdefault(name, module)  # dataclasses and pickle look up modules there
    spec.loader.exec_module(module)
    found = getattr(module, matched[2], None)
    if not callable(found):
        raise InputError(f"{file} has no class or function {matched[2]!r}")
    made: Callable[..., object] = found
    return made
