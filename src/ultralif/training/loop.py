"""The training of a stack, from its first step or from where it was stopped, to results in the store."""

import contextlib
import fcntl
import hashlib
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch

from ultralif.errors import JobError
from ultralif.training.build import load_data, pick_device
from ultralif.training.config import RunConfig
from ultralif.training.job import Job, Progress, eager_steps, finish
from ultralif.training.result import Result
from ultralif.training.store import Store

__all__ = ["Interrupted", "Progress", "stack_id", "train_stack"]

SMALL = 20_000_000
"""Multiplications of a hidden layer in one step below which one thread is as fast as two."""


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
    place = pick_device(device)
    folder = store.checkpoints(stack_id(configs))
    with _locked(folder), _few_threads(configs, place.type), _matmul_precision(configs[0]):
        data = load_data(configs[0], place, data_dir)
        job = Job.begin(configs, data, place)
        for note in job.resume(folder):
            report(job.progress(note))
        _train(job, folder, report, stopping, checkpoint_seconds)
        results = finish(job, store)
        shutil.rmtree(folder, ignore_errors=True)
    return results


def _train(job: Job, folder: Path, report: Report, stopping: Stopping, checkpoint_seconds: float) -> None:
    """Run all epochs that are left; save now and then, and when asked to stop."""
    run = _steps(job)
    saved = time.monotonic()
    while job.epoch < job.shared.epochs:
        job.prepare_epoch()
        began = time.monotonic()
        for _ in run(job):
            now = time.monotonic()
            job.seconds += now - began
            began = now
            code = stopping()
            if code or now - saved > checkpoint_seconds:
                job.save(folder)
                saved = now = time.monotonic()
            if code:
                raise Interrupted(_stopped(job), code)
        for note in job.close_epoch():
            report(job.progress(note))
        report(job.progress())


def _steps(job: Job) -> Callable[[Job], Iterator[int]]:
    """Return how an epoch is run: recorded and replayed on a GPU, one call at a time elsewhere."""
    if job.device.type == "cuda" and job.shared.encoding != "constant" and job.shared.precision != "float64":
        from ultralif.training.graph import graph_steps

        return graph_steps(job)
    return eager_steps(job)


@contextlib.contextmanager
def _few_threads(configs: Sequence[RunConfig], device: str) -> Iterator[None]:
    """Use one thread for small networks: a second would only wait, above all on a busy machine."""
    shared = configs[0]
    work = len(configs) * shared.timesteps * shared.batch_size * max(shared.hidden) ** 2
    before = torch.get_num_threads()
    if device == "cpu" and work < SMALL:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextlib.contextmanager
def _matmul_precision(shared: RunConfig) -> Iterator[None]:
    """Let matrix products round their inputs to TF32 where the config says so."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if shared.precision == "tf32" else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def _stopped(job: Job) -> str:
    return (
        f"stopped in epoch {job.epoch + 1} of {job.shared.epochs}; everything is saved. The same command "
        "goes on from there"
    )


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Let one process at a time train a stack."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        file = (folder.parent / f"{folder.name}.lock").open("a+")
    except OSError as error:
        raise JobError(
            f"{folder} cannot be used for checkpoints ({error.strerror}); choose another with --runs-dir"
        ) from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.seek(0)
            raise JobError(
                f"this run is being trained by process {file.read().strip() or 'another'}; wait for its end"
            ) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield
    Path(file.name).unlink(missing_ok=True)
