"""Runs that take a moment: what the tests of training share."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ultralif import RunConfig
from ultralif.training import Progress, Store
from ultralif.training.config import NEURON_NAMES

SMALL = RunConfig(timesteps=2, hidden=(6,), epochs=2, batch_size=512, precision="float64")
"""Three steps an epoch."""


def small(**changes: Any) -> RunConfig:
    return SMALL.with_(**changes)


def mixed(**changes: Any) -> list[RunConfig]:
    """Return a run with each neuron, and some with what else a member may have for itself."""
    extras: list[dict[str, Any]] = [
        {"sparsity": 0.1},
        {"neuron": "UltraDLIF", "sparsity": 0.01, "volume_reg": 0.01},
        {"neuron": "UltraPLIF", "eps_speed": 10.0, "eps": 0.5},
        {"neuron": "UltraLIF", "anneal": (2.0, 0.2), "orthogonal": True},
        {"neuron": "UltraDPLIF", "mode": "hard"},
        {"neuron": "LIF", "surrogate_slope": 1.0, "learn_slope": True},
    ]
    return [small(**changes, neuron=name) for name in NEURON_NAMES] + [
        small(**changes, **extra) for extra in extras
    ]


def files(store: Store, config: RunConfig) -> tuple[bytes, bytes]:
    """Return the bytes of a run that must be the same however it came about."""
    folder = store.path(config.id)
    return (folder / "model.safetensors").read_bytes(), (folder / "history.json").read_bytes()


def known(values: dict[str, Any]) -> dict[str, Any]:
    """Leave out what a neuron does not have."""
    return {name: value for name, value in values.items() if value is not None}


def notes(into: list[str]) -> Callable[[Progress], None]:
    """Return a report that keeps what a person should know."""

    def report(progress: Progress) -> None:
        if progress.note:
            into.append(progress.note)

    return report


def stop_after(steps: int, code: int = 130) -> Callable[[], int]:
    """Return a ``stopping`` that asks for the end after so many steps."""
    left = steps

    def asked() -> int:
        nonlocal left
        left -= 1
        return code if left <= 0 else 0

    return asked


def checkpoints(store: Store) -> list[Path]:
    """Return the checkpoints of the only stack that is in training, oldest first."""
    return sorted((store.root / ".training").glob("*/[0-9]*"))
