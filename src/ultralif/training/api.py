"""`ultralif.train`: training in one call."""

import signal
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import fields
from pathlib import Path
from typing import Any

from torch import nn

from ultralif.data import DATASETS
from ultralif.data.code import code_of
from ultralif.data.user_data import register_data
from ultralif.errors import InputError
from ultralif.names import similar
from ultralif.nn import register, set_mode
from ultralif.training.callbacks import EarlyStopping, cost
from ultralif.training.config import RunConfig
from ultralif.training.evaluate import reevaluate
from ultralif.training.loop import run_local
from ultralif.training.losses import Task, find_loss, find_readout, tet
from ultralif.training.members import neurons_of
from ultralif.training.networks import (
    add_model,
    changed_code,
    default_encoding,
    metrics_code,
    trained_in_place,
    warn_of_code,
)
from ultralif.training.progress import (
    Callback,
    Interrupted,
    Progress,
    RunOptions,
    stop_on_signals,
    training_progress,
)
from ultralif.training.result import Result
from ultralif.training.store import Store

__all__ = ["train", "user_config"]

_OF_LIBRARY = (
    *("dataset", "model", "neuron", "neuron_options", "hidden", "readout", "orthogonal", "width"),
    *("per_neuron", "eps_min", "eps_max", "split"),
)
"""Fields that describe one of the library's own networks or datasets."""


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
    callbacks: Sequence[Callback] = (),
    checkpoint_seconds: float = 60.0,
    graph: bool = True,
    again: bool = False,
    **fields: Any,
) -> Result:
    """Train one network, store the run and return its result; a finished run is not trained again.

    Pass a config, or your own network, which is trained in place on your own data. Calls with the same
    layers, shapes, code, data and options refer to the same run, whatever the initial weights. To train from
    several initializations, give each its own ``seed``. Ctrl-C saves a checkpoint; the same call resumes
    from it.

    Args:
        config: the run's config; or any module with ultralif neurons that accepts ``[T, B, ...]`` (or images
            ``[B, ...]``, with ``encoding="direct"``) and returns outputs ``[B, ...]`` or ``[T, B, ...]``.
        train: for a module: a pair of tensors, a Dataset or a DataLoader. A DataLoader is iterated in every
            epoch, with its workers and fresh transforms, and its data are not kept in memory. A resumed epoch
            reads the batches before the checkpoint again and skips them. See `ultralif.data.register_data`.
        test: the test set, in the same form.
        runs_dir: the folder where runs are stored; None means ``$ULTRALIF_RUNS`` or ``./runs``.
        device: ``auto``, ``cpu``, ``cuda`` ...
        data_dir: a folder to search first for the data.
        report: called after every epoch.
        stopping: called after every step; training stops if it returns a nonzero number. None: Ctrl-C stops
            training.
        progress: show a progress bar, or plain lines if there is no terminal. None: show it unless ``report``
            is given.
        callbacks: for a module: objects whose ``on_epoch_end(state)`` is called after every epoch; training
            ends if one returns True. See `ultralif.training.callbacks`.
        checkpoint_seconds: the maximum number of seconds of work lost if the process is killed.
        graph: on a GPU, record a step as a CUDA graph and replay it. Pass False for a network that makes
            decisions in Python at every step, for example with ``random``. A network that cannot be recorded
            runs without a graph.
        again: train a finished run again and replace its result.
        fields: for a module: arguments of `user_config`, such as ``loss``, ``metrics``, ``validation`` and
            ``events``, and fields of `RunConfig`, such as ``epochs``.

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
        config = user_config(config, train, test, callbacks=callbacks, **fields)
    elif train is not None or test is not None or fields or callbacks:
        raise InputError("data, callbacks and fields can only be passed with a network, not with a config")
    in_place = nullcontext() if net is None else trained_in_place(net)
    if store.finished([config.id]) and not again:
        found = store.read(config.id)
        warn_of_code(found.result)
        if net is not None:
            with in_place:
                net.load_state_dict(found.contents.tensors())
            warnings.warn(
                f"run {config.id} is finished: its parameters were loaded into net, and nothing was trained. "
                "A run is identified by its layers, code, data and options, not by initial weights; for a "
                "DataLoader, up to 256 samples are compared. To train again, pass again=True or another seed",
                stacklevel=2,
            )
        known = found.result.environment.get("metrics_sha256")
        if net is not None and metrics_code(config.model) != known:
            return reevaluate(store, config.id, device, None if data_dir is None else Path(data_dir)).result
        return found.result
    shown = report is None if progress is None else progress
    asked = stop_on_signals(signal.SIGINT) if stopping is None else nullcontext(stopping)
    with in_place, training_progress([1.0], quiet=not shown) as show, asked as stop:
        options = RunOptions(
            device=device,
            data_dir=None if data_dir is None else Path(data_dir),
            report=_both(report, show) if shown else report or show,
            stopping=stop,
            checkpoint_seconds=checkpoint_seconds,
            callbacks=callbacks,
            graph=graph,
        )
        if (note := changed_code(config, store)) is not None:
            options.report(Progress(1, 0, config.epochs, None, None, note))
        try:
            (result,) = run_local([[config]], store, options)
        except Interrupted as error:
            if stopping is not None:
                raise
            raise KeyboardInterrupt(
                f"{error.where}; everything is saved, and the same call resumes training"
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


def user_config(
    net: nn.Module,
    train: Any,
    test: Any,
    *,
    loss: str | Callable[..., Any] = "cross-entropy",
    readout: str | Callable[..., Any] | None = "mean",
    metrics: Mapping[str, Callable[..., Any]] | None = None,
    validation: Any = 0.0,
    keep_best: str | None = None,
    callbacks: Sequence[Callback] = (),
    events: bool = False,
    workers: int = 0,
    **options: Any,
) -> RunConfig:
    """Return the config for training the user's own network on their own data, and register both.

    Args:
        net: a network with ultralif neurons; it is trained in place.
        train: the training set; see `ultralif.data.register_data`.
        test: the test set, in the same form.
        loss: ``cross-entropy``, ``mse``, ``bce``, ``tet`` or ``rate-mse``, or a function of scores and
            targets. It must also accept ``mask`` if there are targets over time and samples differ in length.
        readout: turns outputs ``[T, B, ...]`` into scores ``[B, ...]``: ``mean``, ``last``, ``max`` or
            ``leaky``, or a function of outputs, which must also accept ``mask`` if samples differ in length.
            None: targets are ``[N, T, ...]``, and the loss is computed at every step.
        metrics: functions of scores and targets, by name, evaluated on the whole test and validation sets.
        validation: a validation set in the same form as ``train``; or, for tensors, the share of ``train`` to
            hold out.
        keep_best: keep the parameters of the best epoch on the validation set, judged by ``loss``,
            ``accuracy``, or a metric preceded by ``min`` or ``max``, such as ``min smape``.
        callbacks: the callbacks; any that can end training affect the run's name.
        events: whether samples have a time axis, ``[N, T, ...]``.
        workers: the number of processes that read a Dataset.
        options: fields of `RunConfig`, such as epochs and timesteps.
    """
    known = [each.name for each in fields(RunConfig) if each.name not in _OF_LIBRARY]
    for name in options:
        if name not in known:
            near = similar(name, known)
            hint = f"did you mean {near}?" if near else f"choose from {', '.join(known)}"
            raise InputError(f"{name} is not an option for your own network; {hint}")
    share = isinstance(validation, int | float)
    task = Task(
        find_loss(loss),
        None if readout is None else find_readout(readout),
        dict(metrics or {}),
        keep_best,
    )
    has_set = not share or validation > 0
    monitors = keep_best, *(one.monitor for one in callbacks if isinstance(one, EarlyStopping))
    for monitor in monitors:
        if monitor is not None:
            measured = ["validation", "validation_loss", *(f"validation_{name}" for name in task.metrics)]
            cost(monitor, dict.fromkeys(measured[not task.has_classes :] if has_set else (), 0.0))
    if keep_best and any(options.get(name) for name in ("hard_epochs", "hard_share", "anneal")):
        raise InputError(
            "keep_best needs the same mode in every epoch; leave out hard_epochs, hard_share and anneal"
        )
    for each in neurons_of(net):
        register(type(each))
    size = getattr(train, "batch_size", None)  # of a DataLoader
    if isinstance(size, int) and options.setdefault("batch_size", size) != size:
        raise InputError(
            f"batch_size is {options['batch_size']}, but train is a DataLoader with batches of {size}"
        )
    dataset = register_data(
        train,
        test,
        events=events,
        validation=None if share else validation,
        has_classes=task.has_classes or task.readout is None,
        timed=task.readout is None,
        batch_size=options.get("batch_size", 128),
        workers=workers,
    )
    if events:
        options.setdefault("timesteps", DATASETS[dataset].timesteps)
    if share:
        options["validation"] = float(validation)
    if options.get("mode") is not None:
        set_mode(net, options["mode"])
    if task.loss is tet:
        options["loss"] = "tet"
    stops = [
        repr(one) if isinstance(one, EarlyStopping) else code_of(type(one))
        for one in callbacks
        if isinstance(one, EarlyStopping) or not type(one).__module__.startswith("ultralif.")
    ]
    chosen_by = {str(monitor).rpartition(" ")[2] for monitor in monitors} & task.metrics.keys()
    stops += [code_of(task.metrics[name]) for name in sorted(chosen_by)]
    model = add_model(lambda: net, task, kept=" ".join(stops))
    options.setdefault("encoding", default_encoding(model))
    neuron = type(neurons_of(net)[0]).__name__
    return RunConfig(dataset=dataset, model=model, neuron=neuron, **options)
