"""The speed goals of the CPU, each with its ratio: one thread, forward and backward of one layer.

    python benchmarks/cpu_goals.py --out docs/results/cpu-goals.json

Processor time, the best of several turns, all subjects in each turn: on a busy machine compare ratios alone.
"""

import argparse
import json
import os
import time
from pathlib import Path

import torch
from neurons import keep_memory

from ultralif.bench import describe
from ultralif.bench.subjects import Layer, Run

SIZE = (30, 128, 1024)
GOALS = {"UltraLIF / copy": 3.0, "UltraDLIF / copy": 3.5, "UltraLIF / SpikingJelly LIF": 0.25}


def best(names: tuple[str, ...], layer: Layer, turns: int) -> dict[str, float]:
    """Return nanoseconds a step of each subject."""
    runs = {name: Run(name, layer, torch.device("cpu")) for name in names}
    found = dict.fromkeys(names, float("inf"))
    for turn in range(turns + 1):
        for name, run in runs.items():
            start = time.process_time()
            run()
            if turn:  # the first warms up
                found[name] = min(found[name], (time.process_time() - start) * 1e9 / layer.steps)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--turns", type=int, default=8)
    args = parser.parse_args()
    torch.set_num_threads(1)
    keep_memory()
    layer = best(("copy", "UltraLIF", "UltraDLIF", "LIF", "SpikingJelly LIF"), Layer(*SIZE), args.turns)
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
    for dtype in ("bfloat16", "float16"):
        half, same = {}, {}
        for name in ours:
            half |= best((name,), Layer(*SIZE, dtype), args.turns)
            same |= best((name,), Layer(*SIZE), args.turns)
        document[f"{dtype} / float32"] = {name: round(half[name] / same[name], 2) for name in ours}
    times = {t: best(ours, Layer(t, 3000 // t, 1024), args.turns) for t in (10, 30, 100, 1000)}
    document["growth in T, ns a step"] = times
    document["T=1000 / T=10"] = {name: round(times[1000][name] / times[10][name], 2) for name in ours}
    args.out.write_text(json.dumps(document, indent=1) + "\n")
    print(json.dumps(document, indent=1))


if __name__ == "__main__":
    main()
