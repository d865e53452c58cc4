"""The numbers printed in the paper, as data."""

import json
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

__all__ = [
    "BASELINES",
    "DATASETS",
    "LAMBDAS",
    "TIMESTEPS",
    "ULTRA",
    "Row",
    "ablation",
    "accuracy",
    "efficiency_rows",
    "final_eps",
    "sparsity_rows",
]

ULTRA = ("UltraLIF", "UltraPLIF", "UltraDLIF", "UltraDPLIF")
"""The paper's own neurons."""
BASELINES = ("LIF", "PLIF", "AdaLIF", "FullPLIF", "DSpike", "DSpikePlus")
"""The paper's baseline neurons."""
DATASETS = ("mnist", "fashion-mnist", "cifar10", "n-mnist", "dvs-gesture", "shd")
TIMESTEPS = (1, 10, 30)
LAMBDAS = (0.0, 0.01, 0.1)


class Row(NamedTuple):
    """A row in the sparsity and efficiency tables."""

    neuron: str
    timesteps: int
    sparsity: float
    accuracy: float
    spike_rate: float
    energy: float


@cache
def _data() -> Any:
    return json.loads(Path(__file__).with_name("published.json").read_text())


def accuracy(dataset: str, neuron: str, timesteps: int) -> float:
    """Return a cell of an accuracy table, in percent.

    Example:
        >>> accuracy("n-mnist", "UltraDLIF", 1)
        94.14
    """
    return float(_data()["accuracy"][dataset][neuron][str(timesteps)])


def sparsity_rows(dataset: str) -> list[Row]:
    """Return the sparsity table of a dataset."""
    return [_row(row) for row in _data()["sparsity"][dataset]]


def efficiency_rows(dataset: str) -> list[Row]:
    """Return the efficiency table of CIFAR-10 or MNIST."""
    return [_row(row) for row in _data()["efficiency"][dataset]]


def ablation(quantity: str, neuron: str, eps: float | None) -> float:
    """Return a cell of the temperature ablation on MNIST at T=1.

    Args:
        quantity: ``accuracy`` or ``spike_rate``.
        neuron: one of the Ultra neurons.
        eps: the fixed temperature; None means a learned one.
    """
    return float(_data()["eps_ablation"][quantity][neuron]["learned" if eps is None else f"{eps:.1f}"])


def final_eps(neuron: str) -> float:
    """Return the final value of a neuron's learned temperature in the paper."""
    return float(_data()["eps_ablation"]["final_eps"][neuron])


def _row(row: dict[str, Any]) -> Row:
    values = (row["accuracy"], row["spike_rate"], row["energy"])
    return Row(row["model"], int(row["T"]), float(row["lambda"]), *map(float, values))
