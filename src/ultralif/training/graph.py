"""Training steps on a GPU, recorded once and replayed: the loss, its gradient and the optimizer's step.

A step consists of many short kernels; launching them one by one takes longer than running them. A stack's
graph also creates its batches; a single network receives them from the loader.
"""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor

from ultralif.data import Loader
from ultralif.data.loader import CROP_AND_FLIP, Augmentation, DeviceBatches
from ultralif.data.split import Events, Images
from ultralif.errors import is_out_of_memory
from ultralif.functional import Mode
from ultralif.stack import Stack
from ultralif.stack.streams import side_by_side
from ultralif.training.batches import Batch, augmentation, batches, make_loaders
from ultralif.training.loop import Job, Steps, prepare_step, seed_draws, train_step
from ultralif.training.schedule import epoch_mode

__all__ = ["can_be_recorded", "graph_steps", "leave_record", "no_garbage_collection"]


def can_be_recorded(job: Job) -> bool:
    """Return whether a step consists only of kernels, with all changing values on the GPU.

    Two features rule this out: the volume penalty, whose factors are checked on the CPU, and annealing in a
    single network, whose temperatures are numbers on the host.
    """
    own = job.data.train.streamed or (job.task is not None and not job.task.is_usual)
    if job.objective.uses_volume or own:
        return False
    return _makes_batches(job) if isinstance(job.members, Stack) else job.shared.anneal is None


def _makes_batches(job: Job) -> bool:
    """Return whether the GPU can create the batches itself, from event counts or from 8-bit images."""
    shared, samples = job.shared, job.data.train.store
    has_bytes = isinstance(samples, Events) or (
        isinstance(samples, Images) and samples.pixels.dtype == torch.uint8
    )
    return (
        has_bytes
        and shared.encoding != "direct"
        and shared.precision != "float64"
        and augmentation(shared) in (CROP_AND_FLIP, Augmentation())
    )


def graph_steps(job: Job, note: Callable[[str], None]) -> Steps:
    """Return a function that trains to the end of the current epoch by replaying recorded steps.

    Args:
        job: the job to train.
        note: called once if a step cannot be recorded, in which case kernels are launched one by one.
    """
    stacked = isinstance(job.members, Stack)
    feed: _Feed = _Made(job) if stacked else _Given(job)
    recorder = _Recorder(job, feed, note)

    def run(job: Job) -> Iterator[int]:
        mode, size = epoch_mode(job.shared, job.epoch), job.shared.batch_size
        feed.begin(job.epoch, job.step)
        while job.step < job.steps:
            batch = min(size, len(job.data.train) - job.step * size)
            prepare_step(job)
            feed.hand_over(batch)
            # For a large network, a separate graph for a smaller last batch is not worthwhile.
            graph = recorder.find(mode, batch) if stacked or batch == size else None
            seed_draws(job, feed.loaders[0])  # after recording, which also draws random numbers
            if graph is None:
                recorder.take(mode, batch)
            else:
                graph.replay()
            job.seen += batch
            job.step += 1
            yield job.step

    return run


class _Feed(Protocol):
    """The batches of an epoch, at a fixed address in memory."""

    loaders: list[Loader]

    def begin(self, epoch: int, step: int) -> None:
        """Start an epoch at the given batch."""

    def hand_over(self, batch: int) -> None:
        """Prepare the next batch, outside a recorded step."""

    def fill(self, batch: int) -> tuple[Tensor, Tensor]:
        """Return inputs and labels of the next batch, inside a recorded step."""

    def advance(self, batch: int) -> None:
        """Advance to the next batch, inside a recorded step."""

    def positions(self) -> list[Tensor]:
        """Return the tensors that `advance` changes."""


class _Made:
    """Batches that the GPU creates within the step."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.loaders = make_loaders(job.members, job.configs, job.data, job.data.train, training=True)
        self.batches = [DeviceBatches(loader, binary=job.shared.binary_events) for loader in self.loaders]
        self.kept: dict[int, tuple[Tensor, Tensor]] = {}

    def begin(self, epoch: int, step: int) -> None:
        for each in self.batches:
            each.begin(epoch, step)

    def hand_over(self, batch: int) -> None:
        if batch in self.kept:
            return
        shape = (len(self.batches), self.job.shared.timesteps, batch, self.job.data.sizes[0])
        self.kept[batch] = (
            torch.empty(shape, device=self.job.device),
            torch.empty(shape[0], batch, dtype=torch.int64, device=self.job.device),
        )

    def fill(self, batch: int) -> tuple[Tensor, Tensor]:
        x, labels = self.kept[batch]
        for place, each in enumerate(self.batches):
            each.fill(x[place], labels[place])
        return x if len(x) > 1 else x[0], labels

    def advance(self, batch: int) -> None:
        for each in self.batches:
            each.advance(batch)

    def positions(self) -> list[Tensor]:
        return [each.position for each in self.batches]


class _Given:
    """Batches from the loader, copied to the memory that the step reads."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.loaders = make_loaders(job.members, job.configs, job.data, job.data.train, training=True)
        self.source: Iterator[Batch] = iter(())
        self.kept: dict[int, tuple[Tensor, Tensor]] = {}

    def begin(self, epoch: int, step: int) -> None:
        self.source = batches(self.loaders, self.job.shared, epoch, step)

    def hand_over(self, batch: int) -> None:
        x, labels, _ = next(self.source)
        if batch not in self.kept:
            self.kept[batch] = x.clone(), labels.clone()
        for place, value in zip(self.kept[batch], (x, labels), strict=True):
            place.copy_(value)

    def fill(self, batch: int) -> tuple[Tensor, Tensor]:
        return self.kept[batch]

    def advance(self, batch: int) -> None:
        pass  # the loader advances by itself

    def positions(self) -> list[Tensor]:
        return []


def leave_record(stream: torch.cuda.Stream) -> None:
    """Abandon a failed recording: switch back to the stream and re-enable random number generation."""
    torch.cuda.set_stream(stream)
    generator: Any = torch.cuda.default_generators[stream.device.index]
    generator.graphsafe_set_state(torch.Generator(stream.device).graphsafe_get_state())


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Collect garbage before the block, not inside it: freeing an older graph would break the recording."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


class _Recorder:
    """Records a step for each mode and batch size when it is first needed."""

    def __init__(self, job: Job, feed: _Feed, note: Callable[[str], None]) -> None:
        self.job, self.feed, self.note = job, feed, note
        self.graphs: dict[tuple[Mode | None, int], torch.cuda.CUDAGraph] = {}
        self.pool: Any = None  # all graphs share this memory, because one is replayed at a time
        self.can_record = True

    def take(self, mode: Mode | None, batch: int) -> None:
        """Run a step, kernel by kernel."""
        given = self.feed.fill(batch)
        with side_by_side(self.job.device) as branch:
            with branch():
                self.feed.advance(batch)
            train_step(self.job, Batch(*given), mode)

    def find(self, mode: Mode | None, batch: int) -> torch.cuda.CUDAGraph | None:
        """Return a step's graph, recording it first if needed; None if that is impossible."""
        if self.can_record and (mode, batch) not in self.graphs:
            self._record(mode, batch)
        return self.graphs[mode, batch] if self.can_record else None

    def _record(self, mode: Mode | None, batch: int) -> None:
        here = torch.cuda.current_stream(self.job.device)
        before = [tensor.clone() for tensor in self._tensors()]
        self._warm_up(mode, batch)
        for tensor, value in zip(self._tensors(), before, strict=True):
            tensor.copy_(value)
        graph = torch.cuda.CUDAGraph()
        self.pool = self.pool or torch.cuda.graph_pool_handle()
        try:
            with no_garbage_collection(), torch.cuda.graph(graph, pool=self.pool):
                self.take(mode, batch)
        except RuntimeError as error:
            leave_record(here)
            if is_out_of_memory(error):
                raise
            self.can_record = False
            reason = str(error).partition("\n")[0]
            self.note(f"steps cannot be recorded as a CUDA graph ({reason}); kernels are launched one by one")
            return
        self.graphs[mode, batch] = graph

    def _warm_up(self, mode: Mode | None, batch: int) -> None:
        """Run throwaway steps on another stream, so that all kernels are compiled."""
        device = self.job.device
        make_stream: Callable[..., Any] = torch.cuda.Stream
        stream = make_stream(device)
        stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(stream):
            for _ in range(2):
                for position in self.feed.positions():
                    position.zero_()
                self.take(mode, batch)
        torch.cuda.current_stream(device).wait_stream(stream)

    def _tensors(self) -> list[Tensor]:
        """Return all tensors that a step changes."""
        job = self.job
        own = [value.detach() for value in job.members.state_dict().values()]
        return [*own, job.sums, *self.feed.positions(), *job.optimizer.tensors().values()]
