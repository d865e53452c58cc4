"""Measure the memory of training on a dataset that is larger than the memory allowed.

A process limited to 1.5 GB of data (RLIMIT_DATA) trains on a synthetic 5 GB dataset through a DataLoader; the
result is written to docs/results/streaming-memory.json.

    python benchmarks/streaming_memory.py
"""

import json
import platform
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RESULT = Path(__file__).parents[1] / "docs" / "results" / "streaming-memory.json"
SHAPE = (3, 256, 256)
SAMPLES = 6_600
LIMIT = 1_500_000_000


def train() -> None:
    """Train one epoch under the limit, and print its time and memory."""
    resource.setrlimit(resource.RLIMIT_DATA, (LIMIT, LIMIT))
    import torch
    from torch import Tensor, nn
    from torch.utils.data import DataLoader, Dataset

    import ultralif as ul

    class Synthetic(Dataset[tuple[Tensor, int]]):
        """Float images; the label says whether the left half is brighter."""

        def __init__(self, count: int) -> None:
            self.count = count

        def __len__(self) -> int:
            return self.count

        def __getitem__(self, i: int) -> tuple[Tensor, int]:
            x = torch.rand(SHAPE, generator=torch.Generator().manual_seed(i))
            x[:, :, :128] *= 0.5 + i % 2
            return x, i % 2

    torch.set_num_threads(1)
    net = nn.Sequential(
        ul.TimeDistributed(nn.AvgPool2d(32)),
        nn.Flatten(2),
        nn.Linear(192, 32),
        ul.UltraLIF(),
        nn.Linear(32, 2),
    )
    size = SAMPLES * 4 * SHAPE[0] * SHAPE[1] * SHAPE[2]
    started = time.perf_counter()
    loader = DataLoader(Synthetic(SAMPLES), batch_size=32, shuffle=True)
    test = DataLoader(Synthetic(200), batch_size=32)
    with tempfile.TemporaryDirectory() as folder:
        result = ul.train(
            net, loader, test, timesteps=2, epochs=1, runs_dir=folder, device="cpu", progress=False
        )
    found = {
        "dataset_bytes": size,
        "limit_bytes": LIMIT,
        "peak_resident_bytes": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
        "accuracy": result.own.accuracy,
        "seconds": round(time.perf_counter() - started, 1),
        "torch": torch.__version__,
        "machine": platform.machine(),
    }
    print(json.dumps(found))


def main() -> None:
    """Train in a separate process, and store its measurements."""
    words = [sys.executable, __file__, "--train"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    found = json.loads(done.stdout.splitlines()[-1])
    RESULT.write_text(json.dumps(found, indent=1) + "\n")
    print(found)


if __name__ == "__main__":
    train() if "--train" in sys.argv else main()
