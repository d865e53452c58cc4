"""The tasks for `memory`: sequences that need memory, with training and evaluation."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import ultralif as ul
from research.studies.memory_nets import SURROGATE, MemoryCell, build, memory, modes
from ultralif.data.loader import CROP_AND_FLIP


class MemoryTask(NamedTuple):
    """A dataset as sequences, with its network and training settings."""

    dataset: str
    hidden: int
    epochs: int
    time_constants: tuple[tuple[float, float], ...]
    train: int | None = None
    """Number of training samples, counted from the start; None means all."""
    rates: tuple[float, ...] = (3e-3, 1e-2)
    temperatures: tuple[float, ...] = (0.2, 0.3)
    ceilings: tuple[float, ...] = (1.0, 2.0)
    batch: int = 128
    held_epochs: int | None = None
    """Epochs of the tuning runs; None means as many as for the final runs."""
    depth: int = 1
    """Hidden layers."""
    half: bool = False
    """Train in bfloat16 on a GPU."""
    soft: float = 0.6
    """Fraction of the epochs with soft spikes, if the neuron supports them; the rest use binary spikes."""


SHORT, LONG = ((2.0, 15.0), (5.0, 30.0)), ((2.0, 100.0), (2.0, 400.0))
DEEP, BRIEF = ((0.5, 4.0), (1.0, 8.0)), ((2.0, 50.0), (2.0, 200.0))
TASKS = {
    "randman": MemoryTask("randman", 256, 30, SHORT, rates=(1e-2,), batch=64),
    "rows": MemoryTask("mnist", 128, 6, SHORT, 10_000, (1e-2, 3e-2), (0.2,), (2.0,)),
    "nmnist": MemoryTask("n-mnist", 64, 30, SHORT, None, (3e-3, 1e-2), (0.2, 0.5), (2.0,), 256, 8),
    "columns": MemoryTask("cifar10", 128, 15, DEEP, None, (3e-3,), (0.3, 0.5), (2.0,), 128, 3, half=True),
    "permuted": MemoryTask("mnist", 256, 12, LONG, None, (1e-2, 3e-2), (0.3,), (2.0,), 128, 3, 3, True, 0.0),
    "small": MemoryTask("mnist", 64, 8, BRIEF, 4_000, (1e-2, 3e-2), (0.3,), (2.0,), 128, None, 3, False, 0.0),
    "pixels": MemoryTask("mnist", 256, 12, LONG, None, (1e-2, 3e-2), (0.3,), (2.0,), 128, 3, 3, True, 0.0),
}


def grid(task: str, method: str) -> list[MemoryCell]:
    """Return the tuning runs, equally many for each method of a task.

    A surrogate's width is chosen from the temperatures, and its time constant from the midpoints of the
    ranges. The ceiling is an additional choice if there are several values.
    """
    given = TASKS[task]
    if method == "LIF":
        return [
            MemoryCell(task, method, lr, (), 0.0, 0.0, 0, True) for lr in dict.fromkeys((*given.rates, 3e-2))
        ]
    spread: tuple[tuple[float, ...], ...] = given.time_constants
    if method in SURROGATE:
        spread = tuple((round(math.sqrt(low * high), 1),) for low, high in given.time_constants)
    tops = given.ceilings if "saturate" in method else (0.0,)
    choices = product(given.rates, spread, given.temperatures, tops)
    return [MemoryCell(task, method, *values, 0, True) for values in choices]


@dataclass(frozen=True)
class TaskSamples:
    """Labelled bytes or numbers: sequences ``[T, N, inputs]``, or images ``[N, C, H, W]`` for columns."""

    x: Tensor
    labels: Tensor
    index: Tensor
    """Indices of the samples in this set."""

    def take(self, index: Tensor, *, changed: bool = False) -> tuple[Tensor, Tensor]:
        """Return a batch ``[T, B, inputs]`` with labels; images may be shifted and mirrored."""
        index = self.index[index]
        if self.x.dim() == 3:
            return self.x[:, index].float(), self.labels[index]
        images = self.x[index]
        if changed:
            place = images.device.index
            default = torch.default_generator if place is None else torch.cuda.default_generators[place]
            images = CROP_AND_FLIP(images, default)
        return images.permute(3, 0, 1, 2).flatten(2).float() / 255, self.labels[index]

    def __len__(self) -> int:
        return len(self.index)


@cache
def load(task: str, folder: str | None, device: str, most: int | None) -> tuple[TaskSamples, TaskSamples]:
    """Return training and test samples."""
    given = TASKS[task]
    found = ul.data.load(given.dataset, timesteps=30, data_dir=folder, device=device)
    halves = []
    for split, wanted in ((found.train, given.train), (found.test, None)):
        count = min(len(split), most or len(split), wanted or len(split))
        parts = torch.arange(count).split(2000)
        if given.dataset == "n-mnist":  # counts stored as bytes need a quarter of the memory
            x = torch.cat([split.batch(part).flatten(2).byte() for part in parts], 1)
        elif given.dataset == "randman":
            x = split.batch(torch.arange(count)).float().flatten(2)
        else:
            x = split.batch(torch.arange(count))
        if given.dataset == "mnist":
            x = F.avg_pool2d(x.float(), 2) if task == "small" else x.float()
            x = x.flatten(1).T / 255  # [pixels, N]
            x = x.unsqueeze(2) if task != "rows" else x.unflatten(0, (28, 28)).transpose(1, 2).contiguous()
        if task in ("permuted", "small"):
            x = x[torch.randperm(len(x), generator=torch.Generator().manual_seed(0)).to(x.device)]
        halves.append(TaskSamples(x, split.labels[:count], torch.arange(count, device=x.device)))
    return halves[0], halves[1]


def recorded(step: Callable[[], None], device: torch.device) -> Callable[[], None]:
    """Record an already executed step as a CUDA graph, or return the step unchanged if recording fails."""
    graph, here = torch.cuda.CUDAGraph(), torch.cuda.current_stream(device)
    try:
        with torch.cuda.graph(graph):
            step()
    except RuntimeError as error:
        torch.cuda.set_stream(here)  # make the random generator usable again
        generator = torch.cuda.default_generators[here.device.index]
        generator.graphsafe_set_state(torch.Generator(here.device).graphsafe_get_state())
        print(f"the step could not be recorded, so kernels are launched one by one: {error}", flush=True)
        return step
    return graph.replay


def train(cell: MemoryCell, data: TaskSamples, epochs: int, *, record: bool) -> nn.Module:
    """Train one network; the training step may be recorded once per mode as a CUDA graph and replayed."""
    given, device = TASKS[cell.task], data.labels.device
    inputs = data.take(torch.zeros(1, dtype=torch.long, device=device))[0].shape[2]
    net = build(cell, (inputs, *[given.hidden] * given.depth, int(data.labels.max()) + 1)).to(device)
    per_epoch, on_gpu = len(data) // given.batch, device.type == "cuda"
    rate = torch.zeros((), device=device)
    optimizer = torch.optim.Adam(net.parameters(), lr=rate, capturable=on_gpu, fused=on_gpu)
    order = torch.empty(len(data), dtype=torch.long, device=device)
    done, places = torch.zeros((), dtype=torch.long, device=device), torch.arange(given.batch, device=device)

    def step() -> None:
        x, labels = data.take(order[done % per_epoch * given.batch + places], changed=True)
        rate.copy_(cell.lr * (1 + torch.cos(math.pi * done / (epochs * per_epoch))) / 2)
        optimizer.zero_grad()
        with torch.autocast(device.type, torch.bfloat16, enabled=given.half and on_gpu, cache_enabled=False):
            scores = net(x)
        F.cross_entropy(scores.float(), labels).backward()
        optimizer.step()
        done.add_(1)

    binary = math.ceil(given.soft * epochs)
    for epoch in range(epochs):
        if epoch in (0, binary):
            if epoch == binary:
                ul.set_mode(net, "hard")
            take: Callable[[], None] | None = None
        order.copy_(torch.randperm(len(data)))
        for place in range(per_epoch):
            if take is None and place == 2 and record:
                take = recorded(step, device)
            (take or step)()
    return net


@torch.no_grad()
def accuracy(net: nn.Module, data: TaskSamples) -> float:
    """Return the accuracy in percent."""
    right = 0
    for part in torch.arange(len(data), device=data.labels.device).split(500):
        x, labels = data.take(part)
        right += int((net(x).argmax(1) == labels).sum())
    return 100 * right / len(data)


def measure(
    cell: MemoryCell, folder: str | None, device: str, most: int | None = None, *, record: bool = False
) -> dict[str, Any]:
    """Train and evaluate one run.

    Args:
        cell: the run.
        folder: a folder to search for the dataset first.
        device: ``cpu`` or ``cuda``.
        most: maximum number of samples, counted from the start.
        record: record training steps as CUDA graphs.
    """
    if device == "cuda":
        if torch.cuda.current_stream() == torch.cuda.default_stream():  # steps cannot be recorded on it
            torch.cuda.set_stream(torch.cuda.Stream())
        torch.cuda.empty_cache()
        torch.set_float32_matmul_precision("high")
    data, test = load(cell.task, folder, device, most)
    given, epochs = TASKS[cell.task], TASKS[cell.task].epochs
    if cell.held:
        order = torch.randperm(len(data), generator=torch.Generator().manual_seed(0)).to(data.index.device)
        cut = len(data) * 4 // 5
        data, test = replace(data, index=order[:cut]), replace(data, index=order[cut:])
        epochs = given.held_epochs or epochs
    began = time.perf_counter()
    net = train(cell, data, epochs, record=record).eval()
    row: dict[str, Any] = cell._asdict() | {"seconds": round(time.perf_counter() - began, 1)}
    for mode in ("hard",) if cell.held else ("hard", "soft", "tropical"):
        if mode in modes(net):
            with ul.mode(net, mode):
                row[mode] = round(accuracy(net, test), 2)
    if not cell.held:
        few = torch.arange(min(64, len(test)), device=test.labels.device)
        row["memory"] = round(memory(net, test.take(few)[0]), 4)
    return row
