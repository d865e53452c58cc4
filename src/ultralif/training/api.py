"""Training and loading in one call."""

import signal
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor, nn

from ultralif.data import DATASETS
from ultralif.errors import InputError
from ultralif.nn import set_mode
from ultralif.training.build import build_network, build_perceptron
from ultralif.training.checkpoint import Damaged
from ultralif.training.config import RunConfig
from ultralif.training.executors import run_local
from ultralif.training.options import Interrupted, Progress, RunOptions
from ultralif.training.own import own_config
from ultralif.training.progress import stop_on_signals, training_progress
from ultralif.training.result import Result
from ultralif.training.schedule import hard_epochs, temperature
from ultralif.training.single import neurons_of
from ultralif.training.store import Run, Store
from ultralif.training.zoo import is_model, read_model

__all__ = ["Trained", "find_run", "restore", "train"]


def train(
    config: RunConfig | nn.Module,
    train: Any = None,
    test: Any = None,
    *,
    runs_dir: str | Path | None = None,
    device: str = "auto",
    data_dir: str | Path | None = None,
    report: Callable[[Progress], None] | None = None,
    stopping: Callable[[], int] | None = None,
    progress: bool | None = None,
    checkpoint_seconds: float = 60.0,
    graph: bool = True,
    **fields: Any,
) -> Result:
    """Train one network, store the run and return its result; a run that is finished is not trained again.

    Pass a config, or a network of your own, which is trained in place on data of your own. Networks whose
    layers, shapes, code, data and options agree are the same run, whatever their initial weights: give each
    start its own ``seed``. Ctrl-C saves a checkpoint; the same call resumes from it.

    Args:
        config: the run; or any module with ultralif neurons that takes ``[T, B, ...]`` (or images
            ``[B, ...]``, with ``encoding="direct"``) and returns scores ``[B, classes]`` or
            ``[T, B, classes]``.
        train: with a module: a pair of tensors, a Dataset or a DataLoader, see
            `ultralif.data.user_data.register_data`.
        test: the same for the test set.
        runs_dir: where runs are kept; None, ``$ULTRALIF_RUNS`` or ``./runs``.
        device: ``auto``, ``cpu``, ``cuda`` ...
        data_dir: a folder to search first for the data.
        report: called after every epoch.
        stopping: called after every step; a number other than 0 stops training. None: Ctrl-C does.
        progress: show a bar, or lines where there is no terminal. None: unless there is a ``report``.
        checkpoint_seconds: the most work, in seconds, that is lost if the process is killed.
        graph: on a GPU record a step as a CUDA graph and replay it. A network that decides in Python from
            step to step, such as by ``random``, needs False; one that cannot be recorded is run as it is.
        fields: with a module: fields of `RunConfig`, such as ``epochs``; and ``events=True`` for samples
            ``[T, ...]`` that have time already.

    Example:
        >>> import tempfile
        >>> result = train(RunConfig(epochs=1), runs_dir=tempfile.mkdtemp())
        >>> result.dataset, result.status, sorted(result.accuracy)
        ('digits', 'done', ['hard', 'soft', 'tropical'])
        >>> import torch
        >>> from ultralif import UltraLIF
        >>> net = nn.Sequential(nn.Linear(4, 8), UltraLIF(), nn.Linear(8, 2))
        >>> x = torch.rand(64, 4)
        >>> y = (x[:, 0] > 0.5).long()
        >>> train(net, (x, y), (x, y), timesteps=3, epochs=1, runs_dir=tempfile.mkdtemp()).neuron
        'UltraLIF'
    """
    store = Store(runs_dir)
    net = config if isinstance(config, nn.Module) else None
    if not isinstance(config, RunConfig):
        config = own_config(config, train, test, **fields)
    elif train is not None or test is not None or fields:
        raise InputError("data and fields go with a network; a config has its own: use config.with_(...)")
    if store.finished([config.id]):
        found = store.read(config.id)
        if net is not None:
            net.load_state_dict(found.contents.tensors())
            warnings.warn(
                f"run {config.id} is finished: its parameters were loaded into net, and nothing was trained. "
                "A run is known by its layers, code, data and options, not by initial weights; to train "
                "again, pass another seed, or remove the run",
                stacklevel=2,
            )
        return found.result
    shown = report is None if progress is None else progress
    asked = stop_on_signals(signal.SIGINT) if stopping is None else nullcontext(stopping)
    with training_progress([1.0], quiet=not shown) as show, asked as stop:
        options = RunOptions(
            device=device,
            data_dir=None if data_dir is None else Path(data_dir),
            report=_both(report, show) if shown else report or show,
            stopping=stop,
            checkpoint_seconds=checkpoint_seconds,
            graph=graph,
        )
        try:
            (result,) = run_local([[config]], store, options)
        except Interrupted as error:
            if stopping is not None:
                raise
            raise KeyboardInterrupt(
                f"{error.where}; everything is saved, and the same call resumes"
            ) from None
    return result


def _both(
    one: Callable[[Progress], None] | None, other: Callable[[Progress], None]
) -> Callable[[Progress], None]:
    def report(progress: Progress) -> None:
        if one is not None:
            one(progress)
        other(progress)

    return report


class Trained(NamedTuple):
    """A network, and the config of its run if it is known."""

    network: nn.Module
    config: RunConfig | None
    diverged: bool = False


def find_run(source: str | Path, runs_dir: str | Path | None = None, net: nn.Module | None = None) -> Trained:
    """Return the network of a run, or one that comes with the library, and the config of its run."""
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
    """Return the network of a stored run with its trained parameters; they go into ``net`` if it is given."""
    return _network(run.config, run.contents.tensors(), run.result.epochs, net)


def _network(
    config: RunConfig, tensors: dict[str, Tensor], epochs: int, net: nn.Module | None = None
) -> nn.Module:
    if net is not None:
        _check_parameters(net, tensors, config)
        if config.mode is not None:
            set_mode(net, config.mode)
    network = _build(config, tensors) if net is None else net
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
    """Build the network of a config; a perceptron's sizes are those of its weights, so no data are needed."""
    first, last = tensors.get("linears.0.weight"), tensors.get(f"linears.{len(config.hidden)}.weight")
    if config.model != "mlp" or config.dataset in DATASETS or first is None or last is None:
        return build_network(config)
    return build_perceptron(config, (first.shape[-1], *config.hidden, len(last)))


def _check_parameters(net: nn.Module, tensors: dict[str, Tensor], config: RunConfig) -> None:
    """Refuse a network whose parameters are not those of the run."""
    own = {name: tuple(value.shape) for name, value in net.state_dict().items()}
    stored = {name: tuple(value.shape) for name, value in tensors.items()}
    if wrong := sorted(name for name in own.keys() | stored.keys() if own.get(name) != stored.get(name)):
        name = wrong[0]
        raise InputError(
            f"net does not fit run {config.id}: {name} has shape {own.get(name)} in net and "
            f"{stored.get(name)} in the run (None: it is not there); build net as it was trained"
        )
