"""Put trained networks into a zoo.

    python tools/zoo.py runs src/ultralif/zoo
    python tools/zoo.py runs/6c0c31e38c43 src/ultralif/zoo --name mnist/vgg5-t1

The first command selects from the paper's runs, for every dataset and T, the best Ultra neuron and the best
baseline by mean accuracy over seeds, and stores their networks with the paper's seed. The second stores the
network of one run. ``tools/deep_zoo.py`` trains the larger networks.
"""

import argparse
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

sys.path.insert(0, str(Path(__file__).parents[1]))

from research.paper.grids import SEED
from research.paper.published import BASELINES, DATASETS, TIMESTEPS, ULTRA
from research.paper.results import Key, from_store
from ultralif.training import Store
from ultralif.training.zoo import add_model

KEPT = ("accuracy", "spike_rate", "eps", "leak", "environment")


class Network(NamedTuple):
    """A network with its name and its card."""

    name: str
    tensors: dict[str, Tensor]
    card: dict[str, Any]


def of_run(store: Store, run_id: str, name: str, command: str) -> Network:
    """Return the network of a run."""
    run = store.read(run_id)
    card = {name: value for name, value in run.result.to_dict().items() if name in KEPT}
    card |= {"config": run.config.to_dict(), "run": run.result.id, "command": command}
    return Network(name, run.contents.tensors(), card)


def of_paper(store: Store) -> Iterator[Network]:
    """Yield the best networks from the paper's runs."""
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
        words = f"--dataset {dataset} --neuron {label} --timesteps {timesteps}"
        command = f"ultralif train {words} --precision {store.read(row.id).config.precision}"
        yield of_run(store, row.id, f"{dataset}/{label.lower()}-t{timesteps}", command)


def main() -> None:
    """Fill the zoo folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("source", type=Path, help="the store of the paper's runs, or a run")
    parser.add_argument("zoo", type=Path, help="the folder to fill")
    parser.add_argument("--name", help="name of the network, such as mnist/vgg5-t1")
    parser.add_argument("--command", default="", help="the command that produced the run, for its card")
    given = parser.parse_args()
    if given.name is None:
        networks = of_paper(Store(given.source))
    else:
        store = Store(given.source.parent)
        networks = iter([of_run(store, given.source.name, given.name, given.command)])
    for network in networks:
        add_model(given.zoo, *network)
        print(f"{network.name}: {network.card['accuracy']}")


if __name__ == "__main__":
    main()
