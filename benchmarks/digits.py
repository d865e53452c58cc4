"""MNIST and N-MNIST as event counts, and networks trained on them."""

import gzip
import io
import lzma
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn.functional import cross_entropy

import ultralif as ul

DATA = Path(os.environ.get("ULTRALIF_TEST_DATA", Path(__file__).parents[2] / "shared" / "data"))
TASKS = {  # dataset, time steps: epochs of training, epochs of each tool, seeds
    ("MNIST", 1): (20, 6, 3),
    ("N-MNIST", 1): (15, 5, 3),
    ("MNIST", 10): (10, 3, 1),
    ("N-MNIST", 10): (6, 2, 1),
}
BATCH = 128
Batches = Iterator[tuple[Tensor, Tensor]]


class Task:
    """A dataset with a given number of time steps."""

    def __init__(self, dataset: str, timesteps: int) -> None:
        self.dataset, self.timesteps = dataset, timesteps
        load = _mnist if dataset == "MNIST" else _nmnist
        self.x, self.y = load("train", timesteps)
        self.test_x, self.test_y = load("test", timesteps)

    def encode(self, x: Tensor, generator: torch.Generator) -> Tensor:
        """Return event counts [T, B, inputs]; a pixel spikes with a probability of half its value."""
        if self.dataset == "N-MNIST":
            return x.transpose(0, 1).float()
        chance = x.float() / 510
        return (torch.rand((self.timesteps, *x.shape), generator=generator) < chance).float()

    def epochs(self, count: int, seed: int) -> Batches:
        generator = torch.Generator().manual_seed(seed)
        for _ in range(count):
            for index in torch.randperm(len(self.x), generator=generator).split(BATCH):
                yield self.encode(self.x[index], generator), self.y[index]

    def steps(self, epochs: int) -> int:
        return epochs * -(-len(self.x) // BATCH)

    def sample(self, size: int) -> Tensor:
        """Return training inputs, for calibration."""
        generator = torch.Generator().manual_seed(1)
        return self.encode(self.x[torch.randperm(len(self.x), generator=generator)[:size]], generator)

    def test(self) -> Batches:
        generator = torch.Generator().manual_seed(99)
        for x, y in zip(self.test_x.split(1000), self.test_y.split(1000), strict=True):
            yield self.encode(x, generator), y


def _mnist(part: str, _: int) -> tuple[Tensor, Tensor]:
    name = {"train": "train", "test": "t10k"}[part]
    pixels, classes = (
        gzip.decompress((DATA / "mnist" / f"{name}-{what}-ubyte.gz").read_bytes())
        for what in ("images-idx3", "labels-idx1")
    )
    x = np.frombuffer(pixels, np.uint8, offset=16).reshape(-1, 784)
    return torch.tensor(x), torch.tensor(np.frombuffer(classes, np.uint8, offset=8)).long()


def _nmnist(part: str, timesteps: int) -> tuple[Tensor, Tensor]:
    frames, labels = [], []
    for path in sorted((DATA / "nmnist").glob(f"{part}-*.npz.xz")):
        z = np.load(io.BytesIO(lzma.decompress(path.read_bytes())))
        gap = z["gap"].astype(np.int64)
        gap[gap == 255] = z["big"]
        length = z["length"].astype(np.int64)
        ends, start = np.cumsum(gap), np.cumsum(length) - length
        key = ends - np.repeat(np.where(start > 0, ends[start - 1], 0), length)
        place = key // 2312 * timesteps // 30 * 2312 + key % 2312
        dense = np.zeros((len(length), timesteps * 2312), np.uint8)
        np.add.at(dense, (np.repeat(np.arange(len(length)), length), place), z["count"])
        frames.append(torch.tensor(dense.reshape(len(length), timesteps, 2312)))
        labels.append(torch.tensor(z["label"]).long())
    return torch.cat(frames), torch.cat(labels)


@cache
def task(dataset: str, timesteps: int) -> Task:
    task.cache_clear()  # keep only one dataset in memory
    return Task(dataset, timesteps)


def trained(folder: Path, dataset: str, timesteps: int, neuron: str, seed: int = 0) -> ul.Network:
    """Train 64 hidden neurons with Adam and a one-cycle rate, or load them from a folder."""
    data = task(dataset, timesteps)
    torch.manual_seed(seed)
    net = ul.Network((data.x.shape[-1], 64, 10), neuron=neuron)
    path = folder / f"{dataset}-{timesteps}-{neuron}-{seed}.safetensors"
    if not path.is_file():
        epochs = TASKS[dataset, timesteps][0]
        optimizer = torch.optim.Adam(net.parameters())
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, total_steps=data.steps(epochs))
        for x, y in data.epochs(epochs, seed):
            optimizer.zero_grad()
            cross_entropy(net(x), y).backward()
            optimizer.step()
            schedule.step()
        folder.mkdir(parents=True, exist_ok=True)
        save_file(net.state_dict(), path)
    net.load_state_dict(load_file(path))
    return net
