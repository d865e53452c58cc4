"""``--dry-run``: print the configs, sizes and estimated time of a command without running it."""

import sys
from collections.abc import Sequence
from typing import Any

from ultralif.cli.output import echo, print_json, print_table
from ultralif.cli.progress import spell_count, spell_time
from ultralif.training.config import RunConfig

__all__ = ["print_plan", "show_plan"]

Stacks = Sequence[Sequence[RunConfig]]


def show_plan(stacks: Stacks, device: str, as_json: bool) -> None:
    """Print what would be trained, its size and time, and the config if there is only one run."""
    from ultralif.nn import Neuron
    from ultralif.training import estimate
    from ultralif.training.build import build_network

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
    """Print what is going to be trained."""
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
    from ultralif.training.build import build_network, footprint

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
