"""How often hidden and output neurons spike in the paper's study of the temperature, as its author has it.

    python benchmarks/released.py ablation.jsonl.gz --stages ablation --seeds 1 --known --runs-dir RUNS
    python benchmarks/ablation_rates.py RUNS --data-dir FOLDER

The archive of results has the rate of hidden neurons alone, like the paper's other tables; the published
rates of this study seem to be those of all spiking neurons. UltraPLIF is trained once more with a leak that
stays above a floor, which explains what is left. Writes results/ablation-rates.json, in minutes on a CPU.
"""

import argparse
import json
import math
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

import ultralif as ul
from ultralif.data import Split, load
from ultralif.paper.grids import ABLATED, CONSTANT, key_of
from ultralif.training.store import Store

OUT = Path(__file__).parents[1] / "results" / "ablation-rates.json"
FLOOR = 0.1
MEAN, DEVIATION = 0.1307, 0.3081
Rates = dict[str, float]


def of_runs(folder: Path) -> dict[str, Rates]:
    """Return the rates of the layers of all runs of the study."""
    rows = {}
    for result in Store(folder).rows():
        key = key_of(result.config)
        if key is not None and key.encoding == CONSTANT:
            hidden, output = result.own.spike_rates
            rows[key.label] = {"hidden": round(hidden or 0.0, 4), "output": round(output or 0.0, 4)}
    return dict(sorted(rows.items()))


def samples(split: Split) -> tuple[Tensor, Tensor]:
    """Return normalised pixels ``[N, 784]`` and labels."""
    pixels = split.batch(torch.arange(len(split))).flatten(1) / 255
    return (pixels - MEAN) / DEVIATION, torch.as_tensor(split.labels).long()


def with_floor(eps: float, train: Split, test: Split, epochs: int) -> Rates:
    """Train UltraPLIF like the runs of the study, but with leaks of at least `FLOOR`."""
    torch.manual_seed(42)
    options = {"eps": eps, "learn_eps": False, "threshold": 1.0, "leak_parameter": "log", "mode": "soft"}
    net = ul.Network((784, 64, 10), "UltraPLIF", options, readout="spiking")
    leaks = [learned[2] for neuron in net.neurons if (learned := neuron.learned("leak"))]
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    x, labels = samples(train)
    for _ in range(epochs):
        for index in torch.randperm(len(x)).split(128):
            optimizer.zero_grad()
            cross_entropy(net(x[None, index]), labels[index]).backward()
            optimizer.step()
            with torch.no_grad():
                for leak in leaks:
                    leak.clamp_(min=math.log(FLOOR))
    with torch.no_grad():
        hidden, output = net.observe(samples(test)[0][None]).rates
    return {"hidden": round(float(hidden.mean()), 4), "output": round(float(output.mean()), 4)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("runs", type=Path, help="the folder of runs that the first command has made")
    parser.add_argument("--data-dir", type=Path, help="a folder to search first for MNIST")
    parser.add_argument("--epochs", type=int, default=100, help="of those with a floor")
    given = parser.parse_args()
    data = load("mnist", 1, given.data_dir)
    floored = {
        f"UltraPLIF eps={eps:g}": with_floor(eps, data.train, data.test, given.epochs) for eps in ABLATED
    }
    rows = {"runs": of_runs(given.runs), f"leak of at least {FLOOR}": floored}
    OUT.write_text(json.dumps(rows, indent=1) + "\n")
    print(f"{len(rows['runs'])} and {len(floored)} networks in {OUT}")


if __name__ == "__main__":
    main()
