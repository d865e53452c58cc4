"""Results of the paper's runs, made up in the format of real ones: the published means with some spread."""

import random
from typing import Any

from ultralif.nn import NEURONS
from ultralif.paper import published
from ultralif.paper.grids import runs_of
from ultralif.training.config import RunConfig


def paper_rows(table: str, seeds: int) -> list[dict[str, Any]]:
    """Return a row for each run of a table."""
    draw = random.Random(0)  # noqa: S311
    return [paper_row(config, draw) for config in runs_of(table, seeds)]


def paper_row(config: RunConfig, draw: random.Random) -> dict[str, Any]:
    known = "UltraLIF" if config.neuron == "SoftLIF" else config.neuron
    mean = published.accuracy(config.dataset, known, config.timesteps)
    rate = (0.4 - 2 * config.sparsity) * draw.uniform(0.9, 1.1)
    modes = NEURONS[config.neuron].modes
    eps = draw.uniform(0.6, 1.1) if "soft" in modes and config.neuron != "DSpike" else None
    row: dict[str, Any] = {
        "id": config.id,
        "seconds": 60.0,
        "stacked": 24,
        "eps": eps,
        "leak": 0.9,
        "accuracy": {mode: mean + draw.gauss(0, 0.3) for mode in modes},
        "spike_rate": dict.fromkeys(modes, rate),
        "macs": dict.fromkeys(modes, 640 * config.timesteps),
        "acs": dict.fromkeys(modes, 9000 * config.timesteps),
    }
    if eps is not None and (config.dataset, config.timesteps) == ("mnist", 1):
        row["history_eps"] = [1 + (eps - 1) * epoch / config.epochs for epoch in range(1, config.epochs + 1)]
    return row
