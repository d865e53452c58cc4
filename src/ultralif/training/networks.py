"""Build the untrained networks of configs, and load trained ones from stored runs and the zoo."""

import hashlib
import inspect
import math
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from ultralif.data import DATASETS
from ultralif.data.encoders import NORMALIZED
from ultralif.data.table import PREFIX, Spec
from ultralif.errors import DataWarning, InputError
from ultralif.nn import Network, find_neuron, set_mode
from ultralif.training.checkpoint import Damaged
from ultralif.training.config import RunConfig, document_id
from ultralif.training.device import memory
from ultralif.training.losses import Task
from ultralif.training.members import neurons_of
from ultralif.training.result import Result
from ultralif.training.schedule import hard_epochs, temperature
from ultralif.training.store import Run, Store

__all__ = [
    "Trained",
    "add_model",
    "build_network",
    "build_networks",
    "build_perceptron",
    "changed_code",
    "default_encoding",
    "describe",
    "find_run",
    "find_spec",
    "footprint",
    "layer_sizes",
    "metrics_code",
    "network_arguments",
    "own_code",
    "restore",
    "step_work",
    "task_of",
    "titles",
    "trained_in_place",
    "warn_of_code",
]


class UserModel(NamedTuple):
    """The user's own network."""

    make: Callable[[], nn.Module]
    task: Task | None
    title: str
    """A readable name, such as ``net.py:Net``."""


_OWN: dict[str, UserModel] = {}


_GIVEN: "WeakKeyDictionary[nn.Module, tuple[str, str]]" = WeakKeyDictionary()
"""Networks that were trained in place, with their descriptions after and before training."""


def describe(net: nn.Module) -> str:
    """Return a digest of a network's code and of everything it does not learn, as it was before training."""
    now = _describe(net)
    since, given = _GIVEN.get(net, ("", ""))
    return given if since == now else now


@contextmanager
def trained_in_place(net: nn.Module) -> Iterator[None]:
    """Keep a network's description across training, so that the same call resumes or finds its run."""
    given = describe(net)
    try:
        yield
    finally:
        _GIVEN[net] = _describe(net), given


def _describe(net: nn.Module) -> str:
    from ultralif.data.code import code_of

    shapes = [(name, tuple(value.shape)) for name, value in net.state_dict().items()]
    places: dict[int, int] = {}
    parameters = net.named_parameters(remove_duplicate=False)
    tied = [places.setdefault(id(one), len(places)) for _, one in parameters]
    shown = re.sub(r" at 0x[0-9a-f]+", "", repr(net))
    return hashlib.sha256(f"{shapes} {tied} {shown} {code_of(net)}".encode()).hexdigest()


def add_model(
    make: Callable[[], nn.Module], task: Task | None = None, kept: str = "", title: str = ""
) -> str:
    """Register the user's own network in this process and return its name.

    The name contains the class and the first digits of a digest of the network's code, of everything it does
    not learn and of its task, so changing the code starts a new run.

    Args:
        make: a function that returns the network.
        task: the task to train it for; None means classification by mean scores.
        kept: anything else that distinguishes its runs, as text.
        title: a readable name; "" means its class.
    """
    from ultralif.data.code import code_of

    net = make()
    neurons_of(net)  # raises an error if it has none
    if task is not None and not (task.is_usual and task.keep_best is None):
        kept += f" {code_of(task.loss)} {task.readout and code_of(task.readout)} {task.keep_best}"
    digest = hashlib.sha256(f"{describe(net)} {kept}".encode()).hexdigest()[:12]
    name = f"{PREFIX}{type(net).__name__}:{digest}"
    _OWN[name] = UserModel(make, task, title or type(net).__name__)
    return name


def changed_code(config: RunConfig, store: Store) -> str | None:
    """Return a note if a stored run differs from a config only in the user's network."""
    if config.model not in _OWN:
        return None
    kind = config.model.rpartition(":")[0]
    for found in store.rows(dataset=config.dataset, neuron=config.neuron, seed=config.seed):
        other = dict(found.config)
        if str(other.get("model")).rpartition(":")[0] == kind:
            other["model"] = config.model
            if document_id(other) == config.id != found.id:
                return (
                    f"the code, the layers, the constants or the task of {_OWN[config.model].title} changed "
                    f"since run {found.id}; this is a new run"
                )
    return None


def default_encoding(model: str) -> Literal["direct", "constant"]:
    """Return the default encoding of images for the user's own network."""
    return "direct" if hasattr(_OWN[model].make(), "timesteps") else "constant"


def task_of(model: str) -> Task | None:
    """Return the task of the user's own network; None for other networks."""
    return _OWN[model].task if model in _OWN else None


def metrics_code(model: str) -> str | None:
    """Return a digest of the metrics of the user's own network; None if there are none."""
    from ultralif.data.code import code_of

    task = task_of(model)
    if task is None or not task.metrics:
        return None
    return hashlib.sha256(f"{list(task.metrics)} {code_of(*task.metrics.values())}".encode()).hexdigest()


def titles(config: RunConfig) -> dict[str, str]:
    """Return readable names of the user's own network and data, such as ``net.py:Net`` and ``my.npz``."""
    found = {}
    if config.model in _OWN:
        found["model"] = _OWN[config.model].title
    if config.dataset.startswith(PREFIX) and config.dataset in DATASETS:
        found["dataset"] = DATASETS[config.dataset].title
    return found


def own_code(neurons: Iterable[str]) -> str | None:
    """Return a digest of the code of the user's own neurons among these; None if there are none."""
    kinds = [find_neuron(name) for name in sorted(set(neurons))]
    from ultralif.data.code import code_of

    code = [code_of(kind) for kind in kinds if kind.__module__.split(".")[0] != "ultralif"]
    return hashlib.sha256("".join(code).encode()).hexdigest() if code else None


def warn_of_code(result: Result) -> None:
    """Warn if the code of the user's neuron has changed since a run was trained."""
    then = result.environment.get("code_sha256")
    if then is not None and then != own_code([result.neuron]):
        warnings.warn(
            f"the code of {result.neuron} has changed since run {result.id} was trained, so its numbers come "
            "from the old code; restore that code, or train the run again (--again)",
            DataWarning,
            stacklevel=3,
        )


def find_spec(config: RunConfig) -> Spec:
    """Return the description of a config's data."""
    if config.dataset not in DATASETS:
        from ultralif.data.user_data import find_user_data

        find_user_data(config.dataset, torch.device("cpu"))  # its message says what to do
    return DATASETS[config.dataset]


def layer_sizes(config: RunConfig) -> tuple[int, ...]:
    """Return the layer sizes of a config's multilayer perceptron: inputs, hidden layers and classes."""
    spec = find_spec(config)
    return (math.prod(spec.shape), *config.hidden, spec.classes)


def build_networks(configs: Sequence[RunConfig], device: torch.device) -> list[nn.Module]:
    """Return a stack's networks; reject configs that cannot be trained, before loading any data."""
    if not configs:
        raise InputError("configs must contain at least one run, got none")
    if len({config.shared for config in configs}) > 1:
        raise InputError(
            "configs must agree on dataset, time steps, schedule and sizes to be trained in one stack; "
            "ultralif.training.plan groups runs into stacks"
        )
    if len(set(Counter(config.seed for config in configs).values())) > 1:
        raise InputError(
            "configs must contain the same number of runs for each seed to be trained in one stack"
        )
    weights, work = footprint(configs)
    wanted = weights + work if device.type == "cpu" else weights
    if wanted > memory():
        raise InputError(
            f"{len(configs)} networks of {layer_sizes(configs[0])} at T={configs[0].timesteps} need about "
            f"{wanted / 1e9:,.0f} GB, and this machine has {memory() / 1e9:.0f}; choose a smaller hidden, "
            "batch_size or timesteps"
        )
    dtype = torch.float64 if configs[0].precision == "float64" else torch.float32
    return [build_network(config).to(dtype) for config in configs]


def build_network(config: RunConfig) -> nn.Module:
    """Return a config's untrained network, which depends only on the config.

    Example:
        >>> from ultralif.training import RunConfig
        >>> build_network(RunConfig(hidden=(8,))).sizes
        (64, 8, 10)
    """
    spec = find_spec(config)
    if config.encoding in NORMALIZED and not spec.is_events and spec.normalization is None:
        known = [name for name, one in DATASETS.items() if one.normalization]
        raise InputError(
            f"encoding {config.encoding!r} needs a pixel mean and standard deviation, which are unknown for "
            f"{spec.name}; choose a dataset with both ({', '.join(known)}), or encoding 'rate'"
        )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        network = _build_own(config) if config.model.startswith(PREFIX) else _build_model(config)
        if config.orthogonal:
            from ultralif.nn.volume import orthogonal_

            orthogonal_(next(module for module in network.modules() if isinstance(module, nn.Linear)))
    if config.mode is not None:
        set_mode(network, config.mode)
    return network


def _build_own(config: RunConfig) -> nn.Module:
    """Return the user's own network."""
    if config.model not in _OWN:
        kind = config.model.split(":")[1]
        if any(name.split(":")[1] == kind for name in _OWN):
            raise InputError(
                f"the layers or the code of {kind} have changed since run {config.id} was trained; restore "
                "them, or train again"
            )
        raise InputError(
            f"the network of run {config.id} is your own, {config.model.split(':')[1]}, and not stored with "
            "the run; pass it again, on the command line with --model"
        )
    return _OWN[config.model].make()


def _build_model(config: RunConfig) -> nn.Module:
    """Return a multilayer perceptron or a network from `ultralif.models`."""
    try:
        return Network(**network_arguments(config)) if config.model == "mlp" else _build_deep(config)
    except TypeError as error:  # a JSON value that this option does not accept
        if not config.neuron_options:
            raise
        raise InputError(f"{config.neuron} cannot be built with its options: {error}") from error


def _build_deep(config: RunConfig) -> nn.Module:
    """Return a network from `ultralif.models`."""
    from ultralif import models

    spec = find_spec(config)
    if len(spec.shape) != 3:
        raise InputError(f"model {config.model!r} is for images, but {spec.name} has samples {spec.shape}")
    make: Callable[..., nn.Module] = models.resnet if config.model.startswith("resnet") else models.vgg
    return make(
        config.model,
        classes=spec.classes,
        channels=spec.shape[0],
        timesteps=config.timesteps,
        neuron=config.neuron,
        neuron_options=_neuron_options(config),
        width=config.width,
    )


def build_perceptron(config: RunConfig, sizes: tuple[int, ...]) -> Network:
    """Return a config's untrained multilayer perceptron without loading the data."""
    options = _neuron_options(config, sizes)
    return Network(sizes, neuron=config.neuron, neuron_options=options, readout=config.readout)


def network_arguments(config: RunConfig) -> dict[str, Any]:
    """Return a config's arguments for `ultralif.Network`."""
    return {
        "sizes": layer_sizes(config),
        "neuron": config.neuron,
        "neuron_options": _neuron_options(config),
        "readout": config.readout,
    }


def _neuron_options(config: RunConfig, sizes: tuple[int, ...] | None = None) -> dict[str, Any]:
    """Return the arguments of a config's neurons, after checking that the neurons accept them."""
    kind = find_neuron(config.neuron)
    accepted = inspect.signature(kind).parameters
    options = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in config.changed_options().items()
    }
    if unknown := sorted(options.keys() - accepted.keys()):
        raise InputError(f"{config.neuron} has no {', '.join(unknown)}, which run {config.id} uses")
    if config.mode is not None and config.mode not in kind.modes:
        raise InputError(
            f"mode {config.mode!r} is not supported by {kind.__name__}; choose from {', '.join(kind.modes)}"
        )
    if "eps_range" in accepted:
        options["eps_range"] = (config.eps_min, config.eps_max)
    if config.anneal is not None:
        if "eps" not in accepted:
            raise InputError(f"anneal needs a temperature, which {kind.__name__} does not have; leave it out")
        options |= {"eps": config.anneal[0], "learn_eps": False}
    if config.per_neuron and config.model != "mlp":
        raise InputError(f"per_neuron works with model mlp only, got model {config.model!r}; leave it out")
    if config.per_neuron:
        spiking = set((sizes or layer_sizes(config))[1:] if config.readout == "spiking" else config.hidden)
        if len(spiking) > 1:
            raise InputError(
                f"per_neuron needs spiking layers of equal size, got {sorted(spiking)}; choose one size"
            )
        options["parameter_shape"] = (config.hidden[0],)
    return options


def footprint(configs: Sequence[RunConfig]) -> tuple[int, int]:
    """Estimate the memory in bytes that a stack needs for its parameters, their moments and one step."""
    if configs[0].model != "mlp":  # the memory of a step depends on the model
        return 24 * sum(p.numel() for p in build_network(configs[0]).parameters()), 0
    shared, sizes = configs[0], layer_sizes(configs[0])
    width = 8 if shared.precision == "float64" else 4
    parameters = len(configs) * sum((n_in + 1) * n_out for n_in, n_out in pairwise(sizes))
    values = sizes[0] + 4 * len(configs) * sum(sizes[1:])  # current, spikes and their gradients
    return 6 * width * parameters, width * shared.timesteps * shared.batch_size * values


def step_work(configs: Sequence[RunConfig]) -> int:
    """Return the number of multiplications per step in a stack's first layer; a large number for models."""
    if configs[0].model != "mlp":
        return 10**12
    shared, sizes = configs[0], layer_sizes(configs[0])
    return len(configs) * shared.timesteps * shared.batch_size * sizes[0] * sizes[1]


class Trained(NamedTuple):
    """A network, and the config of its run if it is known."""

    network: nn.Module
    config: RunConfig | None
    diverged: bool = False


def find_run(source: str | Path, runs_dir: str | Path | None = None, net: nn.Module | None = None) -> Trained:
    """Return a network from a run or from the library, and the config of its run."""
    from ultralif.training.zoo import is_model, read_model

    path = Path(source)
    if is_model(str(source)):
        config, tensors = read_model(str(source))
        return Trained(_network(config, tensors, config.epochs), config)
    if path.is_dir() and not (path / "result.json").exists():
        raise InputError(f"{path} is not the folder of a run; see: ultralif runs list")
    store, name = Store.holding(str(source), runs_dir)
    run = store.read(name)
    return Trained(restore(run, net), run.config, run.result.status == "diverged")


def restore(run: Run, net: nn.Module | None = None) -> nn.Module:
    """Return the network of a stored run with its trained parameters, loaded into ``net`` if given."""
    warn_of_code(run.result)
    return _network(run.config, run.contents.tensors(), run.result.epochs, net)


def _network(
    config: RunConfig, tensors: dict[str, Tensor], epochs: int, net: nn.Module | None = None
) -> nn.Module:
    if net is not None:
        _check_parameters(net, tensors, config)
    network = _build(config, tensors) if net is None else net
    if config.mode is not None:
        set_mode(network, config.mode)
    try:
        dtype = next(value.dtype for value in tensors.values() if value.is_floating_point())
        network.to(dtype).load_state_dict(tensors)
        eps = temperature(config, max(0, epochs - 1))
    except (KeyError, RuntimeError, StopIteration, TypeError) as error:
        reason = str(error).partition("\n")[0]
        raise Damaged(f"the parameters of run {config.id} do not fit its config ({reason})") from error
    broken = next((name for name, value in tensors.items() if not bool(value.isfinite().all())), None)
    if broken is not None:
        raise Damaged(f"the parameters of run {config.id} are NaN or infinite ({broken}); train it again")
    if eps is not None:
        for neuron in neurons_of(network):
            neuron.assign("eps", eps)
    if hard_epochs(config):
        set_mode(network, "hard")
    return network.eval()


def _build(config: RunConfig, tensors: dict[str, Tensor]) -> nn.Module:
    """Build a config's network; a perceptron's sizes come from its weights, so no data are needed."""
    first, last = tensors.get("linears.0.weight"), tensors.get(f"linears.{len(config.hidden)}.weight")
    if config.model != "mlp" or config.dataset in DATASETS or first is None or last is None:
        return build_network(config)
    return build_perceptron(config, (first.shape[-1], *config.hidden, len(last)))


def _check_parameters(net: nn.Module, tensors: dict[str, Tensor], config: RunConfig) -> None:
    """Reject a network whose parameters do not match the run."""
    own = {name: tuple(value.shape) for name, value in net.state_dict().items()}
    stored = {name: tuple(value.shape) for name, value in tensors.items()}
    if wrong := sorted(name for name in own.keys() | stored.keys() if own.get(name) != stored.get(name)):
        name = wrong[0]
        raise InputError(
            f"net does not fit run {config.id}: {name} has shape {own.get(name)} in net and "
            f"{stored.get(name)} in the run (None: missing); build net as it was trained"
        )
