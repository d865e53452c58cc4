"""Export of a run's history to TensorBoard."""

from pathlib import Path

from ultralif.errors import need
from ultralif.training.store import Store

__all__ = ["write_history"]


def write_history(folder: Path, store: Store, run: str) -> None:
    """Write loss, accuracy, spike rate, temperature and leak of every epoch, and the final numbers."""
    config, _, result, history = store.read(run)
    need("tensorboard", "tensorboard")
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(folder / run)) as writer:
        for epoch, values in enumerate(history, start=1):
            for name, value in values.items():
                if value is not None:
                    writer.add_scalar(f"train/{name}", value, epoch)
        for mode, value in result.accuracy.items():
            writer.add_scalar(f"test/accuracy_{mode}", value, config.epochs)
