"""``ultralif train``: one run, from flags or a file to a table."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ultralif.cli.common import Common, read_arguments
from ultralif.cli.progress import say, stop_on_signals, training_progress
from ultralif.cli.tables import print_result
from ultralif.errors import JobError, need
from ultralif.training.config import RunConfig
from ultralif.training.store import Store

__all__ = ["main"]


@dataclass(frozen=True, kw_only=True)
class Train(Common):
    """Train a network and print what it can do. The defaults are the paper's recipe on built-in data.

    A run that was stopped goes on when the same command is given again; one that is finished is only shown.

    Examples:
      ultralif train
      ultralif train --dataset mnist --neuron UltraDLIF --timesteps 1
      ultralif train --hidden 128 64 --eps 0.5 --epochs 20 --dry-run
      ultralif train --config runs/6c0c31e38c43/config.json --seed 43
    """

    tensorboard: Path | None = None
    """Write the history for TensorBoard into this folder."""


def main(argv: list[str]) -> None:
    """Train one run."""
    args = read_arguments(Train, argv, "train")
    run = args.run()
    if args.dry_run:
        from ultralif.cli.dry import show_plan

        show_plan([[run]], args.device, args.json)
        return
    if args.tensorboard is not None:
        need("tensorboard", "tensorboard")  # better now than when all is trained
    store = Store(args.runs_dir)
    found = store.rows(runs=[run.id])
    if found and not args.json:
        say(f"{run.id} is finished already; this is what it found")
    result = found[0] if found else _train(run, args)
    if args.tensorboard is not None:
        from ultralif.training.tensorboard import write_history

        write_history(args.tensorboard, store, run.id)
    print_result(result, args.json)
    if result["status"] == "diverged":
        raise JobError(
            f"{run.neuron} ({run.id}) diverged; try a smaller --learning-rate than {run.learning_rate}"
        )


def _train(run: RunConfig, args: Train) -> dict[str, Any]:
    from ultralif.training import train

    quiet = args.quiet or args.json
    with stop_on_signals() as stopping, training_progress([1.0], quiet=quiet) as report:
        result = train(
            run,
            runs_dir=args.runs_dir,
            device=args.device,
            data_dir=args.data_dir,
            report=lambda progress: report(0, progress),
            stopping=stopping,
            checkpoint_seconds=args.checkpoint_seconds,
        )
    return result.to_dict()
