"""The training loop, from the first step or a checkpoint to results in the store; read it from the top."""

import hashlib
import math
import shutil
import time
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from ultralif.functional import Mode
from ultralif.training.build import build_networks, step_work
from ultralif.training.config import RunConfig
from ultralif.training.device import arithmetic, pick_device
from ultralif.training.evaluate import accuracies, evaluate
from ultralif.training.feed import EVALUATION, batches, inputs, load_data, make_loaders
from ultralif.training.job import Job
from ultralif.training.lock import locked
from ultralif.training.options import Interrupted, Progress, RunOptions
from ultralif.training.record import environment, make_result
from ultralif.training.result import Result
from ultralif.training.schedule import epoch_mode, learning_rate, temperature
from ultralif.training.step import Steps, steps
from ultralif.training.store import Finished, Store

__all__ = ["Interrupted", "Progress", "finish", "progress_of", "run_epochs", "stack_id", "train_stack"]


def train_stack(
    configs: Sequence[RunConfig], store: Store, options: RunOptions | None = None
) -> list[Result]:
    """Train networks that share data, order and schedule as one stack, and store their results.

    Args:
        configs: the members; they differ only in their neurons and penalties.
        store: where the runs are written.
        options: device, folder of the data, progress, checkpoints; None, the defaults.
    """
    options = options or RunOptions()
    device = pick_device(options.device)
    configs = sorted(configs, key=lambda config: config.id)  # a checkpoint has them in this order
    networks = build_networks(configs, device)
    folder = store.checkpoints(stack_id(configs))
    precision = configs[0].precision
    with locked(folder.with_suffix(".lock")), arithmetic(device, precision, step_work(configs)):
        job = Job.begin(configs, networks, load_data(configs[0], device, options.data_dir), device)
        for note in job.resume(folder):
            options.report(progress_of(job, note))
        run = steps(job, lambda note: options.report(progress_of(job, note)), graph=options.graph)
        run_epochs(job, options, lambda: job.save(folder), run)
        results = finish(job, store, folder)
        shutil.rmtree(folder, ignore_errors=True)
    return results


def stack_id(configs: Sequence[RunConfig]) -> str:
    """Return the name under which a stack keeps its checkpoints."""
    return hashlib.sha256(" ".join(sorted(config.id for config in configs)).encode()).hexdigest()[:12]


def run_epochs(job: Job, options: RunOptions, save: Callable[[], None], run: Steps) -> None:
    """Run the remaining epochs; save a checkpoint now and then, and when asked to stop."""
    saved = time.monotonic()
    while not job.is_over:
        prepare_epoch(job)
        began = time.monotonic()
        for _ in run(job):
            now = time.monotonic()
            job.seconds += now - began
            began = now
            code = options.stopping()
            if code or now - saved > options.checkpoint_seconds:
                save()
                saved = now = time.monotonic()
            if code:
                raise Interrupted(f"stopped in epoch {job.epoch + 1} of {job.shared.epochs}", code)
        notes = close_epoch(job)
        job.seconds += time.monotonic() - began  # a GPU has finished the steps above by now
        for note in notes:
            options.report(progress_of(job, note))
        options.report(progress_of(job))


def prepare_epoch(job: Job) -> None:
    """Set the learning rate and the temperatures of the running epoch."""
    job.members.train()
    job.optimizer.set_rate(learning_rate(job.shared, job.epoch, job.step / job.steps))
    for place, config in enumerate(job.configs):
        eps = temperature(config, job.epoch)
        if eps is not None:
            job.members.assign("eps", place, eps)


def close_epoch(job: Job) -> list[str]:
    """Write the epoch into the history, look for members that diverged, and return a note about each."""
    loss, correct, rate = (job.sums / torch.tensor([[job.step], [1], [job.step]]).to(job.sums)).cpu()
    job.members.train(False)
    job.history.append(
        {
            "loss": loss.tolist(),
            "accuracy": (100 * correct / len(job.data.train)).tolist(),
            "spike_rate": rate.tolist(),
            "soft_rate": _probe_rates(job, "soft"),
            "hard_rate": _probe_rates(job, "hard"),
            "eps": _means(job.members.constants("eps")),
            "leak": _means(job.members.constants("leak")),
            **_tracked(job),
        }
    )
    job.epoch, job.step = job.epoch + 1, 0
    job.sums.zero_()
    good = job.members.is_finite() & torch.isfinite(loss)
    newly = [place for place in (~good).nonzero().flatten().tolist() if place not in job.lost]
    job.lost |= dict.fromkeys(newly, job.epoch)
    before, job.good = job.good, job.parameters()
    for place in job.lost:
        job.members.copy_member(place, before, job.good)
    return [
        f"{job.configs[place].neuron} ({job.configs[place].id}) diverged in epoch {job.epoch}; its "
        "parameters are those of the epoch before. Try a smaller learning rate for it"
        for place in newly
    ]


@torch.no_grad()
def _probe_rates(job: Job, mode: Mode) -> list[float | None]:
    """Return the spike rate of each member on the probe in a mode, if its neurons have it."""
    rates = job.members.hidden_rate(job.members(job.probe, mode).rates).tolist()
    return [rate if mode in job.members.modes(place) else None for place, rate in enumerate(rates)]


def _tracked(job: Job) -> dict[str, list[float]]:
    """Return the accuracy on the sets that are not trained on, in the mode of the epoch, if wanted."""
    if not job.shared.track_test:
        return {}
    mode = epoch_mode(job.shared, job.epoch)
    sets = {"test": job.data.dataset.test, "validation": job.data.validation}
    return {
        name: accuracies(job.members, job.configs, job.data, samples, mode, EVALUATION + 1 + job.epoch)
        for name, samples in sets.items()
        if samples is not None
    }


def _means(constants: Sequence[Tensor | None]) -> list[float | None]:
    return [None if value is None else float(value.mean()) for value in constants]


def progress_of(job: Job, note: str | None = None) -> Progress:
    """Return the progress of a job, with the last epoch's loss and accuracy."""
    last = job.history[-1] if job.history else {}
    means = []
    for name in ("loss", "accuracy"):
        finite = [value for value in last.get(name, ()) if math.isfinite(value)]
        means.append(math.fsum(finite) / len(finite) if finite else None)
    return Progress(len(job.members), job.epoch, job.shared.epochs, means[0], means[1], note)


@torch.no_grad()
def recalibrate_bn(job: Job) -> None:
    """Compute the statistics of batch norm again: means over training batches at the final parameters."""
    norms = [
        module for net in job.members.unstack() for module in net.modules() if isinstance(module, _BatchNorm)
    ]
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # a plain mean
    job.members.train()
    loaders = make_loaders(job.members, job.configs, job.data, job.data.train, training=True)
    mode = epoch_mode(job.shared, job.shared.epochs - 1)
    for x, _ in islice(batches(loaders, EVALUATION), job.shared.recalibrate_bn):
        job.members(inputs(x, job.shared), mode)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum


def finish(job: Job, store: Store, aside: Path) -> list[Result]:
    """Evaluate all members and write their runs; return the results in the order of the stack's places.

    Args:
        job: trained to its end.
        store: where the runs are written.
        aside: the folder in which theirs are prepared.
    """
    job.members.load_state_dict(job.good)
    if job.shared.recalibrate_bn:
        recalibrate_bn(job)
    job.members.train(False)
    for place, epoch in job.lost.items():
        eps = temperature(job.configs[place], max(0, epoch - 2))
        if eps is not None:
            job.members.assign("eps", place, eps)
    networks = job.members.unstack()
    evaluations = evaluate(job.members, job.configs, job.data)
    held_out = evaluate(job.members, job.configs, job.data, "validation") if job.data.validation else None
    made_by = environment(job.device, job.shared.precision, job.data.dataset.checksum)
    runs, results = [], []
    for place, config in enumerate(job.configs):
        network = networks[job.members.order[place]]
        lost = job.lost.get(place)
        result = make_result(
            config,
            network,
            store.path(config.id),
            evaluations[place],
            held_out[place] if held_out else None,
            status="done" if lost is None else "diverged",
            epochs=config.epochs if lost is None else lost - 1,
            seconds=job.seconds,
            stacked=len(job.members),
            environment=made_by,
        )
        history = [{name: values[place] for name, values in epoch.items()} for epoch in job.history[:lost]]
        runs.append(Finished(config, network.state_dict(), result, history))
        results.append(result.with_history(history))
    store.write(runs, aside)
    return results
