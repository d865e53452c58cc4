"""Run the stacks of a plan, one after another on this machine."""

from collections.abc import Iterator, Sequence

from ultralif.errors import JobError, is_out_of_memory
from ultralif.training.config import RunConfig
from ultralif.training.loop import train_stack
from ultralif.training.options import Progress, RunOptions
from ultralif.training.result import Result
from ultralif.training.store import Store
from ultralif.training.sweep import halves

__all__ = ["run_local"]


def run_local(
    stacks: Sequence[Sequence[RunConfig]],
    store: Store,
    options: RunOptions | None = None,
) -> Iterator[Result]:
    """Train stacks one after another and yield the results; one that does not fit the device is halved.

    Args:
        stacks: see `ultralif.training.plan`.
        store: where the runs go.
        options: device, folder of the data, progress, checkpoints; None, the defaults.
    """
    options = options or RunOptions()
    waiting = [(number, list(stack)) for number, stack in enumerate(stacks)]
    while waiting:
        number, stack = waiting.pop(0)
        try:
            yield from train_stack(stack, store, options.numbered(number))
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            if len(stack) == 1:
                raise JobError(
                    f"{stack[0].neuron} ({stack[0].id}) does not fit the device; choose a smaller "
                    "batch_size, hidden or timesteps, or device cpu"
                ) from error
            note = f"{len(stack)} networks do not fit the device together; they are trained in two halves"
            options.report(Progress(len(stack), 0, stack[0].epochs, None, None, note, number))
            waiting[:0] = [(number, half) for half in halves(stack)]
