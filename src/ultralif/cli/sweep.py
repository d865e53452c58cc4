"""``ultralif sweep``: many runs, planned as stacks; and the plan that ``--dry-run`` prints."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from ultralif.cli.arguments import Common, read_arguments, warn_of_batch
from ultralif.cli.output import echo, print_json, print_table, say
from ultralif.cli.parse import Alone, Hidden
from ultralif.cli.sources import register_models
from ultralif.errors import InputError, JobError
from ultralif.names import GROUPS as NEURON_GROUPS
from ultralif.names import NEURON_NAMES
from ultralif.training.config import RunConfig
from ultralif.training.progress import RunOptions, spell_count, spell_time, stop_on_signals, training_progress
from ultralif.training.store import Store
from ultralif.training.sweep import grid, plan

if TYPE_CHECKING:
    from ultralif.training import Result

__all__ = ["COMMAND", "main", "print_plan", "run_plan", "seeds_together", "show_plan"]

MOST_SEEDS = 100_000


@dataclass(frozen=True, kw_only=True)
class Sweep(Common):
    """Train every unfinished combination of neurons, time steps, penalties and seeds.

    Runs that share dataset, time steps and seed are trained together, as one stack, on a GPU with all seeds.
    To resume a sweep that was stopped, give the same command again.

    Examples:
      ultralif sweep --neurons all --timesteps 1,10,30 --sparsity 0,0.01,0.1 --seeds 5
      ultralif sweep --dataset mnist --neurons UltraLIF,LIF --seeds 1,2,3 --dry-run
      ultralif sweep --dataset my.npz --neurons LIF,neuron.py:Mine --seeds 3
      ultralif sweep --dataset my.npz --model net.py:Net --timesteps 5,10 --seeds 3
      ultralif sweep --neurons all --seeds 10 --runs-dir /shared/runs --ray 10.0.0.1:6379
    """

    neuron: Hidden[None] = None
    neurons: tuple[str, ...] = ("all",)
    """Names of neurons, or of groups: all, paper (all but SoftLIF), ultra, baselines."""
    timesteps: tuple[int, ...] = (1, 10, 30)
    """The time steps T."""
    sparsity: tuple[float, ...] = (0.0,)
    """Weights lambda of the sparsity penalty, the mean spike rate, in the loss."""
    seeds: tuple[int, ...] = (1,)
    """One number: how many seeds, from --seed on. Several numbers: the seeds themselves."""
    largest: int = 64
    """The most networks of a seed that are trained together."""
    ray: Annotated[str | None, Alone("local")] = None
    """Train on a Ray cluster: its address, or none to start Ray here. All nodes must see --runs-dir."""
    cpus: int = 1
    """With --ray: cores for each stack that is not on a GPU; a stack on a GPU has that GPU to itself."""

    def chosen_seeds(self) -> Sequence[int]:
        """Return the seeds."""
        if len(self.seeds) > 1:
            return self.seeds
        if not 1 <= self.seeds[0] <= MOST_SEEDS:
            raise InputError(f"seeds must be from 1 to {MOST_SEEDS}, got {self.seeds[0]}")
        return range(self.run.seed, self.run.seed + self.seeds[0])


def main(argv: list[str]) -> None:
    """Train a grid of runs."""
    args = read_arguments(Sweep, argv, "sweep")
    own_model = args.run.model.startswith("own:")
    is_own = own_model or args.run.dataset.startswith("own:")
    is_own = is_own or not {*args.neurons} <= {*NEURON_NAMES, *NEURON_GROUPS}
    if args.ray is not None and is_own:
        raise InputError(
            "data, networks and neurons of your own are known to this process alone; leave --ray out"
        )
    seeds = args.chosen_seeds()
    warn_of_batch(args.run)
    configs = grid(args.run, list(args.neurons), list(args.timesteps), list(args.sparsity), seeds)
    if own_model:
        configs = register_models(args.run.model, configs)
    store = Store(args.runs_dir)
    # On a cluster each seed may have a GPU of its own.
    together = seeds_together(args.device, len(seeds)) if args.ray is None else 1
    stacks = plan(configs, store, args.largest, together)
    if args.dry_run:
        show_plan(stacks, args.device, args.json)
        return
    run_plan(
        stacks,
        store,
        RunOptions(device=args.device, data_dir=args.data_dir, checkpoint_seconds=args.checkpoint_seconds),
        quiet=args.quiet or args.json,
        elsewhere=_cluster(args),
    )
    rows = store.rows(runs=[config.id for config in configs], complain=say)
    for row in rows:
        if "code_sha256" in row.environment:
            from ultralif.training.networks import warn_of_code

            warn_of_code(row)
    if args.json:
        print_json([row.to_dict() for row in rows])
        return
    finished = [row for row in rows if row.status == "done"]
    _print_summary(finished)
    args.print_recipe()
    there = "" if args.runs_dir is None else f" --runs-dir {args.runs_dir}"
    echo(f"{spell_count(len(rows), 'run')} in {store.root}; next: ultralif runs list{there}")
    if len(finished) < len(rows):
        lost = ", ".join(row.id for row in rows if row.status != "done")
        raise JobError(f"the loss of {len(rows) - len(finished)} diverged, and they are left out: {lost}")


def seeds_together(device: str, seeds: int) -> int:
    """Return how many seeds to train in one stack: on a GPU several take little more time than one."""
    from ultralif.training.device import pick_device

    return seeds if pick_device(device).type == "cuda" else 1


def _cluster(args: Sweep) -> "Callable[..., Iterator[Result]] | None":
    """Return the function that trains stacks on a Ray cluster; None without --ray."""
    if args.ray is None:
        return None
    from ultralif.training.ray import run_ray

    return partial(run_ray, address=args.ray, cpus=args.cpus)


def run_plan(
    stacks: Sequence[Sequence[RunConfig]],
    store: Store,
    options: RunOptions,
    *,
    quiet: bool,
    elsewhere: "Callable[..., Iterator[Result]] | None" = None,
) -> None:
    """Print a plan and its estimated time, then train it; Ctrl-C stops it and saves everything.

    Args:
        stacks: the plan.
        store: where the runs go.
        options: device, folder of the data and checkpoints.
        quiet: show no progress.
        elsewhere: function that trains the stacks on a cluster; None trains them here.
    """
    if not stacks:
        if not quiet:
            say("all runs are finished already")
        return
    from ultralif.training import run_local

    seconds = [1.0] * len(stacks)
    if not quiet and elsewhere is not None:
        say(f"{sum(map(len, stacks))} runs in {len(stacks)} stacks")
    elif not quiet:
        from ultralif.training import estimate

        seconds = estimate(stacks, options.device)
        print_plan(stacks, seconds)
    with (
        redirect_stdout(sys.stderr),  # Ray prints its own message there
        stop_on_signals() as stopping,
        training_progress(seconds, quiet=quiet) as report,
    ):
        for _ in (elsewhere or run_local)(stacks, store, replace(options, report=report, stopping=stopping)):
            pass


def _print_summary(rows: "list[Result]") -> None:
    """Print mean and interval over seeds for each kind of run."""
    from ultralif.report.summary import summarize

    table = summarize(rows)
    print_table(table.columns, table.rows)
    for note in table.notes[:1]:
        echo(note)


Stacks = Sequence[Sequence[RunConfig]]


def show_plan(stacks: Stacks, device: str, as_json: bool) -> None:
    """Print what would be trained, its size and time, and the config if there is only one run."""
    from ultralif.nn import Neuron
    from ultralif.training import estimate
    from ultralif.training.networks import build_network

    seconds = estimate(stacks, device)
    if as_json:
        runs = [config.settings() for stack in stacks for config in stack]
        print_json({"stacks": _rows(stacks, seconds), "seconds": round(sum(seconds), 1), "runs": runs})
        return
    if len(stacks) == 1 and len(stacks[0]) == 1:
        for name, value in stacks[0][0].settings().items():
            echo(f"{name:16} {value}")
        modules = build_network(stacks[0][0]).modules()
        neuron = next((module for module in modules if isinstance(module, Neuron)), None)
        echo(f"{'neurons':16} {neuron!r}")
        echo(f"{'id':16} {stacks[0][0].id}")
    _print(stacks, seconds, sys.stdout)


def print_plan(stacks: Stacks, seconds: Sequence[float]) -> None:
    """Print what will be trained."""
    _print(stacks, seconds, sys.stderr)


def _print(stacks: Stacks, seconds: Sequence[float], file: Any) -> None:
    if stacks:
        rows = _rows(stacks, seconds)
        print_table(tuple(rows[0]), [tuple(row.values()) for row in rows], file=file)
    runs = sum(map(len, stacks))
    what = f"{spell_count(runs, 'run')} in {spell_count(len(stacks), 'stack')}"
    echo(f"{what}, about {spell_time(sum(seconds))}, without loading and evaluation", file)


def _rows(stacks: Stacks, seconds: Sequence[float]) -> list[dict[str, Any]]:
    """Describe the stacks; those that differ only in their seed are one row."""
    from ultralif.training.networks import build_network, footprint

    rows: dict[tuple[object, ...], dict[str, Any]] = {}
    for stack, time in zip(stacks, seconds, strict=True):
        shared = stack[0]
        key = tuple(config.with_(seed=0).id for config in stack)
        if key not in rows:
            networks = [build_network(config) for config in stack]
            rows[key] = {
                "dataset": shared.dataset,
                "T": shared.timesteps,
                "networks": len(stack),
                "seeds": 0,
                "parameters": sum(p.numel() for network in networks for p in network.parameters()),
                "megabytes": round(sum(footprint(stack)) / 1e6, 1),
                "seconds": 0.0,
            }
        rows[key]["seeds"] += 1
        rows[key]["seconds"] = round(rows[key]["seconds"] + time, 1)
    return list(rows.values())


COMMAND = Sweep
