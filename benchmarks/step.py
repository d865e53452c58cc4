"""One training step: of the paper's 18 variants at MNIST's size, and of a VGG with and without a CUDA graph.

    python benchmarks/step.py --device cuda --out docs/results/step-h200.json
    python benchmarks/step.py --device cuda --only deep --out docs/results/step-deep-h200.json

On a GPU the step of a stack is what training replays: batch, loss, gradient and Adam in one CUDA graph. The
floor counts what any implementation must do: products at half the peak rate of TF32, and every tensor moved
once for each use at the speed of a copy. Pixels are random numbers, which cost what others cost. The VGG is
that of ``ultralif train --model vgg9 --config deep`` on images of CIFAR-10's size.
"""

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from ultralif.bench import describe
from ultralif.data import DATASETS
from ultralif.data.dataset import Dataset
from ultralif.data.split import Images, Split
from ultralif.nn.stacked import kind
from ultralif.paper.grids import CONTROLS, main_variants
from ultralif.training.build import build_networks, step_work
from ultralif.training.config import PRESETS, RunConfig
from ultralif.training.device import arithmetic
from ultralif.training.feed import Data
from ultralif.training.job import Job
from ultralif.training.loop import prepare_epoch
from ultralif.training.step import steps

SAMPLES, BATCH, INPUTS, HIDDEN, CLASSES = 12800, 128, 784, 64, 10
FLOPS, BYTES = 248e12, 4.3e12  # a second, on an H200
TIMES = (1, 30)


DEEP = RunConfig(**PRESETS["deep"] | {"dataset": "cifar10", "model": "vgg9", "precision": "bfloat16"})
DEEP_SAMPLES = 40 * 256 + 100  # the last batch is smaller


def configs(timesteps: int) -> list[RunConfig]:
    """Return the paper's variants: 6 baselines, 4 neurons, each of these with two penalties."""
    variants = [variant for variant in main_variants() if variant not in CONTROLS]
    return [variant.config("mnist", timesteps, 42) for variant in variants]


def images(device: torch.device, dataset: str = "mnist", count: int = SAMPLES) -> Data:
    """Return random images of a dataset's size."""
    shape = DATASETS[dataset].shape
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (count, *shape), dtype=torch.uint8, generator=generator)
    labels = torch.randint(0, CLASSES, (count,), generator=generator)
    split = Split(Images(pixels.to(device)), labels.to(device), torch.arange(count, device=device))
    names = tuple(map(str, range(CLASSES)))
    return Data(Dataset(dataset, shape, CLASSES, names, split, split, "", None, None), split, None)


def stepper(members: Sequence[RunConfig], device: torch.device) -> Callable[[], object]:
    """Return a function that takes one step of a stack."""
    data = images(device)
    job = Job.begin(members, build_networks(members, device), data, device)
    prepare_epoch(job)
    run = steps(job)

    def forever() -> Iterator[int]:
        while True:
            yield from run(job)
            job.step = 0

    iterator = forever()
    return lambda: next(iterator)


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def seconds(step: Callable[[], object], device: torch.device, count: int) -> float:
    """Return the median over five blocks of the time of a step."""
    for _ in range(3):
        step()
    blocks = []
    for _ in range(5):
        synchronize(device)
        began = time.perf_counter()
        for _ in range(count):
            step()
        synchronize(device)
        blocks.append((time.perf_counter() - began) / count)
    return statistics.median(blocks)


def floor(members: int, timesteps: int) -> dict[str, float]:
    """Return the least time of a step on an H200, in seconds, and what it is made of."""
    currents = timesteps * BATCH * members * HIDDEN
    inputs = timesteps * BATCH * INPUTS
    weights = members * (INPUTS * HIDDEN + HIDDEN + HIDDEN * CLASSES + CLASSES)
    flop = 2 * 2 * currents * INPUTS + 3 * 2 * BATCH * members * HIDDEN * CLASSES
    # Inputs: written, read by both products. Currents: written, read by the neurons forward and backward;
    # their gradient: written and read. Weights: read; gradient written; Adam reads four and writes three.
    moved = 4 * (3 * inputs + 5 * currents + 9 * weights)
    return {"products": flop / FLOPS, "memory": moved / BYTES, "total": flop / FLOPS + moved / BYTES}


def kernels(step: Callable[[], object], count: int = 20) -> list[dict]:
    """List the kernels of a step with calls and microseconds a step, slowest first."""
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as trace:
        for _ in range(count):
            step()
        torch.cuda.synchronize()
    found: dict[str, list[float]] = {}
    for event in trace.events():
        if event.device_type == torch.autograd.DeviceType.CUDA:
            found.setdefault(event.name, []).append(event.time_range.elapsed_us())
    table = [{"kernel": k, "calls": len(v) / count, "us": sum(v) / count} for k, v in found.items()]
    return sorted(table, key=lambda row: -row["us"])


def compile_kernels(members: Sequence[RunConfig]) -> None:
    step = stepper(members, torch.device("cuda"))
    step()
    torch.cuda.synchronize()


def compile_at_once() -> None:
    """Fill Triton's cache in several processes: for each neuron alone, and for all of a kind."""
    jobs: dict[Any, list[RunConfig]] = {}
    for t in TIMES:
        for config in configs(t):
            jobs[t, config.neuron] = [config]
            (network,) = build_networks([config], torch.device("cpu"))
            jobs.setdefault((t, kind(network.neurons[0])), []).append(config)
    with ProcessPoolExecutor(min(14, os.cpu_count() or 1), get_context("spawn")) as pool:
        for done in [pool.submit(compile_kernels, members) for members in jobs.values()]:
            done.result()


def measure(timesteps: int, device: torch.device, count: int) -> dict:
    members = configs(timesteps)
    with arithmetic(device, members[0].precision, step_work(members)):
        step = stepper(members, device)
        stacked = seconds(step, device, count)
        found: dict = {"timesteps": timesteps, "members": len(members), "stacked_ms": 1e3 * stacked}
        least = floor(len(members), timesteps)
        found |= {"floor_ms": {name: 1e3 * value for name, value in least.items()}}
        if device.type == "cuda":
            found["kernels"] = kernels(step)
            found["kernels_ms"] = sum(row["us"] for row in found["kernels"]) / 1e3
            found["over_floor"] = stacked / least["total"]
        alone = [seconds(stepper([member], device), device, count) for member in members]
        found |= {"one_by_one_ms": 1e3 * sum(alone), "one_by_one_over_stacked": sum(alone) / stacked}
    return found


def measure_deep(device: torch.device) -> dict[str, Any]:
    """Train a VGG for some steps, recorded and one call at a time: steps a second, and the losses of both."""
    found: dict[str, Any] = {"model": DEEP.model, "timesteps": DEEP.timesteps, "batch": DEEP.batch_size}
    notes: list[str] = []
    for way in ("recorded", "eager"):
        data = images(device, DEEP.dataset, DEEP_SAMPLES)
        with arithmetic(device, DEEP.precision, step_work([DEEP])):
            job = Job.begin([DEEP], build_networks([DEEP], device), data, device)
            run = steps(job, notes.append, graph=way == "recorded")
            for mode, job.epoch in (("soft", DEEP.warmup_epochs), ("hard", DEEP.epochs - 1)):
                job.step = 0
                prepare_epoch(job)
                sums = [job.sums[0, 0].clone()]
                for _ in run(job):
                    sums.append(job.sums[0, 0].clone())
                    if job.step == 3:  # the first steps compile and record
                        synchronize(device)
                        began = time.perf_counter()
                synchronize(device)
                rate = (job.steps - 3) / (time.perf_counter() - began)
                found |= {
                    f"{way}_{mode}_steps_per_second": rate,
                    f"{way}_{mode}_loss": torch.stack(sums).diff().tolist(),
                }
    for mode in ("soft", "hard"):
        pairs = zip(found[f"recorded_{mode}_loss"], found[f"eager_{mode}_loss"], strict=True)
        found[f"{mode}_largest_difference_of_loss"] = max(abs(a - b) for a, b in pairs)
    return found | {"notes": notes}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=50, help="steps in a block; five blocks are timed")
    parser.add_argument("--only", choices=("stack", "deep"), help="measure one of both")
    args = parser.parse_args()
    device = torch.device(args.device)
    document = {"machine": describe(device), "command": " ".join(sys.argv), "steps": []}
    if args.only != "stack":
        document["deep"] = measure_deep(device)
        args.out.write_text(json.dumps(document, indent=1))
        print(json.dumps(document["deep"]), flush=True)
    if args.only != "deep":
        measure_stacks(document, device, args)


def measure_stacks(document: dict, device: torch.device, args: argparse.Namespace) -> None:
    if device.type == "cuda":
        compile_at_once()
    for timesteps in TIMES:
        found = measure(timesteps, device, args.steps)
        document["steps"].append(found)
        args.out.write_text(json.dumps(document, indent=1))
        for row in found.get("kernels", []):
            print(f"{row['us']:9.2f} us {row['calls']:5.1f}x {row['kernel'][:90]}")
        shown = {k: v for k, v in found.items() if k != "kernels"}
        print(json.dumps(shown), flush=True)


if __name__ == "__main__":
    main()
