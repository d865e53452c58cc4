"""The training of a stack, from its first step or from where it was stopped, to results in the store."""

import hashlib
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from ultralif.errors import InputError, JobError
from ultralif.training.build import build_networks, load_data, pick_device
from ultralif.training.config import RunConfig
from ultralif.training.finish import finish
from ultralif.training.job import Job, Progress, eager_steps
from ultralif.training.lock import locked
from ultralif.training.machine import arithmetic
from ultralif.training.result import Result
from ultralif.training.store import Store

__all__ = ["Interrupted", "Progress", "run_epochs", "stack_id", "steps", "train_stack"]


class Interrupted(JobError):
    """Training was asked to stop; everything is saved."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


Report = Callable[[Progress], None]
Stopping = Callable[[], int]
"""Return 0 to go on, or the exit code to stop with."""


def stack_id(configs: Sequence[RunConfig]) -> str:
    """Return the name under which a stack keeps its checkpoints."""
    return hashlib.sha256(" ".join(sorted(config.id for config in configs)).encode()).hexdigest()[:12]


def train_stack(
    configs: Sequence[RunConfig],
    store: Store,
    *,
    device: str = "auto",
    data_dir: Path | None = None,
    report: Report = lambda progress: None,
    stopping: Stopping = lambda: 0,
    checkpoint_seconds: float = 60.0,
) -> list[Result]:
    """Train networks that share data, order and schedule as one stack, and store their results.

    Args:
        configs: the members; they differ only in what concerns their neurons and penalties.
        store: where the runs go.
        device: ``auto``, ``cpu``, ``cuda`` ...
        data_dir: searched first for the data.
        report: is told about every epoch and every surprise.
        stopping: asked after every step whether to stop.
        checkpoint_seconds: how much work may be lost at most.
    """
    if not checkpoint_seconds >= 0:
        raise InputError(f"checkpoint_seconds must be 0 or more, got {checkpoint_seconds}")
    place = pick_device(device)
    configs = sorted(configs, key=lambda config: config.id)  # a checkpoint has them in this order
    networks = build_networks(configs, place)
    folder = store.checkpoints(stack_id(configs))
    with locked(folder.with_suffix(".lock")), arithmetic(configs, place):
        data = load_data(configs[0], place, data_dir)
        job = Job.begin(configs, networks, data, place)
        for note in job.resume(folder):
            report(job.progress(note))
        run_epochs(job, lambda: job.save(folder), report, stopping, checkpoint_seconds, steps(job))
        results = finish(job, store, folder)
        shutil.rmtree(folder, ignore_errors=True)
    return results


def run_epochs(
    job: Job,
    save: Callable[[], None],
    report: Report,
    stopping: Stopping,
    checkpoint_seconds: float,
    run: Callable[[Job], Iterator[int]],
) -> None:
    """Run all epochs that are left; save now and then, and when asked to stop.

    Args:
        job: where to begin.
        save: writes a checkpoint.
        report: is told about every epoch.
        stopping: asked after every step.
        checkpoint_seconds: how much work may be lost at most.
        run: trains to the end of the running epoch, see `steps`.
    """
    saved = time.monotonic()
    while not job.is_over:
        job.prepare_epoch()
        began = time.monotonic()
        for _ in run(job):
            now = time.monotonic()
            job.seconds += now - began
            began = now
            code = stopping()
            if code or now - saved > checkpoint_seconds:
                save()
                saved = now = time.monotonic()
            if code:
                raise Interrupted(_stopped(job), code)
        notes = job.close_epoch()
        job.seconds += time.monotonic() - began  # a GPU has done by now what it was given above
        for note in notes:
            report(job.progress(note))
        report(job.progress())


def steps(job: Job) -> Callable[[Job], Iterator[int]]:
    """Return how an epoch is run: recorded and replayed on a GPU, one call at a time elsewhere."""
    if job.device.type == "cuda" and _can_be_recorded(job):
        from ultralif.training.graph import graph_steps

        return graph_steps(job)
    return eager_steps(job)


def _can_be_recorded(job: Job) -> bool:
    """Tell whether a step is kernels alone; the volume penalty's factors are checked by the CPU."""
    shared = job.shared
    return shared.encoding != "constant" and shared.precision != "float64" and not job.penalties.uses_volume


def _stopped(job: Job) -> str:
    return (
        f"stopped in epoch {job.epoch + 1} of {job.shared.epochs}; everything is saved. The same command "
        "goes on from there"
    )
