"""Choose the networks that come with the library from the runs of the paper.

    python tools/zoo.py runs src/ultralif/zoo

For every dataset and T that were run: the best Ultra neuron and the best baseline, by mean accuracy over the
seeds, each by its network of the paper's seed.
"""

import argparse
from itertools import product
from pathlib import Path

from ultralif.paper.grids import SEED
from ultralif.paper.published import BASELINES, DATASETS, TIMESTEPS, ULTRA
from ultralif.paper.results import Key, from_store
from ultralif.training import Store
from ultralif.training.zoo import add_model

KEPT = ("accuracy", "spike_rate", "eps", "leak", "environment")


def main() -> None:
    """Fill the folder of the zoo."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("runs", type=Path, help="the store of the runs")
    parser.add_argument("zoo", type=Path, help="the folder to fill")
    given = parser.parse_args()
    store = Store(given.runs)
    results = from_store(store)
    for dataset, timesteps, kinds in product(DATASETS, TIMESTEPS, (ULTRA, BASELINES)):
        best = results.best(dataset, kinds, timesteps)
        if best is None:
            continue
        label = best[0]
        row = results.runs[Key(label, dataset, timesteps, "rate")].get(SEED)
        if row is None:
            print(f"{dataset}, T={timesteps}: {label} is the best, but seed {SEED} was not run")
            continue
        run = store.read(row.id)
        words = f"--dataset {dataset} --neuron {label} --timesteps {timesteps}"
        card = {
            "config": run.config.to_dict(),
            "run": run.result.id,
            "command": f"ultralif train {words} --precision {run.config.precision}",
            **{name: value for name, value in run.result.to_dict().items() if name in KEPT},
        }
        name = f"{dataset}/{label.lower()}-t{timesteps}"
        add_model(given.zoo, name, run.contents.tensors(), card)
        print(f"{name}: {best[1]} over the seeds")


if __name__ == "__main__":
    main()
