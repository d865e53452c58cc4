"""Measure the time and memory of a layer: ours, the plain loop, other libraries, a plain copy.

    python benchmarks/neurons.py --device cpu --out docs/results/performance-cpu.json    # one thread
    python benchmarks/neurons.py --device cuda --out FILE

`ultralif.bench` describes how it is measured. The file is written after every measurement, so an interrupted
run keeps its results.
"""

import argparse
import ctypes
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from multiprocessing import get_context
from pathlib import Path

import torch

from ultralif.bench import describe, measure, refuse_unless_right
from ultralif.bench.plan import EVERY, RATES, Part
from ultralif.bench.subjects import OURS, BenchSubject, Layer
from ultralif.nn import NEURONS

FUSED = ("copy", *OURS, "SpikingJelly LIF", "SpikingJelly PLIF")
HALF = ("copy", *OURS, "SpikingJelly LIF")
SMALL, LARGE, LONG = (30, 128, 64), (30, 128, 4096), (500, 16, 4096)


def _cuda(quick: bool) -> list[Part]:
    half = "bfloat16"
    sizes = (SMALL,) if quick else (SMALL, LARGE, LONG)
    parts = [Part("in a graph", (*FUSED, *RATES), Layer(*SMALL), "device", 20)]
    parts += [Part("host", FUSED, Layer(*SMALL), "host")]
    parts += [Part("layer", EVERY, Layer(*size)) for size in sizes]
    parts += [Part("device", (*FUSED, *RATES), Layer(*size), "device") for size in sizes[1:]]
    parts += [Part("device", HALF, Layer(*size, half), "device") for size in sizes[1:]]
    parts += [Part("layer", ("copy", *OURS), Layer(*size, half)) for size in sizes]
    if quick:
        return parts
    parts += [Part("growth in T", ("copy", *OURS[:3]), Layer(t, 128, 4096), "device") for t in _TIMES]
    parts += [
        Part("growth in N", ("copy", *OURS[:3]), Layer(30, 2**21 // n, n), "device")
        for n in (1024, 2048, 4096, 16384, 65536)
    ]
    parts += [Part("layer", ("SpikingJelly LIF", "snnTorch Leaky"), Layer(*LONG, half))]
    return [*parts, Part("compiled", ("copy", "UltraLIF", "UltraLIF compiled"), Layer(*SMALL))]


def _cpu(quick: bool) -> list[Part]:
    one = Layer(4, 8, 64) if quick else Layer(30, 128, 1024)
    parts = [Part("layer", (*EVERY, *RATES), one)]
    parts += [Part("layer", ("copy", *OURS, "SpikingJelly LIF"), one._replace(dtype="bfloat16"))]
    if quick:
        return parts
    parts += [Part("layer", EVERY, Layer(*SMALL))]
    parts += [Part("growth in T", ("copy", *OURS[:3]), Layer(t, 128, 1024)) for t in _TIMES]
    parts += [
        Part("growth in N", ("copy", *OURS[:3]), Layer(30, 2**17 // n, n)) for n in (1024, 4096, 16384, 65536)
    ]
    return [*parts, Part("compiled", ("copy", "UltraLIF", "UltraLIF compiled"), Layer(10, 32, 64))]


_TIMES = (10, 30, 100, 300, 1000)
PLANS: dict[str, Callable[[bool], list[Part]]] = {"cuda": _cuda, "cpu": _cpu}
"""All parts of the benchmark by device type; True as the argument selects a short benchmark."""


def keep_memory() -> None:
    """Make glibc keep freed memory, as PyTorch does on a GPU; otherwise large layers pay for new pages."""
    with suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.mallopt(-4, 0)  # M_MMAP_MAX
        libc.mallopt(-1, 2**31 - 1)  # M_TRIM_THRESHOLD


def compile_kernels(subject: str, part: Part) -> None:
    """Run a subject once to fill Triton's cache with its kernels."""
    BenchSubject(subject, part.layer._replace(batch=16), torch.device("cuda"))()
    torch.cuda.synchronize()


def _ring(name: str, part: Part) -> tuple[int, bool]:
    """Return what determines a ring's kernels: its size, up to one program's limit, and its spans."""
    return (min(part.layer.features, 2048), part.layer.time > 30) if name.startswith("UltraD") else (0, False)


def compile_at_once(parts: list[Part]) -> None:
    """Compile all kernels in parallel; one by one, it would take as long as all measurements."""
    jobs = {
        (name, part.layer.dtype, _ring(name, part)): part
        for part in parts
        for name in part.subjects
        if name.partition(" ")[0] in NEURONS and not name.endswith(("loop", "compiled"))
    }
    with ProcessPoolExecutor(min(12, os.cpu_count() or 1), get_context("spawn")) as pool:
        for done in [pool.submit(compile_kernels, key[0], part) for key, part in jobs.items()]:
            done.result()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=PLANS, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--quick", action="store_true", help="a few small layers, three repetitions each")
    parser.add_argument("--only", help="only the parts with this name")
    args = parser.parse_args()
    began = time.perf_counter()
    device = torch.device(args.device)
    torch.set_num_threads(1)
    keep_memory()
    refuse_unless_right(device)
    parts = [part for part in PLANS[args.device](args.quick) if args.only in (None, part.name)]
    if args.device == "cuda":
        compile_at_once(parts)
        print(f"kernels compiled after {time.perf_counter() - began:.0f} s", flush=True)
    document: dict = {"machine": describe(device), "command": " ".join(sys.argv), "notes": [], "rows": []}
    document["date"] = datetime.now(UTC).isoformat(timespec="minutes")
    with suppress(OSError, subprocess.CalledProcessError):
        document["commit"] = subprocess.check_output(
            ["git", "rev-parse", "--short", "HEAD"], text=True, stderr=subprocess.DEVNULL
        ).strip()

    def note(text: str) -> None:
        document["notes"].append(text)
        print("note:", text, flush=True)

    for row in measure(parts, device, quick=args.quick, note=note):
        document["rows"].append(row._asdict())
        document["seconds"] = round(time.perf_counter() - began)
        args.out.write_text(json.dumps(document, indent=1))
        kept = "" if row.kept is None else f"{row.kept:6.1f} B"
        size = f"T{row.time} B{row.batch} N{row.features} {row.dtype}"
        times = f"{row.clock:6} {row.ms:9.3f} ms {row.ns_per_step:8.4f} ns"
        print(f"{row.part:12} {row.subject:20} {size:26} {times} {kept}", flush=True)


if __name__ == "__main__":
    main()
