"""Measure a training step's memory at several numbers of time steps, with and without `ul.recompute`.

For each T, a separate process trains a convolutional network for one step. Two numbers are written to
docs/results/recompute-memory.json: the peak memory of tensors, and the growth of the process's resident
memory over a step at T=6, which includes freed memory kept by malloc.

    python benchmarks/recompute_memory.py
"""

import json
import platform
import resource
import subprocess
import sys
import time
from itertools import accumulate
from pathlib import Path

RESULT = Path(__file__).parents[1] / "docs" / "results" / "recompute-memory.json"
TIMES = (16, 64, 256, 512)


def measure(steps: int, recomputed: bool) -> None:
    """Print a training step's peak bytes and seconds."""
    import torch
    from torch import nn
    from torch.profiler import ProfilerActivity, profile

    import ultralif as ul

    torch.set_num_threads(1)
    torch.manual_seed(0)
    convolutions = [
        *(ul.TimeDistributed(nn.Conv2d(2, 16, 3, padding=1)), ul.UltraLIF()),
        *(ul.TimeDistributed(nn.Conv2d(16, 16, 3, padding=1)), ul.UltraLIF()),
    ]
    net = nn.Sequential(*convolutions, nn.Flatten(2), nn.Linear(16 * 32 * 32, 10))
    x = torch.rand(steps, 8, 2, 32, 32)

    def train(part: torch.Tensor) -> float:
        started = time.process_time()
        out = ul.recompute(net, part) if recomputed else net(part)
        out.mean(0).square().sum().backward()
        return time.process_time() - started

    train(x[:6])  # the first call does the imports, builds and allocations that do not depend on T
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seconds = train(x)
    resident = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        train(x)
    events = profiled.profiler.kineto_results.events()
    tensors = max(accumulate(event.nbytes() for event in events if event.name() == "[memory]"))
    found = {"tensor_bytes": tensors, "resident_bytes": resident, "input_bytes": 4 * x.numel()}
    print(json.dumps(found | {"seconds": seconds}))


def main() -> None:
    """Measure every case in a separate process."""
    found: dict[str, object] = {"machine": platform.machine(), "batch": 8, "image": [2, 32, 32]}
    for recomputed in (False, True):
        name = "recompute" if recomputed else "plain"
        for steps in TIMES:
            words = [sys.executable, __file__, str(steps), str(int(recomputed))]
            done = subprocess.run(words, capture_output=True, text=True, check=True)
            found[f"{name} T={steps}"] = json.loads(done.stdout.splitlines()[-1])
            print(name, steps, found[f"{name} T={steps}"], flush=True)
    RESULT.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    measure(int(sys.argv[1]), sys.argv[2] == "1") if len(sys.argv) > 1 else main()
