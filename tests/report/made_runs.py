"""Many runs as a store would have them, made up instead of trained."""

import random
from dataclasses import replace
from itertools import islice, product

from ultralif.nn import NEURONS
from ultralif.report.gather import Entry
from ultralif.training.config import NEURON_NAMES, RunConfig
from ultralif.training.result import ByEpoch, LearnedConstants, ModeResult, Operations, Result

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
    sops = rate * config.timesteps
    by_mode = {
        mode: ModeResult(
            draw.uniform(80, 99),
            rate,
            operations=Operations(640.0 * (mode == "soft"), draw.uniform(1e4, 1e6)),
            relative_sops=sops,
            int8_picojoules=None if mode == "soft" else draw.uniform(1e4, 1e6),
        )
        for mode in modes
    }
    result = made_result(config, {}, {}, eps=eps)
    result = replace(
        result,
        by_mode=by_mode,
        break_even=0.09,
        seconds=draw.uniform(10, 1000),
        finished=1.8e9,
        environment={
            "ultralif": "0.1.0",
            "torch": "2.13.0",
            "device": "NVIDIA H200",
            "precision": "tf32",
            "data_sha256": f"{DATASETS.index(config.dataset):064x}",
        },
    )
    weights = f"{draw.getrandbits(256):064x}"
    return Entry(config, result, history, {"eps": [eps]} if eps else {}, weights)


def made_result(
    config: RunConfig,
    accuracy: dict[str, float],
    rates: dict[str, float],
    eps: float | None = None,
    path: list[float] | None = None,
) -> Result:
    """Return the result of a run with these numbers by mode."""
    return Result(
        id=config.id,
        status="done",
        dataset=config.dataset,
        neuron=config.neuron,
        timesteps=config.timesteps,
        seed=config.seed,
        sparsity=config.sparsity,
        mode=config.mode or NEURONS[config.neuron].modes[0],
        by_mode={mode: ModeResult(value, rates[mode]) for mode, value in accuracy.items()},
        constants=LearnedConstants(eps=eps, leak=0.9),
        by_epoch=ByEpoch(eps=None if path is None else tuple(path)),
        config=config.to_dict(),
        epochs=config.epochs,
        seconds=60.0,
        stacked=20,
    )


def hostile(entry: Entry, text: str) -> Entry:
    """Return a run whose every text is hostile, as a foreign folder of runs could have it."""
    result = replace(entry.result, status=text, environment={text: text, "device": text})
    config = replace(entry.config)
    vars(config).update(id=entry.config.id, changes=lambda: {"schedule": text, text: text})
    for name in ("dataset", "neuron", "schedule"):
        object.__setattr__(config, name, text)  # past the checks, as no config of ours could
    return Entry(config, result, entry.history, {text: [1.0]}, text)
