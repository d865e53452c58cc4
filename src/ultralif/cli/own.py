"""The user's own data, networks and neurons on the command line, given by paths.

Code is run only from a path in the command itself, never from one in a stored run or a config file.
"""

import inspect
import re
import sys
from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ultralif.errors import InputError

if TYPE_CHECKING:
    from ultralif.training.config import RunConfig

__all__ = [
    *("know_dataset", "know_model", "know_neuron", "know_own", "know_paths", "take_neurons", "take_paths"),
]

_CODE = re.compile(r"(.+\.py):(\w+)")


def take_paths(argv: list[str]) -> tuple[list[str], str | None]:
    """Replace paths in the arguments by names; return them, and the path of a network, which is removed.

    Args:
        argv: may have ``--dataset my.npz``, a folder or ``file.py:function``; ``--neuron file.py:Class``;
            ``--model file.py:Class``.
    """
    words, model = [], None
    joined = iter(_joined(argv))
    for word in joined:
        flag, _, value = word.partition("=")
        if flag == "--model" and _CODE.fullmatch(value):
            model = value
        elif flag == "--neuron" and _CODE.fullmatch(value):
            words.append(f"--neuron={know_neuron(value)}")
        elif flag == "--dataset" and is_path(value):
            words += _dataset_words(know_dataset(value), argv)
        else:
            words.append(word)
    return (words, model) if words != _joined(argv) or model else (argv, None)


def take_neurons(argv: list[str]) -> list[str]:
    """Replace ``file.py:Class`` in lists of neurons by names, and register these neurons.

    Args:
        argv: without other paths, see `take_paths`.
    """
    return [
        re.sub(r"[^,=]+\.py:\w+", lambda found: know_neuron(found[0]), word) if ".py:" in word else word
        for word in argv
    ]


def know_paths(argv: list[str]) -> list[str]:
    """Register the neurons and data that filters give by paths; a neuron's path is no filter, and removed."""
    words = []
    for word in _joined(argv):
        flag, _, value = word.partition("=")
        if flag == "--neuron" and _CODE.fullmatch(value):
            know_neuron(value)
        elif flag == "--dataset" and is_path(value):
            words.append(f"--dataset={know_dataset(value)}")
        else:
            words.append(word)
    return words


def is_path(value: str) -> bool:
    """Tell whether a dataset is given by a path: a file of code or arrays, or a folder."""
    return bool(_CODE.fullmatch(value)) or value.endswith(".npz") or (Path(value).is_dir() and "/" in value)


def _joined(argv: list[str]) -> list[str]:
    """Write ``--flag value`` as ``--flag=value`` for the flags that may have paths."""
    words: list[str] = []
    for word in argv:
        if words and words[-1] in ("--dataset", "--model", "--neuron"):
            words[-1] = f"{words[-1]}={word}"
        else:
            words.append(word)
    return words


def _dataset_words(name: str, argv: list[str]) -> list[str]:
    """Return the flag of a dataset, and the time steps of its events unless they are given."""
    from ultralif.data import DATASETS

    words = [f"--dataset={name}"]
    if DATASETS[name].is_events and not any(word.startswith("--timesteps") for word in argv):
        words.append(f"--timesteps={DATASETS[name].timesteps}")
    return words


def know_dataset(path: str) -> str:
    """Read data, register them, and return their name.

    Args:
        path: an ``.npz`` file or a folder of ``.npy`` files with ``x_train`` (or ``events_train``,
            ``[N, T, ...]``), ``y_train``, ``x_test`` and ``y_test``; or ``file.py:function``, which returns
            the training and the test set.
    """
    from ultralif.data.user_data import read_arrays, register_data

    if _CODE.fullmatch(path):
        found = _code(path)()
        if isinstance(found, str):
            return found
        if not isinstance(found, tuple | list) or len(found) != 2:
            raise InputError(f"{path} must return the training and the test set, got {type(found).__name__}")
        return register_data(*found)
    if not Path(path).exists():
        raise InputError(f"dataset {path} does not exist")
    train, test, events = read_arrays(Path(path))
    return register_data(train, test, events=events)


def know_neuron(path: str) -> str:
    """Register the neuron of ``file.py:Class`` and return its name."""
    from ultralif.nn import Neuron, register

    found = _code(path)
    if not (isinstance(found, type) and issubclass(found, Neuron)):
        raise InputError(f"neuron {path} must be a class derived from ultralif.Neuron or ultralif.Stepped")
    return register(found).__name__


def know_model(path: str, config: "RunConfig") -> str:
    """Register the network that ``file.py:Class`` makes, and return its name.

    Args:
        path: of the code; it is called with those of ``classes``, ``shape`` (of a sample), ``channels``,
            ``timesteps`` and ``neuron`` (a name) that it takes.
        config: of the run.
    """
    from torch import nn

    from ultralif.training.build import add_model, find_spec

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
            raise InputError(f"model {path} must make a torch.nn.Module, got {type(net).__name__}")
        return net

    return add_model(build)


def know_own(
    run: str, runs_dir: Path | None, dataset: str | None, model: str | None, neuron: str | None
) -> None:
    """Register the user's own data, network and neuron of a stored run, as far as paths are given.

    Args:
        run: its name or folder.
        runs_dir: where runs are kept.
        dataset: as for `know_dataset`.
        model: as for `know_model`.
        neuron: as for `know_neuron`.
    """
    if neuron is not None:
        know_neuron(neuron)
    if dataset is not None:
        know_dataset(dataset)
    if model is not None:
        from ultralif.training.store import Store

        store, name = Store.holding(run, runs_dir)
        know_model(model, store.read(name).config)


def _code(path: str) -> Callable[..., Any]:
    """Return the object of that name in a file of Python."""
    matched = _CODE.fullmatch(path)
    if matched is None:
        raise InputError(f"{path!r} must be a file of Python and a name in it, such as my.py:Net")
    file = Path(matched[1])
    if not file.is_file():
        raise InputError(f"there is no file {file}")
    spec = spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise InputError(f"{file} is not a file of Python")
    module = module_from_spec(spec)
    sys.modules.setdefault(file.stem, module)  # dataclasses and pickles look there
    spec.loader.exec_module(module)
    found = getattr(module, matched[2], None)
    if not callable(found):
        raise InputError(f"{file} has no class or function {matched[2]!r}")
    made: Callable[..., Any] = found
    return made
