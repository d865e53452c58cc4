"""Compare training methods for deep networks with binary spikes, in a self-contained study.

    python -m research studies deep --data cifar10=FOLDER --jobs 4 --minutes 9  # resumes
    python -m research studies deep --plan                                      # what is missing

Every finished run is stored as one line of the ``--out`` file; several runs train at once in separate
processes. The questions are answered in order of priority. The learning rate and the width of the derivative
(eps, or 1 / slope) are chosen for each method by nine short runs at T=1 on a held-out sixth of the training
images. The sigmoid network also has lower rates and fifteen runs. The chosen pair is trained with five seeds
on all training images and tested after the last epoch. The networks are `ul.models.vgg` for pixels from 0 to
1, as in `ul.data`, and are trained as in ``examples/speedrun.py``.
"""

import argparse
import json
import sys
import time
from argparse import Namespace
from collections.abc import Collection, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import chain
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

import ultralif as ul
from research import RESULTS, ROOT
from research.pages import deep as page
from research.studies.deep_methods import METHODS, RIVALS, Matched, Mixed, SigmoidNeuron
from research.studies.workers import end_with_parent

sys.path.insert(0, str(ROOT / "examples"))
import speedrun

Data = tuple[Tensor, Tensor]
SEEDS = range(5)
RATES = {"muon": (0.05, 0.1, 0.2), "sgd": (0.1, 0.3, 1.0)}
LOWER = {"sigmoid": (0.01, 0.03)}
"""Lower rates, added for methods that chose the lowest of ``RATES``."""
VGG = ((64, 64), (128, 128), (256, 256))


class DeepVGG(nn.Module):
    """A network for images ``[B, C, H, W]``, or for events with steps as channels ``[B, T * 2, H, W]``."""

    def __init__(self, given: Namespace) -> None:
        super().__init__()
        self.events = given.timesteps if given.events else 0
        self.net = given.make()
        self.head = self.net.head

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x.unflatten(1, (self.events, -1)).transpose(0, 1) if self.events else x)


KINDS = ul.nn.NEURONS | {"Sigmoid": SigmoidNeuron, "Matched": Matched, "Mixed": Mixed, "relu": nn.ReLU}


class DeepCell(NamedTuple):
    """One run of the study."""

    study: str = "named"
    dataset: str = "cifar10"
    method: str = "UltraLIF"
    timesteps: int = 1
    stages: tuple[tuple[int, ...], ...] = VGG
    lr: float = 0.3
    value: float = 0.6
    """Width of the derivative: see `Method.key`."""
    seed: int = 0
    held: bool = False

    @classmethod
    def read(cls, given: dict[str, Any]) -> "DeepCell":
        return cls(**given | {"stages": tuple(map(tuple, given.get("stages", VGG)))})


def stages(depth: int, width: int = 64) -> tuple[tuple[int, ...], ...]:
    """Distribute convolutions of equal width over at most three stages."""
    parts = min(depth, 3)
    return tuple((width,) * (depth // parts + (i < depth % parts)) for i in range(parts))


class Study:
    """The cells in order of priority, with those already done."""

    def __init__(self, out: Path, recipe: dict[str, Any]) -> None:
        self.out, self.recipe, self.rows = out, recipe, []
        if out.exists():
            rows = [json.loads(line) for line in out.read_text().splitlines()]
            self.rows = [row for row in rows if row.get("base") == recipe]
        self.known = {DeepCell.read(row["cell"]): row["accuracy"] for row in self.rows}

    def tuning(self, method: str) -> list[DeepCell]:
        rates = (*RATES[self.recipe["optimizer"]], *LOWER.get(method, ()))
        pairs = [(lr, v) for lr in rates for v in METHODS[method].values]
        return [DeepCell("tuning", "cifar10", method, 1, VGG, lr, v, 0, True) for lr, v in pairs]

    def final(
        self,
        study: str,
        methods: list[str],
        timesteps: int,
        *plans: Any,
        seeds: range = SEEDS,
        data: str = "cifar10",
    ) -> list[DeepCell]:
        """Return each method's seeds with its best pair, if known, starting with seed 0 for all methods."""
        chosen = []
        for method in methods:
            tried = self.tuning(method)
            if all(cell in self.known for cell in tried):
                chosen.append(max(tried, key=self.known.__getitem__))
        return [
            DeepCell(study, data, best.method, timesteps, plan, best.lr, best.value, seed)
            for seed in seeds
            for plan in plans
            for best in chosen
        ]

    def cells(self) -> Iterator[DeepCell]:
        """Yield all cells known to be needed, the most informative first."""
        others = [method for method in METHODS if method not in RIVALS]
        depths = [stages(depth) for depth in (16, 8, 4, 2)]
        for methods in (RIVALS, others):
            for method in methods:
                yield from self.tuning(method)
            yield from self.final("T", methods, 1, VGG)
            if methods is RIVALS:
                for seeds in (SEEDS[:2], SEEDS):
                    yield from self.final("depth", methods, 1, *depths, seeds=seeds)
                    yield from self.final("T", methods, 4, VGG, seeds=seeds)
        yield from self.final("depth", ["ReLU"], 1, *depths)
        yield from self.final("T", RIVALS, 2, VGG)
        for dataset, timesteps in (("fashion-mnist", 4), ("n-mnist", 5)):
            yield from self.final("data", RIVALS, timesteps, VGG, data=dataset)
        for timesteps in (4, 2):
            yield from self.final("T", others, timesteps, VGG)

    def lacking(
        self, methods: Collection[str] = METHODS, named: Iterable[DeepCell] = ()
    ) -> Iterator[DeepCell]:
        """Yield the missing cells of some methods, then the named cells that are missing."""
        wanted = chain((cell for cell in self.cells() if cell.method in methods), named)
        return (cell for cell in wanted if cell not in self.known)

    def keep(self, cell: DeepCell, row: dict[str, Any]) -> None:
        row = {"cell": cell._asdict(), "base": self.recipe, **row}
        self.rows.append(row)
        self.known[cell] = row["accuracy"]
        self.out.parent.mkdir(parents=True, exist_ok=True)
        with self.out.open("a") as file:
            file.write(json.dumps(row) + "\n")


class Sets:
    """The datasets, each read once, with training and test images and labels on the device."""

    def __init__(self, folders: dict[str, Path], subset: int | None) -> None:
        self.folders, self.subset = folders, subset
        self.kept: dict[tuple[str, int], tuple[Data, Data]] = {}

    def get(self, name: str, timesteps: int) -> tuple[Data, Data]:
        key = name, timesteps if name == "n-mnist" else 0
        if key not in self.kept:
            read = self._cifar if name == "cifar10" else self._other
            self.kept[key] = read(name, timesteps)
        return self.kept[key]

    def _cifar(self, name: str, timesteps: int) -> tuple[Data, Data]:
        mean, std = (torch.tensor(v, device=speedrun.DEVICE) for v in (speedrun.MEAN, speedrun.STD))
        halves = []
        for half in ("train", "test"):
            x, labels = speedrun.load(self.folders[name], half, self.subset)
            pixels = (x.permute(0, 2, 3, 1) * std + mean).permute(0, 3, 1, 2)
            halves.append((pixels.to(speedrun.HALF), labels))
        return halves[0], halves[1]

    def _other(self, name: str, timesteps: int) -> tuple[Data, Data]:
        data = ul.data.load(name, timesteps, data_dir=self.folders[name])
        halves = []
        for split in (data.train, data.test):
            count = min(len(split), self.subset or len(split))
            parts = [split.batch(range(i, min(i + 1000, count))) for i in range(0, count, 1000)]
            x = torch.cat([p.transpose(0, 1).flatten(1, 2) if p.dim() == 5 else p for p in parts])
            x = x.float() / 255 if x.dtype == torch.uint8 else x  # pixels, not events
            x = x.to(speedrun.DEVICE, speedrun.HALF, memory_format=torch.channels_last)
            halves.append((x, torch.as_tensor(split.labels[:count]).long().to(speedrun.DEVICE)))
        return halves[0], halves[1]


def run(cell: DeepCell, recipe: dict[str, Any], data: tuple[Data, Data]) -> dict[str, Any]:
    """Train and evaluate one cell; return the measurements."""
    train, test = data
    if cell.held:
        sixth = len(train[0]) // 6
        x, labels = train
        train, test = (x[:-sixth], labels[:-sixth]), (x[-sixth:], labels[-sixth:])
    method = METHODS[cell.method]
    options = method.options | ({} if method.neuron == "relu" else {method.key: cell.value})
    events = cell.dataset == "n-mnist"
    given = speedrun.RECIPE | recipe
    if cell.held:
        given["epochs"] = recipe["tuning_epochs"]
    given |= {"timesteps": cell.timesteps, "lr": cell.lr, "soft": method.soft, "events": events}
    given["neuron"] = {"relu": "relu", "Mixed": "relu"}.get(method.neuron, "UltraLIF")  # ReLU has no modes
    if method.neuron == "Mixed":
        options = options | {"steps": given["epochs"] * (len(train[0]) // given["batch"])}
    if cell.dataset != "cifar10":
        given |= {"flip": int(cell.dataset == "fashion-mnist"), "cutout": 0, "shift": 2}
    given["make"] = lambda: ul.models.vgg(
        cell.stages,
        channels=2 if events else train[0].shape[1],
        timesteps=cell.timesteps,
        neuron=KINDS[method.neuron],
        neuron_options=options,
    )
    row, _ = speedrun.run(Namespace(**given), cell.seed, train, test, DeepVGG)
    if method.neuron == "Mixed":
        row["mode"] = "hard"  # evaluated with all units binary
    return row


class Worker:
    """A worker process with its own datasets."""

    sets: Sets

    @classmethod
    def begin(cls, folders: dict[str, Path], subset: int | None) -> None:
        cls.sets = Sets(folders, subset)
        end_with_parent()

    @classmethod
    def run(cls, cell: DeepCell, recipe: dict[str, Any]) -> dict[str, Any]:
        return run(cell, recipe, cls.sets.get(cell.dataset, cell.timesteps))


def work(study: Study, given: Namespace, folders: dict[str, Path]) -> None:
    """Run the missing cells, several at a time, until all are done or time runs out."""
    named = [DeepCell.read(cell) for cell in given.cells]
    methods = given.methods or ([] if named else METHODS)
    started, longest, taken = time.monotonic(), 0.0, set()
    running: dict[Future[Any], tuple[DeepCell, float]] = {}
    begin = (folders, given.subset)
    with ProcessPoolExecutor(given.jobs, get_context("spawn"), Worker.begin, begin) as pool:
        while True:
            now = time.monotonic()
            free = len(running) < given.jobs and (now - started + longest) / 60 < given.minutes
            lacking = study.lacking(methods, named)
            todo = (cell for cell in lacking if cell not in taken and cell.dataset in folders)
            if free and (cell := next(todo, None)) is not None:
                taken.add(cell)
                running[pool.submit(Worker.run, cell, study.recipe)] = cell, now
                continue
            if not running:
                return
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                cell, begun = running.pop(future)
                if error := future.exception():
                    print(f"left out: {cell}: {error!r}", flush=True)
                    continue
                row = future.result() | {"jobs": given.jobs}
                longest = max(longest, time.monotonic() - begun)
                study.keep(cell, row)
                print(f"{row['accuracy']:.2f} % in {row['seconds']:.1f} s: {cell}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--data", nargs="+", default=[], metavar="NAME=FOLDER", help="cifar10, n-mnist, ...")
    add("--out", type=Path, default=RESULTS / "deep.jsonl")
    add("--jobs", type=int, default=1, help="number of runs at once")
    add("--minutes", type=float, default=1e9, help="start no run that would end after this time")
    add("--plan", action="store_true", help="list the missing runs and exit")
    add("--methods", nargs="+", choices=METHODS, help="train only these methods")
    add(
        "--cells",
        nargs="+",
        type=json.loads,
        default=[],
        help="train these cells, given as JSON, after those of --methods",
    )
    add("--epochs", type=int, default=12)
    add("--tuning-epochs", type=int, default=6)
    add("--batch", type=int, default=500)
    add("--optimizer", choices=RATES, default="sgd")
    add("--subset", type=int, help="use only the first N images, for a quick trial")
    given = parser.parse_args()
    recipe = {name: getattr(given, name) for name in ("epochs", "tuning_epochs", "batch", "optimizer")}
    recipe |= {"shift": 4, "cutout": 8, "smoothing": 0.1, "head_lr": 0.2, "eps_lr": 0.2, "norm_lr": 0.2}
    if given.subset:
        recipe["subset"] = given.subset
    study = Study(given.out, recipe)
    if given.plan:
        print("\n".join(f"lacking: {cell}" for cell in dict.fromkeys(study.lacking())))
        return
    folders = {name: Path(folder) for name, folder in (d.split("=") for d in given.data)}
    work(study, given, folders)
    print(page.study(study.rows))


if __name__ == "__main__":
    main()
