"""What a finished run says, and the network it left."""

import platform
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ultralif import __version__
from ultralif.training.config import RunConfig
from ultralif.training.evaluate import Evaluation
from ultralif.training.schedule import hard_epochs
from ultralif.training.single import neurons_of

__all__ = ["Result", "environment", "make_result"]


@dataclass(frozen=True)
class Result:
    """A run's numbers: those of its last epoch, never of its best."""

    id: str
    status: str
    """``done``, or ``diverged`` if the loss became NaN or infinite."""
    dataset: str
    neuron: str
    timesteps: int
    seed: int
    sparsity: float
    mode: str
    """How spikes were computed at the end of training: what to look at first in what follows."""
    accuracy: dict[str, float]
    """Percent of the test set, by mode."""
    spike_rate: dict[str, float]
    """Mean over the hidden neurons, by mode."""
    spike_rates: dict[str, list[float]]
    """The same for each spiking layer."""
    energy: dict[str, Any]
    eps: float | None
    leak: float | None
    path: str
    validation: dict[str, float] | None = None
    """Accuracy on the held-out part, by mode."""
    epochs: int = 0
    """How many made its parameters."""
    seconds: float = 0.0
    """Wall time of the stack that it was trained in."""
    stacked: int = 1
    """Members of that stack."""
    finished: float = 0.0
    environment: dict[str, Any] = field(default_factory=dict)
    """Code, device, precision and data that made it."""

    def to_dict(self) -> dict[str, Any]:
        """Return the fields, ready for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Result":
        """Read what `to_dict` wrote."""
        return cls(**data)


def environment(device: torch.device, precision: str, checksum: str) -> dict[str, Any]:
    """Return which code, device, precision and data make a result."""
    return {
        "ultralif": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine(),
        "precision": precision,
        "threads": torch.get_num_threads(),
        "data_sha256": checksum,
    }


def make_result(
    config: RunConfig,
    network: nn.Module,
    path: Path,
    evaluation: Evaluation,
    validation: Evaluation | None,
    **rest: Any,
) -> Result:
    """Put together what a run says."""
    neuron = neurons_of(network)[0]
    names = neuron.declared()
    return Result(
        id=config.id,
        dataset=config.dataset,
        neuron=config.neuron,
        timesteps=config.timesteps,
        seed=config.seed,
        sparsity=config.sparsity,
        mode="hard" if hard_epochs(config) else neuron.mode,
        accuracy=evaluation.accuracy,
        spike_rate=evaluation.spike_rate,
        spike_rates=evaluation.spike_rates,
        energy=evaluation.energy,
        eps=_mean(neuron.constant("eps")) if "eps" in names else None,
        leak=_mean(neuron.constant("leak")) if "leak" in names else None,
        path=str(path),
        validation=None if validation is None else validation.accuracy,
        finished=time.time(),
        **rest,
    )


def _mean(value: float | Tensor) -> float:
    return float(value.detach().double().mean()) if isinstance(value, Tensor) else float(value)
