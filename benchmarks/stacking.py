"""Time the paper's eighteen variants on MNIST at T=1, as one stack and one after another.

    python benchmarks/stacking.py [--device cuda] [--out stacking.json]

Both sides run the same steps as `ultralif train` and `ultralif sweep`: on a GPU recorded and replayed, on a
CPU one call at a time, with as many threads as these commands would use or with ``--threads``. They take
turns, so that other work on the machine slows both equally. The result is the median over the rounds.
Loading, recording and evaluation are not counted.
"""

import argparse
import json
import platform
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from ultralif import RunConfig
from ultralif.names import BASELINES, ULTRA
from ultralif.training.batches import load_data
from ultralif.training.device import arithmetic, pick_device
from ultralif.training.loop import Job, close_epoch, prepare_epoch, steps
from ultralif.training.networks import build_networks, step_work
from ultralif.training.sweep import grid

EPOCHS = 10**6
"""More epochs than are ever run, so the stack never finishes."""
WARM = {"cpu": 20, "cuda": 500}
"""Steps before timing starts; more than an epoch on a GPU, which records the last batch separately."""


def variants(precision: str, dataset: str = "mnist") -> list[RunConfig]:
    """Return six baselines and four Ultra neurons with three penalties each."""
    base = RunConfig(dataset=dataset, timesteps=1, epochs=EPOCHS, precision=precision)
    return grid(base, BASELINES, [1], [0.0], [42]) + grid(base, ULTRA, [1], [0.0, 0.01, 0.1], [42])


class Times(NamedTuple):
    """Seconds taken by steps: wall time, and CPU time of all cores."""

    wall: float
    cpu: float


class Trainer:
    """A stack that can be trained a few steps at a time."""

    def __init__(self, configs: Sequence[RunConfig], device: torch.device, data_dir: Path | None) -> None:
        self.configs, self.device = configs, device
        networks = build_networks(configs, device)
        self.job = Job.begin(configs, networks, load_data(configs[0], device, data_dir), device)
        self.run = steps(self.job)
        self.epoch = iter(())
        self.take(WARM[device.type])

    def take(self, count: int) -> Times:
        """Train this number of steps."""
        with arithmetic(self.device, self.configs[0].precision, step_work(self.configs)):
            self._wait()
            wall, cpu = time.perf_counter(), time.process_time()
            for _ in range(count):
                if next(self.epoch, None) is None:
                    self._next_epoch()
            self._wait()
            return Times(time.perf_counter() - wall, time.process_time() - cpu)

    def _next_epoch(self) -> None:
        if self.job.step:
            close_epoch(self.job)
        prepare_epoch(self.job)
        self.epoch = self.run(self.job)
        next(self.epoch)

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def measure(
    device: torch.device, data_dir: Path | None, precision: str, count: int, rounds: int
) -> dict[str, object]:
    """Return microseconds per step and their ratio: the eighteen runs divided by the stack."""
    configs = variants(precision)
    stack = Trainer(configs, device, data_dir)
    alone = [Trainer([config], device, data_dir) for config in configs]
    together, apart = [], []
    for _ in range(rounds):
        together.append(stack.take(count))
        each = [trainer.take(count) for trainer in alone]
        apart.append(Times(sum(times.wall for times in each), sum(times.cpu for times in each)))
    micro = 1e6 / count
    ratios = [b.wall / a.wall for a, b in zip(together, apart, strict=True)]
    return {
        "networks": len(configs),
        "dataset": "mnist",
        "timesteps": 1,
        "precision": precision,
        "steps": count,
        "rounds": rounds,
        "stack_us_per_step": round(statistics.median(times.wall for times in together) * micro, 1),
        "alone_us_per_step": round(statistics.median(times.wall for times in apart) * micro, 1),
        "ratio": round(statistics.median(ratios), 2),
        "ratio_least": round(min(ratios), 2),
        "ratio_most": round(max(ratios), 2),
        "ratio_of_cpu_time": round(
            statistics.median(b.cpu / a.cpu for a, b in zip(together, apart, strict=True)), 2
        ),
    }


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--precision", default="float32", help="float32, tf32 or bfloat16")
    parser.add_argument("--steps", type=int, help="steps per round; default 1000 on a GPU, 100 on a CPU")
    parser.add_argument("--threads", type=int, help="maximum number of threads; use 1 on a busy machine")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    device = pick_device(args.device)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()
    if args.threads:
        torch.set_num_threads(args.threads)
    machine = {"device": name, "torch": torch.__version__, "threads": torch.get_num_threads()}
    count = args.steps or (1000 if device.type == "cuda" else 100)
    found = machine | measure(device, args.data_dir, args.precision, count, args.rounds)
    text = json.dumps(found, indent=1)
    print(text)
    if args.out is not None:
        args.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
