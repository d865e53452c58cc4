"""The tasks of `memory`: sequences that need memory, the nets for them, and how one is trained and judged."""

import math
import time
from collections.abc import Callable, Iterator
from functools import cache
from itertools import pairwise, product
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import ultralif as ul

Data = tuple[Tensor, Tensor]


class Task(NamedTuple):
    """A dataset as sequences ``[T, N, inputs]``, and the net and training for it."""

    dataset: str
    hidden: int
    epochs: int
    time_constants: tuple[tuple[float, float], ...]
    train: int | None = None
    """Training samples, the first ones; None, all."""
    rates: tuple[float, ...] = (3e-3, 1e-2)
    temperatures: tuple[float, ...] = (0.2, 0.3)
    ceilings: tuple[float, ...] = (1.0, 2.0)
    batch: int = 128
    held_epochs: int | None = None
    """Epochs of the runs that choose; None, as many as of those that are judged."""
    depth: int = 1
    """Hidden layers."""


SHORT, LONG = ((2.0, 15.0), (5.0, 30.0)), ((10.0, 100.0), (30.0, 800.0))
TASKS = {
    "randman": Task("randman", 256, 30, SHORT, rates=(1e-2,), batch=64),
    "rows": Task("mnist", 128, 6, SHORT, 10_000, (1e-2, 3e-2), (0.2,), (2.0,)),
    "nmnist": Task("n-mnist", 64, 20, SHORT, None, (3e-3, 1e-2), (0.2,), (2.0,), 256, 8),
    "permuted": Task("mnist", 256, 12, LONG, None, (3e-3, 1e-2), (0.2,), (2.0,), 256, 4, 3),
    "columns": Task("cifar10", 128, 20, SHORT, None, (1e-3, 3e-3), (0.3,), (2.0,), 256, 6),
    "pixels": Task("mnist", 256, 12, LONG, None, (3e-3, 1e-2), (0.2,), (2.0,), 256, 4, 3),
}
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "none": ("UltraPLIF", {"reset": "none"}),
    "saturate": ("UltraPLIF", {"reset": "saturate"}),
    "saturate, learned": ("UltraPLIF", {"reset": "saturate"}),  # a ceiling for each neuron, from v_sat on
    "zero": ("UltraPLIF", {"reset": "zero"}),
    "subtract": ("UltraPLIF", {"reset": "subtract"}),
    "SoftLIF": ("SoftLIF", {"reset": "zero", "learn_leak": True}),
    "LIF": ("LIF", {}),
}


class Cell(NamedTuple):
    """One run of the study."""

    task: str
    method: str
    lr: float
    time_constants: tuple[float, ...]
    eps: float
    v_sat: float
    seed: int
    held: bool


def grid(task: str, method: str) -> list[Cell]:
    """Return the runs among which the held-out samples choose."""
    given = TASKS[task]
    if method == "LIF":
        return [Cell(task, method, lr, (), 0.0, 0.0, 0, True) for lr in dict.fromkeys((*given.rates, 3e-2))]
    tops = given.ceilings if "saturate" in method else (0.0,)
    return [
        Cell(task, method, *values, 0, True)
        for values in product(given.rates, given.time_constants, given.temperatures, tops)
    ]


@cache
def load(task: str, folder: str | None, device: str) -> tuple[Data, Data]:
    """Return training and test sequences ``[T, N, inputs]`` with their labels."""
    given = TASKS[task]
    found = ul.data.load(given.dataset, timesteps=30, data_dir=folder, device=device)
    halves = []
    for split, most in ((found.train, given.train), (found.test, None)):
        count = len(split) if most is None else most
        index, labels = torch.arange(count), split.labels[:count]
        if task == "nmnist":  # counts as bytes take a quarter of the memory
            x = torch.cat([split.batch(part).byte() for part in index.split(5000)], 1)
        else:
            x = split.batch(index).float()
        if given.dataset in ("mnist", "cifar10"):
            x = (x / 255 if x.max() > 1 else x).flatten(0, -4)  # [N, C, H, W], one step
            x = x.permute(3, 0, 1, 2).flatten(2) if task == "columns" else x.transpose(1, 2).flatten(2)
            x = x if task == "columns" else x.transpose(0, 1)
        if task in ("pixels", "permuted"):
            x = x.permute(0, 2, 1).flatten(0, 1).unsqueeze(-1)
        if task == "permuted":
            x = x[torch.randperm(len(x), generator=torch.Generator().manual_seed(0))]
        halves.append((x.flatten(2), labels))
    return halves[0], halves[1]


class Columns(nn.Module):
    """Columns of a picture ``[T, B, 3 * 32]``, one a step: six convolutions along it, then a linear head."""

    def __init__(self, width: int, make: Callable[[int], nn.Module]) -> None:
        super().__init__()
        widths = (3, *[width] * 6)
        self.maps = nn.ModuleList(nn.Conv1d(a, b, 3, padding=1, bias=False) for a, b in pairwise(widths))
        self.norms = nn.ModuleList(nn.BatchNorm1d(width) for _ in self.maps)
        self.neurons = nn.ModuleList(make(width) for _ in self.maps)
        self.head = nn.Linear(8 * width, 10)

    def forward(self, x: Tensor) -> Tensor:
        steps, x = len(x), x.flatten(0, 1).unflatten(1, (3, 32))
        for place, (conv, norm, neuron) in enumerate(zip(self.maps, self.norms, self.neurons, strict=True)):
            x = conv(x)
            x = norm(F.max_pool1d(x, 2) if place in (2, 5) else x)
            x = neuron(x.permute(0, 2, 1).unflatten(0, (steps, -1))).flatten(0, 1).permute(0, 2, 1)
        return self.head(x.unflatten(0, (steps, -1)).mean(0).flatten(1))


def options_of(cell: Cell) -> tuple[str, dict[str, Any]]:
    """Return the neuron of a run and its arguments."""
    neuron, options = METHODS[cell.method]
    options = dict(options)
    if cell.time_constants:
        options |= {"time_constants": cell.time_constants, "eps": cell.eps, "eps_range": (cell.eps, 20.0)}
    if cell.v_sat:
        options["v_sat"] = cell.v_sat
    return neuron, options


def layers(net: nn.Module) -> Iterator[tuple[nn.Module, ul.nn.Neuron]]:
    """Yield what adds the bias of each layer of neurons, and the neurons."""
    yield from zip(net.norms, net.neurons, strict=True) if isinstance(net, Columns) else net.layers()


def build(cell: Cell, inputs: int, classes: int) -> nn.Module:
    """Return the net of a run; where nothing resets, biases begin below the level of an undriven membrane."""
    torch.manual_seed(cell.seed)
    given = TASKS[cell.task]
    neuron, options = options_of(cell)
    if cell.task == "columns":
        net = Columns(given.hidden, lambda width: ul.nn.NEURONS[neuron](parameter_shape=(width,), **options))
    else:
        net = ul.Network(
            (inputs, *[given.hidden] * given.depth, classes), neuron=neuron, neuron_options=options
        )
    if cell.method == "saturate, learned":
        for _, layer in layers(net):
            del layer.v_sat
            layer.v_sat = nn.Parameter(torch.full_like(layer.log_time_constant, cell.v_sat))
    if "saturate" in cell.method or cell.method == "none":
        with torch.no_grad():
            for biased, layer in layers(net):
                biased.bias += layer.eps * torch.log(-torch.expm1(layer.log_decay))
    return net


def recorded(step: Callable[[], None]) -> Callable[[], None]:
    """Return a step that was taken before as a CUDA graph; it is not taken now."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def train(cell: Cell, data: Data) -> nn.Module:
    """Train one net. On a GPU a step is recorded once a mode, and replayed."""
    x, labels = data
    net = build(cell, x.shape[2], int(labels.max()) + 1).to(x.device)
    given, on_gpu = TASKS[cell.task], x.is_cuda
    epochs = given.held_epochs if cell.held and given.held_epochs else given.epochs
    rate = torch.tensor(cell.lr, device=x.device)
    optimizer = torch.optim.Adam(net.parameters(), lr=rate, capturable=on_gpu, foreach=on_gpu)
    steps, count = epochs * math.ceil(x.shape[1] / given.batch), 0
    chosen = torch.empty(given.batch, dtype=torch.long, device=x.device)

    def step(index: Tensor = chosen) -> None:
        optimizer.zero_grad()
        F.cross_entropy(net(x[:, index].float()), labels[index]).backward()
        optimizer.step()

    for epoch in range(epochs):
        if epoch in (0, math.ceil(0.6 * epochs)):
            if epoch:
                ul.set_mode(net, "hard")
            take: Callable[[], None] | None = None
        for place, index in enumerate(torch.randperm(x.shape[1]).to(x.device).split(given.batch)):
            rate.fill_(cell.lr * (1 + math.cos(math.pi * count / steps)) / 2)
            count += 1
            if len(index) < given.batch or not on_gpu or place < 2:
                step(index)
                continue
            chosen.copy_(index)
            take = take or recorded(step)
            take()
    return net


@torch.no_grad()
def accuracy(net: nn.Module, data: Data) -> float:
    """Return the percentage of right answers."""
    parts = torch.arange(data[0].shape[1], device=data[0].device).split(1000)
    right = sum(int((net(data[0][:, i].float()).argmax(1) == data[1][i]).sum()) for i in parts)
    return 100 * right / len(data[1])


def memory(net: nn.Module, x: Tensor) -> float:
    """Return the mean of log |dV(t) / dV(t - 1)| in the first layer, by autograd, with soft spikes."""
    _, neuron = next(iter(layers(net)))
    seen: list[Tensor] = []
    handle = neuron.register_forward_pre_hook(lambda _, given: seen.append(given[0].detach()))
    with ul.mode(net, "soft"), handle:
        net(x[:, :64].float())
        state, found = None, []
        for step in seen[0]:
            before = None if state is None else type(state)(state.v.detach().requires_grad_())
            _, state = neuron.step(step, before)
            if before is not None:
                (slope,) = torch.autograd.grad(state.v.sum(), before.v)
                found.append(slope.abs().clamp(min=1e-12).log().mean())
        return float(torch.stack(found).mean())


def measure(cell: Cell, folder: str | None, device: str) -> dict[str, Any]:
    """Train and judge one run."""
    if device == "cuda":
        torch.cuda.set_stream(torch.cuda.Stream())  # a step on the default stream could not be recorded
    (x, labels), test = load(cell.task, folder, device)
    if cell.held:
        order = torch.randperm(x.shape[1], generator=torch.Generator().manual_seed(0)).to(x.device)
        cut = x.shape[1] * 4 // 5
        test = x[:, order[cut:]], labels[order[cut:]]
        x, labels = x[:, order[:cut]], labels[order[:cut]]
    began = time.perf_counter()
    net = train(cell, (x, labels)).eval()
    row: dict[str, Any] = cell._asdict() | {"seconds": round(time.perf_counter() - began, 1)}
    for mode in ("hard", "soft", "tropical"):
        if mode in next(iter(layers(net)))[1].modes:
            with ul.mode(net, mode):
                row[mode] = round(accuracy(net, test), 2)
    return row | {"memory": round(memory(net, test[0]), 4)}
