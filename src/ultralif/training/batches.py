"""A run's data: the dataset, its training and held-out parts, and their batches."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple, cast

import torch
from torch import Tensor

from ultralif.data import Dataset, Loader, Split, load
from ultralif.data.loader import CROP_AND_FLIP, Augmentation
from ultralif.data.table import PREFIX
from ultralif.errors import InputError
from ultralif.training.config import Partition, RunConfig
from ultralif.training.members import Members

__all__ = ["EVALUATION", "Batch", "Data", "batches", "inputs", "load_data", "make_loader", "make_loaders"]


EVALUATION = 2**31
"""The epoch number that seeds the input spikes during evaluation; no training run is that long."""


@dataclass(frozen=True, eq=False)
class Data:
    """A dataset and the parts of it that a run uses."""

    dataset: Dataset
    train: Split
    validation: Split | None

    @property
    def sizes(self) -> tuple[int, int]:
        """The numbers of inputs and classes that a network for this dataset needs."""
        return math.prod(self.dataset.shape), self.dataset.classes


@lru_cache(maxsize=1)
def _load(
    name: str, timesteps: int, data_dir: Path | None, device: torch.device, split: Partition
) -> Dataset:
    if name.startswith(PREFIX):
        from ultralif.data.user_data import find_user_data

        return find_user_data(name, device)
    return load(name, timesteps, data_dir, device, split)


def load_data(config: RunConfig, device: torch.device, data_dir: Path | None = None) -> Data:
    """Load a config's dataset; the validation set is a fixed, held-out part of each class."""
    return hold_out(_load(config.dataset, config.timesteps, data_dir, device, config.split), config)


def hold_out(dataset: Dataset, config: RunConfig) -> Data:
    """Return a config's data, holding out a fixed part of each class if it asks for a validation set."""
    if not config.validation:
        return Data(dataset, dataset.train, dataset.validation)
    if dataset.train.streamed or dataset.validation is not None or not dataset.classes:
        raise InputError(
            f"validation={config.validation} holds out a share of each class, which requires tensors with "
            "class labels; for other data, pass the validation set itself: validation=DataLoader(...)"
        )
    labels = dataset.train.labels.cpu()
    generator = torch.Generator().manual_seed(0)  # every run holds out the same part
    shuffled = torch.randperm(len(labels), generator=generator)
    kept, held = [], []
    for label in range(dataset.classes):
        of_class = shuffled[labels[shuffled] == label]
        count = min(max(1, round(config.validation * len(of_class))), len(of_class) - 1)
        held.append(of_class[:count])
        kept.append(of_class[count:])
    parts = (dataset.train.subset(torch.cat(index).sort().values) for index in (kept, held))
    return Data(dataset, *parts)


def make_loader(config: RunConfig, data: Data, split: Split, *, training: bool, batch: int = 256) -> Loader:
    """Return a split's loader, for evaluation or, with the config's augmentation, for training."""
    images = not split.is_events
    direct = config.encoding == "direct"
    kind, varies = Loader, False
    if split.streamed:
        from ultralif.data.stream import Stream, StreamLoader

        stream = cast(Stream, split)
        kind, varies = StreamLoader, split.is_events and (stream.has_lengths or not training)
    return kind(
        split,
        batch_size=config.batch_size if training else batch,
        timesteps=1 if direct and images else split.timesteps if varies else config.timesteps,
        encoding="constant" if config.encoding == "direct" else config.encoding,
        gain=config.gain,
        normalization=data.dataset.normalization if images else None,
        seed=config.seed,
        shuffle=training,
        augment=augmentation(config) if training and images else False,
        classes=data.dataset.classes,
    )


def augmentation(config: RunConfig) -> Augmentation:
    """Return the augmentation of a run's training images."""
    whole = config.augment if config.augment is not None else config.dataset == "cifar10"
    own = Augmentation(config.flip, config.shift, config.cutout, config.mixup)
    return CROP_AND_FLIP if whole and own == Augmentation() else own


def make_loaders(
    members: Members,
    configs: Sequence[RunConfig],
    data: Data,
    split: Split,
    *,
    training: bool,
    batch: int = 256,
) -> list[Loader]:
    """Return a loader for each distinct batch, seeded by the first member that reads it."""
    first_readers = configs[:: len(members) // members.batches]
    return [make_loader(config, data, split, training=training, batch=batch) for config in first_readers]


class Batch(NamedTuple):
    """A batch in the form that networks expect."""

    x: Tensor
    """``[T, B, ...]``, or ``[batches, T, B, ...]`` for members with different batches."""
    targets: Tensor
    mask: Tensor | None = None
    """The valid steps ``[T, B]``, if samples differ in length."""


def batches(loaders: Sequence[Loader], config: RunConfig, epoch: int, step: int = 0) -> Iterator[Batch]:
    """Yield an epoch's batches, stacked if there are several loaders."""
    for parts in zip(*(loader.epoch(epoch, step) for loader in loaders), strict=True):
        one = Batch(*parts[0])
        if len(parts) > 1:
            xs, labels = zip(*parts, strict=True)
            one = Batch(torch.stack(xs), torch.stack(labels))
        yield one._replace(x=inputs(one.x, config))


def inputs(x: Tensor, config: RunConfig) -> Tensor:
    """Convert a batch to the form that the network expects."""
    if config.binary_events:
        x = x.clamp(max=1)
    return x.double() if config.precision == "float64" else x
