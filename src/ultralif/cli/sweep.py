"""``ultralif sweep``: many runs, planned as stacks."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from ultralif.cli.parse import parse
from ultralif.cli.progress import say, stop_on_signals, training_progress
from ultralif.cli.tables import print_json, print_table
from ultralif.errors import InputError
from ultralif.training.config import RunConfig

__all__ = ["main", "run_plan", "split_list"]

V = TypeVar("V")


@dataclass(frozen=True, kw_only=True)
class Sweep(RunConfig):
    """Train every combination of neurons, time steps, penalties and seeds that is not finished yet.

    Runs that share dataset, time steps and seed are trained together. A sweep that was stopped goes on when
    the same command is given again.

    Examples:
      ultralif sweep --neurons all --timesteps 1,10,30 --lambdas 0,0.01,0.1 --seeds 5
      ultralif sweep --dataset mnist --neurons UltraLIF,LIF --seeds 3 --dry-run
    """

    neurons: str = "all"
    """Names with commas between them; all: the paper's ten, ultra: its four, baselines: its six."""
    timesteps_list: str = "1,10,30"
    """The time steps."""
    lambdas: str = "0"
    """Weights of the mean spike rate."""
    seeds: int = 1
    """How many seeds, from --seed on."""
    largest: int = 64
    """How many networks are trained together at most."""
    runs_dir: Path | None = None
    """Where runs are kept. None: $ULTRALIF_RUNS or ./runs."""
    data_dir: Path | None = None
    """A folder to search first for the data."""
    device: str = "auto"
    """cpu, cuda, or the GPU if there is one."""
    checkpoint_seconds: float = 60.0
    """How much work may be lost if the process is killed."""
    dry_run: bool = False
    """Print the plan and how long it would take, and train nothing."""
    quiet: bool = False
    """Show no progress."""
    json: bool = False
    """Print the results as one JSON document."""


def main(argv: list[str]) -> None:
    """Train a grid of runs."""
    words = [
        "--timesteps-list" + word.removeprefix("--timesteps") if _is_timesteps(word) else word
        for word in argv
    ]
    args = parse(Sweep, words, "sweep")
    from ultralif.training import Store, grid, plan

    base = RunConfig(**{field.name: getattr(args, field.name) for field in fields(RunConfig)})
    if args.seeds < 1:
        raise InputError(f"seeds must be at least 1, got {args.seeds}")
    configs = grid(
        base,
        split_list("neurons", args.neurons, str),
        split_list("timesteps", args.timesteps_list, int),
        split_list("lambdas", args.lambdas, float),
        range(args.seed, args.seed + args.seeds),
    )
    store = Store(args.runs_dir)
    stacks = plan(configs, store, args.largest)
    if args.dry_run:
        from ultralif.cli.dry import show_plan

        show_plan(stacks, args.device, args.json)
        return
    run_plan(stacks, store, args, quiet=args.quiet or args.json)
    wanted = {config.id for config in configs}
    rows = [row for row in store.rows() if row["id"] in wanted]
    if args.json:
        print_json(rows)
        return
    _print_summary(rows)
    print(f"{len(rows)} runs in {store.root}; next: ultralif runs list")


def _is_timesteps(word: str) -> bool:
    return word == "--timesteps" or word.startswith("--timesteps=")


def split_list(name: str, text: str, kind: Callable[[str], V]) -> list[V]:
    """Return the values of a list that is written with commas."""
    try:
        values = [kind(part.strip()) for part in text.split(",") if part.strip()]
    except ValueError:
        raise InputError(
            f"{name} must be values with commas between them, such as 1,10,30, got {text!r}"
        ) from None
    if not values:
        raise InputError(f"{name} must have at least one value, got {text!r}")
    return values


def run_plan(stacks: list[list[RunConfig]], store: Any, args: Any, *, quiet: bool) -> None:
    """Train the stacks of a plan, with progress and the chance to stop."""
    from ultralif.training import run_local

    runs = sum(map(len, stacks))
    if not quiet:
        say(f"{runs} runs in {len(stacks)} stacks" if stacks else "all runs are finished")
    epochs = [stack[0].epochs for stack in stacks]
    with stop_on_signals() as stopping, training_progress(epochs, quiet=quiet) as report:
        for _ in run_local(
            stacks,
            store,
            device=args.device,
            data_dir=args.data_dir,
            report=report,
            stopping=stopping,
            checkpoint_seconds=args.checkpoint_seconds,
        ):
            pass


def _print_summary(rows: list[dict[str, Any]]) -> None:
    """Print mean and spread over seeds for each kind of run."""
    from statistics import mean, stdev

    kinds: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        kinds.setdefault((row["dataset"], row["neuron"], row["timesteps"], row["sparsity"]), []).append(row)
    table = []
    for kind, group in sorted(kinds.items(), key=str):
        cells: list[Any] = [*kind, len(group)]
        for mode in ("soft", "hard"):
            values = [row["accuracy"][mode] for row in group if mode in row["accuracy"]]
            spread = f" ± {stdev(values):.2f}" if len(values) > 1 else ""
            cells.append(f"{mean(values):.2f}{spread}" if values else None)
        table.append(cells)
    print_table(("dataset", "neuron", "T", "lambda", "seeds", "soft %", "hard %"), table)
