"""Put trained networks into a zoo.

    python tools/zoo.py runs src/ultralif/zoo
    python tools/zoo.py runs/6c0c31e38c43 src/ultralif/zoo --name mnist/vgg5-t1
    python tools/zoo.py cifar10-UltraLIF-t4-0.safetensors zoo --name cifar10/vgg7-t4

The first takes from the runs of the paper, for every dataset and T that were run, the best Ultra neuron and
the best baseline by mean accuracy over the seeds, each by its network of the paper's seed. The others take
one network: of a run, or as ``benchmarks/deep.py`` saved it.
"""

import argparse
import json
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import safe_open
from torch import Tensor

from ultralif.models.vgg import STAGES
from ultralif.paper.grids import SEED
from ultralif.paper.published import BASELINES, DATASETS, TIMESTEPS, ULTRA
from ultralif.paper.results import Key, from_store
from ultralif.training import RunConfig, Store
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
    """Yield the best networks of the paper's runs."""
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


def of_study(path: Path, name: str) -> Network:
    """Return a network that the study of depth saved; its config says how it is built, not how trained."""
    with safe_open(path, "pt") as file:
        row = json.loads(file.metadata()["row"])
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    cell, base = row["cell"], row["base"]
    model, width = of_stages(cell["stages"])
    config = RunConfig(
        dataset=cell["dataset"],
        neuron=cell["method"],
        timesteps=cell["timesteps"],
        seed=cell["seed"],
        model=model,
        width=width,
        encoding="direct",
        epochs=base["epochs"],
        batch_size=base["batch"],
        label_smoothing=base["smoothing"],
        hard_share=0.3,
        eps=cell["value"],
    )
    command = f"python benchmarks/deep.py --data {cell['dataset']}=FOLDER --epochs {base['epochs']} "
    command += f"--batch {base['batch']} --optimizer {base['optimizer']} --cells '{json.dumps(cell)}'"
    environment = {"device": row["device"], "seconds": row["seconds"]}
    card = {"config": config.to_dict(), "run": config.id, "command": command, "environment": environment}
    eps = sum(row["eps"]) / len(row["eps"])
    return Network(name, tensors, card | {"accuracy": {"hard": row["accuracy"]}, "eps": eps})


def of_stages(stages: list[list[int]]) -> tuple[str, float]:
    """Return the model of `ultralif.models` that has these channels, and its width."""
    for name, known in STAGES.items():
        width = stages[0][0] / known[0][0]
        if [[round(n * width) for n in stage] for stage in known] == stages:
            return name, width
    raise SystemExit(f"no model of ultralif.models has the channels {stages}")


def main() -> None:
    """Fill the folder of the zoo."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("source", type=Path, help="the store of the paper's runs, a run, or a network")
    parser.add_argument("zoo", type=Path, help="the folder to fill")
    parser.add_argument("--name", help="of the one network, such as cifar10/vgg7-t4")
    parser.add_argument("--command", default="", help="the command that made the run, for its card")
    given = parser.parse_args()
    if given.name is None:
        networks = of_paper(Store(given.source))
    elif given.source.is_file():
        networks = iter([of_study(given.source, given.name)])
    else:
        store = Store(given.source.parent)
        networks = iter([of_run(store, given.source.name, given.name, given.command)])
    for network in networks:
        add_model(given.zoo, *network)
        print(f"{network.name}: {network.card['accuracy']}")


if __name__ == "__main__":
    main()
