"""Made-up results of the paper's grids."""

from report.made_runs import made_result
from ultralif.paper.grids import runs_of
from ultralif.paper.results import Results

__all__ = ["made_up", "row"]


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
