"""Which way of training gives the best deep network of binary spikes: a study that runs by itself.

    python benchmarks/deep.py --data cifar10=FOLDER --minutes 9      # goes on where it stopped
    python benchmarks/deep.py --plan                                 # what is done and what is lacking
    python benchmarks/deep.py --table                                # the tables, from what is done

Every finished run is a line of ``--out``. The questions are taken in order of worth. Learning rate and width
of the derivative (eps, or 1 / slope) are chosen for each method by nine runs at T=1 on a held-out sixth of
the training images. The chosen pair is trained from five seeds on all of them and judged by the test set
after the last epoch. The nets are `ul.models.vgg`; training is that of ``examples/speedrun.py``.
"""

import argparse
import json
import statistics
import sys
import time
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

import ultralif as ul

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "examples")]
import speedrun  # noqa: E402
from deep_methods import METHODS, RIVALS, Matched, Mixed, Sigmoid  # noqa: E402

Data = tuple[Tensor, Tensor]
SEEDS = range(5)
RATES = {"muon": (0.05, 0.1, 0.2), "sgd": (0.1, 0.3, 1.0)}
VGG = ((64, 64), (128, 128), (256, 256))


class Deep(nn.Module):
    """A VGG for images ``[B, C, H, W]``, or for events whose steps are channels ``[B, T * 2, H, W]``."""

    def __init__(self, given: Namespace) -> None:
        super().__init__()
        kinds = ul.nn.NEURONS | {"Sigmoid": Sigmoid, "Matched": Matched, "Mixed": Mixed, "relu": nn.ReLU}
        options = given.neuron_options
        if given.kind == "Mixed":
            options = options | {"steps": given.steps}
        self.events = given.timesteps if given.events else 0
        self.net = ul.models.vgg(
            given.stages,
            channels=given.channels,
            timesteps=given.timesteps,
            neuron=kinds[given.kind],
            neuron_options=options,
        )
        self.head = self.net.head

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x.unflatten(1, (self.events, -1)).transpose(0, 1) if self.events else x)


class Cell(NamedTuple):
    """One run of the study."""

    study: str
    dataset: str
    method: str
    timesteps: int
    stages: tuple[tuple[int, ...], ...]
    lr: float
    value: float
    seed: int
    held: bool = False


def stages(depth: int, width: int = 128) -> tuple[tuple[int, ...], ...]:
    """Spread convolutions of equal width over three stages, or fewer."""
    parts = min(depth, 3)
    return tuple((width,) * (depth // parts + (i < depth % parts)) for i in range(parts))


class Study:
    """The cells in order of worth, and which are done."""

    def __init__(self, out: Path, recipe: dict[str, Any]) -> None:
        self.out, self.recipe, self.rows = out, recipe, []
        if out.exists():
            rows = [json.loads(line) for line in out.read_text().splitlines()]
            self.rows = [row for row in rows if row.get("base") == recipe]
        self.known = {json.dumps(row["cell"]): row["accuracy"] for row in self.rows}

    def accuracy(self, cell: Cell) -> float | None:
        return self.known.get(json.dumps(cell._asdict()))

    def tuning(self, method: str) -> list[Cell]:
        pairs = [(lr, v) for lr in RATES[self.recipe["optimizer"]] for v in METHODS[method].values]
        return [Cell("tuning", "cifar10", method, 1, VGG, lr, v, 0, True) for lr, v in pairs]

    def final(self, study: str, method: str, dataset: str, timesteps: int, plan: Any) -> list[Cell]:
        """Return the seeds of a method with its best pair, or nothing while that is unknown."""
        tried = [(self.accuracy(cell), cell) for cell in self.tuning(method)]
        if any(accuracy is None for accuracy, _ in tried):
            return []
        best = max(tried, key=lambda pair: pair[0])[1]
        pair = best.lr, best.value
        return [Cell(study, dataset, method, timesteps, plan, *pair, seed) for seed in SEEDS]

    def cells(self) -> Iterator[Cell]:
        """Yield everything that is known to be wanted, the most telling first."""
        others = [method for method in METHODS if method not in RIVALS]
        for method in RIVALS:
            yield from self.tuning(method)
        firsts = [cell for method in RIVALS for cell in self.final("T", method, "cifar10", 1, VGG)]
        yield from sorted(firsts, key=lambda cell: cell.seed)
        for timesteps in (4, 2):
            for method in RIVALS:
                yield from self.final("T", method, "cifar10", timesteps, VGG)
        for method in others:
            yield from self.tuning(method)
            yield from self.final("T", method, "cifar10", 1, VGG)
        for depth in (2, 4, 8, 16):
            for method in [*RIVALS, "ReLU"]:
                yield from self.final("depth", method, "cifar10", 1, stages(depth))
        for timesteps in (4, 2):
            for method in others:
                yield from self.final("T", method, "cifar10", timesteps, VGG)
        for dataset in ("fashion-mnist", "n-mnist"):
            for method in RIVALS:
                yield from self.final("data", method, dataset, 4, VGG)

    def lacking(self) -> Iterator[Cell]:
        """Yield what is wanted and not done; what is chosen by a run comes after that run."""
        seen: set[Cell] = set()
        while todo := [c for c in self.cells() if c not in seen and self.accuracy(c) is None]:
            seen.add(todo[0])
            yield todo[0]

    def keep(self, cell: Cell, row: dict[str, Any]) -> None:
        row = {"cell": json.loads(json.dumps(cell._asdict())), "base": self.recipe, **row}
        self.rows.append(row)
        self.known[json.dumps(row["cell"])] = row["accuracy"]
        self.out.parent.mkdir(parents=True, exist_ok=True)
        with self.out.open("a") as file:
            file.write(json.dumps(row) + "\n")

    def table(self) -> str:
        """Return mean and deviation of the finals, a row each."""
        found: dict[tuple[Any, ...], list[float]] = {}
        for row in self.rows:
            cell = row["cell"]
            if not cell["held"]:
                depth = sum(map(len, cell["stages"]))
                key = cell["study"], cell["dataset"], cell["timesteps"], depth, cell["method"]
                found.setdefault(key, []).append(row["accuracy"])
        lines = [
            "| study | data | T | convolutions | method | seeds | binary % | deviation |",
            "|---" * 8 + "|",
        ]
        for key, values in sorted(found.items(), key=lambda pair: (*pair[0][:4], -statistics.mean(pair[1]))):
            spread = f"{statistics.stdev(values):.2f}" if len(values) > 1 else "-"
            cells = [*map(str, key), str(len(values)), f"{statistics.mean(values):.2f}", spread]
            lines.append(f"| {' | '.join(cells)} |")
        return "\n".join(lines)


class Sets:
    """The datasets, each read once: train and test as images and labels on the device."""

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
        folder = self.folders[name]
        return speedrun.load(folder, "train", self.subset), speedrun.load(folder, "test", self.subset)

    def _other(self, name: str, timesteps: int) -> tuple[Data, Data]:
        data = ul.data.load(name, timesteps, data_dir=self.folders[name])
        halves = []
        for split in (data.train, data.test):
            count = min(len(split), self.subset or len(split))
            parts = [split.batch(range(i, min(i + 1000, count))) for i in range(0, count, 1000)]
            x = torch.cat([p.transpose(0, 1).flatten(1, 2) if p.dim() == 5 else p for p in parts]).float()
            x = (x - x.mean()) / x.std()
            x = x.to(speedrun.DEVICE, speedrun.HALF, memory_format=torch.channels_last)
            halves.append((x, torch.as_tensor(split.labels[:count]).long().to(speedrun.DEVICE)))
        return halves[0], halves[1]


def run(cell: Cell, recipe: dict[str, Any], data: tuple[Data, Data]) -> dict[str, Any]:
    """Train and judge one cell."""
    train, test = data
    if cell.held:
        sixth = len(train[0]) // 6
        train, test = tuple(t[:-sixth] for t in train), tuple(t[-sixth:] for t in train)
    method = METHODS[cell.method]
    options = method.options | ({} if method.neuron == "relu" else {method.key: cell.value})
    events = cell.dataset == "n-mnist"
    given = speedrun.RECIPE | recipe
    given |= {"timesteps": cell.timesteps, "lr": cell.lr, "soft": method.soft, "stages": cell.stages}
    given |= {"kind": method.neuron, "neuron_options": options, "events": events}
    given["neuron"] = {"relu": "relu", "Mixed": "relu"}.get(method.neuron, "UltraLIF")  # relu: has no modes
    given["channels"] = 2 if events else train[0].shape[1]
    given["steps"] = given["epochs"] * (len(train[0]) // given["batch"])
    if cell.dataset != "cifar10":
        given |= {"flip": int(cell.dataset == "fashion-mnist"), "cutout": 0, "shift": 2}
    row, _ = speedrun.run(Namespace(**given), cell.seed, train, test, Deep)
    return row | ({"mode": "hard"} if method.neuron == "Mixed" else {})  # judged with all units binary


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", nargs="+", default=[], metavar="NAME=FOLDER", help="cifar10, n-mnist, ...")
    parser.add_argument("--out", type=Path, default=Path("results/deep.jsonl"))
    parser.add_argument("--minutes", type=float, default=1e9, help="start no run that would end later")
    parser.add_argument("--plan", action="store_true", help="tell what is lacking, and stop")
    parser.add_argument("--table", action="store_true", help="print the table of what is done, and stop")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch", type=int, default=500)
    parser.add_argument("--optimizer", choices=RATES, default="sgd")
    parser.add_argument("--subset", type=int, help="use only the first N images: for rehearsals")
    given = parser.parse_args()
    recipe = {"epochs": given.epochs, "batch": given.batch, "optimizer": given.optimizer}
    recipe |= {"shift": 4, "cutout": 8, "smoothing": 0.1, "head_lr": 0.2, "eps_lr": 0.2, "norm_lr": 0.2}
    if given.subset:
        recipe["subset"] = given.subset
    study = Study(given.out, recipe)
    if given.table or given.plan:
        print(study.table() if given.table else "\n".join(f"lacking: {c}" for c in study.lacking()))
        return
    started, longest = time.monotonic(), 0.0
    sets = Sets({name: Path(folder) for name, folder in (d.split("=") for d in given.data)}, given.subset)
    for cell in study.lacking():
        if cell.dataset not in sets.folders:
            continue
        begun = time.monotonic()
        if (begun - started + longest) / 60 > given.minutes:
            print(f"stopped: {given.minutes:g} minutes would be over; call again to go on")
            break
        try:
            row = run(cell, recipe, sets.get(cell.dataset, cell.timesteps))
        except (TypeError, ValueError) as error:  # an option that this version of the library lacks
            print(f"left out: {cell.method}: {error}", flush=True)
            continue
        longest = max(longest, time.monotonic() - begun)
        study.keep(cell, row)
        print(f"{row['accuracy']:.2f} % in {row['seconds']:.1f} s: {cell}", flush=True)
    print(study.table())


if __name__ == "__main__":
    main()
