"""Estimate the effect of denoising N-MNIST: put the dropped events back and train on both sets at T=1.

    python -m research studies denoising FOLDER
    python -m research studies denoising FOLDER --neurons LIF --epochs 40

FOLDER contains nmnist (all recordings, denoised) and nmnist-raw (some of them as recorded). The raw
recordings show three things. The first is how many events were dropped at a cell of the sensor, given the
polarity and the number of events that remained in the cell and in the 3 x 3 cells around it. The second is
which cells drop more events than others. The third is how much the overall level differs between recordings
(sd 14 %, 3 % by chance); fewer events are dropped where many remained. Events are drawn at these rates for
all 70,000 recordings. Dropped events also cluster over both polarities of a cell and its neighbours, and are
drawn accordingly. Networks are trained on them as in the author's code, and results/denoising.json stores the
statistics and accuracies. Existing runs are not trained again. Runs from other calls stay in the file, and so
do runs of two earlier models: "put back by neighbours" ignored a cell's own events and the levels of
recordings, and "put back" drew every cell independently.
"""

import argparse
import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import conv2d, pad

from research import RESULTS
from research.readings.presets import reading_config
from ultralif.data import Split, load, register_data
from ultralif.training import Progress, RunConfig, RunOptions, Store, plan, run_local

OUT = RESULTS / "denoising.json"
SEEDS = (42, 43)
EDGES = np.array([1, 3, 6, 11, 21, 41, 81])
"""Bin edges for the number of events in the 3 x 3 cells around a cell, for both polarities."""
OWN = np.array([1, 2, 3, 4, 5, 6, 7, 9, 12])
"""Bin edges for the number of events of the same polarity in a cell itself."""
PRIOR = 5.0
"""Number of pseudo-events that pull the factor of a single cell towards 1."""
AROUND, BOTH = 0.25, 0.25
"""Fractions of a cell's randomness shared with its surroundings and with its other polarity. In the raw
recordings, and in recordings drawn with these fractions, the numbers of dropped events minus their means have
correlations of 0.05 to 0.1 between neighbours and 0.25 between polarities."""
MOST = 40
"""The maximum number of events put back in one cell."""
Counts = NDArray[np.int64]
Rates = NDArray[np.float64]


def counts_of(split: Split, rows: list[int]) -> Counts:
    """Return the events per cell for some recordings, ``[n, 2, 34, 34]``."""
    found: Counts = split.batch(rows).sum(0).numpy().astype(np.int64)
    return found


def counts_of_file(path: Path) -> Counts:
    """Return the number of events in a raw recording by polarity, row and column."""
    events = np.fromfile(path, np.uint8).reshape(-1, 5).astype(np.int64)
    x, y, polarity = events[:, 0], events[:, 1], events[:, 2] >> 7
    there = y != 240  # such a row only advances the clock
    cells = (polarity * 34 + y) * 34 + x
    return np.bincount(cells[there], minlength=2 * 34 * 34).reshape(2, 34, 34)


def pairs(folder: Path, halves: dict[str, Split]) -> tuple[Counts, Counts]:
    """Return the event counts of the available raw recordings, before and after denoising."""
    raw, kept = [], []
    for half, split in halves.items():
        files = sorted(folder.glob(f"*/{half.capitalize()}/*/*.bin"), key=lambda path: path.stem)
        labels = [int(path.parent.name) for path in files]
        rows = [int(path.stem) - 1 for path in files]
        if split.labels[rows].tolist() != labels:
            raise SystemExit(f"the raw recordings in {folder} are not those of the denoised set")
        for path in files:
            raw.append(counts_of_file(path))
        kept.append(counts_of(split, rows))
    return np.stack(raw), np.concatenate(kept)


def classes(counts: Counts) -> Counts:
    """Return the class of each cell, given its own events and those in the 3 x 3 cells around it."""
    padded = np.pad(counts.sum(1), ((0, 0), (1, 1), (1, 1)))
    near = sum(padded[:, i : i + 34, j : j + 34] for i in range(3) for j in range(3))
    around = np.repeat(np.digitize(near, EDGES)[:, None], 2, axis=1)
    return around * (len(OWN) + 1) + np.digitize(counts, OWN)


class Noise(NamedTuple):
    """The events that denoising drops."""

    mean: Rates
    """Rate by polarity and class of a cell."""
    factor: Rates
    """Factor of each cell."""
    slope: float
    """The logarithm of a recording's factor: linear in the log of its event count, plus normal noise."""
    offset: float
    spread: float
    range: tuple[int, int]
    """The events of the recordings used to estimate the rates."""

    def expected(self, kept: Counts) -> Rates:
        """Return the mean number of dropped events per cell in a recording with the usual level."""
        found = classes(kept)
        return np.stack([self.mean[p][found[:, p]] for p in (0, 1)], axis=1) * self.factor

    def draw(self, kept: Counts, generator: np.random.Generator) -> Counts:
        """Draw dropped events for recordings."""
        events = np.log(np.clip(kept.reshape(len(kept), -1).sum(1), *self.range))
        level = self.offset + self.slope * events + self.spread * generator.standard_normal(len(kept))
        mean = self.expected(kept) * np.exp(level)[:, None, None, None]
        return quantile(luck(len(kept), generator), mean)


def luck(count: int, generator: np.random.Generator) -> Rates:
    """Draw a number between 0 and 1 for every cell of the recordings, correlated between nearby cells."""
    around = torch.from_numpy(generator.standard_normal((count, 1, 34, 34)))
    bell = torch.exp(-(torch.arange(-4.0, 5.0, dtype=torch.float64) ** 2) / 2)
    bell = torch.outer(bell, bell) / (bell**2).sum()
    around = conv2d(pad(around, (4, 4, 4, 4), mode="circular"), bell[None, None])
    both, own = (torch.from_numpy(generator.standard_normal((count, n, 34, 34))) for n in (1, 2))
    mixed = AROUND**0.5 * around + BOTH**0.5 * both + (1 - AROUND - BOTH) ** 0.5 * own
    found: Rates = torch.special.ndtr(mixed).numpy()
    return found


def quantile(share: Rates, mean: Rates) -> Counts:
    """Return quantiles of Poisson distributions with these means."""
    chance = np.exp(-mean)
    below, found = chance.copy(), np.zeros(mean.shape, np.int64)
    for events in range(1, MOST + 1):
        found += share > below
        chance *= mean / events
        below += chance
    return found


def noise_of(raw: Counts, kept: Counts) -> Noise:
    """Estimate the rates of dropped events from recordings before and after denoising."""
    dropped, found = raw - kept, classes(kept)
    size = (len(EDGES) + 1) * (len(OWN) + 1)
    sums = [np.bincount(found[:, p].ravel(), dropped[:, p].ravel(), size) for p in (0, 1)]
    cells = [np.bincount(found[:, p].ravel(), minlength=size) for p in (0, 1)]
    mean = np.array(sums) / np.maximum(cells, 1)
    plain = Noise(mean, np.ones(1), 0.0, 0.0, 0.0, (1, 1))
    factor = (dropped.sum(0) + PRIOR) / (plain.expected(kept).sum(0) + PRIOR)
    expected = plain._replace(factor=factor).expected(kept)
    total, level = (x.reshape(len(x), -1).sum(1) for x in (kept, dropped))
    events, log = np.log(total), np.log(level / expected.reshape(len(kept), -1).sum(1))
    slope, offset = np.polyfit(events, log, 1)
    spread = float((log - offset - slope * events).std())
    return Noise(mean, factor, float(slope), float(offset), spread, (int(total.min()), int(total.max())))


def noisy(split: Split, noise: Noise, seed: int) -> NDArray[np.uint8]:
    """Return all recordings in a split with random dropped events put back, ``[N, 1, 2, 34, 34]``."""
    generator, parts = np.random.default_rng(seed), []
    for start in range(0, len(split), 1000):
        kept = counts_of(split, list(range(start, min(start + 1000, len(split)))))
        parts.append(np.minimum(kept + noise.draw(kept, generator), 255).astype(np.uint8)[:, None])
    return np.concatenate(parts)


def statistics(name: str, counts: Counts) -> dict[str, float | str]:
    """Describe recordings."""
    events = counts.reshape(len(counts), -1).sum(1)
    return {
        "recordings": name,
        "number": len(counts),
        "events": float(events.mean()),
        "sd": float(events.std()),
        "cells with events": float((counts > 0).mean()),
    }


def train(runs: list[tuple[str, RunConfig]], given: argparse.Namespace, kind: str) -> list[dict[str, Any]]:
    """Train one network per neuron, named as in the paper, and return the accuracies."""

    def tell(progress: Progress) -> None:
        print(f"epoch {progress.epoch}: loss {progress.loss}", flush=True)

    store = Store(given.runs_dir)
    options = RunOptions(device=given.device, data_dir=given.folder, report=tell)
    for _ in run_local(plan([config for _, config in runs], store, seeds=len(SEEDS)), store, options):
        pass
    found = {result.id: result for result in store.rows()}
    return [
        {
            "recordings": kind,
            "epochs": config.epochs,
            "neuron": neuron,
            "seed": config.seed,
            "best": found[config.id].by_epoch.best,
            "last": found[config.id].own.accuracy,
        }
        for neuron, config in runs
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--neurons", nargs="+", default=["LIF", "UltraLIF", "UltraDLIF"])
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--only-noisy", action="store_true", help="train only on the noisy recordings")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--runs-dir", type=Path, default=Path("runs-denoising"))
    given = parser.parse_args()
    torch.set_num_threads(1)
    data = load("n-mnist", 1, given.folder)
    halves = {"train": data.train, "test": data.test}
    raw, kept = pairs(given.folder, halves)
    noise = noise_of(raw, kept)
    made = {half: noisy(split, noise, i) for i, (half, split) in enumerate(halves.items())}
    described = [
        statistics("raw", raw),
        statistics("denoised", kept),
        statistics("all, denoised", counts_of(data.test, list(range(len(data.test))))),
        statistics("all, events put back", made["test"][:, 0].astype(np.int64)),
    ]
    name = register_data(*((made[half], split.labels.numpy()) for half, split in halves.items()), events=True)
    kinds = ({} if given.only_noisy else {"denoised": "n-mnist"}) | {"put back in clusters": name}
    for kind, dataset in kinds.items():
        fields = {"dataset": dataset, "timesteps": 1, "epochs": given.epochs}
        runs = [
            (neuron, reading_config("released", neuron, seed=seed, **fields))
            for neuron in given.neurons
            for seed in SEEDS
        ]
        new = train(runs, given, kind)
        found: dict[str, Any] = json.loads(OUT.read_text()) if OUT.exists() else {"runs": []}
        found["statistics"] = described
        keys = ("recordings", "epochs", "neuron", "seed")
        again = {tuple(row[key] for key in keys) for row in new}
        found["runs"] = [row for row in found["runs"] if tuple(row[k] for k in keys) not in again] + new
        lines = {key: "[\n" + ",\n".join(map(json.dumps, rows)) + "\n]" for key, rows in found.items()}
        OUT.write_text("{" + ",\n".join(f'"{key}": {text}' for key, text in lines.items()) + "}\n")
    print(OUT.read_text())


if __name__ == "__main__":
    main()
