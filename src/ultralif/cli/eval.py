"""``ultralif eval``: evaluate a trained run on the test set again, in every mode."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ultralif.cli.output import number, print_json, print_result, print_table
from ultralif.cli.sources import register_paths_of
from ultralif.training.store import Store
from ultralif.training.zoo import is_model

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor, nn

__all__ = ["COMMAND"]


def evaluate_run(
    run: str,
    /,
    modes: bool = False,
    runs_dir: Path | None = None,
    data_dir: Path | None = None,
    device: str = "auto",
    json: bool = False,
    dataset: str | None = None,
    model: str | None = None,
    neuron: str | None = None,
) -> None:
    """Evaluate a trained network on its whole test set, in the modes soft, hard and tropical.

    Examples:
      ultralif eval 6c0c31e38c43
      ultralif eval 6c0c --modes
      ultralif eval n-mnist/ultradlif-t1

    Args:
        run: a run's name or its beginning, its folder, or a name from ``ultralif models list``.
        modes: compare the modes decision by decision and layer by layer.
        runs_dir: runs folder.
        data_dir: a folder to search first for the data.
        device: cpu, cuda, or auto: the GPU if there is one.
        json: print one JSON document.
        dataset: your own data that the run was trained on, as for ultralif train.
        model: file.py:Class, for a run with your own network.
        neuron: file.py:Class, for a run with your own neuron.
    """
    register_paths_of(run, runs_dir, dataset, model, neuron)
    if is_model(run):
        from ultralif.training.evaluate import reevaluate_model

        found = reevaluate_model(run, device, data_dir, compare=_gaps if modes else None)
    else:
        store, name = Store.holding(run, runs_dir)
        from ultralif.training.evaluate import reevaluate

        found = reevaluate(store, name, device, data_dir, compare=_gaps if modes else None)
    if json:
        gap = {"gap": found.gap} if found.gap else {}
        print_json({**found.result.to_dict(), **gap})
        return
    if len(found.gap) > 1:
        _print_gaps(found.gap)
    print_result(found.result, f"ultralif export {found.result.path} --to c --out model")


def _gaps(network: "nn.Module", batches: "Iterable[tuple[Tensor, Tensor]]") -> dict[str, Any]:
    """Return, for each mode, the shares of equal decisions and different spikes, and the first difference."""
    from ultralif.export.harden import gap

    return {
        name: {
            "agreement": one.agreement,
            "differing": (100 * one.differing.mean(1)).tolist(),
            "first": one.first._asdict() if one.first else None,
        }
        for name, one in gap(network, batches).items()
    }


def _print_gaps(gaps: dict[str, Any]) -> None:
    """Print how each mode differs from the first one, by decision and by layer."""
    first, *others = gaps
    rows = []
    for mode in others:
        gap = gaps[mode]
        place = gap["first"]
        where = f"layer {place['layer']}, step {place['step']}" if place else None
        rows.append(
            (mode, number(gap["agreement"], 2), *(number(part, 2) for part in gap["differing"]), where)
        )
    layers = (f"layer {i} differs %" for i in range(1, len(gaps[first]["differing"]) + 1))
    print_table(("spikes", f"same decision as {first} %", *layers, "first"), rows)


COMMAND = evaluate_run
