"""Configs of runs with the user's own network or data."""

from dataclasses import fields
from typing import Any

from torch import nn

from ultralif.data.user_data import register_data
from ultralif.errors import InputError
from ultralif.names import similar
from ultralif.nn import register, set_mode
from ultralif.training.build import add_model, default_encoding
from ultralif.training.config import RunConfig
from ultralif.training.single import neurons_of

__all__ = ["own_config"]

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
    from ultralif.data import DATASETS

    return DATASETS[dataset].timesteps
