"""Results of the paper's runs, made up in the format of real ones: the published means with some spread."""

import random
import re
from dataclasses import replace

from report.made_runs import made_result
from research.paper import published
from research.paper.grids import runs_of
from research.paper.results import Results
from ultralif.nn import NEURONS
from ultralif.training.config import RunConfig
from ultralif.training.result import Operations, Result


def paper_rows(table: str, seeds: int) -> list[Result]:
    """Return a row for each run of a table."""
    draw = random.Random(0)  # noqa: S311
    return [paper_row(config, draw) for config in runs_of(table, seeds)]


def paper_row(config: RunConfig, draw: random.Random) -> Result:
    known = (
        "UltraLIF" if "SoftLIF" in config.neuron else re.sub("Released|Unclipped|Unscaled", "", config.neuron)
    )
    mean = published.accuracy(config.dataset, known, config.timesteps)
    rate = (0.4 - 2 * config.sparsity) * draw.uniform(0.9, 1.1)
    modes = NEURONS[config.neuron].modes
    eps = draw.uniform(0.6, 1.1) if "soft" in modes and "DSpike" not in config.neuron else None
    path = None
    if eps is not None and (config.dataset, config.timesteps) == ("mnist", 1):
        path = [1 + (eps - 1) * epoch / config.epochs for epoch in range(1, config.epochs + 1)]
    accuracy = {mode: mean + draw.gauss(0, 0.3) for mode in modes}
    result = made_result(config, accuracy, dict.fromkeys(modes, rate), eps, path)
    operations = Operations(640.0 * config.timesteps, 9000.0 * config.timesteps)
    by_mode = {mode: replace(one, operations=operations) for mode, one in result.by_mode.items()}
    return replace(result, by_mode=by_mode)


def row(config, soft, *, hard=None, rate=0.4, eps=0.7, path=None):
    """Return a finished run with these numbers."""
    ultra = config.neuron.startswith(("Ultra", "SoftLIF")) or config.mode == "soft"
    accuracy = {"soft": soft, "hard": soft if hard is None else hard} if ultra else {"hard": soft}
    rates = dict.fromkeys(accuracy, rate)
    return made_result(config, accuracy, rates, eps=eps if ultra else None, path=path)


def made_up(
    accuracy, seeds=3, tables=("mnist-sparsity", "eps-ablation"), rate=lambda config: 0.4, eps=0.7, path=None
):
    """Return results in which each run has the accuracy that a function of its config gives."""
    configs = {c.id: c for table in tables for c in runs_of(table, seeds)}.values()
    return Results(row(c, accuracy(c), rate=rate(c), eps=eps, path=path) for c in configs)
