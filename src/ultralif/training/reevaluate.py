"""A finished run on its test set once more."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from ultralif.nn import Stack
from ultralif.training.api import restore
from ultralif.training.build import load_data, pick_device
from ultralif.training.evaluate import evaluate
from ultralif.training.store import Store

__all__ = ["reevaluate"]


def reevaluate(
    store: Store, run: str, device: str = "auto", data_dir: Path | None = None, *, compare: bool = False
) -> dict[str, Any]:
    """Return what a trained network does on its test set now."""
    config, result, _, contents = store.read(run)
    place = pick_device(device)
    data = load_data(config, place, data_dir)
    stack = Stack([restore(contents)]).to(place)
    (found,) = evaluate(stack, [config], data)
    kept = {
        name: result[name] for name in ("id", "dataset", "neuron", "timesteps", "seed", "eps", "leak", "path")
    }
    return {**kept, **asdict(found)}
