"""The part of docs/results/paper.md about the time of its runs."""

import json
import math
import re

from paper_parts import HERE, NAMES, ROOT, wrapped

from ultralif.paper.grids import CLIPPED
from ultralif.paper.published import TIMESTEPS
from ultralif.paper.results import Key, Results

__all__ = ["time"]

SEED = ROOT / "docs" / "results" / "seed-h200.txt"
PROGRESS = re.compile(r"note: ([a-z0-9-]+) T=(\d+): .*: epoch (\d+) after ([0-9.]+) s: loss")


def time(results: Results) -> str:
    """Say how long the stacks of the released reading took on the GPU."""
    found = {
        (dataset, t): next(iter(runs.values()))
        for dataset in HERE
        for t in TIMESTEPS
        if (runs := results.runs.get(Key("LIF", dataset, t, CLIPPED)))
    }
    known = {cell: run for cell, run in found.items() if run.seconds}
    lines = ["| dataset | T=1 | T=10 | T=30 |", "|---|---|---|---|"]
    for dataset in HERE:
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
        f"Each is a stack of {members} networks, five seeds of eleven neurons, 100 epochs with the test set "
        "after every one; seconds of the host. Stacks share the GPU, so that their times overlap: MNIST and "
        "Fashion-MNIST at T=1 and 10 ran together, and the others later, together with penalties. So all "
        f"{len(known)} cells took between {(first + max(rest)) / 5:.0f} s a seed, if the later ones all "
        f"overlapped, and {(first + sum(rest)) / 5:.0f} s, if only those of a dataset did. The goal, 90 s a "
        "seed, was not reached in either case.",
        "",
    )
    return "\n".join((*lines, "", text, *_of_a_seed()))


def _of_a_seed() -> list[str]:
    """Say how long a seed of the text's tables takes, from the epochs of stacks that ran at once."""
    if not SEED.exists():
        return ["", wrapped(_of_a_step(), "")]
    seen: dict[tuple[str, str], dict[int, float]] = {}
    for dataset, time, epoch, seconds in PROGRESS.findall(SEED.read_text()):
        seen.setdefault((dataset, time), {})[int(epoch)] = float(seconds)
    whole = {}
    for place, marks in seen.items():
        known = sorted(marks)
        if len(known) > 1:  # the first epoch, which records the step, is not counted
            span = known[-1] - known[0]
            whole[place] = 100 * (marks[known[-1]] - marks[known[0]]) / span
    (dataset, slowest), longest = max(whole.items(), key=lambda item: item[1])
    return [
        "",
        wrapped(
            f"With the step as it is now, {len(whole)} stacks of 20 networks ran at once, one seed of the "
            f"text's tables on {len({place[0] for place in whole})} datasets ([log](seed-h200.txt)). From "
            f"the epochs that they reached, 100 take {min(whole.values()):.0f} to {longest:.0f} s, the "
            f"longest for {NAMES[dataset]} at T={slowest}: so a seed of these takes {longest:.0f} s and the "
            "start of the processes. The goal of 90 s is for six datasets.",
            "",
        ),
    ]


def _of_a_step() -> str:
    """Say how long the steps of a seed take by the measured time of one, where a seed was not measured."""
    rows = json.loads((ROOT / "docs" / "results" / "step-h200.json").read_text())["steps"]
    count = 100 * math.ceil(60000 / 128)
    one = " and ".join(f"{row['stacked_ms']:.3f} ms at T={row['timesteps']}" for row in rows)
    whole = " and ".join(f"{row['stacked_ms'] * count / 1000:.1f} s" for row in rows)
    return (
        f"Since then a step has become shorter: that of the paper's 18 networks on MNIST takes {one} with "
        f"the GPU alone ([measured](../performance.md#a-training-step)), so that the {count:,} steps of a "
        f"seed take {whole}. A whole seed, with the other datasets and all that is done between epochs, was "
        "not measured."
    )
