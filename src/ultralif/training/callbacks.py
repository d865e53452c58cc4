"""Callbacks run after every epoch, for example to log or to stop early."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from ultralif.errors import InputError, need
from ultralif.training.store import Store

if TYPE_CHECKING:
    from torch import nn

    from ultralif.training.config import RunConfig

__all__ = ["EarlyStopping", "EpochState", "TensorBoard", "WandB", "cost", "write_history"]


class EpochState(NamedTuple):
    """The state of training after an epoch."""

    epoch: int
    """The epoch's number, counted from 1."""
    epochs: int
    history: Sequence[Mapping[str, float | None]]
    """The quantities measured in each epoch so far."""
    net: "nn.Module"
    config: "RunConfig"

    @property
    def metrics(self) -> dict[str, float]:
        """The quantities measured in this epoch: training loss and accuracy, spike rates and constants.

        With a validation set, they include ``validation`` (its accuracy), ``validation_loss`` and
        ``validation_<metric>``.
        """
        return {name: value for name, value in self.history[-1].items() if value is not None}


def cost(monitor: str, epoch: Mapping[str, float | None]) -> float:
    """Return a validation quantity as a cost, so that smaller is better.

    Args:
        monitor: ``loss``, ``accuracy``, or a metric preceded by ``min`` or ``max``, such as ``min smape``.
        epoch: the quantities measured in one epoch.

    Example:
        >>> cost("max f1", {"validation_f1": 0.5}), cost("loss", {"validation_loss": 2.0})
        (-0.5, 2.0)
    """
    sense, _, name = monitor.rpartition(" ")
    sense = sense or {"loss": "min", "accuracy": "max"}.get(name, "")
    if sense not in ("min", "max"):
        raise InputError(
            f"{monitor!r} must be loss, accuracy, or a metric such as 'min {name}' or 'max {name}'"
        )
    key = "validation" if name == "accuracy" else f"validation_{name}"
    if key not in epoch:
        known = [one.removeprefix("validation_") for one in epoch if one.startswith("validation")]
        known = ["accuracy" if one == "validation" else one for one in known]
        raise InputError(
            f"{name!r} is not measured on a validation set ({', '.join(known) or 'none is given'}); pass "
            "validation= and metrics= to ul.train"
        )
    value = epoch[key]
    if value is None or math.isnan(value):
        return math.inf
    return value if sense == "min" else -value


@dataclass(frozen=True)
class EarlyStopping:
    """Stop training when a validation quantity has not improved for several epochs."""

    monitor: str = "loss"
    """``loss``, ``accuracy``, or a metric preceded by ``min`` or ``max``, such as ``min smape``."""
    patience: int = 5
    """Number of epochs to wait for an improvement."""

    def on_epoch_end(self, state: EpochState) -> bool:
        """Return True if the last improvement was too long ago."""
        costs = [cost(self.monitor, epoch) for epoch in state.history]
        return len(costs) - 1 - costs.index(min(costs)) >= self.patience


class TensorBoard:
    """Write each epoch's measurements to TensorBoard during training."""

    def __init__(self, folder: str | Path = "tensorboard") -> None:
        need("tensorboard", "tensorboard")
        from torch.utils.tensorboard import SummaryWriter

        self.folder, self.make = Path(folder), SummaryWriter

    def on_epoch_end(self, state: EpochState) -> None:
        """Write the measurements of the last epoch."""
        with self.make(str(self.folder / state.config.id)) as writer:
            for name, value in state.metrics.items():
                writer.add_scalar(name, value, state.epoch)


class WandB:
    """Log each epoch's measurements to Weights & Biases, in a run of the same name."""

    _open: ClassVar[tuple[str, Any] | None] = None
    """The name and object of a run left open because training stopped early."""

    def __init__(self, **options: Any) -> None:
        """Accept the arguments of ``wandb.init``, such as ``project``."""
        self.wandb, self.options = need("wandb", "wandb"), options

    def on_epoch_end(self, state: EpochState) -> None:
        """Log an epoch; the first one starts the run."""
        run: Any
        name, run = WandB._open or ("", None)
        if name != state.config.id:
            if run is not None:
                run.finish()
            given = {"id": state.config.id, "resume": "allow", "config": state.config.settings()}
            run = self.wandb.init(**{**given, **self.options})
            WandB._open = state.config.id, run
        run.log(state.metrics, step=state.epoch)
        if state.epoch == state.epochs:
            run.finish()
            WandB._open = None


def write_history(folder: Path, store: Store, run: str) -> None:
    """Write a finished run to TensorBoard: its history and its accuracy on the test set."""
    config, _, result, history = store.read(run)
    need("tensorboard", "tensorboard")
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(folder / run)) as writer:
        for epoch, values in enumerate(history, start=1):
            for name, value in values.items():
                if value is not None:
                    writer.add_scalar(f"train/{name}", value, epoch)
        for mode, accuracy in result.accuracy.items():
            if accuracy is not None:
                writer.add_scalar(f"test/accuracy_{mode}", accuracy, config.epochs)
