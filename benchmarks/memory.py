"""What each reset gives on tasks that need memory, and how long it remembers: a study that runs by itself.

    python benchmarks/memory.py --minutes 10                       # goes on where it stopped; randman alone
    python benchmarks/memory.py --task rows --data FOLDER          # MNIST by rows; FOLDER holds mnist
    python benchmarks/memory.py --plan                             # what is done and what is lacking
    python benchmarks/memory.py --page                             # tables and figure of docs/memory.md

Every finished run is a line of ``--out``. Learning rate, time constants, temperature and ceiling are chosen
for each method and task on a held-out fifth of the training samples. The chosen setting is trained from five
seeds on all of them and judged by the test set after the last epoch. Nets have one hidden layer and a linear
readout of its mean spike. They are trained with soft spikes for the first three fifths of the epochs and with
binary ones after that; LIF with binary ones throughout.
"""

import argparse
import json
import math
import re
import statistics
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

import ultralif as ul

ROOT = Path(__file__).parents[1]
SEEDS = range(5)
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


SHORT, LONG = ((2.0, 15.0), (5.0, 30.0)), ((10.0, 100.0), (30.0, 800.0))
TASKS = {
    "randman": Task("randman", 256, 30, SHORT, rates=(1e-2,)),
    "rows": Task("mnist", 128, 6, SHORT, 10_000, (1e-2, 3e-2), (0.2,), (2.0,)),
    "nmnist": Task("n-mnist", 64, 20, SHORT),
    "columns": Task("cifar10", 512, 50, SHORT),
    "pixels": Task("mnist", 256, 50, LONG),
    "permuted": Task("mnist", 256, 50, LONG),
}
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "none": ("UltraPLIF", {"reset": "none"}),
    "saturate": ("UltraPLIF", {"reset": "saturate"}),
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
        return [Cell(task, method, lr, (), 0.0, 0.0, 0, True) for lr in (*given.rates, 3e-2)]
    tops = given.ceilings if method == "saturate" else (0.0,)
    return [
        Cell(task, method, *values, 0, True)
        for values in product(given.rates, given.time_constants, given.temperatures, tops)
    ]


def load(task: str, folder: str | None, device: str) -> tuple[Data, Data]:
    """Return training and test sequences ``[T, N, inputs]`` with their labels."""
    given = TASKS[task]
    found = ul.data.load(given.dataset, timesteps=30, data_dir=folder, device=device)
    halves = []
    for split, most in ((found.train, given.train), (found.test, None)):
        count = len(split) if most is None else most
        x, labels = split.batch(torch.arange(count)).float(), split.labels[:count]
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


def build(cell: Cell, inputs: int, classes: int) -> ul.Network:
    """Return the net of a run; where nothing resets, biases begin below the level of an undriven membrane."""
    torch.manual_seed(cell.seed)
    neuron, options = METHODS[cell.method]
    options = dict(options)
    if cell.time_constants:
        options |= {"time_constants": cell.time_constants, "eps": cell.eps, "eps_range": (cell.eps, 20.0)}
    if cell.v_sat:
        options["v_sat"] = cell.v_sat
    net = ul.Network((inputs, TASKS[cell.task].hidden, classes), neuron=neuron, neuron_options=options)
    if cell.method in ("none", "saturate"):
        with torch.no_grad():
            for linear, layer in net.layers():
                linear.bias += layer.eps * torch.log(-torch.expm1(layer.log_decay))
    return net


def train(cell: Cell, data: Data) -> ul.Network:
    """Train one net."""
    x, labels = data
    net = build(cell, x.shape[2], int(labels.max()) + 1).to(x.device)
    epochs, batch = TASKS[cell.task].epochs, 64 if x.shape[1] < 5000 else 128
    optimizer = torch.optim.Adam(net.parameters(), lr=cell.lr)
    steps = epochs * math.ceil(x.shape[1] / batch)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for epoch in range(epochs):
        if epoch >= 0.6 * epochs:
            ul.set_mode(net, "hard")
        for index in torch.randperm(x.shape[1]).split(batch):
            loss = cross_entropy(net(x[:, index]), labels[index])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    return net


@torch.no_grad()
def accuracy(net: ul.Network, data: Data) -> float:
    """Return the percentage of right answers."""
    parts = torch.arange(data[0].shape[1]).split(1000)
    right = sum(int((net(data[0][:, i]).argmax(1) == data[1][i]).sum()) for i in parts)
    return 100 * right / len(data[1])


def memory(net: ul.Network, x: Tensor) -> float:
    """Return the mean of log |dV(t) / dV(t - 1)| in the hidden layer, by autograd, with soft spikes."""
    linear, neuron = next(net.layers())
    with ul.mode(net, "soft"):
        current, state, found = linear(x[:, :64]).detach(), None, []
        for step in current:
            before = None if state is None else type(state)(state.v.detach().requires_grad_())
            _, state = neuron.step(step, before)
            if before is not None:
                (slope,) = torch.autograd.grad(state.v.sum(), before.v)
                found.append(slope.abs().clamp(min=1e-12).log().mean())
        return float(torch.stack(found).mean())


def measure(cell: Cell, halves: tuple[Data, Data]) -> dict[str, Any]:
    """Train and judge one run."""
    (x, labels), test = halves
    if cell.held:
        order = torch.randperm(x.shape[1], generator=torch.Generator().manual_seed(0)).to(x.device)
        cut = x.shape[1] * 4 // 5
        test = x[:, order[cut:]], labels[order[cut:]]
        x, labels = x[:, order[:cut]], labels[order[:cut]]
    began = time.perf_counter()
    net = train(cell, (x, labels))
    row: dict[str, Any] = cell._asdict() | {"seconds": round(time.perf_counter() - began, 1)}
    for mode in ("hard", "soft", "tropical"):
        if mode in net.neurons[0].modes:
            with ul.mode(net, mode):
                row[mode] = round(accuracy(net, test), 2)
    return row | {"memory": round(memory(net, test[0]), 4)}


def key(row: dict[str, Any]) -> Cell:
    """Return the run of a line."""
    return Cell(
        **{name: tuple(row[name]) if name == "time_constants" else row[name] for name in Cell._fields}
    )


def todo(task: str, rows: list[dict[str, Any]]) -> Iterator[Cell]:
    """Yield the runs that are lacking; the last ones depend on what the first find."""
    done = {key(row) for row in rows}
    for method in METHODS:
        cells = grid(task, method)
        yield from (cell for cell in cells if cell not in done)
        held = [row for row in rows if key(row) in set(cells)]
        if len(held) == len(cells):
            best = key(max(held, key=lambda row: row["hard"]))
            for seed in SEEDS:
                if (cell := best._replace(seed=seed, held=False)) not in done:
                    yield cell


def table(rows: list[dict[str, Any]]) -> str:
    """Return the results of all tasks as a table."""
    lines = [
        "| task | reset or neuron | seeds | hard | soft | tropical | mean log abs(dV/dV) | steps |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for task, method in product(TASKS, METHODS):
        found = [row for row in rows if (row["task"], row["method"], row["held"]) == (task, method, False)]
        if not found:
            continue
        cells = [str(len(found))]
        for name in ("hard", "soft", "tropical"):
            values = [row[name] for row in found if name in row]
            spread = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
            cells.append(f"{statistics.mean(values):.1f}{spread}" if values else "")
        kept = statistics.mean(row["memory"] for row in found)
        cells += [f"{kept:.2f}", f"{-1 / kept:.1f}"]
        lines.append(f"| {task} | {method} | {' | '.join(cells)} |")
    return "\n".join(lines)


def speeds(name: str) -> str:
    """Return the times of `memory_speed`, steps beside chunks, in milliseconds."""
    path = ROOT / "docs" / "results" / f"memory-speed-{name}.json"
    if not path.exists():
        return ""
    found = json.loads(path.read_text())
    kind = "graph_us" if name == "h200" else "eager_us"
    rows = {
        tuple(row[n] for n in ("time", "batch", "neurons", "reset", "way")): row
        for row in found["rows"]
        if not row["count"]
    }
    lines = [
        f"Forward and backward, {found['machine']['device']}"
        + (", as a recorded graph:" if name == "h200" else ", one thread:"),
        "",
        "| T | B | neurons | reset | steps, ms | chunks, ms | ratio |",
        "|---|---|---|---|---|---|---|",
    ]
    for (*layer, way), row in rows.items():
        if way == "steps" and (*layer, "chunks") in rows:
            a, b = row[kind] / 1000, rows[*layer, "chunks"][kind] / 1000
            lines.append(f"| {' | '.join(map(str, layer))} | {a:.2f} | {b:.2f} | {a / b:.1f} |")
    return "\n".join(lines) + "\n"


def figure(path: Path) -> None:
    """Draw how much of a membrane is left after a number of steps, for each reset, under noise."""
    import matplotlib.pyplot as plt

    current = 0.3 * torch.randn(60, 64, 32, generator=torch.Generator().manual_seed(0))
    drawn = {
        "none, c = 30": ul.UltraLIF(reset="none", leak=math.exp(-0.2 / 30)),
        "none, c = 10": ul.UltraLIF(reset="none", leak=math.exp(-0.2 / 10)),
        "saturate at 0.6, c = 30": ul.UltraLIF(reset="saturate", v_sat=0.6, leak=math.exp(-0.2 / 30)),
        "subtract, c = 30": ul.UltraLIF(reset="subtract", leak=math.exp(-0.2 / 30)),
        "zero, leak 0.9 (the paper)": ul.UltraLIF(),
        "LIF, leak 0.9": ul.LIF(mode="soft"),
    }
    plt.figure(figsize=(6, 3.5))
    for label, neuron in drawn.items():
        x = current - (0.2 * math.log(30) if "c = " in label else 0.0)
        first = torch.zeros(64, 32, requires_grad=True)
        state, left = neuron.state_type(first), [1.0]
        for step in x:
            _, state = neuron.step(step, state)
            (slope,) = torch.autograd.grad(state.v.sum(), first, retain_graph=True)
            left.append(max(1e-8, float(slope.abs().mean())))
        plt.semilogy(left, label=label)
    plt.ylim(1e-4, 1.5)
    plt.xlabel("steps n")
    plt.ylabel("mean |dV(n) / dV(0)|")
    plt.legend(fontsize=8)
    plt.tight_layout()
    plt.savefig(path, dpi=110)


def fill(rows: list[dict[str, Any]]) -> None:
    """Write tables and figure of the page."""
    page = ROOT / "docs" / "memory.md"
    text = page.read_text()
    speed = "\n".join(filter(None, (speeds("h200"), speeds("cpu"))))
    for name, block in (("speed", speed), ("table", table(rows) + "\n")):
        pattern = rf"<!-- {name} -->\n.*?<!-- end -->"
        text = re.sub(pattern, lambda _, n=name, b=block: f"<!-- {n} -->\n{b}<!-- end -->", text, flags=re.S)
    page.write_text(text)
    figure(ROOT / "docs" / "images" / "memory.png")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--task", choices=TASKS, default="randman")
    parser.add_argument("--data", help="a folder to search for the dataset first")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--minutes", type=float, default=math.inf)
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "memory.jsonl")
    parser.add_argument("--plan", action="store_true")
    parser.add_argument("--page", action="store_true")
    args = parser.parse_args()
    began = time.perf_counter()

    def finished() -> list[dict[str, Any]]:
        lines = args.out.read_text().splitlines() if args.out.exists() else []
        return [json.loads(line) for line in lines]

    if args.page:
        fill(finished())
        return
    if args.plan:
        for task in TASKS:
            rows = finished()
            done = sum(row["task"] == task for row in rows)
            print(f"{task}: {done} runs done, at least {len(list(todo(task, rows)))} lacking")
        return
    halves = load(args.task, args.data, args.device)
    while time.perf_counter() - began < 60 * args.minutes:
        cell = next(todo(args.task, finished()), None)
        if cell is None:
            return
        row = measure(cell, halves)
        print(json.dumps(row), flush=True)
        with args.out.open("a") as file:
            file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
