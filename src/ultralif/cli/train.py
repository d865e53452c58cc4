"""``ultralif train``: train one run from flags or a config file, and print its results."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ultralif.cli.arguments import Common, read_arguments, warn_of_batch, warn_of_changed_code
from ultralif.cli.output import print_json, print_result, say
from ultralif.errors import JobError, need
from ultralif.training.config import RunConfig
from ultralif.training.store import Store

if TYPE_CHECKING:
    from ultralif.training.result import Result

__all__ = ["COMMAND", "main"]


@dataclass(frozen=True, kw_only=True)
class Train(Common):
    """Train a network, store the run and print its accuracy, spike rate and energy in every mode.

    Without --dataset, --model or --hidden, it trains a small convolutional network on built-in data in half
    a minute. Each --model has its own training recipe; other networks are perceptrons with the defaults
    below. Run the same command again to resume an interrupted run.

    Examples:
      ultralif train
      ultralif train --neuron LIF
      ultralif train --dataset mnist --neuron UltraDLIF --timesteps 1
      ultralif train --hidden 128,64 --eps 0.5 --epochs 20 --dry-run
      ultralif train --dataset my.npz --model net.py:Net --neuron neuron.py:Mine
      ultralif train --config runs/6c0c31e38c43/config.json --seed 43
      torchrun --nproc-per-node 8 -m ultralif train --hidden 4096 --batch-size 1024
    """

    tensorboard: Path | None = None
    """Folder to write the history to, for TensorBoard."""
    graph: bool = True
    """On a GPU, record a training step once and replay it. Your own network needs --no-graph if its control
    flow in Python changes between steps."""
    again: bool = False
    """Train a finished run again and replace its result."""


def main(argv: list[str]) -> None:
    """Train one run."""
    args = read_arguments(Train, argv, "train", _recipe)
    run = args.run
    name = run.id  # rejects options that the neuron does not have
    warn_of_batch(run)
    if args.dry_run:
        from ultralif.cli.sweep import show_plan

        show_plan([[run]], args.device, args.json)
        if not args.json:
            args.print_recipe()
        return
    if args.tensorboard is not None:
        need("tensorboard", "tensorboard")  # fail now rather than after training
    store = Store(args.runs_dir)
    found = [] if args.again else store.rows(runs=[name])
    if found and args.device not in ("auto", "cpu"):  # check the device even if the run is already finished
        from ultralif.training.device import pick_device

        pick_device(args.device)
    warn_of_changed_code(found)
    if found and not args.json and _is_first():
        say(f"{run.id} is already finished; these are its results. To train it again, add --again")
    result = found[0] if found else _train(run, args)
    if result is None or not _is_first():
        return
    if args.tensorboard is not None:
        from ultralif.training.callbacks import write_history

        write_history(args.tensorboard, store, run.id)
    if args.json:
        print_json(result.to_dict())
    else:
        print_result(result)
        args.print_recipe()
    if result.status == "diverged":
        raise JobError(
            f"{run.neuron} ({run.id}) diverged; try a smaller --learning-rate than {run.learning_rate}"
        )


def _recipe(given: Mapping[str, object]) -> str | None:
    """Return the recipe for digits, unless the user chooses the data or the network."""
    return None if given.keys() & {"dataset", "model", "hidden"} else "digits"


def _is_first() -> bool:
    """Return whether this is the job's only process, or torchrun's first one."""
    return os.environ.get("RANK", "0") == "0"


def _train(run: RunConfig, args: Train) -> "Result | None":
    from ultralif.training import run_local

    store, result = Store(args.runs_dir), None
    if run.model.startswith("own:") and _is_first():
        from ultralif.training.networks import changed_code

        if (note := changed_code(run, store)) is not None:
            say(note)
    with args.watched([1.0], graph=args.graph) as options:
        if "TORCHELASTIC_RUN_ID" in os.environ:
            from ultralif.training.torchrun import train_distributed

            result = train_distributed(run, store, options)
        else:
            (result,) = run_local([[run]], store, options)
    return result


COMMAND = Train
