"""`Job`: the state of a stack in training, with its checkpoints."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from ultralif.errors import JobError
from ultralif.nn import Network
from ultralif.stack import Stack
from ultralif.training.checkpoint import newest, save_checkpoint
from ultralif.training.config import RunConfig
from ultralif.training.feed import EVALUATION, Data, batches, inputs, make_loaders
from ultralif.training.loss import Objective
from ultralif.training.members import Members, Role
from ultralif.training.optimizer import SGD, Adam, Group, Optimizer
from ultralif.training.single import Single

__all__ = ["Job", "make_members", "make_optimizer"]

PROBE = 64
"""Training samples on which the spike rates of each epoch are measured."""


@dataclass
class Job:
    """A stack in training. Lists by member follow the places of the stack."""

    configs: list[RunConfig]
    members: Members
    optimizer: Optimizer
    data: Data
    device: torch.device
    objective: Objective
    sums: Tensor
    """Loss, correctly classified samples and spike rate of the running epoch so far, ``[3, M]``."""
    probe: Tensor
    """Some training samples, as the network reads them."""
    epoch: int = 0
    step: int = 0
    seconds: float = 0.0
    history: list[dict[str, Any]] = field(default_factory=list)
    lost: dict[int, int] = field(default_factory=dict)
    """Members that diverged, with the epoch in which they did."""
    good: dict[str, Tensor] = field(default_factory=dict)
    """All parameters at the end of the last epoch; those of a lost member stay as they were before."""

    @classmethod
    def begin(
        cls, configs: Sequence[RunConfig], networks: Sequence[nn.Module], data: Data, device: torch.device
    ) -> "Job":
        """Begin to train the networks of some configs."""
        members = make_members(configs, networks, device, data)
        return cls.of(members, [configs[i] for i in members.order], data, device)

    @classmethod
    def of(cls, members: Members, configs: list[RunConfig], data: Data, device: torch.device) -> "Job":
        """Begin to train members; their configs are in the order of their places."""
        sums = torch.zeros(3, len(members), dtype=torch.float64, device=device)
        objective = Objective.of(configs, members.first_weights()[0])
        optimizer = make_optimizer(members, configs[0])
        job = cls(configs, members, optimizer, data, device, objective, sums, _probe(configs, members, data))
        job.good = job.parameters()
        return job

    @property
    def shared(self) -> RunConfig:
        """The fields that the members have in common."""
        return self.configs[0]

    @property
    def steps(self) -> int:
        """Steps of an epoch."""
        return -(-len(self.data.train) // self.shared.batch_size)

    @property
    def is_over(self) -> bool:
        """True if nothing is left to train."""
        return self.epoch >= self.shared.epochs or len(self.lost) == len(self.members)

    def parameters(self) -> dict[str, Tensor]:
        """Return a copy of all parameters."""
        return {name: value.detach().clone() for name, value in self.members.state_dict().items()}

    def save(self, folder: Path) -> None:
        """Write a checkpoint; training that resumes from it gives exactly the same result."""
        tensors = {f"stack.{name}": value for name, value in self.members.state_dict().items()}
        tensors |= {f"optimizer.{name}": value for name, value in self.optimizer.tensors().items()}
        tensors |= {f"good.{name}": value for name, value in self.good.items()}
        tensors["sums"] = self.sums
        position = {
            "runs": [config.id for config in self.configs],
            "epoch": self.epoch,
            "step": self.step,
            "seconds": self.seconds,
            "lost": list(self.lost.items()),
            "data_sha256": self.data.dataset.checksum,
        }
        number = self.epoch * 10**6 + self.step
        save_checkpoint(folder, number, tensors, {"position": position, "history": self.history})

    def resume(self, folder: Path) -> list[str]:
        """Resume from the newest undamaged checkpoint; return notes for the user."""
        found, notes = newest(folder)
        if found is None:
            return [*notes, "all checkpoints are damaged; training starts again"] if notes else []
        position = found.documents.get("position")
        begun = position.get("data_sha256") if isinstance(position, dict) else None
        now = self.data.dataset.checksum
        if begun not in (None, now):
            raise JobError(
                f"the data of {self.shared.dataset} changed since the training in {folder} began (SHA-256 "
                f"{str(begun)[:12]}, now {now[:12]}); restore the old data, or delete the folder to restart"
            )
        try:
            self._restore(found.tensors(), found.documents)
        except (KeyError, RuntimeError, TypeError, ValueError) as error:
            raise JobError(
                f"the checkpoint in {folder} was written by another version of ultralif; finish the run with "
                "that version, or delete the folder to begin again"
            ) from error
        where = f"epoch {self.epoch + 1}, step {self.step}"
        return [*notes, f"going on from {where}" + (" (an older checkpoint)" if notes else "")]

    def _restore(self, tensors: dict[str, Tensor], documents: dict[str, Any]) -> None:
        parts: dict[str, dict[str, Tensor]] = {"stack": {}, "optimizer": {}, "good": {}, "sums": {}}
        for name, value in tensors.items():
            kind, _, rest = name.partition(".")
            parts[kind][rest] = value
        own = self.optimizer.tensors()
        if own.keys() != parts["optimizer"].keys() or self.good.keys() != parts["good"].keys():
            raise ValueError("the names of the tensors differ")
        self.members.load_state_dict(parts["stack"])
        for name, value in parts["optimizer"].items():
            own[name].copy_(value)
        self.sums.copy_(tensors["sums"])
        self.good = {name: value.to(self.device) for name, value in parts["good"].items()}
        position = documents["position"]
        self.epoch, self.step, self.seconds = position["epoch"], position["step"], position["seconds"]
        self.lost = dict(position["lost"])
        self.history = documents["history"]


def _probe(configs: Sequence[RunConfig], members: Members, data: Data) -> Tensor:
    """Return some training samples, taken evenly from the whole set, as the networks read them."""
    index = torch.linspace(0, len(data.train) - 1, min(PROBE, len(data.train))).long()
    loaders = make_loaders(members, configs, data, data.train.subset(index), training=False)
    return inputs(next(batches(loaders, EVALUATION))[0], configs[0])


def make_members(
    configs: Sequence[RunConfig], networks: Sequence[nn.Module], device: torch.device, data: Data
) -> Members:
    """Return multilayer perceptrons as a stack, and a module of any other kind by itself."""
    shared = configs[0]
    if shared.model != "mlp":
        direct = shared.encoding == "direct" and not data.train.is_events
        classes = data.dataset.classes
        return Single(
            networks[0].to(device), classes=classes, direct=direct, channels_last=shared.channels_last
        )
    seeds = sorted({config.seed for config in configs})
    readers = [seeds.index(config.seed) for config in configs]
    # A stack moves a temperature faster by scaling it, which scales a step of SGD twice.
    power = 0.5 if shared.optimizer == "sgd" else 1.0
    speeds = [config.eps_speed**power for config in configs]
    return Stack(cast(Sequence[Network], networks), speeds, readers).to(device)


def make_optimizer(members: Members, config: RunConfig) -> Optimizer:
    """Return one optimizer for all members: it works element by element, so it is one for each of them."""
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
