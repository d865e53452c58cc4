"""The runs that the paper's tables still need on this machine."""

from pathlib import Path

from ultralif.data.files import find
from ultralif.data.table import find_spec
from ultralif.paper.grids import runs_of
from ultralif.training import Store, plan
from ultralif.training.config import RunConfig

__all__ = ["at_hand", "plan_table"]


def at_hand(dataset: str, data_dir: Path | None = None) -> bool:
    """Tell whether a dataset is on this machine, or comes with a package."""
    spec = find_spec(dataset)
    return not spec.forms or find(spec, data_dir) is not None


def plan_table(
    table: str, store: Store, seeds: int = 5, data_dir: Path | None = None, together: int = 1
) -> tuple[list[list[RunConfig]], list[str]]:
    """Return the stacks that a table still needs, and the datasets that are not on this machine.

    Seeds are trained one after another, unless a stack has several, so finished runs soon make a whole table
    with fewer seeds.
    """
    configs = runs_of(table, seeds)
    datasets = list(dict.fromkeys(config.dataset for config in configs))
    absent = [name for name in datasets if not at_hand(name, data_dir)]
    stacks = plan([config for config in configs if config.dataset not in absent], store, seeds=together)
    return sorted(stacks, key=lambda stack: stack[0].seed), absent
