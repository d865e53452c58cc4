"""Time a training step: the paper's 18 variants at MNIST's size, and a VGG with and without a CUDA graph.

    python benchmarks/step.py --device cuda --out docs/results/step-h200.json
    python benchmarks/step.py --device cuda --only deep --out docs/results/step-deep-h200.json

On a GPU, a stack's step is the CUDA graph that training replays: batch, loss, gradient and Adam. The floor is
the work that any implementation must do: products at half the peak rate of TF32, and every tensor moved once
per use at the speed of a copy. Pixels are random numbers, which cost the same as real ones. The VGG is the
one trained by ``ultralif train --model vgg9 --config deep``, on images of CIFAR-10's size.
"""

import argparse
import json
import os
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache, partial
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch.profiler import ProfilerActivity, profile

from research.paper.grids import CONTROLS, main_variants
from ultralif.bench import describe
from ultralif.data import DATASETS
from ultralif.data.dataset import Dataset
from ultralif.data.split import Images, Split
from ultralif.stack import streams
from ultralif.stack.neurons import kind
from ultralif.training.batches import Data
from ultralif.training.config import PRESETS, RunConfig
from ultralif.training.device import arithmetic
from ultralif.training.loop import Job, prepare_epoch, steps
from ultralif.training.networks import build_networks, step_work

SAMPLES, BATCH, INPUTS, HIDDEN, CLASSES = 12800, 128, 784, 64, 10
FLOPS, BYTES = 248e12, 4.3e12  # per second, on an H200
TIMES = (1, 30)
ALONE = "UltraPLIF"
"""The single network whose kernels are listed too."""


DEEP = RunConfig(**PRESETS["deep"] | {"dataset": "cifar10", "model": "vgg9", "precision": "bfloat16"})
DEEP_SAMPLES = 20 * 256 + 100  # the last batch is smaller


def configs(timesteps: int) -> list[RunConfig]:
    """Return the paper's variants: 6 baselines, and 4 neurons without and with two penalties."""
    variants = [variant for variant in main_variants() if variant not in CONTROLS]
    return [variant.config("mnist", timesteps, 42) for variant in variants]


@cache
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
    """Return a function that runs one training step of a stack."""
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
    """Return the median step time over five blocks."""
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
    """Return the minimum time of a step on an H200, in seconds, and its parts."""
    currents = timesteps * BATCH * members * HIDDEN
    inputs = timesteps * BATCH * INPUTS
    weights = members * (INPUTS * HIDDEN + HIDDEN + HIDDEN * CLASSES + CLASSES)
    flop = 2 * 2 * currents * INPUTS + 3 * 2 * BATCH * members * HIDDEN * CLASSES
    # Inputs: written, read by both products. Currents: written, read by the neurons forward and backward;
    # their gradient: written and read. Weights: read; gradient written; Adam reads four and writes three.
    moved = 4 * (3 * inputs + 5 * currents + 9 * weights)
    return {"products": flop / FLOPS, "memory": moved / BYTES, "total": flop / FLOPS + moved / BYTES}


def kernels(step: Callable[[], object], count: int = 20) -> tuple[list[dict], list[dict]]:
    """List a step's kernels by time, with calls and microseconds per step, and the trace of one step.

    Kernels that run in parallel take longer than alone, so their times add up to more than a step.
    """
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as trace:
        for _ in range(count):
            step()
        torch.cuda.synchronize()
    events = [event for event in trace.events() if event.device_type == torch.autograd.DeviceType.CUDA]
    events.sort(key=lambda event: event.time_range.start)
    found: dict[str, list[float]] = {}
    for event in events:
        found.setdefault(event.name, []).append(event.time_range.elapsed_us())
    table = [{"kernel": k, "calls": len(v) / count, "us": sum(v) / count} for k, v in found.items()]
    begins = [i for i, event in enumerate(events) if event.name == "images_kernel"]
    first, last = begins[count // 2 : count // 2 + 2]  # the first kernel of a step and of the next
    began = events[first].time_range.start
    order = [
        {
            "kernel": event.name[:60],
            "start": event.time_range.start - began,
            "us": event.time_range.elapsed_us(),
        }
        for event in events[first : last + 1]
    ]
    return sorted(table, key=lambda row: -row["us"]), order


def compile_kernels(members: Sequence[RunConfig]) -> None:
    """Run a step of a stack, or of the VGG in both of its modes."""
    device = torch.device("cuda")
    if members == [DEEP]:
        for _ in deep_steps(device, "recorded", 2 * DEEP.batch_size):
            pass
        return
    stepper(members, device)()
    torch.cuda.synchronize()


def compile_at_once(only: str | None) -> None:
    """Fill Triton's cache in several processes: for single neurons, for each neuron type, for the VGG."""
    began = time.perf_counter()
    jobs: dict[Any, list[RunConfig]] = {} if only == "stack" else {"deep": [DEEP]}
    for t in sorted(TIMES, reverse=True) if only != "deep" else ():  # the slowest first
        for config in configs(t):
            (network,) = build_networks([config], torch.device("cpu"))
            jobs.setdefault((t, kind(network.neurons[0])), []).append(config)
        jobs |= {(t, config.neuron): [config] for config in configs(t)}
    with ProcessPoolExecutor(min(14, os.cpu_count() or 1), get_context("spawn")) as pool:
        waiting = [pool.submit(compile_kernels, members) for members in jobs.values()]
        for number, done in enumerate(as_completed(waiting), 1):
            error = done.exception()
            said = "" if error is None else f", {type(error).__name__}: {error}"
            print(f"{time.perf_counter() - began:5.1f} s compiled {number} of {len(jobs)}{said}", flush=True)


def deep_steps(device: torch.device, way: str, count: int = DEEP_SAMPLES) -> Iterator[dict[str, Any]]:
    """Train a VGG for one epoch with soft and one with binary spikes; return steps per second and losses."""
    data = images(device, DEEP.dataset, count)
    notes: list[str] = []
    with arithmetic(device, DEEP.precision, step_work([DEEP])):
        job = Job.begin([DEEP], build_networks([DEEP], device), data, device)
        run = steps(job, notes.append, graph=way == "recorded")
        for mode, job.epoch in (("soft", DEEP.warmup_epochs), ("hard", DEEP.epochs - 1)):
            job.step = 0
            prepare_epoch(job)
            sums, began = [job.sums[0, 0].clone()], time.perf_counter()
            for _ in run(job):
                sums.append(job.sums[0, 0].clone())
                if job.step == 3:  # the first steps compile and record
                    synchronize(device)
                    began = time.perf_counter()
            synchronize(device)
            rate = (job.steps - 3) / (time.perf_counter() - began)
            losses = torch.stack(sums).diff().tolist()
            yield {"way": way, "mode": mode, "steps_per_second": rate, "losses": losses, "notes": notes}


def measure_deep(device: torch.device) -> Iterator[dict[str, Any]]:
    """Measure the VGG, recorded and one call at a time."""
    recorded = {}
    for way in ("recorded", "eager"):
        for row in deep_steps(device, way):
            pairs = zip(row["losses"], recorded.setdefault(row["mode"], row["losses"]), strict=True)
            size = {"model": DEEP.model, "timesteps": DEEP.timesteps, "batch": DEEP.batch_size}
            yield {**size, **row, "largest_difference_of_loss": max(abs(a - b) for a, b in pairs)}


def measure(timesteps: int, device: torch.device, count: int) -> Iterator[dict[str, Any]]:
    """Measure the stack, its members one by one, and its kernels; yield the results after each."""
    members = configs(timesteps)
    least = floor(len(members), timesteps)
    rounded = partial(arithmetic, device, members[0].precision, step_work(members))
    with rounded():
        step = stepper(members, device)
        stacked = seconds(step, device, count)
    found: dict[str, Any] = {
        "timesteps": timesteps,
        "members": len(members),
        "stacked_ms": 1e3 * stacked,
        "floor_ms": {name: 1e3 * value for name, value in least.items()},
    }
    if device.type == "cuda":
        found["over_floor"] = stacked / least["total"]
    yield found
    with rounded(), patch.object(streams, "is_recording", lambda device: False):
        found["one_kernel_at_a_time_ms"] = 1e3 * seconds(stepper(members, device), device, count)
    with rounded():
        each = [stepper([member], device) for member in members]
        alone = [seconds(one, device, count) for one in each]
    found |= {"one_by_one_ms": 1e3 * sum(alone), "one_by_one_over_stacked": sum(alone) / stacked}
    yield found
    if device.type == "cuda":
        found["kernels"], found["order"] = kernels(step)
        found["kernels_ms"] = sum(row["us"] for row in found["kernels"]) / 1e3
        number = next(i for i, member in enumerate(members) if member.neuron == ALONE)
        found["alone"] = {"neuron": ALONE, "ms": 1e3 * alone[number], "order": kernels(each[number])[1]}
        yield found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=50, help="steps in a block; five blocks are timed")
    parser.add_argument("--only", choices=("stack", "deep"), help="measure only one of them")
    args = parser.parse_args()
    device, began = torch.device(args.device), time.perf_counter()
    if device.type == "cuda":
        compile_at_once(args.only)
    document: dict[str, Any] = {"machine": describe(device), "command": " ".join(sys.argv)}

    def keep(part: str, row: dict[str, Any]) -> None:
        """Write all results, and print the new ones."""
        rows = document.setdefault(part, [])
        if row not in rows:
            rows.append(row)
        args.out.write_text(json.dumps(document, indent=1))
        shown = {k: v for k, v in row.items() if k not in ("kernels", "losses", "order", "alone")}
        print(f"{time.perf_counter() - began:5.1f} s", json.dumps(shown), flush=True)

    stacks = [measure(t, device, args.steps) for t in TIMES] if args.only != "deep" else []
    deep = measure_deep(device) if args.only != "stack" else iter(())
    parts = [("steps", each, 1) for each in stacks]  # the most informative first
    parts += [("deep", deep, 4), *(("steps", each, 1) for each in stacks * 2)]
    for part, rows, count in parts:
        try:
            for row in islice(rows, count):
                keep(part, row)
        except Exception:  # measure the rest after a failure
            traceback.print_exc()
    for row in document.get("steps", []):
        time_of = f"T={row['timesteps']}"
        for kernel in row.get("kernels", []):
            print(f"{time_of} {kernel['us']:9.2f} us {kernel['calls']:5.1f}x {kernel['kernel'][:90]}")
        for title, order in (("stacked", row.get("order")), ("alone", row.get("alone", {}).get("order"))):
            for kernel in order or ():
                print(f"{time_of} {title} {kernel['start']:8.2f} +{kernel['us']:6.2f} {kernel['kernel']}")


if __name__ == "__main__":
    main()
