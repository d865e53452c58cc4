"""The part of research/docs/paper.md about training times."""

import re

from research import RESULTS
from research.pages.paper_parts import FOUR, NAMES, wrapped
from research.paper.grids import CLIPPED
from research.paper.published import TIMESTEPS
from research.paper.results import Key, Results

__all__ = ["time"]

SEED = RESULTS / "seed-h200.txt"
STACK = re.compile(r"done: ([a-z0-9-]+) T=(\d+): ")


def time(results: Results) -> str:
    """Report the GPU time for the stacks in the released reading."""
    found = {
        (dataset, t): next(iter(runs.values()))
        for dataset in FOUR
        for t in TIMESTEPS
        if (runs := results.runs.get(Key("LIF", dataset, t, CLIPPED)))
    }
    known = {cell: run for cell, run in found.items() if run.seconds}
    lines = ["| dataset | T=1 | T=10 | T=30 |", "|---|---|---|---|"]
    for dataset in FOUR:
        row = [f"{known[dataset, t].seconds:.0f} s" if (dataset, t) in known else "-" for t in TIMESTEPS]
        lines.append(f"| {NAMES[dataset]} | {' | '.join(row)} |")
    groups = [
        [c for c in known if c[0] in ("mnist", "fashion-mnist") and c[1] < 30],
        [c for c in known if c[0] in ("mnist", "fashion-mnist") and c[1] == 30],
        [c for c in known if c[0] == "cifar10"],
        [c for c in known if c[0] == "n-mnist"],
    ]
    first, *rest = [max(known[c].seconds or 0 for c in group) for group in groups]
    members = max(run.stacked or 0 for run in known.values())
    text = wrapped(
        f"Each cell shows the wall time of a stack of {members} networks: five seeds of eleven neurons, 100 "
        "epochs, with the test set evaluated after each. Stacks share the GPU, so their times overlap: MNIST "
        "and Fashion-MNIST at T=1 and 10 ran together, and the others later, together with penalties. All "
        f"{len(known)} cells therefore took between {(first + max(rest)) / 5:.0f} s per seed, if the later "
        f"ones all overlapped, and {(first + sum(rest)) / 5:.0f} s, if only those of one dataset did.",
        "",
    )
    return "\n".join((*lines, "", text, "", _of_a_seed()))


def _of_a_seed() -> str:
    """Report the time for one seed of the text's tables, from the log of stacks trained at once."""
    log = SEED.read_text()
    marks = set(STACK.findall(log))
    cold, warm = map(float, re.findall(r"^([0-9.]+) s in all", log, flags=re.MULTILINE))
    return wrapped(
        f"With the current training step, one seed of the text's tables on {len({at[0] for at in marks})} "
        f"datasets consists of {len(marks)} stacks of 20 networks, including penalties and controls. It took "
        f"{cold:.0f} s including the compilation of kernels ([log](../results/seed-h200.txt)), and "
        f"{warm:.0f} s when it was run again. The goal was 90 s per seed for all six datasets. SHD and "
        "DVS-Gesture were not included; they would add 4 % more steps, with 32,768 inputs for DVS-Gesture. "
        "Decoding the events of N-MNIST beforehand took another 10 s.",
        "",
    )
