"""``ultralif sweep``: train many runs in stacks, and print the plan for ``--dry-run``."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, TextIO

from ultralif.cli.arguments import Common, read_arguments, warn_of_batch, warn_of_changed_code
from ultralif.cli.output import echo, print_json, print_table, say
from ultralif.cli.parse import Alone, Hidden
from ultralif.cli.sources import register_models
from ultralif.errors import InputError, JobError, check_range
from ultralif.names import GROUPS as NEURON_GROUPS
from ultralif.names import NEURON_NAMES
from ultralif.report.summary import summarize
from ultralif.training.config import RunConfig
from ultralif.training.progress import spell_count, spell_time
from ultralif.training.store import Store
from ultralif.training.sweep import grid, plan

if TYPE_CHECKING:
    from ultralif.training import Result

__all__ = ["COMMAND", "main", "show_plan"]

Stacks = Sequence[Sequence[RunConfig]]
MOST_SEEDS = 100_000


@dataclass(frozen=True, kw_only=True)
class Sweep(Common):
    """Train every unfinished combination of neurons, time steps, penalties and seeds.

    Runs with the same dataset, time steps and seed are trained together as one stack; on a GPU, a stack
    contains all seeds. To resume an interrupted sweep, run the same command again.

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
    """Numbers of time steps T."""
    sparsity: tuple[float, ...] = (0.0,)
    """Weights lambda of the sparsity penalty, the mean spike rate, in the loss."""
    seeds: tuple[int, ...] = (1,)
    """One number: the number of seeds, starting at --seed. Several numbers: the seeds themselves."""
    largest: int = 64
    """Largest number of networks per seed that are trained together."""
    ray: Annotated[str | None, Alone("local")] = None
    """Train on the Ray cluster at this address, or start Ray locally without one. All nodes need access to
    --runs-dir."""
    cpus: int = 1
    """With --ray: cores for each stack on the CPU; a stack on a GPU has that GPU to itself."""


def main(argv: list[str]) -> None:
    """Train a grid of runs."""
    args = read_arguments(Sweep, argv, "sweep")
    own_model = args.run.model.startswith("own:")
    is_own = own_model or args.run.dataset.startswith("own:")
    is_own = is_own or not {*args.neurons} <= {*NEURON_NAMES, *NEURON_GROUPS}
    if args.ray is not None and is_own:
        raise InputError("your own data, networks and neurons are only known to this process; omit --ray")
    seeds: Sequence[int] = args.seeds
    if len(seeds) == 1:
        check_range("seeds", seeds[0], 1, MOST_SEEDS)
        seeds = range(args.run.seed, args.run.seed + seeds[0])
    warn_of_batch(args.run)
    configs = grid(args.run, list(args.neurons), list(args.timesteps), list(args.sparsity), seeds)
    if own_model:
        configs = register_models(args.run.model, configs)
    store = Store(args.runs_dir)
    stacks = plan(configs, store, args.largest, _seeds_together(args, len(seeds)))
    if args.dry_run:
        show_plan(stacks, args.device, args.json)
        return
    _train(stacks, store, args)
    rows = store.rows(runs=[config.id for config in configs], complain=say)
    warn_of_changed_code(rows)
    if args.json:
        print_json([row.to_dict() for row in rows])
        return
    finished = [row for row in rows if row.status == "done"]
    table = summarize(finished)
    print_table(table.columns, table.rows)
    for note in table.notes[:1]:
        echo(note)
    args.print_recipe()
    there = "" if args.runs_dir is None else f" --runs-dir {args.runs_dir}"
    echo(f"{spell_count(len(rows), 'run')} in {store.root}; next: ultralif runs list{there}")
    if len(finished) < len(rows):
        lost = ", ".join(row.id for row in rows if row.status != "done")
        raise JobError(f"left out of the table, because the loss diverged: {lost}")


def _seeds_together(args: Sweep, seeds: int) -> int:
    """Return how many seeds to train in one stack; on a GPU, several take little longer than one."""
    from ultralif.training.device import pick_device

    return seeds if args.ray is None and pick_device(args.device).type == "cuda" else 1


def _train(stacks: Stacks, store: Store, args: Sweep) -> None:
    """Print the plan with its estimated time, then train it; Ctrl-C saves everything and stops."""
    quiet = args.quiet or args.json
    if not stacks:
        if not quiet:
            say("all runs are already finished")
        return
    from ultralif.training import estimate, run_local

    seconds = [1.0] * len(stacks)
    if args.ray is not None:
        from ultralif.training.ray import run_ray

        train: Callable[..., Iterator[Result]] = partial(run_ray, address=args.ray, cpus=args.cpus)
        if not quiet:
            say(f"{sum(map(len, stacks))} runs in {len(stacks)} stacks")
    else:
        train = run_local
        if not quiet:
            seconds = estimate(stacks, args.device)
            _print(stacks, seconds, sys.stderr)
    with redirect_stdout(sys.stderr), args.watched(seconds) as options:  # Ray prints its own message
        for _ in train(stacks, store, options):
            pass


def show_plan(stacks: Stacks, device: str, as_json: bool) -> None:
    """Print the planned runs, their size and time, and the config if there is only one run."""
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


def _print(stacks: Stacks, seconds: Sequence[float], file: TextIO) -> None:
    if stacks:
        rows = _rows(stacks, seconds)
        print_table(tuple(rows[0]), [tuple(row.values()) for row in rows], file=file)
    runs = sum(map(len, stacks))
    what = f"{spell_count(runs, 'run')} in {spell_count(len(stacks), 'stack')}"
    echo(f"{what}, about {spell_time(sum(seconds))}, excluding loading and evaluation", file)


def _rows(stacks: Stacks, seconds: Sequence[float]) -> list[dict[str, Any]]:
    """Describe the stacks, combining those that differ only in their seed."""
    from ultralif.training.networks import build_network, footprint, titles

    rows: dict[tuple[object, ...], dict[str, Any]] = {}
    for stack, time in zip(stacks, seconds, strict=True):
        shared = stack[0]
        key = tuple(config.with_(seed=0).id for config in stack)
        if key not in rows:
            networks = [build_network(config) for config in stack]
            rows[key] = {
                "dataset": titles(shared).get("dataset", shared.dataset),
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
