"""``ultralif eval``: a trained run on the test set once more, in every mode."""

from pathlib import Path
from typing import Any

from ultralif.cli.parse import parse
from ultralif.cli.tables import print_result
from ultralif.training.store import Store

__all__ = ["main"]


def main(argv: list[str]) -> None:
    """Evaluate a run."""
    parse(evaluate_run, argv, "eval")


def evaluate_run(
    run: str,
    /,
    modes: bool = False,
    runs_dir: Path | None = None,
    data_dir: Path | None = None,
    device: str = "auto",
    json: bool = False,
) -> None:
    """Evaluate a run on its whole test set, with soft, binary and max-plus spikes.

    Examples:
      ultralif eval 6c0c31e38c43
      ultralif eval 6c0c --modes

    Args:
        run: the name of a run, or the beginning of it.
        modes: compare the modes decision by decision, and say where spikes part.
        runs_dir: where runs are kept.
        data_dir: a folder to search first for the data.
        device: cpu, cuda, or auto: the GPU if there is one.
        json: print one JSON document.
    """
    store = Store(runs_dir)
    name = store.find(run)
    from ultralif.training.reevaluate import reevaluate

    found = reevaluate(store, name, device, data_dir, compare=modes)
    if not json:
        for line in _partings(found.get("gap", {})):
            print(line)
    print_result(found, json, then=f"ultralif export {name} --to c --out model")


def _partings(gaps: dict[str, Any]) -> list[str]:
    lines = []
    for mode, gap in list(gaps.items())[1:]:
        first = gap["first"]
        where = (
            f"; spikes first differ in layer {first['layer']} at step {first['step']}, "
            f"{100 * first['share']:.1f} % of them"
            if first
            else "; all spikes are the same"
        )
        lines.append(
            f"{mode}: {gap['agreement']:.1f} % of the decisions are those of {next(iter(gaps))} spikes{where}"
        )
    return lines
