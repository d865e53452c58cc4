"""Measure data loading: speed compared with a DataLoader and a training step, decoding, and memory.

    python benchmarks/data_feeding.py feeding         # MNIST, B=128, T=10: ours against Dataset + DataLoader
    python benchmarks/data_feeding.py steps           # a batch and the training step that uses it
    python benchmarks/data_feeding.py epoch           # N-MNIST, T=30: an epoch of training, with peak memory
    python benchmarks/data_feeding.py decode SCRATCH  # 60,000 + 10,000 recordings, made from the raw ones

Datasets are found as in `ultralif data list` (set ULTRALIF_DATA); ``decode`` copies raw N-MNIST recordings
from ULTRALIF_DATA/nmnist-raw. Blocks of calls take turns, so that other work on the machine affects all of
them alike. Processor times (all threads of this process) and wall times are medians over blocks, with the
fastest block in parentheses.
"""

import argparse
import os
import resource
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Dataset

import ultralif as ul
from ultralif.data import Loader, load
from ultralif.data.split import Split

BATCH = 128


class Plain(Dataset):
    """A dataset as in tutorials: one image at a time, encoded when it is fetched."""

    def __init__(self, split: Split, timesteps: int) -> None:
        self.images = split.batch(torch.arange(len(split)))
        self.labels = split.labels
        self.timesteps = timesteps

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, i: int) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.images[i].float() / 255
        return (torch.rand(self.timesteps, *x.shape) < 0.5 * x).float(), self.labels[i]


def forever(make: Callable[[], Iterator]) -> Iterator:
    while True:
        yield from make()


def alternate(calls: dict[str, Callable[[], object]], rounds: int, block: int) -> None:
    """Time each call in alternating blocks, and print a line for each."""
    spent: dict[str, list[tuple[float, float]]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            call()
            began, clock = time.process_time(), time.perf_counter()
            for _ in range(block):
                call()
            processor, wall = time.process_time() - began, time.perf_counter() - clock
            spent[name].append((1e3 * processor / block, 1e3 * wall / block))
    base = None
    for name, pairs in spent.items():
        processor, clock = (sorted(values) for values in zip(*pairs, strict=True))
        middle, wall = statistics.median(processor), statistics.median(clock)
        base = base or middle
        print(f"{name:34} processor {middle:7.2f} ms ({processor[0]:.2f}), {base / middle:.1f}x", end="; ")
        print(f"clock {wall:7.2f} ms ({clock[0]:.2f})")


def in_a_row(name: str, batches: Iterator, count: int = 150) -> None:
    """Time consecutive batches, as needed for worker processes."""
    for _ in range(10):
        next(batches)
    started = time.perf_counter()
    for _ in range(count):
        next(batches)
    print(
        f"{name:34} clock {1e3 * (time.perf_counter() - started) / count:7.2f} ms a batch, {count} in a row"
    )


def feeding() -> None:
    split = load("mnist").train
    torch.set_num_threads(1)

    def plain(workers: int) -> Iterator:
        return forever(lambda: iter(DataLoader(Plain(split, 10), BATCH, shuffle=True, num_workers=workers)))

    loader = Loader(split, BATCH, timesteps=10)
    ours, theirs = forever(lambda: loader.epoch(0)), plain(0)
    print(f"MNIST, B={BATCH}, T=10, rate, one thread")
    calls = {"Dataset + DataLoader": lambda: next(theirs), "ultralif.data.Loader": lambda: next(ours)}
    alternate(calls, rounds=20, block=20)
    in_a_row("Dataset + DataLoader, 2 workers", plain(2))
    in_a_row("ultralif.data.Loader", ours)


def training(sizes: tuple[int, ...]) -> Callable[[torch.Tensor, torch.Tensor], None]:
    net = ul.Network(sizes, neuron="LIF")
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)

    def step(x: torch.Tensor, labels: torch.Tensor) -> None:
        loss = cross_entropy(net(x), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def steps() -> None:
    torch.set_num_threads(1)
    for name, timesteps in (("mnist", 10), ("cifar10", 10), ("n-mnist", 10), ("n-mnist", 30)):
        data = load(name, timesteps)
        loader = Loader(data.train, BATCH, timesteps=timesteps, augment=name == "cifar10")
        batches = forever(lambda loader=loader: loader.epoch(0))
        batch = next(batches)
        step = training((int(np.prod(data.shape)), 64, data.classes))
        print(f"{name}, B={BATCH}, T={timesteps}, one thread")
        calls = {
            "training step (LIF, 64 neurons)": lambda step=step, batch=batch: step(*batch),
            "its batch": lambda b=batches: next(b),
        }
        alternate(calls, rounds=10, block=5)


def memory() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def epoch() -> None:
    torch.set_num_threads(2)
    before = memory()
    started = time.perf_counter()
    data = load("n-mnist", 30)
    print(f"loaded from {data.folder} in {time.perf_counter() - started:.1f} s")
    print(f"peak memory {before:.2f} GiB before, {memory():.2f} GiB after")
    loader = Loader(data.train, BATCH)
    started = time.perf_counter()
    for x, _ in loader.epoch(0):
        assert x.shape[0] == 30
    print(f"an epoch of {loader.steps} batches in {time.perf_counter() - started:.1f} s: {memory():.2f} GiB")
    step = training((2312, 64, 10))
    started = time.perf_counter()
    for x, labels in loader.epoch(1):
        step(x, labels)
    print(f"an epoch of training in {time.perf_counter() - started:.1f} s: {memory():.2f} GiB")


def copies(folder: Path) -> Path:
    """Write as many recordings as N-MNIST has: the raw ones, slightly shifted and randomly thinned."""
    raw = Path(os.environ["ULTRALIF_DATA"]) / "nmnist-raw"
    rng = np.random.default_rng(0)
    for half, count in (("Train", 60_000), ("Test", 10_000)):
        paths = sorted((raw / half).glob("*/*.bin"))
        events = [np.fromfile(path, np.uint8).reshape(-1, 5) for path in paths]
        for label in range(10):
            (folder / half / str(label)).mkdir(parents=True)
        for i in range(count):
            copy = events[i % len(paths)].copy()
            copy[:, :2] = np.clip(copy[:, :2].astype(int) + rng.integers(-2, 3, 2), 0, 33)
            kept = copy[rng.random(len(copy)) < rng.uniform(0.9, 1)]
            kept.tofile(folder / half / paths[i % len(paths)].parent.name / f"{i + 1:05d}.bin")
    return folder


def decode(scratch: Path) -> None:
    folder = scratch / "n-mnist"
    if not folder.exists():
        copies(folder)
    for timesteps in (1, 10, 30):
        for what in ("decoded", "found again"):
            started = time.perf_counter()
            data = load("n-mnist", timesteps, scratch)
            seconds = time.perf_counter() - started
            entries = data.train.store.keys.numel() + data.test.store.keys.numel()
            print(f"T={timesteps}: {what} in {seconds:.1f} s, {entries / 1e6:.0f} M entries", end="; ")
            print(f"peak memory {memory():.2f} GiB")


def main() -> None:
    shape = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=shape)
    parser.add_argument("what", choices=["feeding", "steps", "epoch", "decode"])
    parser.add_argument("scratch", type=Path, nargs="?", help="a folder for decode, with 4 GB of free space")
    arguments = parser.parse_args()
    if arguments.what == "decode":
        if arguments.scratch is None:
            parser.error("decode needs a scratch folder")
        decode(arguments.scratch)
    else:
        {"feeding": feeding, "steps": steps, "epoch": epoch}[arguments.what]()


if __name__ == "__main__":
    main()
