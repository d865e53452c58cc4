"""Plot accuracy against instructions, RAM and flash for spiking and quantized ReLU networks.

    python benchmarks/board_curve.py train --data FOLDER --out NETS     # minutes on a GPU, hours on a CPU
    python benchmarks/board_curve.py train --data FOLDER --out NETS --datasets cifar10
    python benchmarks/board_curve.py count --data FOLDER --nets NETS    # as integer networks, in the emulator

FOLDER contains the folders mnist and fashion-mnist with their four files, and cifar-10-batches-bin for
CIFAR-10. Training skips networks that are already in NETS, so the same command resumes it. All networks use
one time step and vgg5's layers, with channel counts multiplied by a width. They are trained the same way:
Muon, 20 epochs, images shifted by up to two pixels (and mirrored, except on MNIST). ReLU networks are trained
with 8-bit weights and activations. Spiking networks use soft spikes for 14 epochs, then binary ones.
Their penalty is the number of additions that the spikes need, as a share of a dense network's. "events" reads
pixels as events. `count` writes docs/results/board-curve.json.
"""

import gzip
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

import board
import numpy as np
import torch
from torch import Tensor, multiprocessing, nn
from torch.nn import functional as F

import ultralif as ul
from ultralif.export import IntegerNetwork, quantize, to_c
from ultralif.report import new_figure, save_figure

sys.path.append(str(Path(__file__).parents[1] / "examples"))
import speedrun

CURVE = board.ROOT / "docs/results/board-curve.json"
FIGURE = board.ROOT / "docs/images/board-curve.png"
CURVES = {
    "dense int8, CMSIS-NN": ("relu, .*", "m4, CMSIS-NN", "#5F6670", "s"),
    "spiking": (r"spiking, width [\d.]+", "m4", "#56B4E9", "o"),
    "spiking, trained to spike rarely": ("spiking, .*, penalty 1", "m4", "#0072B2", "o"),
}
"""Contents of the figure: the names of the networks, the cost, the colour and the marker."""
CHANNELS = 16, 32, 32, 64
POOLED = True, False, True, True
DATASETS = {"mnist": ("MNIST", 97, 99.8), "fashion-mnist": ("Fashion-MNIST", 82, 93)}  # limits of the figure
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


def images(data: Path, dataset: str, part: str) -> tuple[Tensor, Tensor]:
    """Return pixels from 0 to 1, ``[N, C, H, W]``, and labels."""
    if dataset == "cifar10":
        names = [f"data_batch_{i}" for i in range(1, 6)] if part == "train" else ["test_batch"]
        files = [(data / "cifar-10-batches-bin" / f"{name}.bin").read_bytes() for name in names]
        rows = torch.tensor(np.frombuffer(b"".join(files), np.uint8)).view(-1, 1 + 3 * 32 * 32)
        return rows[:, 1:].reshape(-1, 3, 32, 32) / 255, rows[:, 0].long()
    raw = [
        np.frombuffer(gzip.decompress((data / dataset / f"{part}-{what}-ubyte.gz").read_bytes()), np.uint8)
        for what in ("images-idx3", "labels-idx1")
    ]
    return torch.tensor(raw[0][16:]).view(-1, 1, 28, 28) / 255, torch.tensor(raw[1][8:]).long()


def widths(width: float) -> list[int]:
    """Return the channels of the four convolutions."""
    return [round(channels * width) for channels in CHANNELS]


def straight(x: Tensor, rounded: Tensor) -> Tensor:
    """Round numbers, and pass gradients through unchanged."""
    return x + (rounded - x).detach()


def eight_bits(weight: Tensor) -> Tensor:
    """Round weights to int8 with one scale per output channel."""
    scale = weight.detach().abs().flatten(1).amax(1).clamp(min=1e-8).div(127)
    scale = scale.view(-1, *[1] * (weight.dim() - 1))
    return straight(weight, (weight / scale).round() * scale)


class ReLU8(nn.Module):
    """ReLU with 8-bit activations below a learned ceiling."""

    def __init__(self) -> None:
        super().__init__()
        self.top = nn.Parameter(torch.tensor(4.0))

    def forward(self, x: Tensor) -> Tensor:
        top = self.top.abs() + 1e-3
        kept = torch.minimum(x.relu(), top)
        return straight(kept, (kept / top * 255).round() * top / 255)


class Dense(nn.Module):
    """The ReLU network: four times convolution, pooling, batch norm and ReLU, then a mean and a head."""

    def __init__(self, width: float, colors: int) -> None:
        super().__init__()
        sizes = [colors, *widths(width)]
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


def build(kind: str, width: float, colors: int) -> nn.Module:
    """Return an untrained network for images with one or three colour channels."""
    if kind == "relu":
        return Dense(width, colors)
    options = {"eps": 0.3, "learn_eps": True}
    sizes = widths(width)
    return ul.models.vgg(
        ((sizes[0],), tuple(sizes[1:3]), (sizes[3],)), channels=colors, timesteps=1, neuron_options=options
    )


class Training(speedrun.Training):
    """The speedrun's training in float32 with a spike penalty."""

    def __init__(self, net: nn.Module, pixels: Tensor, given: Namespace) -> None:
        self.spent: list[Tensor] = []
        sizes = [*widths(given.width), 10]
        half, quarter, last = ((pixels.shape[-1] // n) ** 2 for n in (2, 4, 8))
        taps = (9, 9, 9, 1 / last)  # additions per spike and output channel; the head reads means
        places = (half, half, quarter, last)
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
    """Recompute the batch norm statistics as plain means, with the current spikes."""
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
    return round(100 * right / len(labels), 2)


def train_one(
    data: Path, out: Path, dataset: str, seed: int, kind: str, width: float, penalty: float
) -> None:
    """Train one network and save its weights, unless they already exist."""
    name = f"{dataset}_{kind}_{width:g}_{penalty:g}_{seed}"
    if (out / f"{name}.pt").exists():
        return
    begun = time.perf_counter()
    parts = []
    for part in ("train", "t10k"):
        x, y = (each.to(speedrun.DEVICE) for each in images(data, dataset, part))
        parts.append(((x > 0.5).float() if kind == "events" else x, y))
    (x, y), test = (tuple(each[: GIVEN.subset] for each in part) for part in parts)
    own = {"kind": kind, "width": width, "penalty": penalty, "flip": dataset != "mnist"}
    torch.manual_seed(seed)
    net = build(kind, width, x.shape[1]).to(speedrun.DEVICE)
    training = Training(net, x, Namespace(**vars(GIVEN) | own))
    training.fit(x, y, seed)
    found = accuracy(net, *test)
    torch.save({"state": net.state_dict(), "accuracy": found}, out / f"{name}.part")
    (out / f"{name}.part").rename(out / f"{name}.pt")
    print(f"{name:40} {found:.2f} %, {time.perf_counter() - begun:.0f} s", flush=True)


def work(queue: Any, data: Path, out: Path, given: dict[str, Any], until: float) -> None:
    """Train networks until all are done or the time is up."""
    vars(GIVEN).update(given)
    while time.time() < until:
        task = queue.get()
        if task is None:
            return
        train_one(data, out, *task)


def train(given: Namespace) -> None:
    """Train all networks, starting with the first seed of each."""
    given.out.mkdir(parents=True, exist_ok=True)
    own = {"epochs": given.epochs, "subset": given.subset, "batch": given.batch}
    tasks = [(d, s, *p) for s in range(given.seeds) for p in PLAN for d in given.datasets]
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


class Trained(board.Subject):
    """A trained spiking network, converted to integers."""

    def __init__(self, name: str, net: IntegerNetwork, pixels: Tensor) -> None:
        super().__init__(name, 10)
        self.net, self.pixels = net, pixels

    def write(self, folder: Path) -> int:
        return to_c(self.net, folder, self.pixels[None, :2]).ram

    def frames(self, sample: int) -> list[bytes]:
        x = self.pixels[sample]
        return [(x if self.net.levels is None else self.net.levels(x)).byte().numpy().tobytes()]


def integers(net: nn.Module, kind: str, shape: Sequence[int]) -> IntegerNetwork:
    """Return the integer version of a spiking network for images of a given shape."""
    given = {"input_max": 1} if kind == "events" else {"input_range": (0.0, 1.0)}
    return quantize(net, timesteps=1, shape=shape, bits=16, clip_membrane=True, **given)


def judged(subject: Trained, pixels: Tensor, labels: Tensor) -> float:
    """Return the exported program's accuracy in percent, measured on this machine."""
    with tempfile.TemporaryDirectory() as made:
        subject.write(Path(made) / "net")
        subprocess.run(["make", "-s", "-C", f"{made}/net", "model"], check=True)
        levels = pixels if subject.net.levels is None else subject.net.levels(pixels)
        done = subprocess.run(
            [f"{made}/net/model"], input=levels.byte().numpy().tobytes(), capture_output=True, check=True
        )
    found = torch.tensor([int(line.split()[0]) for line in done.stdout.splitlines()])
    return round(100 * float((found == labels).double().mean()), 2)


def on_boards(subject: board.Subject) -> dict[str, Any]:
    """Return the instructions per inference, the flash and the state."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made) / "net"
        found = {"state": subject.write(folder)}
        return found | {name: board.count(subject, name, folder) for name in ("m0plus", "m4")}


def macs(width: float, colors: int, side: int) -> int:
    """Return the multiply-accumulates of a dense network."""
    a, b, c, d = widths(width)
    whole, half, quarter = (9 * (side // n) ** 2 for n in (1, 2, 4))
    return whole * colors * a + half * (a * b + b * c) + quarter * c * d + 10 * d


def count(given: Namespace) -> None:
    """Evaluate every integer network, and count one seed of each on a Cortex-M0+ and M4."""
    found: dict[str, Any] = json.loads(CURVE.read_text()) if CURVE.exists() else {}
    for path in sorted(given.nets.glob("*.pt"), key=lambda path: path.stem.rsplit("_", 1)[::-1]):
        dataset, kind, width, penalty, seed = path.stem.split("_")
        name = f"{dataset}, {kind}, width {width}" + (f", penalty {penalty}" if float(penalty) else "")
        row = found.setdefault(name, {"accuracy": {}})
        if seed in row["accuracy"]:
            continue
        pixels, labels = images(given.data, dataset, "t10k")
        colors, side = pixels.shape[1:3]
        net = build(kind, float(width), colors)
        net.load_state_dict(torch.load(path, map_location="cpu")["state"])
        if kind == "relu":
            row["accuracy"][seed] = accuracy(net, pixels, labels)
            row["macs"] = macs(float(width), colors, side)
            dense = board.Dense("im2col", 1, widths(float(width)), side, colors)
            row["boards"] = row.get("boards") or on_boards(dense)
        else:
            pixels = (pixels > 0.5).float() if kind == "events" else pixels
            ul.set_mode(net, "hard")
            integer = integers(net.eval(), kind, pixels.shape[1:])
            subject = Trained(name, integer, pixels)
            row["accuracy"][seed] = judged(subject, pixels, labels)
            row["boards"] = row.get("boards") or on_boards(subject)
        CURVE.write_text(json.dumps(dict(sorted(found.items())), indent=1) + "\n")
        print(name, row, flush=True)
    page = board.PAGE.read_text()
    text = f"<!-- curve -->\n\n{table(found)}\n\n<!-- /curve -->"
    board.PAGE.write_text(re.sub("<!-- curve -->.*<!-- /curve -->", lambda _: text, page, flags=re.DOTALL))
    draw(found)


def costs(row: dict[str, Any]) -> dict[str, float]:
    """Return millions of instructions on a Cortex-M0+ and M4, for dense networks also with CMSIS-NN."""
    found = {name: row["boards"][name]["instructions"] / 1e6 for name in ("m0plus", "m4")}
    if "macs" in row:
        found |= {
            f"{name}, CMSIS-NN": row["macs"] / board.DENSE_MACS * board.CMSIS[name] / 1e6
            for name in ("m0plus", "m4")
        }
    return found


def table(found: dict[str, Any]) -> str:
    """Return the page's table."""
    lines = [
        "| network | test accuracy, % | M0+ | M4 | by CMSIS-NN: M0+ | M4 | flash, kB | state, bytes |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, row in found.items():
        right, cost = list(row["accuracy"].values()), costs(row)
        cells = [f"{cost[name]:.2f}" if name in cost else "-" for name in (
            "m0plus", "m4", "m0plus, CMSIS-NN", "m4, CMSIS-NN"
        )]  # fmt: skip
        spread = f" ± {(max(right) - min(right)) / 2:.2f}" if len(right) > 1 else ""
        cells += [f"{row['boards']['m4']['flash'] / 1e3:.0f}", f"{row['boards']['state']:,}"]
        lines.append(f"| {name} | {fmean(right):.2f}{spread} ({len(right)}) | {' | '.join(cells)} |")
    return "\n".join(lines)


def draw(found: dict[str, Any]) -> None:
    """Draw accuracy against instructions on a Cortex-M4, with the range over seeds."""
    figure, axes = new_figure(1, 2, width=4.6, height=3.0)
    for (dataset, (title, low, high)), axis in zip(DATASETS.items(), axes[:, 0], strict=True):
        for label, (pattern, cost, color, marker) in CURVES.items():
            dots = []
            for row in (row for name, row in found.items() if re.fullmatch(f"{dataset}, {pattern}", name)):
                right = list(row["accuracy"].values())
                mean = fmean(right)
                dots.append((mean, costs(row)[cost], mean - min(right), max(right) - mean))
            y, x, *ends = zip(*sorted(dot for dot in dots if dot[0] > low), strict=True)
            axis.errorbar(x, y, ends, color=color, marker=marker, ms=5, lw=1.2, label=label)
        axis.set(xscale="log", ylim=(low, high), title=title, ylabel="test accuracy, %")
        axis.set_xticks([0.3, 1, 3, 10], ["0.3", "1", "3", "10"])
        axis.minorticks_off()
        axis.grid(alpha=0.3)
    axes[1, 0].set_xlabel("million instructions on a Cortex-M4 (logarithmic)")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside upper center", frameon=False)
    save_figure(figure, FIGURE)


def main() -> None:
    parser = ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("train", "count"))
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--datasets", nargs="+", choices=(*DATASETS, "cifar10"), default=[*DATASETS])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=GIVEN.epochs)
    parser.add_argument("--batch", type=int, default=GIVEN.batch)
    parser.add_argument("--subset", type=int, help="use only the first images")
    parser.add_argument("--only", default="", help="only networks whose names contain this")
    parser.add_argument("--workers", type=int, default=1, help="number of parallel training processes")
    parser.add_argument("--seconds", type=float, default=1e9, help="start no network after this time")
    parser.add_argument("--nets", type=Path, help="the folder that training wrote")
    given = parser.parse_args()
    train(given) if given.what == "train" else count(given)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
