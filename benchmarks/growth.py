"""Measure throughput over networks, processes, time steps, width and samples for docs/results/growth.md.

python benchmarks/growth.py --device cpu --out docs/results/growth-cpu.json

Every point trains real steps (batch, loss, gradient, Adam) of UltraLIF networks on random images of MNIST's
size, with 128 samples per step and one hidden layer. The fastest of several blocks of steps is reported;
`spread` is the slowest divided by the fastest. On a CPU, the processor time of one thread is measured, so
other programs matter little; parallel processes are measured by wall time. Measurements that do not fit into
--seconds are skipped and not reported.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

import ultralif as ul
from ultralif.data import DATASETS, Dataset, Split
from ultralif.data.split import Images
from ultralif.training.batches import Data
from ultralif.training.device import arithmetic
from ultralif.training.loop import Job, prepare_epoch, steps, train_stack
from ultralif.training.networks import build_networks, step_work
from ultralif.training.progress import RunOptions

BATCH, BLOCK, BLOCKS = 128, 0.08, 6
GRIDS = {
    "cpu": {
        "networks": (1, 2, 4, 8, 16, 32, 64),
        "timesteps": (1, 2, 5, 10, 30, 100),
        "width": (16, 64, 256, 1024),
        "samples": (1_000, 10_000, 60_000, 300_000),
        "processes": (1, 2, 4),
    },
    "cuda": {
        "networks": (1, 4, 16, 64, 256, 1024, 2048),
        "timesteps": (1, 2, 5, 10, 30, 100, 300),
        "width": (64, 256, 1024, 4096, 16384),
        "samples": (1_000, 10_000, 60_000, 1_000_000, 5_000_000),
        "processes": (1, 2, 4),
    },
}
BASE = {"networks": 16, "timesteps": 10, "width": 64, "samples": 5_120}


def made_up(count: int, device: torch.device) -> Data:
    """Return random images as dark as MNIST digits, with random labels."""
    spec, generator = DATASETS["mnist"], torch.Generator(device).manual_seed(0)
    pixels = torch.zeros(count, *spec.shape, dtype=torch.uint8, device=device)
    pixels[..., 8:20, 8:20].random_(0, 256, generator=generator)
    labels = torch.randint(spec.classes, (count,), generator=generator, device=device)
    split = Split(Images(pixels), labels, torch.arange(count, device=device))
    about = (spec.name, spec.shape, spec.classes, spec.class_names)
    return Data(Dataset(*about, split, split, "", spec.normalization, None), split, None)


def endless(job: Job) -> Iterator[int]:
    """Train for an unlimited number of epochs."""
    run = steps(job)
    while True:
        job.step = 0
        prepare_epoch(job)
        yield from run(job)
        job.epoch += 1


def measure(
    device: torch.device, networks: int, timesteps: int, width: int, samples: int, by_clock: bool = False
) -> dict[str, Any]:
    """Return the time of a training step, its spread over blocks, and its memory use."""
    base = ul.RunConfig(dataset="mnist", timesteps=timesteps, hidden=(width,), batch_size=BATCH)
    configs = [base.with_(sparsity=i * 1e-4, epochs=1_000_000) for i in range(networks)]
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    with arithmetic(device, configs[0].precision, step_work(configs)):
        job = Job.begin(configs, build_networks(configs, device), made_up(samples, device), device)
        running = endless(job)
        for _ in range(3):
            next(running)
        times: list[float] = []
        block = 1
        while len(times) < BLOCKS:
            spent = timed(running, block, device, by_clock)
            if not times and spent < BLOCK / 2 and block < 4096:
                block = block * 4
                continue
            times.append(spent / block)
            if sum(times) * block > 2.0:
                break
    memory = torch.cuda.max_memory_allocated() if device.type == "cuda" else None
    return {"step_seconds": min(times), "spread": max(times) / min(times), "bytes": memory}


def timed(running: Iterator[int], count: int, device: torch.device, by_clock: bool) -> float:
    synchronize = torch.cuda.synchronize if device.type == "cuda" else (lambda: None)
    clock = time.perf_counter if by_clock or device.type == "cuda" else time.process_time
    synchronize()
    began = clock()
    for _ in range(count):
        next(running)
    synchronize()
    return clock() - began


WORKER = """
import sys, torch
sys.path.insert(0, {folder!r})
import growth
torch.set_num_threads(1)
device = torch.device({device!r})
growth.measure(device, **growth.BASE)
print("ready", flush=True)
sys.stdin.readline()
print(growth.measure(device, **growth.BASE, by_clock=True)["step_seconds"], flush=True)
"""


def measure_processes(device: torch.device, count: int) -> dict[str, Any]:
    """Return the time per step of several processes that train at the same time."""
    code = WORKER.format(folder=str(Path(__file__).parent), device=device.type)
    command = [sys.executable, "-c", code]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    workers = [subprocess.Popen(command, text=True, **pipes) for _ in range(count)]
    for worker in workers:
        worker.stdout.readline()
    for worker in workers:
        worker.stdin.write("\n")
        worker.stdin.flush()
    times = [float(worker.communicate()[0]) for worker in workers]
    return {"step_seconds": 1 / sum(1 / t for t in times), "spread": max(times) / min(times), "bytes": None}


def measure_costs() -> dict[str, float]:
    """Return a stack's costs outside its steps: starting a process and indexing its runs."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import ultralif.training.loop"], check=True)
    start = time.perf_counter() - began
    with tempfile.TemporaryDirectory() as folder:
        stack = [ul.RunConfig(epochs=1, timesteps=1, sparsity=i * 1e-3) for i in range(16)]
        store = ul.Store(folder)
        train_stack(stack, store, RunOptions(device="cpu"))
        began = time.perf_counter()
        store.adopt([config.id for config in stack])
        adopt = (time.perf_counter() - began) / len(stack)
    return {"start_seconds": start, "index_seconds_a_run": adopt}


def points(device: torch.device, until: float) -> Iterator[dict[str, Any]]:
    """Measure along each axis, with the other axes at their base values."""
    for axis, values in GRIDS[device.type].items():
        for value in values:
            if time.monotonic() > until:
                print(f"no time left for {axis} = {value}", file=sys.stderr)
                continue
            try:
                if axis == "processes":
                    found = measure_processes(device, value)
                else:
                    found = measure(device, **{**BASE, axis: value})
            except torch.OutOfMemoryError:
                print(f"{axis} = {value} does not fit the device", file=sys.stderr)
                continue
            print(f"{axis:10} {value:>9,} {1e3 * found['step_seconds']:10.3f} ms", file=sys.stderr)
            yield {"axis": axis, "value": value, **found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=40.0, help="start no measurement after this time")
    given = parser.parse_args()
    device = torch.device(given.device)
    torch.set_num_threads(1)
    until = time.monotonic() + given.seconds
    name = torch.cuda.get_device_name() if device.type == "cuda" else platform.machine()
    found = {
        "machine": {"device": name, "cores": os.cpu_count(), "load": os.getloadavg()[0]},
        "torch": torch.__version__,
        "base": {**BASE, "batch": BATCH},
        "costs": measure_costs(),
        "points": list(points(device, until)),
    }
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
