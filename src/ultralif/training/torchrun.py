"""Train one run with the processes of ``torchrun``: each handles its part of every batch.

All processes draw the same batches and run the same steps, so a checkpoint does not depend on their number.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import cast

import torch
import torch.distributed as dist

# Import this before the process group exists. Some of its functions have the group as a default argument. If
# torch imported it later, it would keep the group alive, and threads that outlive the interpreter could abort
# a process that has finished its work.
import torch.distributed.nn
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from ultralif.errors import InputError, JobError
from ultralif.functional import Mode
from ultralif.training.batches import Batch, batches, load_data, make_loader
from ultralif.training.config import RunConfig
from ultralif.training.device import arithmetic, pick_device
from ultralif.training.loop import Job, finish, prepare_step, progress_of, run_epochs, stack_id
from ultralif.training.losses import Losses, member_losses
from ultralif.training.members import in_mode
from ultralif.training.networks import build_networks, step_work
from ultralif.training.progress import RunOptions
from ultralif.training.result import Result
from ultralif.training.schedule import epoch_mode
from ultralif.training.store import Store, locked

__all__ = ["train_distributed"]


@dataclass(frozen=True)
class _Group:
    """The group of processes that train together, as seen by one of them."""

    rank: int
    size: int
    device: torch.device

    def part(self, count: int) -> slice:
        """Return this process's even share of a batch, which may be empty."""
        return slice(count * self.rank // self.size, count * (self.rank + 1) // self.size)

    def most(self, value: int) -> int:
        """Return the maximum of a value over all processes."""
        found = torch.tensor(value, device=self.device)
        dist.all_reduce(found, dist.ReduceOp.MAX)
        return int(found)


class _Loss(nn.Module):
    """The loss as a module, so that DistributedDataParallel sees everything that is differentiated."""

    def __init__(self, job: Job) -> None:
        super().__init__()
        self.members, self.objective = job.members, job.objective

    def forward(self, x: Tensor, labels: Tensor, mode: Mode | None) -> Losses:
        """Return the losses of all members on part of a batch."""
        return member_losses(self.members, x, labels, self.objective, mode)


def train_distributed(
    config: RunConfig,
    store: Store,
    options: RunOptions | None = None,
) -> Result | None:
    """Train one network as one of the processes started by ``torchrun``; only the first process writes.

    Up to rounding, one process with the same ``batch_size`` would give the same result. With batch norm or
    dropout, the result differs, because each process uses the statistics and random draws of its own part. A
    run can be resumed with a different number of processes; all must be able to read the runs folder.

    Args:
        config: the run; ``batch_size`` is the total over all processes.
        store: the store that receives the run.
        options: device ``auto`` or ``cuda`` gives each process a GPU. Only the first process reports, and all
            stop if one is asked to.

    Returns:
        The result in the first process, and None in the others.
    """
    options = options or RunOptions()
    with _joined(options.device) as group:
        first = group.rank == 0
        together = replace(
            options,
            report=options.report if first else lambda progress: None,
            stopping=lambda: group.most(options.stopping()),
        )
        networks = build_networks([config], group.device)
        folder = store.checkpoints(stack_id([config]))
        with (
            locked(folder.with_suffix(".lock")) if first else nullcontext(),
            arithmetic(group.device, config.precision, step_work([config])),
        ):
            data = load_data(config, group.device, options.data_dir)
            job = Job.begin([config], networks, data, group.device)
            for note in job.resume(folder):
                together.report(progress_of(job, note))
            _check_same(group, job)
            run_epochs(job, together, lambda: job.save(folder) if first else None, _steps(job, group))
            if not first:
                return None
            (result,) = finish(job, store, folder)
            shutil.rmtree(folder, ignore_errors=True)
            return result


def _steps(job: Job, group: _Group) -> Callable[[Job], Iterator[int]]:
    """Return a function that trains to the end of the current epoch on this process's part of each batch."""
    loader = make_loader(job.shared, job.data, job.data.train, training=True)
    on_gpu = [group.device] if group.device.type == "cuda" else None
    loss = DistributedDataParallel(_Loss(job), device_ids=on_gpu)
    # DistributedDataParallel changes the layout of gradients after its first step. So run a step without
    # effect first; a resumed run then adds gradients in the same order.
    nothing = loss(job.probe[:, :1], torch.zeros(1, dtype=torch.int64, device=group.device), None)
    torch.autograd.backward([nothing.loss.sum()])

    def run(job: Job) -> Iterator[int]:
        for batch in batches([loader], job.shared, job.epoch, job.step):
            prepare_step(job)
            _step(job, cast(_Loss, loss), batch, group)
            job.seen += batch.x.shape[1]
            job.step += 1
            yield job.step

    return run


def _step(job: Job, loss: _Loss, batch: Batch, group: _Group) -> None:
    """Train for one step; the gradient of a process is weighted by its share of the batch.

    A process without samples computes one sample with weight 0, because all processes must join the sum.
    """
    x, labels = batch.x, batch.targets
    if batch.mask is not None or (job.task is not None and not job.task.is_usual):
        raise InputError("torchrun supports only classification of samples of equal length; use one process")
    mine = group.part(len(labels))
    share = (mine.stop - mine.start) / len(labels)
    mine = mine if share else slice(0, 1)
    job.optimizer.begin()
    mode, half = epoch_mode(job.shared, job.epoch), job.shared.precision == "bfloat16"
    with in_mode(job.members, mode):
        with torch.autocast(group.device.type, torch.bfloat16, enabled=half):
            losses = loss(x[:, mine], labels[mine], mode)
        torch.autograd.backward([losses.loss.sum() * (share * group.size)])  # the gradients will be averaged
    job.optimizer.step()
    correct = losses.correct * bool(share)
    said = torch.stack((losses.loss.detach() * share, correct, losses.rate * share)).to(job.sums)
    dist.all_reduce(said)
    job.sums += said


def _check_same(group: _Group, job: Job) -> None:
    """Ensure that all processes start at the same step."""
    place = job.epoch * 10**6 + job.step
    if group.most(place) != place or -group.most(-place) != place:
        raise InputError(
            "the processes found different checkpoints; use --runs-dir to choose a folder that all can see"
        )


@contextmanager
def _joined(name: str) -> Iterator[_Group]:
    """Join the other processes with gloo on CPUs and NCCL on GPUs."""
    on_gpu = name != "cpu" and pick_device(name).type == "cuda"
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if on_gpu else "gloo")
    try:
        yield _Group(dist.get_rank(), dist.get_world_size(), device)
    except dist.DistError as error:
        raise JobError(
            f"another process was lost ({str(error).splitlines()[0]}); the same command resumes from the "
            "last checkpoint"
        ) from error
    finally:
        dist.destroy_process_group()
