"""The training loop: from the first step or a checkpoint to the results in the store."""

import hashlib
import math
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from ultralif.data import Loader
from ultralif.errors import JobError, is_out_of_memory
from ultralif.functional import Mode
from ultralif.training.batches import EVALUATION, Batch, Data, batches, load_data, make_loaders
from ultralif.training.checkpoint import newest, save_checkpoint
from ultralif.training.config import RunConfig
from ultralif.training.device import arithmetic, pick_device
from ultralif.training.evaluate import accuracies, environment, evaluate, make_result, measure
from ultralif.training.losses import Objective, Task, log_rates, member_losses
from ultralif.training.members import Members, Role, Single, in_mode, make_members
from ultralif.training.networks import build_networks, own_code, step_work
from ultralif.training.optimizer import SGD, Adam, Group, Optimizer
from ultralif.training.progress import Interrupted, Progress, RunOptions
from ultralif.training.result import Result
from ultralif.training.schedule import changes_within, epoch_mode, hard_epochs, learning_rate, temperature
from ultralif.training.store import Finished, Store, locked

if TYPE_CHECKING:
    from ultralif.data.stream import Stream

__all__ = [
    "Interrupted",
    "Job",
    "Progress",
    "Steps",
    "eager_steps",
    "finish",
    "make_optimizer",
    "prepare_step",
    "progress_of",
    "run_epochs",
    "run_local",
    "seed_draws",
    "stack_id",
    "steps",
    "train_stack",
    "train_step",
]


STEERED = 5
"""Number of steps between two adjustments of the spike rate goals."""
PROBE = 64
"""Number of training samples on which spike rates are measured after each epoch."""


@dataclass
class Job:
    """A stack being trained. Per-member lists follow the order of the stack."""

    configs: list[RunConfig]
    members: Members
    optimizer: Optimizer
    data: Data
    device: torch.device
    objective: Objective
    sums: Tensor
    """Sums of loss, correctly classified samples and spike rate over the current epoch so far, ``[3, M]``."""
    probe: Tensor
    """Some training samples, in the form that the network expects."""
    epoch: int = 0
    step: int = 0
    seconds: float = 0.0
    seen: int = 0
    """Number of samples trained on in the current epoch."""
    stopped: bool = False
    """True if a callback ended training."""
    history: list[dict[str, Any]] = field(default_factory=list)
    lost: dict[int, int] = field(default_factory=dict)
    """Members that diverged, and the epoch in which each did."""
    good: dict[str, Tensor] = field(default_factory=dict)
    """All parameters at the end of the last epoch; a diverged member keeps its parameters from before."""
    best: dict[str, Tensor] = field(default_factory=dict)
    """All parameters at the end of the best epoch, if the run keeps that epoch's parameters."""

    @classmethod
    def begin(
        cls, configs: Sequence[RunConfig], networks: Sequence[nn.Module], data: Data, device: torch.device
    ) -> "Job":
        """Create a job that trains the networks of the given configs."""
        members = make_members(configs, networks, device, data)
        return cls.of(members, [configs[i] for i in members.order], data, device)

    @classmethod
    def of(cls, members: Members, configs: list[RunConfig], data: Data, device: torch.device) -> "Job":
        """Create a job that trains members, whose configs are in the same order."""
        sums = torch.zeros(3, len(members), dtype=torch.float64, device=device)
        probe = _probe(configs, members, data)
        goals = None
        if (target := configs[0].target_rate) is not None:
            goals = torch.full_like(_binary_rates(members, probe), math.log(target))
        objective = Objective.of(configs, members.first_weights()[0], goals)
        job = cls(configs, members, make_optimizer(members, configs[0]), data, device, objective, sums, probe)
        job.good = job.parameters()
        return job

    @property
    def shared(self) -> RunConfig:
        """The first config, for the fields that the members have in common."""
        return self.configs[0]

    @property
    def steps(self) -> int:
        """Number of steps in an epoch; 0 if unknown in advance."""
        train = self.data.train
        if train.streamed:
            return cast("Stream", train).steps
        return -(-len(train) // self.shared.batch_size)

    @property
    def part(self) -> float:
        """The completed share of the current epoch."""
        return self.step / self.steps if self.steps else 0.0

    @property
    def task(self) -> Task | None:
        """The task of the user's own network; None for other networks."""
        single = isinstance(self.members, Single) and self.members.is_own
        return cast(Single, self.members).task if single else None

    @property
    def is_over(self) -> bool:
        """True if nothing is left to train."""
        return self.stopped or self.epoch >= self.shared.epochs or len(self.lost) == len(self.members)

    def parameters(self) -> dict[str, Tensor]:
        """Return a copy of all parameters."""
        return {name: value.detach().clone() for name, value in self.members.state_dict().items()}

    def save(self, folder: Path) -> None:
        """Write a checkpoint; training resumed from it gives exactly the same result."""
        tensors = {f"stack.{name}": value for name, value in self.members.state_dict().items()}
        tensors |= {f"optimizer.{name}": value for name, value in self.optimizer.tensors().items()}
        tensors |= {f"good.{name}": value for name, value in self.good.items()}
        tensors |= {f"best.{name}": value for name, value in self.best.items()}
        tensors |= self._between_steps()
        position = {
            "runs": [config.id for config in self.configs],
            "epoch": self.epoch,
            "step": self.step,
            "seconds": self.seconds,
            "seen": self.seen,
            "lost": list(self.lost.items()),
            **self._made_from(),
        }
        number = self.epoch * 10**6 + self.step
        save_checkpoint(folder, number, tensors, {"position": position, "history": self.history})

    def _between_steps(self) -> dict[str, Tensor]:
        """Return, by name, the tensors that steps change outside the network and the optimizer."""
        goals = self.objective.rate_goals
        return {"sums": self.sums} if goals is None else {"sums": self.sums, "rate_goals": goals}

    def _made_from(self) -> dict[str, str | None]:
        """Return digests of the data, and of the code of the user's own neurons."""
        code = own_code(config.neuron for config in self.configs)
        return {"data_sha256": self.data.dataset.checksum, "code_sha256": code}

    def resume(self, folder: Path) -> list[str]:
        """Resume from the newest undamaged checkpoint; return notes for the user."""
        found, notes = newest(folder)
        if found is None:
            return [*notes, "all checkpoints are damaged; training starts over"] if notes else []
        position = found.documents.get("position")
        for what, now in self._made_from().items():
            begun = position.get(what) if isinstance(position, dict) else None
            if begun not in (None, now):
                kind = f"data of {self.shared.dataset}" if what == "data_sha256" else "code of the neurons"
                raise JobError(
                    f"the {kind} changed since the training in {folder} began (SHA-256 {str(begun)[:12]}, "
                    f"now {str(now)[:12]}); restore the original, or delete the folder to start over"
                )
        try:
            self._restore(found.tensors(), found.documents)
        except (KeyError, RuntimeError, TypeError, ValueError) as error:
            raise JobError(
                f"the checkpoint in {folder} was written by another version of ultralif, or on another kind "
                "of device; finish the run there, or delete the folder to start over"
            ) from error
        where = f"epoch {self.epoch + 1}, step {self.step}"
        return [*notes, f"resuming from {where}" + (" (an older checkpoint)" if notes else "")]

    def _restore(self, tensors: dict[str, Tensor], documents: dict[str, Any]) -> None:
        for name, value in self._between_steps().items():
            value.copy_(tensors.pop(name))
        parts: dict[str, dict[str, Tensor]] = {k: {} for k in ("stack", "optimizer", "good", "best")}
        for name, value in tensors.items():
            kind, _, rest = name.partition(".")
            parts[kind][rest] = value
        own = self.optimizer.tensors()
        if own.keys() != parts["optimizer"].keys() or self.good.keys() != parts["good"].keys():
            raise ValueError("the names of the tensors differ")
        self.members.load_state_dict(parts["stack"])
        for name, value in parts["optimizer"].items():
            own[name].copy_(value)
        self.good = {name: value.to(self.device) for name, value in parts["good"].items()}
        self.best = {name: value.to(self.device) for name, value in parts["best"].items()}
        position = documents["position"]
        self.epoch, self.step, self.seconds = position["epoch"], position["step"], position["seconds"]
        self.seen = position["seen"]
        self.lost = dict(position["lost"])
        self.history = documents["history"]


def _probe(configs: Sequence[RunConfig], members: Members, data: Data) -> Tensor:
    """Return some training samples, spread evenly over the whole set; for a stream, some test samples."""
    if data.train.streamed:
        loaders = make_loaders(members, configs, data, data.dataset.test, training=False, batch=PROBE)
        return next(batches(loaders, configs[0], EVALUATION)).x[:, :PROBE]
    index = torch.linspace(0, len(data.train) - 1, min(PROBE, len(data.train))).long()
    loaders = make_loaders(members, configs, data, data.train.subset(index), training=False)
    return next(batches(loaders, configs[0], EVALUATION)).x


def make_optimizer(members: Members, config: RunConfig) -> Optimizer:
    """Return one optimizer for all members; it works element by element, so members stay independent."""
    parts: dict[Role, list[Tensor]] = {"weight": [], "eps": [], "other": []}
    for name, parameter in members.named_parameters():
        if parameter.requires_grad:
            parts[members.role(name)].append(parameter)
    groups = [
        Group(parts["weight"], decay=config.weight_decay),
        Group(parts["eps"], speed=config.eps_speed),
        Group(parts["other"]),
    ]
    return (SGD if config.optimizer == "sgd" else Adam)(groups)


Steps = Callable[[Job], Iterator[int]]
"""A function that trains a job to the end of its current epoch, and yields after every step."""


def steps(job: Job, note: Callable[[str], None] = lambda text: None, *, graph: bool = True) -> Steps:
    """Return the function that runs an epoch: by replaying recorded steps on a GPU, eagerly elsewhere.

    Args:
        job: the job to train.
        note: called if steps cannot be recorded.
        graph: record steps where possible.
    """
    if graph and job.device.type == "cuda":
        from ultralif.training.graph import can_be_recorded, graph_steps

        if can_be_recorded(job):
            return graph_steps(job, note)
    return eager_steps(job)


def eager_steps(job: Job) -> Steps:
    """Return a function that trains to the end of the current epoch, step by step."""
    loaders = make_loaders(job.members, job.configs, job.data, job.data.train, training=True)

    def run(job: Job) -> Iterator[int]:
        mode = epoch_mode(job.shared, job.epoch)
        for batch in batches(loaders, job.shared, job.epoch, job.step):
            prepare_step(job)
            seed_draws(job, loaders[0])
            train_step(job, batch, mode)
            job.seen += batch.x.shape[1 + (job.members.batches > 1)]
            job.step += 1
            yield job.step

    return run


def prepare_step(job: Job) -> None:
    """Set the learning rate of a step if it changes within the epoch, and steer the spike rates."""
    if changes_within(job.shared, job.epoch):
        job.optimizer.set_rate(learning_rate(job.shared, job.epoch, job.part))
    if job.objective.rate_goals is not None and job.step % STEERED == 0:
        steer(job)


def steer(job: Job) -> None:
    """Move each layer's rate goal up if its measured rate is below the target, and down if it is above.

    With a fixed goal, the rates would miss the target, because soft and binary spikes have different rates
    and the task has its own optimum.
    """
    goals, target = job.objective.rate_goals, job.shared.target_rate
    assert goals is not None and target is not None  # noqa: S101 - the caller checked
    aim = math.log(target)
    distance = aim - log_rates(_binary_rates(job.members, job.probe))
    goals.add_(distance.clamp(-1, 1), alpha=0.2).clamp_(aim - 3, 0)
    job.members.train()


@torch.no_grad()
def _binary_rates(members: Members, probe: Tensor) -> Tensor:
    """Return each hidden layer's binary spike rate, ``[layers, M]``."""
    members.train(False)
    return members.layer_rates(members(probe, "hard").rates)


def seed_draws(job: Job, loader: Loader) -> None:
    """Reseed, so that a run resumed at this step repeats its dropout masks."""
    if job.members.draws:
        torch.manual_seed(loader.seed_of(job.epoch, 10**9 + job.step))


def side_by_side(device: torch.device) -> AbstractContextManager[Callable[[], Any]]:
    """Return a context whose branches run in parallel in a step recorded on a GPU."""
    if device.type != "cuda":
        return nullcontext(nullcontext)
    from ultralif.stack import streams

    return streams.side_by_side(device)


def train_step(job: Job, batch: Batch, mode: Mode | None) -> None:
    """Train every member for one step on a batch, and add its loss, hits and spike rate to the sums."""
    half = job.shared.precision == "bfloat16"
    with side_by_side(job.device) as branch:
        with branch():
            job.optimizer.begin()
        with in_mode(job.members, mode):
            with torch.autocast(job.device.type, torch.bfloat16, enabled=half):
                losses = member_losses(job.members, batch.x, batch.targets, job.objective, mode, batch.mask)
            torch.autograd.backward([losses.loss], [job.objective.ones.to(losses.loss)])
    with side_by_side(job.device) as branch:
        with branch():
            job.sums += torch.stack((losses.loss.detach(), losses.correct, losses.rate))
        job.optimizer.step()


def train_stack(
    configs: Sequence[RunConfig], store: Store, options: RunOptions | None = None
) -> list[Result]:
    """Train networks that share data, order and schedule as one stack, and store their results.

    Args:
        configs: the members; they differ only in their neurons and penalties.
        store: the store that receives the runs.
        options: device, data folder, progress and checkpoints; None means the defaults.

    Example:
        >>> import tempfile
        >>> from ultralif.training import RunConfig, Store
        >>> configs = [RunConfig(neuron=name, epochs=1) for name in ("LIF", "SoftLIF")]
        >>> [result.status for result in train_stack(configs, Store(tempfile.mkdtemp()))]
        ['done', 'done']
    """
    options = options or RunOptions()
    device = pick_device(options.device)
    configs = sorted(configs, key=lambda config: config.id)  # the order in a checkpoint
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
    """Run the remaining epochs; save a checkpoint regularly, and when asked to stop."""
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
        job.seconds += time.monotonic() - began  # the GPU has finished the steps above by now
        for note in notes:
            options.report(progress_of(job, note))
        options.report(progress_of(job))
        tell_callbacks(job, options)


def prepare_epoch(job: Job) -> None:
    """Set the learning rate and the temperatures of the current epoch."""
    job.members.train()
    job.optimizer.set_rate(learning_rate(job.shared, job.epoch, job.part))
    for place, config in enumerate(job.configs):
        eps = temperature(config, job.epoch)
        if eps is not None:
            job.members.assign("eps", place, eps)


def tell_callbacks(job: Job, options: RunOptions) -> None:
    """Call the callbacks with the training state; training ends if one of them returns True.

    Training never ends before the final binary-spike phase has started.
    """
    if not options.callbacks or not isinstance(job.members, Single):
        return
    from ultralif.training.callbacks import EpochState

    past = [{name: values[0] for name, values in epoch.items()} for epoch in job.history]
    state = EpochState(job.epoch, job.shared.epochs, past, job.members.net, job.shared)
    wanted = [callback.on_epoch_end(state) for callback in options.callbacks]
    soft = job.shared.epochs - hard_epochs(job.shared)
    job.stopped = any(wanted) and (job.epoch > soft or soft == job.shared.epochs)


def close_epoch(job: Job) -> list[str]:
    """Add the epoch to the history, and return a note for each member that diverged."""
    loss, correct, rate = (job.sums / torch.tensor([[job.step], [1], [job.step]]).to(job.sums)).cpu()
    job.members.train(False)
    job.history.append(
        {
            "loss": loss.tolist(),
            "accuracy": [None] * len(job.configs)
            if job.task is not None and not job.task.has_classes
            else (100 * correct / job.seen).tolist(),
            "spike_rate": rate.tolist(),
            "soft_rate": _probe_rates(job, "soft"),
            "hard_rate": _probe_rates(job, "hard"),
            "eps": _means(job.members.constants("eps")),
            "leak": _means(job.members.constants("leak")),
            **_tracked(job),
        }
    )
    job.epoch, job.step, job.seen = job.epoch + 1, 0, 0
    job.sums.zero_()
    good = job.members.is_finite() & torch.isfinite(loss)
    newly = [place for place in (~good).nonzero().flatten().tolist() if place not in job.lost]
    job.lost |= dict.fromkeys(newly, job.epoch)
    before, job.good = job.good, job.parameters()
    for place in job.lost:
        job.members.copy_member(place, before, job.good)
    if job.task is not None and job.task.keep_best and best_epoch(job) == job.epoch:
        job.best = job.parameters()
    return [
        f"{job.configs[place].neuron} ({job.configs[place].id}) diverged in epoch {job.epoch}; its "
        "parameters from the previous epoch are kept. Try a smaller learning rate for it"
        for place in newly
    ]


@torch.no_grad()
def _probe_rates(job: Job, mode: Mode) -> list[float | None]:
    """Return each member's spike rate on the probe in a mode, or None if its neurons lack that mode."""
    rates = job.members.hidden_rate(job.members(job.probe, mode).rates).tolist()
    return [rate if mode in job.members.modes(place) else None for place, rate in enumerate(rates)]


def best_epoch(job: Job) -> int:
    """Return the best epoch so far on the validation set, counted from 1."""
    from ultralif.training.callbacks import cost

    assert job.task is not None and job.task.keep_best is not None  # noqa: S101 - asked for
    past = [{name: values[0] for name, values in epoch.items()} for epoch in job.history]
    return 1 + min(range(len(past)), key=[cost(job.task.keep_best, epoch) for epoch in past].__getitem__)


def _tracked(job: Job) -> dict[str, Sequence[float | None]]:
    """Return the quantities measured on the validation and test sets after an epoch, in its mode."""
    mode, epoch = epoch_mode(job.shared, job.epoch), EVALUATION + 1 + job.epoch
    found: dict[str, Sequence[float | None]] = {}
    sets = {
        "test": job.data.dataset.test if job.shared.track_test else None,
        "validation": job.data.validation,
    }
    for name, samples in sets.items():
        if samples is None:
            continue
        if job.task is not None:
            measured = measure(cast(Single, job.members), job.shared, job.data, samples, mode, epoch)
            found |= {name if what == "accuracy" else f"{name}_{what}": [x] for what, x in measured.items()}
        elif job.shared.track_test:
            found[name] = accuracies(job.members, job.configs, job.data, samples, mode, epoch)
    return found


def _means(constants: Sequence[Tensor | None]) -> list[float | None]:
    return [None if value is None else float(value.mean()) for value in constants]


def progress_of(job: Job, note: str | None = None) -> Progress:
    """Return a job's progress, with the last epoch's loss and accuracy."""
    last = job.history[-1] if job.history else {}
    means = []
    for name in ("loss", "accuracy"):
        finite = [value for value in last.get(name, ()) if value is not None and math.isfinite(value)]
        means.append(math.fsum(finite) / len(finite) if finite else None)
    return Progress(len(job.members), job.epoch, job.shared.epochs, means[0], means[1], note)


@torch.no_grad()
def recalibrate_bn(job: Job) -> None:
    """Recompute the batch norm statistics as means over training batches, with the final parameters."""
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
    for batch in islice(batches(loaders, job.shared, EVALUATION), job.shared.recalibrate_bn):
        if isinstance(job.members, Single):
            job.members.outputs(batch.x, mode, batch.mask)
        else:
            job.members(batch.x, mode)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum


def finish(job: Job, store: Store, aside: Path) -> list[Result]:
    """Evaluate all members and write their runs; return the results in the order of the stack.

    Args:
        job: a fully trained job.
        store: the store that receives the runs.
        aside: the folder in which the run folders are prepared.
    """
    best = bool(job.best) and not job.lost
    job.members.load_state_dict(job.best if best else job.good)
    ended = best_epoch(job) if best else job.epoch
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
            epochs=ended if lost is None else lost - 1,
            seconds=job.seconds,
            stacked=len(job.members),
            environment=environment(job.device, config, job.data.dataset.checksum),
        )
        history = [{name: values[place] for name, values in epoch.items()} for epoch in job.history[:lost]]
        runs.append(Finished(config, network.state_dict(), result, history))
        results.append(result.with_history(history))
    store.write(runs, aside)
    return results


def run_local(
    stacks: Sequence[Sequence[RunConfig]],
    store: Store,
    options: RunOptions | None = None,
) -> Iterator[Result]:
    """Train stacks one after another and yield the results; a stack too large for the device is halved.

    Args:
        stacks: see `ultralif.training.plan`.
        store: the store that receives the runs.
        options: device, data folder, progress and checkpoints; None means the defaults.

    Example:
        >>> import tempfile
        >>> from ultralif.training import RunConfig, Store, plan
        >>> store = Store(tempfile.mkdtemp())
        >>> stacks = plan([RunConfig(neuron=name, epochs=1) for name in ("LIF", "SoftLIF")], store)
        >>> sorted(result.neuron for result in run_local(stacks, store))
        ['LIF', 'SoftLIF']
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
                    f"{stack[0].neuron} ({stack[0].id}) does not fit on the device; choose a smaller "
                    "batch_size, hidden or timesteps, or device cpu"
                ) from error
            from ultralif.training.sweep import halves

            note = f"{len(stack)} networks do not fit on the device together; they are trained in two halves"
            options.report(Progress(len(stack), 0, stack[0].epochs, None, None, note, number))
            waiting[:0] = [(number, half) for half in halves(stack)]
