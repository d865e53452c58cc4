"""Accuracy against instructions, RAM and flash: spiking and quantised ReLU networks of several widths.

    python benchmarks/board_curve.py train --data FOLDER --out NETS     # minutes on a GPU; a CPU takes hours
    python benchmarks/board_curve.py count --data FOLDER --nets NETS    # in integers and in the emulator

FOLDER has the folders mnist and fashion-mnist with their four files. All networks have the shapes of vgg5
times a width and one time step, and are trained alike: Muon, 20 epochs, images moved by up to two pixels
(Fashion-MNIST is mirrored too). A ReLU network is trained with weights and activations of 8 bits. A spiking
one is soft for 14 epochs, then binary; its penalty is the share of a dense network's additions that its
spikes need. "events" reads pixels as events. `count` writes docs/results/board-curve.json.
"""

import gc
import gzip
import os
import sys
import time
from argparse import ArgumentParser, Namespace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, multiprocessing, nn
from torch.nn import functional as F

import ultralif as ul

sys.path.append(str(Path(__file__).parents[1] / "examples"))
import speedrun

CHANNELS = 16, 32, 32, 64
POOLED = True, False, True, True
DATASETS = "mnist", "fashion-mnist"
PLAN: list[tuple[str, float, float]] = [  # kind, width, penalty
    *(("relu", width, 0.0) for width in (0.1875, 0.25, 0.375, 0.5, 0.75, 1.0)),
    *(("spiking", width, penalty) for width in (0.25, 0.5, 0.75, 1.0, 1.5) for penalty in (0.0, 1.0)),
    *(("spiking", width, 4.0) for width in (1.0, 1.5)),
    *(("events", width, 1.0) for width in (0.5, 1.0, 1.5)),
]
GIVEN = Namespace(
    epochs=20, batch=500, optimizer="muon", lr=0.1, norm_lr=0.05, eps_lr=0.05, head_lr=0.5, warmup=0.1,
    smoothing=0.1, shift=2, cutout=0, average=0.0, graph=1, neuron="UltraLIF", soft=0.7,
)  # fmt: skip


def images(folder: Path, part: str) -> tuple[Tensor, Tensor]:
    """Return pixels from 0 to 1, ``[N, 1, 28, 28]``, and labels."""
    raw = [
        np.frombuffer(gzip.decompress((folder / f"{part}-{what}-ubyte.gz").read_bytes()), np.uint8)
        for what in ("images-idx3", "labels-idx1")
    ]
    return torch.tensor(raw[0][16:]).view(-1, 1, 28, 28) / 255, torch.tensor(raw[1][8:]).long()


def widths(width: float) -> list[int]:
    """Return the channels of the four convolutions."""
    return [round(channels * width) for channels in CHANNELS]


def straight(x: Tensor, rounded: Tensor) -> Tensor:
    """Return rounded numbers with the gradient of those before."""
    return x + (rounded - x).detach()


def eight_bits(weight: Tensor) -> Tensor:
    """Round weights to int8 with a scale for each output channel."""
    scale = weight.detach().abs().flatten(1).amax(1).clamp(min=1e-8).div(127)
    scale = scale.view(-1, *[1] * (weight.dim() - 1))
    return straight(weight, (weight / scale).round() * scale)


class ReLU8(nn.Module):
    """ReLU with activations of 8 bits below a learned ceiling."""

    def __init__(self) -> None:
        super().__init__()
        self.top = nn.Parameter(torch.tensor(4.0))

    def forward(self, x: Tensor) -> Tensor:
        top = self.top.abs() + 1e-3
        kept = torch.minimum(x.relu(), top)
        return straight(kept, (kept / top * 255).round() * top / 255)


class Dense(nn.Module):
    """The ReLU network: convolution, pooling, batch norm and ReLU, four times; then a mean and a head."""

    def __init__(self, width: float) -> None:
        super().__init__()
        sizes = [1, *widths(width)]
        pairs = list(pairwise(sizes))
        self.convs = nn.ModuleList(nn.Conv2d(a, b, 3, padding=1, bias=False) for a, b in pairs)
        self.norms = nn.ModuleList(nn.BatchNorm2d(b) for b in sizes[1:])
        self.acts = nn.ModuleList(ReLU8() for _ in pairs)
        self.head = nn.Linear(sizes[-1], 10)

    def forward(self, x: Tensor) -> Tensor:
        for conv, norm, act, pooled in zip(self.convs, self.norms, self.acts, POOLED, strict=True):
            x = F.conv2d(x, eight_bits(conv.weight), padding=1)
            x = act(norm(F.max_pool2d(x, 2) if pooled else x))
        return F.linear(x.mean((2, 3)), eight_bits(self.head.weight), self.head.bias)


def build(kind: str, width: float) -> nn.Module:
    """Return a network without weights of its own."""
    if kind == "relu":
        return Dense(width)
    options = {"eps": 0.3, "learn_eps": True}
    sizes = widths(width)
    return ul.models.vgg(
        ((sizes[0],), tuple(sizes[1:3]), (sizes[3],)), channels=1, timesteps=1, neuron_options=options
    )


class Training(speedrun.Training):
    """The speedrun's training in float32, with a penalty on spikes."""

    def __init__(self, net: nn.Module, pixels: Tensor, given: Namespace) -> None:
        self.spent: list[Tensor] = []
        sizes = [*widths(given.width), 10]
        taps = (9, 9, 9, 1 / 9)  # of a spike, for each channel of the next layer; the head reads means
        places = (196, 196, 49, 9)
        dense = [p * c * t * n for p, c, t, n in zip(places, sizes, taps, sizes[1:], strict=False)]
        for neuron, cost in zip(
            (m for m in net.modules() if isinstance(m, ul.nn.Neuron)), dense, strict=False
        ):
            share = cost / sum(dense)
            neuron.register_forward_hook(
                lambda module, x, spikes, share=share: self.spent.append(spikes.mean() * share)
            )
        super().__init__(net, pixels, given)

    def step(self) -> None:
        self.net.zero_grad()
        self.spent.clear()
        chosen = self.order.index_select(0, self.count % len(self.order))[0]
        said = self.net(self.seen[chosen])
        loss = F.cross_entropy(said, self.labels[chosen], label_smoothing=self.given.smoothing)
        if self.given.penalty:
            loss = loss + self.given.penalty * torch.stack(self.spent).sum()
        loss.backward()
        factor = self.factors.index_select(0, self.count)[0]
        for opt in self.opts:
            opt.step(factor)
        self.count.add_(1)

    def set_mode(self, epoch: int) -> str:
        if self.given.kind == "relu":
            return "relu"
        return super().set_mode(epoch)

    def fit(self, pixels: Tensor, labels: Tensor, seed: int) -> None:
        given = self.given
        drawn = {"generator": torch.Generator(speedrun.DEVICE).manual_seed(seed), "device": speedrun.DEVICE}
        padded = F.pad(pixels, [given.shift] * 4)
        self.labels.copy_(labels)
        for epoch in range(given.epochs):
            graph = self.graphs.get(self.set_mode(epoch))
            mirrored = (torch.rand(len(pixels), **drawn) < 0.5) & bool(given.flip)
            self.seen.copy_(speedrun.augmented(padded, mirrored, given.shift, 0, drawn))
            self.order.copy_(torch.randperm(len(pixels), **drawn)[: self.order.numel()].view_as(self.order))
            for _ in range(len(self.order)):
                graph.replay() if graph else self.step()
        settle(self.net, pixels[:10000], given.batch)


def settle(net: nn.Module, pixels: Tensor, batch: int) -> None:
    """Take the statistics of batch norm anew, as plain means, with the spikes as they are now."""
    for norm in [module for module in net.modules() if isinstance(module, nn.BatchNorm2d)]:
        norm.reset_running_stats()
        norm.momentum = None
    with torch.no_grad():
        for x in pixels.split(batch):
            net(x)


def accuracy(net: nn.Module, pixels: Tensor, labels: Tensor) -> float:
    """Return the percentage of correct answers."""
    net.eval()
    with torch.no_grad():
        right = sum(
            int((net(x).argmax(1) == y).sum())
            for x, y in zip(pixels.split(1000), labels.split(1000), strict=True)
        )
    return 100 * right / len(labels)


def train_one(
    data: Path, out: Path, dataset: str, seed: int, kind: str, width: float, penalty: float
) -> None:
    """Train one network and keep its weights, unless that was done."""
    name = f"{dataset}_{kind}_{width:g}_{penalty:g}_{seed}"
    if (out / f"{name}.pt").exists():
        return
    begun = time.perf_counter()
    parts = []
    for part in ("train", "t10k"):
        x, y = (each.to(speedrun.DEVICE) for each in images(data / dataset, part))
        parts.append(((x > 0.5).float() if kind == "events" else x, y))
    (x, y), test = (tuple(each[: GIVEN.subset] for each in part) for part in parts)
    own = {"kind": kind, "width": width, "penalty": penalty, "flip": dataset == "fashion-mnist"}
    torch.manual_seed(seed)
    net = build(kind, width).to(speedrun.DEVICE)
    gc.collect()
    gc.disable()  # an old graph must not be freed while a new one is recorded
    training = Training(net, x, Namespace(**vars(GIVEN) | own))
    gc.enable()
    training.fit(x, y, seed)
    found = accuracy(net, *test)
    torch.save({"state": net.state_dict(), "accuracy": found}, out / f"{name}.part")
    (out / f"{name}.part").rename(out / f"{name}.pt")
    print(f"{name:40} {found:.2f} %, {time.perf_counter() - begun:.0f} s", flush=True)


def work(queue: Any, data: Path, out: Path, given: dict[str, Any], until: float) -> None:
    """Train networks until there are no more, or the time is over."""
    vars(GIVEN).update(given)
    while time.time() < until:
        task = queue.get()
        if task is None:
            return
        train_one(data, out, *task)


def train(given: Namespace) -> None:
    """Train all networks, the first seed of every one first."""
    given.out.mkdir(parents=True, exist_ok=True)
    own = {"epochs": given.epochs, "subset": given.subset, "batch": given.batch}
    tasks = [(d, s, *p) for s in range(given.seeds) for p in PLAN for d in DATASETS]
    tasks = [task for task in tasks if given.only in "_".join(map(str, task))]
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    for task in [*tasks, *[None] * given.workers]:
        queue.put(task)
    until = time.time() + given.seconds
    workers = [
        context.Process(target=work, args=(queue, given.data, given.out, own, until))
        for _ in range(given.workers)
    ]
    for each in workers:
        each.start()
    for each in workers:
        each.join()
    queue.cancel_join_thread()
    print(len(list(given.out.glob("*.pt"))), "networks of", len(tasks))


def main() -> None:
    parser = ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("train", "count"))
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=GIVEN.epochs)
    parser.add_argument("--batch", type=int, default=GIVEN.batch)
    parser.add_argument("--subset", type=int, help="use only the first images")
    parser.add_argument("--only", default="", help="networks whose names hold this")
    parser.add_argument("--workers", type=int, default=1, help="processes that train at once")
    parser.add_argument("--seconds", type=float, default=1e9, help="start no network after this time")
    given = parser.parse_args()
    train(given)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
