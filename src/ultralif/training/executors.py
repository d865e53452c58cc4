"""Run the stacks of a plan, one after another on this machine."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import torch

from ultralif.errors import JobError
from ultralif.training.config import RunConfig
from ultralif.training.loop import Progress, train_stack
from ultralif.training.result import Result
from ultralif.training.store import Store
from ultralif.training.sweep import halves

__all__ = ["is_out_of_memory", "run_local"]


def is_out_of_memory(error: Exception) -> bool:
    """Tell whether memory ran out; torch has an error of its own for GPUs, and only a text for CPUs."""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or "DefaultCPUAllocator" in str(error)


def run_local(
    stacks: Sequence[Sequence[RunConfig]],
    store: Store,
    *,
    device: str = "auto",
    data_dir: Path | None = None,
    report: Callable[[int, Progress], None] = lambda stack, progress: None,
    stopping: Callable[[], int] = lambda: 0,
    checkpoint_seconds: float = 60.0,
) -> Iterator[Result]:
    """Train stacks one after another and yield the results; one that does not fit the device is halved.

    Args:
        stacks: see `ultralif.training.plan`.
        store: where the runs go.
        device: ``auto``, ``cpu``, ``cuda`` ...
        data_dir: searched first for the data.
        report: is told the stack's number and its progress.
        stopping: asked after every step whether to stop.
        checkpoint_seconds: how much work may be lost at most.
    """
    waiting = [(number, list(stack)) for number, stack in enumerate(stacks)]
    while waiting:
        number, stack = waiting.pop(0)
        try:
            yield from train_stack(
                stack,
                store,
                device=device,
                data_dir=data_dir,
                report=partial(report, number),
                stopping=stopping,
                checkpoint_seconds=checkpoint_seconds,
            )
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            if len(stack) == 1:
                raise JobError(
                    f"{stack[0].neuron} ({stack[0].id}) does not fit the device; choose a smaller "
                    "batch_size, hidden or timesteps, or device cpu"
                ) from error
            note = f"{len(stack)} networks do not fit the device together; they are trained in two halves"
            report(number, Progress(len(stack), 0, stack[0].epochs, None, None, note))
            waiting[:0] = [(number, half) for half in halves(stack)]
