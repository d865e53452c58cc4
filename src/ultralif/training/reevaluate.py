"""Evaluation of a stored network on its test set again."""

import warnings
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ultralif.errors import DataWarning, InputError
from ultralif.training.api import find_run, restore
from ultralif.training.build import step_work
from ultralif.training.config import RunConfig
from ultralif.training.device import arithmetic, pick_device
from ultralif.training.evaluate import evaluate
from ultralif.training.feed import EVALUATION, Data, inputs, load_data, make_loader
from ultralif.training.job import make_members
from ultralif.training.members import Members
from ultralif.training.record import by_mode
from ultralif.training.result import Result
from ultralif.training.single import neurons_of
from ultralif.training.store import Store
from ultralif.training.zoo import cards, read_model

__all__ = ["Reevaluated", "reevaluate", "reevaluate_model"]

Compare = Callable[[nn.Module, Iterable[tuple[Tensor, Tensor]]], dict[str, Any]]


class Reevaluated(NamedTuple):
    """A result with new numbers, and the differences between modes if they were compared."""

    result: Result
    gap: dict[str, Any]


def reevaluate(
    store: Store,
    run: str,
    device: str = "auto",
    data_dir: Path | None = None,
    *,
    compare: Compare | None = None,
) -> Reevaluated:
    """Evaluate a run's network on its test set again, and return the result with the new numbers.

    Args:
        store: where the run is.
        run: its name, or the beginning of it.
        device: ``auto``, ``cpu``, ``cuda`` ...
        data_dir: searched first for the data.
        compare: called with the network and the batches of the test set; it returns the ``gap``.
    """
    found = store.read(run)
    return _again(found.result, restore(found), found.config, device, data_dir, compare)


def reevaluate_model(
    name: str, device: str = "auto", data_dir: Path | None = None, *, compare: Compare | None = None
) -> Reevaluated:
    """Do the same as `reevaluate` for a network that comes with the library."""
    config, _ = read_model(name)
    network, card = find_run(name).network, cards()[name]
    known = {field: getattr(config, field) for field in _NAMED}
    known |= {"id": card["run"], "mode": neurons_of(network)[0].mode, "status": "done", "path": name}
    result = Result.from_dict(
        {**known, "eps": card.get("eps"), "leak": card.get("leak")}, f"the card of {name}"
    )
    return _again(replace(result, config=config.to_dict()), network, config, device, data_dir, compare)


_NAMED = ("dataset", "neuron", "timesteps", "seed", "sparsity", "epochs")


def _again(
    result: Result,
    network: nn.Module,
    config: RunConfig,
    device: str,
    data_dir: Path | None,
    compare: Compare | None,
) -> Reevaluated:
    place = pick_device(device)
    data = load_data(config, place, data_dir)
    trained_on = result.environment.get("data_sha256")
    if trained_on not in (None, data.dataset.checksum):
        warnings.warn(
            f"run {result.id} was trained on other data than these {config.dataset} (SHA-256 "
            f"{str(trained_on)[:12]}, now {data.dataset.checksum[:12]}), so its numbers cannot be compared",
            DataWarning,
            stacklevel=3,
        )
    gap: dict[str, Any] = {}
    with arithmetic(place, config.precision, step_work([config])):
        members = make_members([config], [network], place, data)
        _check_decisions(members, config, data, result.id)
        (found,) = evaluate(members, [config], data)
        if compare is not None:
            batches = make_loader(config, data, data.dataset.test, training=False).epoch(EVALUATION)
            images = config.encoding == "direct" and not data.dataset.test.is_events
            taken = ((inputs(x, config), labels) for x, labels in batches)
            gap = compare(network, ((x[0] if images else x, labels) for x, labels in taken))
    known = result.by_mode
    modes = {
        mode: replace(one, validation=known[mode].validation if mode in known else None)
        for mode, one in by_mode(found).items()
    }
    ann = found.energy["ann_picojoules"]
    return Reevaluated(replace(result, by_mode=modes, ann_picojoules=ann), gap)


@torch.no_grad()
def _check_decisions(members: Members, config: RunConfig, data: Data, run: str) -> None:
    """Refuse scores that are not finite, and warn of a network that gives every sample the same class."""
    loader = make_loader(config, data, data.dataset.test, training=False)
    x, labels = next(loader.epoch(EVALUATION))
    logits = members(inputs(x, config), None).logits
    if not bool(torch.isfinite(logits).all()):
        raise InputError(f"the scores of run {run} are NaN or infinite; train it again")
    decided = logits.argmax(-1)
    if (
        len(labels) >= 32
        and bool((decided == decided.flatten()[0]).all())
        and int(labels.min()) != int(labels.max())
    ):
        warnings.warn(
            f"run {run} gives all of the first {len(labels)} test samples the class "
            f"{int(decided.flatten()[0])}, so it has learned nothing; check the data, or train it longer",
            DataWarning,
            stacklevel=4,
        )
