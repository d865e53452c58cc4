"""``ultralif train``: one run, from flags or a file to a table."""

import json
import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from ultralif.cli.parse import parse
from ultralif.cli.progress import say, stop_on_signals, training_progress
from ultralif.cli.tables import print_result
from ultralif.errors import InputError
from ultralif.training.config import RunConfig

__all__ = ["main", "read_config"]


@dataclass(frozen=True, kw_only=True)
class Train(RunConfig):
    """Train a network and print what it can do. The defaults are the paper's recipe on built-in data.

    A run that was stopped goes on when the same command is given again; one that is finished is only shown.

    Examples:
      ultralif train
      ultralif train --dataset mnist --neuron UltraDLIF --timesteps 1
      ultralif train --config runs/6c0c31e38c43/config.json --seed 43
    """

    config: Path | None = None
    """A TOML or JSON file with fields of a run; flags go before it."""
    runs_dir: Path | None = None
    """Where runs are kept. None: $ULTRALIF_RUNS or ./runs."""
    data_dir: Path | None = None
    """A folder to search first for the data."""
    device: str = "auto"
    """cpu, cuda, or the GPU if there is one."""
    tensorboard: Path | None = None
    """Write the history for TensorBoard into this folder."""
    checkpoint_seconds: float = 60.0
    """How much work may be lost if the process is killed."""
    dry_run: bool = False
    """Print the whole config, the size and the time it would take, and train nothing."""
    quiet: bool = False
    """Show no progress."""
    json: bool = False
    """Print the result as one JSON document."""


def main(argv: list[str]) -> None:
    """Train one run."""
    args = parse(Train, argv, "train", _defaults(argv))
    run = RunConfig(**{field.name: getattr(args, field.name) for field in fields(RunConfig)})
    if args.dry_run:
        from ultralif.cli.dry import show_plan

        show_plan([[run]], args.device, args.json)
        return
    from ultralif.training import Store, train

    known = bool(Store(args.runs_dir).done([run.id]))
    if known and not args.json:
        say(f"{run.id} is finished already; this is what it found")
    with (
        stop_on_signals() as stopping,
        training_progress([run.epochs], quiet=args.quiet or args.json) as report,
    ):
        result = train(
            run,
            runs_dir=args.runs_dir,
            device=args.device,
            data_dir=args.data_dir,
            report=lambda progress: report(0, progress),
            stopping=stopping,
            checkpoint_seconds=args.checkpoint_seconds,
        )
    if args.tensorboard is not None:
        from ultralif.training.tensorboard import write_history

        write_history(args.tensorboard, Store(args.runs_dir), result.id)
    print_result(result.to_dict(), args.json)


def _defaults(argv: list[str]) -> Train | None:
    """Return the values of the file that ``--config`` names, so that flags can go before them."""
    for i, word in enumerate(argv):
        if word == "--config" and i + 1 < len(argv):
            return Train(**read_config(Path(argv[i + 1])))
        if word.startswith("--config="):
            return Train(**read_config(Path(word.partition("=")[2])))
    return None


def read_config(path: Path) -> dict[str, Any]:
    """Return the fields of a run from a TOML or JSON file, checked."""
    try:
        text = path.read_text()
        data = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"config {path} cannot be read ({error}); give the path of a TOML or JSON file"
        ) from error
    except (json.JSONDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"config {path} is not valid: {error}") from error
    if not isinstance(data, dict):
        raise InputError(f"config {path} must hold fields of a run, got {type(data).__name__}")
    run = RunConfig.from_dict(data)
    return {field.name: getattr(run, field.name) for field in fields(RunConfig)}
