"""Real digits, and small networks trained on them."""

import gzip
import io
import logging
import lzma
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

import ultralif as ul

REPOSITORY = Path(__file__).parents[2]
TRAINING = 4000


class Digits(NamedTuple):
    """Event counts [T, B, inputs] as floats, and labels."""

    train_x: Tensor
    train_y: Tensor
    test_x: Tensor
    test_y: Tensor

    def batches(self, size: int = 64) -> Iterator[tuple[Tensor, Tensor]]:
        for index in torch.arange(len(self.train_y)).split(size):
            yield self.train_x[:, index], self.train_y[index]


@pytest.fixture(scope="session")
def data() -> Path:
    for folder in (os.environ.get("ULTRALIF_TEST_DATA"), REPOSITORY.parent / "shared" / "data"):
        if folder and Path(folder).is_dir():
            return Path(folder)
    pytest.skip("there is no real data here; set ULTRALIF_TEST_DATA")


@pytest.fixture(scope="session")
def mnist(data: Path) -> Digits:
    """Rate-coded MNIST at T=10: 4000 samples to train, 1000 to test."""
    generator = torch.Generator().manual_seed(0)
    parts: list[Tensor] = []
    for name, samples in (("train", TRAINING), ("t10k", 1000)):
        pixels, classes = (
            gzip.decompress((data / "mnist" / f"{name}-{what}-ubyte.gz").read_bytes())
            for what in ("images-idx3", "labels-idx1")
        )
        x = np.frombuffer(pixels, np.uint8, offset=16).reshape(-1, 784)[:samples]
        y = np.frombuffer(classes, np.uint8, offset=8)[:samples]
        chance = torch.tensor(x / 255, dtype=torch.float32) / 2
        parts += [
            (torch.rand((10, *chance.shape), generator=generator) < chance).float(),
            torch.tensor(y).long(),
        ]
    return Digits(*parts)


@pytest.fixture(scope="session")
def nmnist(data: Path) -> Digits:
    """Raw event counts of N-MNIST at T=10: 4000 recordings to train, 1000 to test."""
    return Digits(
        *_recordings(data / "nmnist" / "train-0.npz.xz", TRAINING),
        *_recordings(data / "nmnist" / "test-0.npz.xz", 1000),
    )


def _recordings(path: Path, samples: int) -> tuple[Tensor, Tensor]:
    z = np.load(io.BytesIO(lzma.decompress(path.read_bytes())))
    length = z["length"][:samples].astype(np.int64)
    gap = z["gap"][: length.sum()].astype(np.int64)
    gap[gap == 255] = z["big"][: (gap == 255).sum()]
    ends = np.cumsum(gap)
    start = np.cumsum(length) - length
    key = ends - np.repeat(np.where(start > 0, ends[start - 1], 0), length)
    frames = np.zeros((samples, 30 * 2312), np.float32)
    frames[np.repeat(np.arange(samples), length), key] = z["count"][: length.sum()]
    binned = frames.reshape(samples, 10, 3, 2312).sum(2)
    return torch.tensor(binned.transpose(1, 0, 2)), torch.tensor(z["label"][:samples]).long()


Train = Callable[[str, Digits], ul.Network]


@pytest.fixture(scope="session")
def train() -> Train:
    """Train a network of 32 hidden neurons for one epoch; the same call gives the same network."""
    trained: dict[tuple[str, int], ul.Network] = {}

    def train(neuron: str, digits: Digits) -> ul.Network:
        key = (neuron, digits.train_x.shape[-1])
        if key not in trained:
            torch.manual_seed(0)
            net = ul.Network((digits.train_x.shape[-1], 32, 10), neuron=neuron)
            optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)
            for x, y in digits.batches():
                optimizer.zero_grad()
                cross_entropy(net(x), y).backward()
                optimizer.step()
            trained[key] = net
        return trained[key]

    return train


@pytest.fixture
def quiet() -> Iterator[None]:
    """Silence what other libraries log."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)
