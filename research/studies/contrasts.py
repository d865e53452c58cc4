"""Controlled comparisons: a spoken-digit network, soft shares, memory without reset, energy at equal penalty.

    python -m research.studies.contrast_data SETS SHD packed      # pack the data into a folder
    python -m research studies contrasts --data packed --minutes 8 --processes 14
    python -m research studies contrasts --plan                   # what is done and what is missing

Every finished run is stored as one line of the ``--out`` file, and a second call resumes. Each point of a
grid gets one full-length run judged on held-out samples: two speakers for SHD, a fifth of the training images
otherwise. All methods in a study have the same grid. The best setting is trained with fresh seeds on all
training samples and tested after the last epoch.

The main contrast was fixed before any run. It is the binary accuracy of UltraLIF trained with soft spikes for
0.7 of the epochs, minus that of UltraLIF trained with binary spikes throughout. Both are tuned on the same
grid. Differences are paired by seed and averaged over the three tasks of ``shares``: SHD, and vgg5 on 10,000
images of Fashion-MNIST at T=1 and T=4. There are eight seeds, and the interval is 95 %. The soft phase
*helps* if the interval lies above 0, helps *by half a point* if it lies above 0.5, and a gain of half a point
is *refuted* if it lies below 0.5. All other comparisons in this study are secondary. ``edge of network`` and
``edge of shares`` extend the grids of those studies with higher rates, two more held-out seeds for the three
best settings, and fresh seeds for the best. ``spoken-large`` has twice the neurons, delays and 100 epochs,
and aims at the 95 % of published networks.
"""

import argparse
import json
import math
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import asdict, replace
from itertools import product, zip_longest
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import ultralif as ul
from research import RESULTS
from research.studies.contrast_data import HELD_SPEAKERS, load
from research.studies.contrast_nets import Cell, Delays, build, rates
from research.studies.memory_tasks import recorded
from research.studies.workers import end_with_parent

Row = dict[str, Any]
EPOCHS = {
    **{"spoken": 40, "spoken-large": 100, "words": 15},
    **{"clothes": 12, "pictures": 15},
    **{"permuted": 10, "long": 6, "digits": 10},
}
DATASETS = {
    **dict.fromkeys(("spoken", "spoken-large", "words"), "shd"),
    **dict.fromkeys(("permuted", "long", "digits"), "mnist"),
    **{"clothes": "fashion-mnist", "pictures": "cifar10"},
}
BATCH = 128
PLAIN = ("UltraPLIF, no reset", "SoftLIF, no reset", "PLIF, no reset", "UltraPLIF", "SoftLIF", "PLIF")
FIXED = ("LIF, no reset", "LIF")
WIRED = ("UltraPLIF, no reset", "SoftLIF, no reset", "PLIF")
REMEMBERING = (
    *("UltraPLIF, no reset", "SoftLIF, no reset", "PLIF, no reset"),
    *("SoftLIF, softplus, no reset", "masked PSN", "UltraPLIF, frozen gate"),
)
PENALTIES = (0.0, 0.03, 0.1, 0.3, 1.0, 3.0)


def read(row: Row) -> Cell:
    """Return the cell described by a line of results."""
    return Cell(**row["cell"] | {"tau": tuple(row["cell"]["tau"])})


class Plan:
    """The runs in order of priority; later ones depend on the results of earlier ones."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self.done = {read(row): row for row in rows}

    def best(self, tried: list[Cell]) -> Cell | None:
        """Return the run with the best held-out accuracy once the whole grid is done."""
        if not all(cell in self.done for cell in tried):
            return None
        return max(tried, key=lambda cell: self.done[cell]["held"])

    def tuned(self, grids: Iterable[list[Cell]], seeds: int) -> Iterator[Cell]:
        """Yield the runs of all grids in turn, then the seeds of each grid's chosen setting."""
        grids = list(grids)
        for cells in zip_longest(*grids):
            yield from (cell for cell in cells if cell is not None)
        chosen = [self.best(cells) for cells in grids]
        for seed in range(1, seeds + 1):
            yield from (replace(cell, seed=seed, held=False) for cell in chosen if cell is not None)

    def design(self) -> Cell | None:
        """Return the head, dropout and channel shift with the best average over three methods."""
        choices = list(product(("mean", "softmax"), (0.2, 0.5), (0, 3)))
        tried = [
            [Cell("design", "spoken", m, 5e-3, 0.5, (2.0, 20.0), 0.0, 99, h, s, d, held=True) for m in WIRED]
            for h, d, s in choices
        ]
        self.designs = [cell for cells in tried for cell in cells]
        if not all(cell in self.done for cell in self.designs):
            return None
        return max(tried, key=lambda cells: sum(self.done[cell]["held"] for cell in cells))[0]

    def spoken(self, methods: Iterable[str], wiring: str = "", task: str = "spoken") -> Iterator[Cell]:
        """Yield the spoken-digit runs."""
        base = self.design()
        if base is None:
            yield from self.designs
            return
        grid = list(product((2e-3, 5e-3, 1e-2), ((2.0, 20.0), (5.0, 100.0)), (0.3, 1.0)))
        if wiring and task == "spoken":
            grid = [setting for setting in grid if setting[0] < 1e-2]
        cell = replace(base, study=f"network{wiring}", task=task)
        yield from self.tuned(
            ([replace(cell, method=m + wiring, lr=r, tau=t, width=w) for r, t, w in grid] for m in methods),
            seeds=5,
        )

    def shares(self, task: str, timesteps: int) -> Iterator[Cell]:
        """Yield the runs that compare soft shares."""
        grid = list(product((1e-3, 3e-3, 1e-2), (0.3, 1.0)))
        groups = list(product(("UltraLIF", "SoftLIF", "LIF"), (0.0, 0.7, 0.3, 0.9)))
        common = {"timesteps": timesteps, "dropout": 0.3 if task == "spoken" else 0.0, "held": True}
        for part in (groups[:2], groups[2:]):  # the main contrast first
            yield from self.tuned(
                (
                    [Cell("shares", task, method, r, w, soft=share, **common) for r, w in grid]
                    for method, share in part
                ),
                seeds=8,
            )

    def memory(self, task: str, timesteps: int) -> Iterator[Cell]:
        """Yield the runs of neurons without reset on permuted pixels."""
        short = task == "permuted"
        spreads = ((2.0, 50.0), (2.0, 200.0)) if short else ((2.0, 100.0), (2.0, 400.0))
        grid = list(product((3e-3, 1e-2, 3e-2, 1e-1), spreads, (0.3, 1.0) if short else (0.3,)))
        yield from self.tuned(
            (
                [Cell("memory", task, m, r, w, t, timesteps=timesteps, held=True) for r, t, w in grid]
                for m in REMEMBERING
            ),
            seeds=5,
        )

    def edge(self, study: str, task: str, timesteps: int, rates: Iterable[float]) -> Iterator[Cell]:
        """Yield the runs that extend a study's finished grids; for ``shares``, only shares 0 and 0.7."""
        rates, beyond, seeds = tuple(rates), f"edge of {study}", 8 if study == "shares" else 5
        grids: dict[tuple[str, float], list[Cell]] = {}
        tuned = set[tuple[str, float]]()
        for cell in self.done:
            if (cell.study, cell.task, cell.timesteps) == (study, task, timesteps) and cell.soft in (0, 0.7):
                if cell.held:
                    grids.setdefault((cell.method, cell.soft), []).append(cell)
                else:
                    tuned.add((cell.method, cell.soft))
        for cells in (grids[group] for group in grids if group in tuned):
            wide = list(dict.fromkeys(replace(c, study=beyond, lr=rate) for rate in rates for c in cells))
            yield from wide
            if self.best(wide) is None:
                continue
            top = sorted((*cells, *wide), key=lambda cell: self.done[cell]["held"])[-3:]
            again = {cell: [cell, *(replace(cell, study=beyond, seed=s) for s in (1, 2))] for cell in top}
            yield from (cell for three in again.values() for cell in three[1:])
            if all(cell in self.done for three in again.values() for cell in three):
                best = max(top, key=lambda cell: sum(self.done[one]["held"] for one in again[cell]))
                for seed in range(1, seeds + 1):
                    yield replace(best, study=beyond, seed=seed, held=False)

    def energy(self, task: str, timesteps: int) -> Iterator[Cell]:
        """Yield the runs with a spike penalty that is the same for all neurons."""
        for method, penalty in product(("UltraPLIF", "UltraLIF", "SoftLIF", "PLIF"), PENALTIES):
            grid = [
                Cell("energy", task, method, r, w, timesteps=timesteps, penalty=penalty, held=True)
                for r, w in product((3e-3, 1e-2), (0.3, 1.0))
            ]
            yield from self.tuned([grid], seeds=5)

    def all(self) -> Iterator[Cell]:
        yield from self.spoken((*PLAIN, *FIXED))
        yield from self.shares("spoken", 99)
        yield from self.shares("clothes", 1)
        yield from self.memory("permuted", 196)
        yield from self.spoken(WIRED, ", with delays")
        yield from self.shares("clothes", 4)
        yield from self.energy("words", 1)
        yield from self.energy("digits", 1)
        yield from self.energy("words", 10)
        yield from self.energy("digits", 10)
        yield from self.shares("pictures", 1)
        yield from self.spoken(WIRED, ", with recurrence")
        for task, timesteps in (("spoken", 99), ("clothes", 1), ("clothes", 4)):
            yield from self.edge("shares", task, timesteps, (3e-2, 1e-1))
        yield from self.edge("network", "spoken", 99, (2e-2, 5e-2, 1e-1))
        yield from self.memory("long", 784)
        yield from self.spoken(WIRED[:2], ", with delays", "spoken-large")

    def missing(self) -> Iterator[Cell]:
        return (cell for cell in dict.fromkeys(self.all()) if cell not in self.done)


class TaskData:
    """A task's samples on a device: a training set and one or two test sets."""

    def __init__(self, cell: Cell, path: str, device: str, most: int | None) -> None:
        name = DATASETS[cell.task]
        self.cell, self.arrays = cell, load(path, name, device, most)
        count = len(self.arrays["train.labels"])
        if cell.task in ("permuted", "digits"):
            count = min(count, 4000)
        everything = torch.arange(count, device=device)
        self.index, self.tests = everything, [h for h in ("official", "test") if f"{h}.x" in self.arrays]
        if cell.held:
            if name == "shd":
                held = torch.isin(self.arrays["train.speakers"], torch.tensor(HELD_SPEAKERS, device=device))
            else:
                held = everything % 5 == 4
            self.index, self.held, self.tests = everything[~held], everything[held], ["held"]
        self.classes = 20 if name == "shd" else 10
        self.order = torch.randperm(cell.timesteps, generator=torch.Generator().manual_seed(0)).to(device)

    def sizes(self) -> tuple[int, ...]:
        inputs = {"permuted": 1, "long": 1, "digits": 784}.get(self.cell.task, 140)
        layers: dict[str, tuple[int, ...]] = {"spoken": (256, 256), "spoken-large": (512, 512)}
        layers |= {"permuted": (64, 64, 64), "long": (256, 256, 256)}
        hidden = layers.get(self.cell.task, (128,))
        return (inputs, *hidden, self.classes)

    def take(self, half: str, index: Tensor, *, training: bool) -> tuple[Tensor, Tensor]:
        """Return inputs ``[T, B, inputs]``, or images ``[B, 1, 28, 28]``, and labels."""
        cell = self.cell
        x, labels = self.arrays[f"{half}.x"][index], self.arrays[f"{half}.labels"][index]
        if cell.task in ("clothes", "pictures"):
            return x.float() / 255, labels
        if cell.task in ("permuted", "long"):
            pixels = F.avg_pool2d(x.float(), 2 if cell.task == "permuted" else 1).flatten(1)
            return (pixels[:, self.order] / 255).T.unsqueeze(2), labels
        if cell.task == "digits":
            # Rate code: a pixel fires with half its value as the probability, drawn anew for every batch.
            pixels = x.float().flatten(1) / 510
            return (torch.rand(cell.timesteps, *pixels.shape, device=x.device) < pixels).float(), labels
        frames = x.transpose(0, 1).float()
        if cell.task == "words":
            steps = torch.arange(99, device=x.device) * cell.timesteps // 99
            summed = torch.zeros(cell.timesteps, *frames.shape[1:], device=x.device)
            return torch.log1p(summed.index_add_(0, steps, frames)), labels
        if training and cell.shift:
            by = torch.randint(-cell.shift, cell.shift + 1, (len(index), 1), device=x.device)
            channel = torch.arange(frames.shape[2], device=x.device) - by
            inside = (channel >= 0) & (channel < frames.shape[2])
            channel = channel.clamp(0, frames.shape[2] - 1)
            frames = frames.gather(2, channel.expand(len(frames), -1, -1)) * inside
        return frames, labels


def train(cell: Cell, data: TaskData, *, record: bool) -> nn.Module:
    """Train one network; the training step may be recorded once per mode as a CUDA graph and replayed."""
    device, epochs = data.index.device, EPOCHS[cell.task]
    net: Any = build(cell, data.sizes()).to(device)
    ul.set_mode(net, "soft" if cell.soft else "hard")
    per_epoch, on_gpu = len(data.index) // BATCH, device.type == "cuda"
    rate, total = torch.zeros((), device=device), epochs * per_epoch
    optimizer = torch.optim.Adam(net.parameters(), lr=rate, capturable=on_gpu, fused=on_gpu)
    order = torch.empty_like(data.index)
    done, places = torch.zeros((), dtype=torch.long, device=device), torch.arange(BATCH, device=device)
    delays = [layer for layer in net.modules() if isinstance(layer, Delays)]

    def step() -> None:
        x, labels = data.take("train", order[done % per_epoch * BATCH + places], training=True)
        share = done / total
        rate.copy_(cell.lr * torch.minimum(share * 10 + 1e-3, (1 + torch.cos(math.pi * share)) / 2))
        for layer in delays:
            layer.width.copy_(torch.clamp(layer.max_delay / 2 * (1 - share / 0.75), min=1.0))
        optimizer.zero_grad()
        loss = F.cross_entropy(net(x), labels)
        if cell.penalty:
            loss = loss + cell.penalty * torch.stack(list(rates(net))).mean()
        loss.backward()
        optimizer.step()
        done.add_(1)

    binary, take = math.ceil(cell.soft * epochs), None
    for epoch in range(epochs):
        if epoch == binary and cell.soft:
            ul.set_mode(net, "hard")
            take = None
        order.copy_(data.index[torch.randperm(len(data.index)).to(device)])
        for place in range(per_epoch):
            if take is None and place == 3 and record:
                take = recorded(step, device)
            (take or step)()
    return net


@torch.no_grad()
def judge(net: Any, data: TaskData, half: str) -> tuple[float, float]:
    """Return the accuracy in percent, and the number of additions that spikes cause per inference."""
    held = half == "held"
    index = data.held if held else torch.arange(len(data.arrays[f"{half}.labels"]), device=data.index.device)
    right, additions = 0, 0.0
    for part in index.split(500):
        x, labels = data.take("train" if held else half, part, training=False)
        right += int((net(x).argmax(1) == labels).sum())
        if data.cell.study == "energy":
            sizes = data.sizes()
            for layer, fan_out in zip((x, *net.spikes), sizes[1:], strict=True):
                additions += float((layer != 0).sum()) * fan_out
    return round(100 * right / len(index), 2), round(additions / len(index), 1)


def measure(cell: Cell, path: str, device: str, most: int | None = None, *, record: bool = False) -> Row:
    """Train and evaluate one run."""
    if device == "cuda":
        if torch.cuda.current_stream() == torch.cuda.default_stream():  # steps cannot be recorded on it
            torch.cuda.set_stream(torch.cuda.Stream())
        torch.cuda.empty_cache()
        torch.set_float32_matmul_precision("high")
    data = TaskData(cell, path, device, most)
    began = time.perf_counter()
    net: Any = train(cell, data, record=record).eval()
    row: Row = {"cell": asdict(cell), "seconds": round(time.perf_counter() - began, 1)}
    ul.set_mode(net, "hard")
    for half in data.tests:
        row[half], additions = judge(net, data, half)
        if additions:
            row[f"{half} additions"] = additions
    return row


def finished(path: Path) -> list[Row]:
    """Return the results already stored in the file."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def worker() -> ProcessPoolExecutor:
    """Start a separate process for training, because a GPU error makes a process unusable."""
    return ProcessPoolExecutor(1, get_context("spawn"), end_with_parent)


def work(given: argparse.Namespace, measure: Callable[..., Row] = measure) -> None:
    """Train the missing runs, several at a time, until the time limit.

    A failed run is retried in a new process without recording its step. If it fails again, it is stored with
    its error, and the best setting is chosen without it.
    """
    began, begun, idle = time.monotonic(), set[Cell](), [worker() for _ in range(given.processes)]
    running: dict[Future[Row], tuple[Cell, ProcessPoolExecutor, bool]] = {}
    rows, here = finished(given.out), {path.name.split(".")[0] for path in given.data.iterdir()}
    given.out.parent.mkdir(parents=True, exist_ok=True)

    def start(cell: Cell, by: ProcessPoolExecutor, record: bool) -> None:
        call = by.submit(measure, cell, str(given.data), given.device, given.most, record=record)
        running[call] = cell, by, record

    with given.out.open("a") as file:
        while True:
            if idle and time.monotonic() - began < 60 * given.minutes:
                for cell in Plan(rows).missing():
                    if not idle:
                        break
                    wanted = not given.studies or cell.study in given.studies
                    if wanted and cell not in begun and DATASETS[cell.task] in here:
                        begun.add(cell)
                        start(cell, idle.pop(), given.device == "cuda")
            if not running:
                break
            for call in wait(running, return_when=FIRST_COMPLETED).done:
                cell, by, was_recorded = running.pop(call)
                if error := call.exception():
                    print(f"{'again' if was_recorded else 'left out'}: {cell}: {error!r}"[:600], flush=True)
                    by.shutdown(wait=False)
                    by = worker()
                    if was_recorded:
                        start(cell, by, False)
                        continue
                    rows.append({"cell": asdict(cell), "held": 0.0, "error": repr(error)[:200]})
                else:
                    rows.append(call.result())
                file.write(json.dumps(rows[-1]) + "\n")
                file.flush()
                if not error:
                    got = {k: v for k, v in rows[-1].items() if k != "cell"}
                    print(f"{len(rows)} {cell.study} {cell.task} {cell.method}: {got}", flush=True)
                idle.append(by)
    for one in idle:
        one.shutdown()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="the folder of packed data; tasks without data are skipped")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--minutes", type=float, default=math.inf, help="start no new run after this time")
    parser.add_argument("--processes", type=int, default=1, help="number of runs at once")
    parser.add_argument("--out", type=Path, default=RESULTS / "contrasts.jsonl")
    parser.add_argument("--studies", nargs="+", default=[], help="run only these, for example shares memory")
    parser.add_argument("--most", type=int, help="use only the first samples, for a quick trial")
    parser.add_argument("--plan", action="store_true")
    given = parser.parse_args()
    if not given.plan:
        work(given)
    rows = finished(given.out)
    lacking: dict[str, int] = {}
    for cell in Plan(rows).missing():
        lacking[f"{cell.study} {cell.task}"] = lacking.get(f"{cell.study} {cell.task}", 0) + 1
    print(f"{len(rows)} runs done; known to be missing: {lacking or 'nothing'}")


if __name__ == "__main__":
    main()
