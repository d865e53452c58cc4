"""`ultralif.train`: training in one call."""

import signal
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import fields
from pathlib import Path
from typing import Any

from torch import nn

from ultralif.data import DATASETS
from ultralif.data.user_data import register_data
from ultralif.errors import InputError
from ultralif.names import similar
from ultralif.nn import register, set_mode
from ultralif.training.config import RunConfig
from ultralif.training.loop import run_local
from ultralif.training.members import neurons_of
from ultralif.training.networks import add_model, default_encoding
from ultralif.training.progress import Interrupted, Progress, RunOptions, stop_on_signals, training_progress
from ultralif.training.result import Result
from ultralif.training.store import Store

__all__ = ["own_config", "train"]


_OF_LIBRARY = (
    *("dataset", "model", "neuron", "neuron_options", "hidden", "readout", "orthogonal", "width"),
    *("per_neuron", "eps_min", "eps_max", "split"),
)
"""Fields that describe a network or data of the library."""


def own_config(net: nn.Module, train: Any, test: Any, *, events: bool = False, **options: Any) -> RunConfig:
    """Return the config of a run of a network and data of the user's own, and make both known.

    Args:
        net: has ultralif neurons; it is trained in place.
        train: see `ultralif.data.user_data.register_data`.
        test: the same.
        events: samples have time first, ``[N, T, ...]``.
        options: fields of `RunConfig`, such as epochs and timesteps.
    """
    known = [each.name for each in fields(RunConfig) if each.name not in _OF_LIBRARY]
    for name in options:
        if name not in known:
            near = similar(name, known)
            hint = f"did you mean {near}?" if near else f"choose from {', '.join(known)}"
            raise InputError(f"{name} is not an option for a network of your own; {hint}")
    for each in neurons_of(net):
        register(type(each))
    neuron = type(neurons_of(net)[0])
    dataset = register_data(train, test, events=events)
    if events:
        options.setdefault("timesteps", _timesteps(dataset))
    if options.get("mode") is not None:
        set_mode(net, options["mode"])
    size = getattr(train, "batch_size", None)  # of a DataLoader
    if isinstance(size, int):
        options.setdefault("batch_size", size)
    model = add_model(lambda: net)
    options.setdefault("encoding", default_encoding(model))
    return RunConfig(dataset=dataset, model=model, neuron=neuron.__name__, **options)


def _timesteps(dataset: str) -> int:

    return DATASETS[dataset].timesteps


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
