"""A stack in training: all its state, how it is saved and taken up again, and how it ends."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ultralif.errors import JobError
from ultralif.functional import Mode
from ultralif.nn import Network, Stack
from ultralif.training.build import EVALUATION, Data, make_loaders
from ultralif.training.checkpoint import newest, save_checkpoint
from ultralif.training.config import RunConfig
from ultralif.training.evaluate import batches, inputs
from ultralif.training.step import (
    Penalties,
    hidden_rate,
    learning_rate,
    make_optimizer,
    stack_loss,
    temperature,
)

__all__ = ["Job", "Progress", "eager_steps", "train_step"]

PROBE = 64
"""Training samples on which the spike rates of each epoch are measured."""


class Progress(NamedTuple):
    """How far a stack is."""

    members: int
    epoch: int
    epochs: int
    loss: float | None
    """Mean over the members and the last epoch."""
    accuracy: float | None
    """The same for the training accuracy in percent."""
    note: str | None = None
    """Something that a person should know."""


@dataclass
class Job:
    """A stack in training. What is listed by member follows the places of the stack."""

    configs: list[RunConfig]
    stack: Stack
    optimizer: torch.optim.Adam
    data: Data
    device: torch.device
    penalties: Penalties
    sums: Tensor
    """Loss, well classified samples and spike rate of the running epoch so far, ``[3, M]``."""
    probe: Tensor
    """Some training samples, as the network reads them."""
    epoch: int = 0
    step: int = 0
    seconds: float = 0.0
    history: list[dict[str, Any]] = field(default_factory=list)
    lost: dict[int, int] = field(default_factory=dict)
    """Members that diverged, and in which epoch."""
    good: dict[str, Tensor] = field(default_factory=dict)
    """All parameters at the end of the last epoch; those of a lost member stay as they were before."""

    @classmethod
    def begin(
        cls, configs: Sequence[RunConfig], networks: Sequence[Network], data: Data, device: torch.device
    ) -> "Job":
        """Stack the networks of some configs."""
        seeds = sorted({config.seed for config in configs})
        readers = [seeds.index(config.seed) for config in configs]
        stack = Stack(networks, [config.eps_speed for config in configs], readers).to(device)
        ordered = [configs[i] for i in stack.order]
        sums = torch.zeros(3, len(stack), dtype=torch.float64, device=device)
        optimizer = make_optimizer(stack, ordered[0], capturable=device.type == "cuda")
        penalties = Penalties.of(ordered, stack.weights[0])
        job = cls(ordered, stack, optimizer, data, device, penalties, sums, _probe(ordered, stack, data))
        job.good = job._parameters()
        return job

    @property
    def shared(self) -> RunConfig:
        """What the members have in common."""
        return self.configs[0]

    @property
    def mode(self) -> Mode | None:
        """The mode of the running epoch."""
        return "hard" if self.epoch >= self.shared.epochs - self.shared.hard_epochs else None

    @property
    def is_over(self) -> bool:
        """Whether there is nothing left to train."""
        return self.epoch >= self.shared.epochs or len(self.lost) == len(self.stack)

    def progress(self, note: str | None = None) -> Progress:
        """Return how far it is."""
        last = self.history[-1] if self.history else {}
        means = [_mean(last.get(name)) for name in ("loss", "accuracy")]
        return Progress(len(self.stack), self.epoch, self.shared.epochs, means[0], means[1], note)

    def prepare_epoch(self) -> None:
        """Set what the schedule prescribes for the running epoch."""
        rate = learning_rate(self.shared, self.epoch)
        for group in self.optimizer.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate
        for place, config in enumerate(self.configs):
            eps = temperature(config, self.epoch)
            if eps is not None:
                self.stack.assign("eps", place, eps)

    def close_epoch(self) -> list[str]:
        """Write the epoch into the history, look for members that diverged, and say which."""
        loss, correct, rate = (self.sums / torch.tensor([[self.step], [1], [self.step]]).to(self.sums)).cpu()
        self.history.append(
            {
                "loss": loss.tolist(),
                "accuracy": (100 * correct / len(self.data.train)).tolist(),
                "spike_rate": rate.tolist(),
                "soft_rate": self._rates("soft"),
                "hard_rate": self._rates("hard"),
                "eps": _values(self.stack.constants("eps")),
                "leak": _values(self.stack.constants("leak")),
            }
        )
        self.epoch, self.step = self.epoch + 1, 0
        self.sums.zero_()
        good = self.stack.is_finite() & torch.isfinite(loss)
        newly = [place for place in (~good).nonzero().flatten().tolist() if place not in self.lost]
        self.lost |= dict.fromkeys(newly, self.epoch)
        self._keep_good()
        return [
            f"{self.configs[place].neuron} ({self.configs[place].id}) diverged in epoch {self.epoch}; it is "
            "kept as it was before. Try a smaller learning rate for it"
            for place in newly
        ]

    @torch.no_grad()
    def _rates(self, mode: Mode) -> list[float | None]:
        """Return the spike rate of each member on the probe in a mode, if its neurons have it."""
        rates = hidden_rate(self.stack, self.stack(self.probe, mode).rates).tolist()
        neurons = (next(member.layers())[1] for member in self.stack.members)
        return [rate if mode in neuron.modes else None for rate, neuron in zip(rates, neurons, strict=True)]

    def _parameters(self) -> dict[str, Tensor]:
        return {name: value.detach().clone() for name, value in self.stack.state_dict().items()}

    def _keep_good(self) -> None:
        """Note the parameters now, but for the lost members."""
        before, self.good = self.good, self._parameters()
        for place in self.lost:
            self.stack.copy_member(place, before, self.good)

    def save(self, folder: Path) -> None:
        """Write a checkpoint from which training goes on to exactly the same end."""
        tensors = {f"stack.{name}": value for name, value in self.stack.state_dict().items()}
        for i, state in self.optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{i}.{name}": value for name, value in state.items()}
        tensors |= {f"good.{name}": value for name, value in self.good.items()}
        tensors["sums"] = self.sums
        position = {
            "epoch": self.epoch,
            "step": self.step,
            "seconds": self.seconds,
            "lost": list(self.lost.items()),
        }
        number = self.epoch * 10**6 + self.step
        save_checkpoint(folder, number, tensors, {"position": position, "history": self.history})

    def resume(self, folder: Path) -> list[str]:
        """Go on from the newest checkpoint that is whole; return what is worth saying about it."""
        found, notes = newest(folder)
        if found is None:
            return [*notes, "no checkpoint is whole; training starts again"] if notes else []
        try:
            self._restore(found.tensors(), found.documents)
        except (KeyError, RuntimeError, TypeError, ValueError) as error:
            raise JobError(
                f"the checkpoint in {folder} is of another version of ultralif; finish it with that one, or "
                "delete the folder to begin again"
            ) from error
        where = f"epoch {self.epoch + 1}, step {self.step}"
        return [*notes, f"going on from {where}" + (" (an older checkpoint)" if notes else "")]

    def _restore(self, tensors: dict[str, Tensor], documents: dict[str, Any]) -> None:
        parts: dict[str, dict[str, Tensor]] = {"stack": {}, "optimizer": {}, "good": {}}
        for name, value in tensors.items():
            kind, _, rest = name.partition(".")
            if kind in parts:
                parts[kind][rest] = value
        self.stack.load_state_dict(parts["stack"])
        state: dict[int, dict[str, Tensor]] = {}
        for name, value in parts["optimizer"].items():
            index, _, key = name.partition(".")
            state.setdefault(int(index), {})[key] = value
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": state, "param_groups": groups})
        self.sums.copy_(tensors["sums"])
        self.good = {name: value.to(self.device) for name, value in parts["good"].items()}
        position = documents["position"]
        self.epoch, self.step, self.seconds = position["epoch"], position["step"], position["seconds"]
        self.lost = dict(position["lost"])
        self.history = documents["history"]


def train_step(job: Job, x: Tensor, labels: Tensor, mode: Mode | None) -> None:
    """Take one step of every member on a batch, and add what it says to the running sums."""
    job.optimizer.zero_grad()
    half = job.shared.precision == "bfloat16"
    with torch.autocast(job.device.type, torch.bfloat16, enabled=half):
        losses = stack_loss(job.stack, x, labels, job.penalties, mode)
    torch.autograd.backward([losses.loss.sum()])
    job.optimizer.step()
    job.sums += torch.stack((losses.loss.detach(), losses.correct, losses.rate))


def eager_steps(job: Job) -> Callable[[Job], Iterator[int]]:
    """Return a function that trains to the end of the running epoch, step by step."""
    loaders = make_loaders(job.stack, job.configs, job.data, job.data.train, training=True)

    def run(job: Job) -> Iterator[int]:
        for x, labels in batches(loaders, job.epoch, job.step):
            train_step(job, inputs(x, job.shared), labels, job.mode)
            job.step += 1
            yield job.step

    return run


def _probe(configs: Sequence[RunConfig], stack: Stack, data: Data) -> Tensor:
    """Return some training samples, taken evenly from the whole set, as the networks read them."""
    index = torch.linspace(0, len(data.train) - 1, min(PROBE, len(data.train))).long()
    loaders = make_loaders(stack, configs, data, data.train.subset(index), training=False)
    return inputs(next(batches(loaders, EVALUATION))[0], configs[0])


def _values(constants: Sequence[Tensor | None]) -> list[float | None]:
    """Return the mean of each constant of `Stack.constants`."""
    return [None if value is None else float(value.mean()) for value in constants]


def _mean(values: Sequence[float] | None) -> float | None:
    finite = [value for value in values or [] if math.isfinite(value)]
    return math.fsum(finite) / len(finite) if finite else None
