"""Training steps on a GPU, recorded once and replayed: the batch, the loss, its gradient and Adam.

A step of a small network is many short kernels; launching them one by one would take longer than they do.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from ultralif.data.device import DeviceBatches
from ultralif.functional import Mode
from ultralif.training.feed import make_loaders
from ultralif.training.job import Job
from ultralif.training.loop import prepare_step, train_step
from ultralif.training.schedule import epoch_mode

__all__ = ["graph_steps"]


def graph_steps(job: Job) -> Callable[[Job], Iterator[int]]:
    """Return a function that trains to the end of the running epoch by replaying recorded steps."""
    recorder = _Recorder(job)

    def run(job: Job) -> Iterator[int]:
        steps, batch, mode = recorder.steps, job.shared.batch_size, epoch_mode(job.shared, job.epoch)
        for batches in recorder.batches:
            batches.begin(job.epoch, job.step)
        while job.step < steps:
            left = len(job.data.train) - job.step * batch
            prepare_step(job)
            recorder.graph(mode, min(batch, left)).replay()
            job.step += 1
            yield job.step

    return run


class _Recorder:
    """Records a step for each mode and batch size when it is first needed."""

    def __init__(self, job: Job) -> None:
        self.job = job
        loaders = make_loaders(job.members, job.configs, job.data, job.data.train, training=True)
        self.steps = loaders[0].steps
        self.batches = [DeviceBatches(loader, binary=job.shared.binary_events) for loader in loaders]
        self.graphs: dict[tuple[Mode | None, int], torch.cuda.CUDAGraph] = {}
        self.kept: list[Tensor] = []  # what recorded steps read and write must not be freed

    def graph(self, mode: Mode | None, batch: int) -> torch.cuda.CUDAGraph:
        """Return the recorded step."""
        if (mode, batch) not in self.graphs:
            before = self._state()
            self.graphs[mode, batch] = self._record(mode, batch)
            self._restore(before)
        return self.graphs[mode, batch]

    def _record(self, mode: Mode | None, batch: int) -> torch.cuda.CUDAGraph:
        job = self.job
        size = job.data.sizes[0]
        x = torch.empty(len(self.batches), job.shared.timesteps, batch, size, device=job.device)
        labels = torch.empty(len(self.batches), batch, dtype=torch.int64, device=job.device)
        self.kept += [x, labels]

        def step() -> None:
            for place, batches in enumerate(self.batches):
                batches.fill(x[place], labels[place])
            train_step(job, x if len(x) > 1 else x[0], labels, mode)

        make_stream: Callable[..., Any] = torch.cuda.Stream
        stream = make_stream(job.device)
        stream.wait_stream(torch.cuda.current_stream(job.device))
        with torch.cuda.stream(stream):
            for _ in range(2):  # compile kernels outside of the record
                for batches in self.batches:
                    batches.position.zero_()
                step()
        torch.cuda.current_stream(job.device).wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        return graph

    def _tensors(self) -> list[Tensor]:
        """Return all that a step changes."""
        parameters = [p.detach() for _, p in self.job.members.named_parameters()]
        positions = [batches.position for batches in self.batches]
        return [*parameters, self.job.sums, *positions, *self.job.optimizer.tensors().values()]

    def _state(self) -> list[Tensor]:
        return [tensor.clone() for tensor in self._tensors()]

    def _restore(self, before: list[Tensor]) -> None:
        """Undo what recording did."""
        for tensor, value in zip(self._tensors(), before, strict=True):
            tensor.copy_(value)
