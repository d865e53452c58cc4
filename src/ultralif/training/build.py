"""From a config to what is trained: data, batches, networks."""

import inspect
import math
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import torch

from ultralif.analysis import orthogonal_
from ultralif.data import Dataset, Loader, Split, load
from ultralif.errors import InputError
from ultralif.nn import Network, find_neuron
from ultralif.training.config import Partition, RunConfig

__all__ = ["Data", "build_network", "load_data", "make_loader", "pick_device"]

EVALUATION = 2**31
"""The epoch whose spikes are drawn for evaluation: no training run gets there."""


@dataclass(frozen=True, eq=False)
class Data:
    """A dataset and the parts of it that a run uses."""

    dataset: Dataset
    train: Split
    validation: Split | None

    @property
    def sizes(self) -> tuple[int, int]:
        """Inputs and classes of a network for it."""
        return math.prod(self.dataset.shape), self.dataset.classes


def pick_device(name: str) -> torch.device:
    """Return the device of that name; ``auto`` is the GPU if there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"device {name!r} cannot be used ({reason}); use cpu or auto") from error
    return device


@lru_cache(maxsize=1)
def _load(
    name: str, timesteps: int, data_dir: Path | None, device: torch.device, split: Partition
) -> Dataset:
    return load(name, timesteps, data_dir, device, split)


def load_data(config: RunConfig, device: torch.device, data_dir: Path | None = None) -> Data:
    """Load the dataset of a config, with a fixed part of each class held out if it wants a validation set."""
    dataset = _load(config.dataset, config.timesteps, data_dir, device, config.split)
    if dataset.train.is_events and dataset.train.timesteps != config.timesteps:
        raise InputError(f"{config.dataset} comes in {dataset.train.timesteps} steps, got {config.timesteps}")
    if not config.validation:
        return Data(dataset, dataset.train, None)
    labels = dataset.train.labels.cpu()
    generator = torch.Generator().manual_seed(0)  # the same part for every run: it is never trained on
    shuffled = torch.randperm(len(labels), generator=generator)
    held = []
    for label in range(dataset.classes):
        of_class = shuffled[labels[shuffled] == label]
        held.append(of_class[: round(config.validation * len(of_class))])
    index = torch.cat(held)
    kept = torch.ones(len(labels), dtype=torch.bool)
    kept[index] = False
    if not len(index) or not kept.any():
        raise InputError(f"validation {config.validation} leaves no samples on one side; choose another part")
    return Data(dataset, dataset.train.subset(kept.nonzero().squeeze(1)), dataset.train.subset(index))


def make_loader(config: RunConfig, data: Data, split: Split, *, training: bool) -> Loader:
    """Return the batches of a split, as the config wants them for training or for evaluation."""
    images = not split.is_events
    augment = config.augment if config.augment is not None else config.dataset == "cifar10"
    return Loader(
        split,
        batch_size=config.batch_size if training else 256,
        timesteps=config.timesteps,
        encoding=config.encoding,
        gain=config.gain,
        normalization=data.dataset.normalization if images else None,
        seed=config.seed,
        shuffle=training,
        augment=augment and training and images,
    )


def build_network(config: RunConfig, sizes: tuple[int, int]) -> Network:
    """Return the network of a config at its first step; it depends on nothing but the config.

    Args:
        config: the run.
        sizes: inputs and classes.
    """
    kind = find_neuron(config.neuron)
    accepted = inspect.signature(kind).parameters
    options = config.neuron_options()
    for name in options:
        if name not in accepted:
            raise InputError(f"{name} is not an argument of {kind.__name__}; leave it out for this neuron")
    if "eps_range" in accepted:
        options["eps_range"] = (config.eps_min, config.eps_max)
    if config.anneal is not None:
        if "eps" not in accepted:
            raise InputError(f"anneal needs a temperature, which {kind.__name__} does not have; leave it out")
        options |= {"eps": config.anneal[0], "learn_eps": False}
    if config.per_neuron and len(set(config.hidden)) > 1:
        raise InputError(f"per_neuron needs hidden layers of one size, got {config.hidden}")
    if config.per_neuron:
        options["parameter_shape"] = (config.hidden[0],)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        network = Network((sizes[0], *config.hidden, sizes[1]), kind, options, config.readout)
        if config.orthogonal:
            orthogonal_(next(network.layers())[0])
    return network
