"""Time one layer on one CPU thread against other libraries, eager and under `torch.compile`.

    python benchmarks/compiled_peers.py --out docs/results/compiled-cpu.json

Times are for forward and backward, in milliseconds of processor time; the subjects take turns. Compare only
the ratios.
"""

import argparse
import json
from pathlib import Path

import torch
from neurons import keep_memory

from ultralif.bench import describe
from ultralif.bench.stopwatch import in_turns
from ultralif.bench.subjects import BenchSubject, Layer

LAYER = Layer(30, 128, 1024)
SUBJECTS = ("copy", "UltraLIF", "UltraDLIF", "LIF", "UltraLIF loop", "norse LIF")
PEERS = ("SpikingJelly LIF", "snnTorch Leaky")


def main() -> None:
    """Measure, and write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    out = parser.parse_args().out
    torch.set_num_threads(1)
    keep_memory()
    cpu = torch.device("cpu")
    calls = {name: BenchSubject(name, LAYER, cpu) for name in (*SUBJECTS, *PEERS)}
    for name in PEERS:
        calls[f"{name}, compiled"] = compiled = BenchSubject(name, LAYER, cpu)
        compiled.forward = torch.compile(compiled.forward)
    found = in_turns(calls, cpu, "call", quick=False)
    rows = [
        {"part": "layer", "subject": name, **LAYER._asdict()}
        | {key: 1000 * value for key, value in zip(("ms", "low", "high"), spread, strict=True)}
        for name, spread in found.items()
    ]
    out.write_text(json.dumps({"machine": describe(cpu), "rows": rows}, indent=1) + "\n")
    for row in rows:
        print(f"{row['subject']:28} {row['ms']:7.1f} ms")


if __name__ == "__main__":
    main()
