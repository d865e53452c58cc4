"""Many runs as a store would have them, made up instead of trained."""

import random
from dataclasses import replace
from itertools import islice, product
from typing import Any

from ultralif.nn import NEURONS
from ultralif.report.gather import Entry
from ultralif.training.config import NEURON_NAMES, RunConfig

DATASETS = ("digits", "mnist", "fashion-mnist", "cifar10", "n-mnist", "shd")


def made_runs(count: int, epochs: int = 100) -> list[Entry]:
    """Return runs over datasets, neurons, time steps, penalties and seeds, each with a whole history."""
    draw = random.Random(0)  # noqa: S311
    kinds = list(product(DATASETS, (1, 10, 30), NEURON_NAMES, (0.0, 0.1)))
    draw.shuffle(kinds)
    configs = (
        RunConfig(dataset=dataset, timesteps=time, neuron=neuron, sparsity=sparsity, seed=seed, epochs=epochs)
        for seed in range(42, 42 + count)
        for dataset, time, neuron, sparsity in kinds
    )
    return [made_run(config, draw) for config in islice(configs, count)]


def made_run(config: RunConfig, draw: random.Random) -> Entry:
    modes = NEURONS[config.neuron].modes
    rate = draw.uniform(0.05, 0.6)
    eps = draw.uniform(0.4, 1.2) if "tropical" in modes else None
    history = [
        {
            "loss": 2.3 * 0.97**epoch + draw.random() * 0.1,
            "accuracy": 100 - 80 * 0.97**epoch + draw.random(),
            "spike_rate": rate + 0.1 * draw.random(),
            "eps": None if eps is None else 1 + (eps - 1) * epoch / config.epochs,
            "leak": 0.9,
        }
        for epoch in range(1, config.epochs + 1)
    ]
    result: dict[str, Any] = {
        "id": config.id,
        "status": "done",
        "dataset": config.dataset,
        "neuron": config.neuron,
        "timesteps": config.timesteps,
        "seed": config.seed,
        "sparsity": config.sparsity,
        "mode": modes[0],
        "accuracy": {mode: draw.uniform(80, 99) for mode in modes},
        "spike_rate": dict.fromkeys(modes, rate),
        "energy": {
            "relative_sops": dict.fromkeys(modes, rate * config.timesteps),
            "operations": {
                mode: {"macs": 640.0 * (mode == "soft"), "acs": draw.uniform(1e4, 1e6), "picojoules": 3e4}
                for mode in modes
            },
        },
        "eps": eps,
        "leak": 0.9,
        "epochs": config.epochs,
        "seconds": draw.uniform(10, 1000),
        "stacked": 20,
        "finished": 1.8e9,
        "environment": {
            "ultralif": "0.1.0",
            "torch": "2.13.0",
            "device": "NVIDIA H200",
            "precision": "tf32",
            "data_sha256": f"{DATASETS.index(config.dataset):064x}",
        },
    }
    weights = f"{draw.getrandbits(256):064x}"
    return Entry(config, result, history, {"eps": [eps]} if eps else {}, weights)


def hostile(entry: Entry, text: str) -> Entry:
    """Return a run whose every text is hostile, as a foreign folder of runs could have it."""
    result = {**entry.result, "status": text, "environment": {text: text, "device": text}}
    config = replace(entry.config)
    vars(config).update(id=entry.config.id, _changes={"schedule": text, "neuron_options": {text: text}})
    for name in ("dataset", "neuron", "schedule"):
        object.__setattr__(config, name, text)  # past the checks, as no config of ours could
    return Entry(config, result, entry.history, {text: [1.0]}, text)
