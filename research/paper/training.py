"""Train the runs still missing from the paper's tables on this machine."""

import argparse
import sys
from collections.abc import Sequence

from research.paper.grids import runs_of
from ultralif.data import available
from ultralif.training import Progress, RunConfig, RunOptions, Store, estimate, plan, run_local

__all__ = ["plan_tables", "train_tables"]


def plan_tables(
    tables: Sequence[str], store: Store, given: argparse.Namespace
) -> tuple[list[list[RunConfig]], list[str]]:
    """Return the stacks still missing from the tables, and the datasets that are not on this machine.

    Seeds are trained one after another, so that tables with fewer seeds are complete early.
    """
    configs = {config.id: config for table in tables for config in runs_of(table, given.seeds)}.values()
    datasets = dict.fromkeys(config.dataset for config in configs)
    absent = [name for name in datasets if not available(name, given.data_dir)]
    stacks = plan([config for config in configs if config.dataset not in absent], store)
    return sorted(stacks, key=lambda stack: stack[0].seed), absent


def train_tables(tables: Sequence[str], given: argparse.Namespace) -> bool:
    """Train the missing runs and report missing datasets; return whether it was a dry run."""
    store = Store(given.runs_dir)
    stacks, absent = plan_tables(tables, store, given)
    if absent:
        getting = " && ".join(f"ultralif data get {name}" for name in absent)
        _say(f"not on this machine: {', '.join(absent)}; get them with: {getting}")
    runs = sum(map(len, stacks))
    if given.dry_run:
        seconds = sum(estimate(stacks, given.device))
        print(f"{runs} runs in {len(stacks)} stacks, about {seconds:.0f} seconds")
        return True
    if not stacks and not absent and not given.quiet:
        _say("all runs are already finished")
    quiet = given.quiet or given.json

    def tell(progress: Progress) -> None:
        if progress.note:
            _say(progress.note)
        elif not quiet:
            _say(f"stack {progress.stack + 1} of {len(stacks)}: epoch {progress.epoch} of {progress.epochs}")

    options = RunOptions(device=given.device, data_dir=given.data_dir, report=tell)
    for _ in run_local(stacks, store, options):
        pass
    return False


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
