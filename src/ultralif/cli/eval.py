"""``ultralif eval``: a trained run on the test set once more, in every mode."""

from pathlib import Path

from ultralif.cli.parse import parse
from ultralif.cli.tables import print_json, print_table

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

    Args:
        run: a run's name, or the beginning of it.
        modes: compare the modes decision by decision, and say where they part.
        runs_dir: where runs are kept.
        data_dir: a folder to search first for the data.
        device: cpu, cuda, or the GPU if there is one.
        json: print one JSON document.
    """
    from ultralif.training import Store
    from ultralif.training.reevaluate import reevaluate

    found = reevaluate(Store(runs_dir), run, device, data_dir, compare=modes)
    if json:
        print_json(found)
        return
    columns = ("spikes", "accuracy %", "rate", "MACs", "ACs")
    operations = found["energy"]["operations"]
    rows = [
        (
            mode,
            f"{accuracy:.2f}",
            f"{found['spike_rate'][mode]:.3f}",
            *(f"{operations[mode][kind]:,.0f}" for kind in ("macs", "acs")),
        )
        for mode, accuracy in found["accuracy"].items()
    ]
    print_table(columns, rows, f"{found['neuron']} on {found['dataset']}, T={found['timesteps']}")
    for line in found.get("gap", []):
        print(line)
    print(f"run {found['id']}; next: ultralif export {found['id']} --to c --out model")
