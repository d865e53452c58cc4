"""The speed goals of the CPU, each with its ratio: one thread, forward and backward of one layer.

    python benchmarks/cpu_goals.py --out docs/results/cpu-goals.json

Processor time, the best of several turns, all subjects in each turn: on a busy machine compare ratios alone.
"""

import argparse
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from neurons import keep_memory

from ultralif.bench import describe
from ultralif.bench.subjects import Layer, Run

SIZE = (30, 128, 1024)
GOALS = {"UltraLIF / copy": 3.0, "UltraDLIF / copy": 3.5, "UltraLIF / SpikingJelly LIF": 0.25}


def best(subjects: Sequence[tuple[str, Layer]], turns: int) -> list[float]:
    """Return nanoseconds a step of each subject on its layer."""
    runs = [Run(name, layer, torch.device("cpu")) for name, layer in subjects]
    found = [float("inf")] * len(runs)
    for turn in range(turns + 1):
        for i, run in enumerate(runs):
            start = time.process_time()
            run()
            if turn:  # the first warms up
                found[i] = min(found[i], (time.process_time() - start) * 1e9 / subjects[i][1].steps)
    return found


def together(names: Sequence[str], layer: Layer, turns: int) -> dict[str, float]:
    """Return nanoseconds a step of each subject on the same layer."""
    return dict(zip(names, best([(name, layer) for name in names], turns), strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--turns", type=int, default=8)
    args = parser.parse_args()
    torch.set_num_threads(1)
    keep_memory()
    layer = together(("copy", "UltraLIF", "UltraDLIF", "LIF", "SpikingJelly LIF"), Layer(*SIZE), args.turns)
    document: dict = {
        "machine": describe(torch.device("cpu")),
        "load": os.getloadavg(),
        "layer": SIZE,
        "ns a step": layer,
    }
    document["goals"] = {
        goal: {
            "at most": most,
            "is": round(layer[goal.partition(" / ")[0]] / layer[goal.partition(" / ")[2]], 2),
        }
        for goal, most in GOALS.items()
    }
    ours = ("UltraLIF", "UltraDLIF", "LIF")
    types: dict[str, list[float]] = {"float32": [], "bfloat16": [], "float16": []}
    for name in ours:  # the three types in each turn
        times = best([(name, Layer(*SIZE, dtype)) for dtype in types], args.turns)
        for found, ns in zip(types.values(), times, strict=True):
            found.append(ns)
    for dtype in ("bfloat16", "float16"):
        ratios = [round(half / full, 2) for half, full in zip(types[dtype], types["float32"], strict=True)]
        document[f"{dtype} / float32"] = dict(zip(ours, ratios, strict=True))
    growth = {t: together(ours, Layer(t, 3000 // t, 1024), args.turns) for t in (10, 30, 100, 1000)}
    document["growth in T, ns a step"] = growth
    document["T=1000 / T=10"] = {name: round(growth[1000][name] / growth[10][name], 2) for name in ours}
    args.out.write_text(json.dumps(document, indent=1) + "\n")
    print(json.dumps(document, indent=1))


if __name__ == "__main__":
    main()
