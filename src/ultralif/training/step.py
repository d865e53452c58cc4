"""One training step, and how the steps of an epoch are taken: one call at a time, or recorded on a GPU."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from ultralif.data import Loader
from ultralif.functional import Mode
from ultralif.stack.streams import side_by_side
from ultralif.training.feed import batches, inputs, make_loaders
from ultralif.training.job import Job
from ultralif.training.loss import member_losses
from ultralif.training.schedule import changes_within, epoch_mode, learning_rate

__all__ = ["Steps", "eager_steps", "prepare_step", "seed_draws", "steps", "train_step"]

Steps = Callable[[Job], Iterator[int]]
"""Trains a job to the end of its running epoch, and yields after every step."""


def steps(job: Job, note: Callable[[str], None] = lambda text: None, *, graph: bool = True) -> Steps:
    """Return how an epoch is run: recorded and replayed on a GPU, one call at a time elsewhere.

    Args:
        job: what is trained.
        note: is told if steps could not be recorded.
        graph: record them where that is possible.
    """
    if graph and job.device.type == "cuda":
        from ultralif.training.graph import can_be_recorded, graph_steps

        if can_be_recorded(job):
            return graph_steps(job, note)
    return eager_steps(job)


def eager_steps(job: Job) -> Steps:
    """Return a function that trains to the end of the running epoch, step by step."""
    loaders = make_loaders(job.members, job.configs, job.data, job.data.train, training=True)

    def run(job: Job) -> Iterator[int]:
        mode = epoch_mode(job.shared, job.epoch)
        for x, labels in batches(loaders, job.epoch, job.step):
            prepare_step(job)
            seed_draws(job, loaders[0])
            train_step(job, inputs(x, job.shared), labels, mode)
            job.step += 1
            yield job.step

    return run


def prepare_step(job: Job) -> None:
    """Set the learning rate of a step where it changes within the epoch."""
    if changes_within(job.shared, job.epoch):
        job.optimizer.set_rate(learning_rate(job.shared, job.epoch, job.step / job.steps))


def seed_draws(job: Job, loader: Loader) -> None:
    """Let draws such as dropout's be the same when the run is taken up at this step."""
    if job.members.draws:
        torch.manual_seed(loader.seed_of(job.epoch, 10**9 + job.step))


def train_step(job: Job, x: Tensor, labels: Tensor, mode: Mode | None) -> None:
    """Take one step of every member on a batch, and add its loss, hits and spike rate to the sums."""
    half = job.shared.precision == "bfloat16"
    with side_by_side(job.device) as branch:
        with branch():
            job.optimizer.begin()
        with torch.autocast(job.device.type, torch.bfloat16, enabled=half):
            losses = member_losses(job.members, x, labels, job.objective, mode)
        torch.autograd.backward([losses.loss], [job.objective.ones.to(losses.loss)])
    with side_by_side(job.device) as branch:
        with branch():
            job.sums += torch.stack((losses.loss.detach(), losses.correct, losses.rate))
        job.optimizer.step()
