"""A trained network on its test set once more."""

from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from ultralif.training.api import load, restore
from ultralif.training.build import step_work
from ultralif.training.config import RunConfig
from ultralif.training.device import arithmetic, pick_device
from ultralif.training.evaluate import evaluate
from ultralif.training.feed import EVALUATION, inputs, load_data, make_loader
from ultralif.training.job import make_members
from ultralif.training.single import neurons_of
from ultralif.training.store import Store
from ultralif.training.zoo import cards, read_model

__all__ = ["reevaluate", "reevaluate_model"]

Compare = Callable[[nn.Module, Iterable[tuple[Tensor, Tensor]]], dict[str, Any]]

_NAMED = ("dataset", "neuron", "timesteps", "seed", "sparsity", "epochs")


def reevaluate(
    store: Store,
    run: str,
    device: str = "auto",
    data_dir: Path | None = None,
    *,
    compare: Compare | None = None,
) -> dict[str, Any]:
    """Return a run's result with what its network does on the test set now.

    Args:
        store: where the run is.
        run: its name, or the beginning of it.
        device: ``auto``, ``cpu``, ``cuda`` ...
        data_dir: searched first for the data.
        compare: called with the network and the batches of the test set; its answer goes under ``gap``.
    """
    config, contents, result, _ = store.read(run)
    return {**result, **_again(restore(contents), config, device, data_dir, compare)}


def reevaluate_model(
    name: str, device: str = "auto", data_dir: Path | None = None, *, compare: Compare | None = None
) -> dict[str, Any]:
    """Return for a network that comes with the library what `reevaluate` returns for a run."""
    config, _ = read_model(name)
    network, card = load(name), cards()[name]
    return {
        **{field: getattr(config, field) for field in _NAMED},
        "id": card["run"],
        "mode": neurons_of(network)[0].mode,
        "eps": card["eps"],
        "leak": card["leak"],
        "validation": None,
        "status": "done",
        "path": name,
        **_again(network, config, device, data_dir, compare),
    }


def _again(
    network: nn.Module, config: RunConfig, device: str, data_dir: Path | None, compare: Compare | None
) -> dict[str, Any]:
    place = pick_device(device)
    data = load_data(config, place, data_dir)
    with arithmetic(place, config.precision, step_work([config])):
        (found,) = evaluate(make_members([config], [network], place, data), [config], data)
        again = asdict(found)
        if compare is not None:
            batches = make_loader(config, data, data.dataset.test, training=False).epoch(EVALUATION)
            again["gap"] = compare(network, ((inputs(x, config), labels) for x, labels in batches))
    return again
