"""What a command would do: the configs, the size and the time, without doing it."""

from collections.abc import Sequence
from itertools import pairwise
from math import prod

from ultralif.cli.tables import print_json, print_table
from ultralif.training.config import RunConfig

__all__ = ["show_plan"]


def show_plan(stacks: Sequence[Sequence[RunConfig]], device: str, as_json: bool) -> None:
    """Print the stacks of a plan with their size and time, and the config if there is but one run."""
    from ultralif.data.table import find_spec
    from ultralif.training import estimate

    plans = []
    for stack in stacks:
        shared, spec = stack[0], find_spec(stack[0].dataset)
        sizes = (prod(spec.shape), *shared.hidden, spec.classes)
        parameters = len(stack) * sum((a + 1) * b for a, b in pairwise(sizes))
        steps = shared.timesteps * shared.batch_size
        plans.append(
            {
                "dataset": shared.dataset,
                "timesteps": shared.timesteps,
                "seed": shared.seed,
                "networks": len(stack),
                "parameters": parameters,
                "megabytes": round(
                    (16 * parameters + 4 * steps * (sizes[0] + 3 * len(stack) * max(sizes[1:]))) / 1e6
                ),
                "seconds": round(estimate(stack, device), 1),
            }
        )
    if as_json:
        print_json({"stacks": plans, "runs": [config.to_dict() for stack in stacks for config in stack]})
        return
    if len(stacks) == 1 and len(stacks[0]) == 1:
        for name, value in stacks[0][0].to_dict().items():
            print(f"{name:16} {value}")
        print(f"{'id':16} {stacks[0][0].id}")
    if plans:
        print_table(tuple(plans[0]), [tuple(entry.values()) for entry in plans])
    total = sum(float(str(entry["seconds"])) for entry in plans)
    runs = sum(len(stack) for stack in stacks)
    print(f"{runs} runs in {len(stacks)} stacks, about {total:.0f} s, without loading and evaluation")
