"""Measure the CPU speed goals: one thread, forward and backward of one layer.

    python benchmarks/cpu_goals.py --out docs/results/cpu-goals.json

Times are processor times: the best of several turns, with all subjects in each turn. Ratios are medians over
several runs, each in a separate process. On a busy machine compare only the ratios.
"""

import argparse
import json
import os
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from statistics import median

import torch
from neurons import keep_memory

from ultralif.bench import describe
from ultralif.bench.subjects import BenchSubject, Layer

SIZE = (30, 128, 1024)
OURS = ("UltraLIF", "UltraDLIF", "LIF")
GOALS = {"UltraLIF / copy": 3.0, "UltraDLIF / copy": 3.5, "UltraLIF / SpikingJelly LIF": 0.25}


def best(subjects: Sequence[tuple[str, Layer]], turns: int) -> list[float]:
    """Return the nanoseconds per step of each subject on its own layer."""
    runs = [BenchSubject(name, layer, torch.device("cpu")) for name, layer in subjects]
    found = [float("inf")] * len(runs)
    for turn in range(turns + 1):
        for i, run in enumerate(runs):
            start = time.process_time()
            run()
            if turn:  # the first warms up
                found[i] = min(found[i], (time.process_time() - start) * 1e9 / subjects[i][1].steps)
    return found


def together(names: Sequence[str], layer: Layer, turns: int) -> dict[str, float]:
    """Return the nanoseconds per step of each subject on the same layer."""
    return dict(zip(names, best([(name, layer) for name in names], turns), strict=True))


def measure(turns: int) -> dict[str, dict]:
    """Measure everything once in a separate process, because memory placement varies."""
    torch.set_num_threads(1)
    keep_memory()
    layer = together(("copy", "UltraLIF", "UltraDLIF", "LIF", "SpikingJelly LIF"), Layer(*SIZE), turns)
    pairs = {goal: goal.split(" / ") for goal in GOALS}
    found: dict[str, dict] = {"goals": {goal: layer[a] / layer[b] for goal, (a, b) in pairs.items()}}
    types = ("float32", "bfloat16", "float16")
    times = {name: best([(name, Layer(*SIZE, dtype)) for dtype in types], turns) for name in OURS}
    for i, dtype in enumerate(types[1:], 1):
        found[f"{dtype} / float32"] = {name: ns[i] / ns[0] for name, ns in times.items()}
    growth = {t: together(OURS, Layer(t, 3000 // t, 1024), turns) for t in (10, 30, 100, 1000)}
    found["T=1000 / T=10"] = {name: growth[1000][name] / growth[10][name] for name in OURS}
    found["load"] = {"now": os.getloadavg()[0]}
    return found | {"ns a step": layer}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--runs", type=int, default=7)
    args = parser.parse_args()
    with ProcessPoolExecutor(1, get_context("spawn"), max_tasks_per_child=1) as pool:
        runs = list(pool.map(measure, [args.turns] * args.runs))
    values = {key: {name: [run[key][name] for run in runs] for name in runs[0][key]} for key in runs[0]}
    document: dict = {"machine": describe(torch.device("cpu")), "layer": SIZE}
    for key, named in values.items():
        document[key] = {name: round(median(each), 2) for name, each in named.items()}
    document["goals"] = {goal: {"at most": GOALS[goal], "is": now} for goal, now in document["goals"].items()}
    document["each run"] = {
        key: {name: [round(value, 2) for value in each] for name, each in named.items()}
        for key, named in values.items()
    }
    args.out.write_text(json.dumps(document, indent=1) + "\n")
    print(json.dumps(document, indent=1))


if __name__ == "__main__":
    main()
