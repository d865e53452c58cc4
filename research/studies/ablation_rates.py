"""Measure spike rates of hidden and output neurons in the temperature study, run as in the author's code.

    python -m research studies released ablation.jsonl.gz --stages ablation --seeds 1 --known --runs-dir RUNS
    python -m research studies ablation_rates RUNS --data-dir FOLDER

The results archive stores only the rate of hidden neurons, like the paper's other tables, but the published
rates in this study seem to cover all spiking neurons. UltraPLIF is also trained with a leak that stays above
a floor, which explains the remaining difference. Writes results/ablation-rates.json; takes minutes on a CPU.
"""

import argparse
import json
import math
import sys
from pathlib import Path

import torch
from torch import nn

from research import RESULTS
from research.paper.grids import CONSTANT, cells, key_of
from ultralif.data import Dataset, Loader, load
from ultralif.errors import InputError, JobError
from ultralif.nn import Network
from ultralif.training import RunConfig, Store, build_network

OUT = RESULTS / "ablation-rates.json"
FLOOR = 0.1
Rates = dict[str, float]


def of_runs(folder: Path) -> dict[str, Rates]:
    """Return the spike rates per layer for all runs of the study."""
    rows = {}
    for result in Store(folder).rows():
        key = key_of(result.config)
        if key is not None and key.encoding == CONSTANT:
            rows[key.label] = _rates(*(rate or 0.0 for rate in result.own.spike_rates))
    if not rows:
        raise InputError(f"{folder} has no runs of the study; train them with the first command in --help")
    return dict(sorted(rows.items()))


def with_floor(config: RunConfig, data: Dataset) -> Rates:
    """Train one of the study's networks with leaks of at least `FLOOR`, and return its rates."""
    net = build_network(config)
    assert isinstance(net, Network)
    leaks = [learned[2] for neuron in net.neurons if (learned := neuron.learned("leak"))]
    optimizer = torch.optim.Adam(net.parameters(), lr=config.learning_rate)
    given = {"timesteps": config.timesteps, "encoding": config.encoding, "normalization": data.normalization}
    loader = Loader(data.train, config.batch_size, seed=config.seed, **given)
    for epoch in range(config.epochs):
        for x, labels in loader.epoch(epoch):
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(x), labels).backward()
            optimizer.step()
            with torch.no_grad():
                for leak in leaks:
                    leak.clamp_(min=math.log(FLOOR))
    (x, _), *_ = Loader(data.test, len(data.test), seed=config.seed, shuffle=False, **given).epoch(0)
    with torch.no_grad():
        return _rates(*(float(rate.mean()) for rate in net.observe(x).rates))


def _rates(hidden: float, output: float) -> Rates:
    return {"hidden": round(hidden, 4), "output": round(output, 4)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("runs", type=Path, help="the folder of runs written by the first command")
    parser.add_argument("--data-dir", type=Path, help="a folder to search for MNIST first")
    given = parser.parse_args()
    floored = {}
    try:
        runs = of_runs(given.runs)
        for key, config in cells("released-ablation"):
            if key.label.startswith("UltraPLIF eps="):
                data = load(config.dataset, config.timesteps, given.data_dir)
                floored[key.label] = with_floor(config, data)
    except (InputError, JobError) as error:
        sys.exit(str(error))
    rows = {"runs": runs, f"leak of at least {FLOOR}": floored}
    OUT.write_text(json.dumps(rows, indent=1) + "\n")
    print(f"wrote {len(runs)} and {len(floored)} networks to {OUT}")


if __name__ == "__main__":
    main()
