"""Time UltraLIF over long sequences: step by step, in parallel chunks, and in plain PyTorch.

    python benchmarks/memory_speed.py --device cuda --out docs/results/memory-speed-h200.json --peers FOLDER
    python benchmarks/memory_speed.py --device cpu --out docs/results/memory-speed-cpu.json

Times are for a layer's forward and backward pass, in microseconds, as medians of repeated calls. On a GPU, a
recorded graph without Python's overhead is timed too; on a CPU, the processor time of one thread. The most
important rows come first and are written one by one; no row is started after ``--seconds``.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ultralif import ops
from ultralif.bench import describe
from ultralif.bench.stopwatch import recorded
from ultralif.functional import ultralif_step
from ultralif.functional.newton import newton
from ultralif.functional.parallel import membranes
from ultralif.ops.cpu import chunks
from ultralif.ops.triton import chunked, plan

THREADS, PROGRAMS = chunked.THREADS, chunked.PROGRAMS


class Row(NamedTuple):
    """A layer, its reset, and its integration method."""

    time: int
    batch: int
    neurons: int
    reset: str
    way: str
    """``steps``, ``chunks``, ``pytorch`` (a scan of plain operators), ``newton`` (plain operators, for resets
    triggered by spikes) or ``psn`` (SpikingJelly's)."""
    count: int = 0
    """Maximum number of threads per program on a GPU; 0 uses `chunked`'s setting."""
    programs: int = 0
    """Number of programs at which each starts to handle several neurons; 0 uses `chunked`'s setting."""


MAIN = (4096, 16, 64)
SHAPES = (
    MAIN,
    (1024, 16, 64),
    (512, 16, 64),
    (256, 16, 64),
    (1024, 64, 128),
    (512, 64, 128),
    (4096, 64, 128),
    (16384, 16, 64),
    (65536, 16, 64),
    (1024, 128, 128),
    (4096, 128, 128),
    (1024, 128, 256),
    (4096, 1, 64),
    (16384, 1, 64),
    (65536, 1, 64),
)
CPU_SHAPES = ((8192, 1, 4), (8192, 1, 16), (65536, 1, 4), (65536, 1, 16))


def rows(device: str) -> list[Row]:
    """Return the measurements, the most informative first."""
    shapes = SHAPES if device == "cuda" else CPU_SHAPES
    both = [
        Row(*shape, reset, way)
        for reset in ("none", "saturate")
        for shape in shapes
        for way in ("steps", "chunks")
    ]
    if device == "cpu":
        return both
    tuned = [
        Row(*shape, reset, "chunks", threads, programs)
        for shape in (MAIN, SHAPES[1], (4096, 64, 128))
        for reset in ("none", "saturate")
        for threads, programs in ((256, 128), (1024, 128), (256, 256), (512, 256))
    ]
    others = [Row(*MAIN, "zero", way) for way in ("steps", "newton")]
    others += [Row(*MAIN, reset, "pytorch") for reset in ("none", "saturate")]
    return [*both, *others, Row(*MAIN, "none", "psn"), *tuned]


def make_psn(steps: int) -> torch.nn.Module:
    """Return SpikingJelly's parallel neuron: a learned matrix over time, then a spike."""
    from spikingjelly.activation_based.neuron import PSN

    return PSN(steps)


def call(row: Row, device: str) -> Callable[[], Any]:
    """Return a forward and backward pass."""
    shape = (row.time, row.batch, row.neurons)
    current = torch.randn(shape, device=device).requires_grad_()
    eps = torch.tensor(0.2, device=device, requires_grad=True)
    decay = torch.linspace(-0.5, -0.01, row.neurons, device=device).requires_grad_()
    weight = torch.randn(shape, device=device)
    given = {"reset": row.reset} | ({"v_sat": 1.0} if row.reset == "saturate" else {})
    choose(row, device)
    peer = make_psn(row.time).to(device) if row.way == "psn" else None

    def forward() -> Tensor:
        if peer is not None:
            return peer(current)
        if row.way == "newton":
            constants = {"eps": eps, "leak": torch.exp(decay * eps), "threshold": 0.5}
            v0 = torch.zeros(shape[1:], device=device)
            v, _ = newton(lambda v, i: ultralif_step(i, v, **constants)[1], current, v0, tolerance=1e-5)
            return ultralif_step(current, torch.cat((v0[None], v[:-1])), **constants)[0]
        if row.way != "pytorch":
            return ops.ultralif(current, eps=eps, leak=torch.exp(decay * eps), threshold=0.5, **given)[0]
        leak, top = torch.exp(decay * eps), given.get("v_sat", torch.inf)
        v = membranes(current, torch.zeros(shape[1:], device=device), eps=eps, leak=leak, v_sat=top)[:-1]
        p = eps * torch.logaddexp((v + decay * eps) / eps, current / eps)
        return torch.sigmoid((p - 0.5) / eps)

    leaves = [current, eps, decay] if peer is None else [current, *peer.parameters()]

    return lambda: torch.autograd.grad(forward(), leaves, weight)


def choose(row: Row, device: str) -> None:
    """Integrate all further calls step by step or in chunks, regardless of their size."""
    if device == "cpu":
        lanes = row.batch * row.neurons
        most = max(2, min(128 * torch.get_num_threads() // lanes, 64))
        count = 1 if row.way == "steps" else chunks._count(row.time, most)
        chunks.chunks = lambda *_: count
        return

    chunked.SHORTEST, chunked.LANES = (row.time + 1 if row.way == "steps" else 1), 1 << 30
    chunked.THREADS, chunked.PROGRAMS = row.count or THREADS, row.programs or PROGRAMS
    plan.forget()


def microseconds(run: Callable[[], Any], device: str, seconds: float = 0.3) -> float:
    """Return the median of repeated calls."""
    for _ in range(3):
        run()
    found: list[float] = []
    clock = time.perf_counter if device == "cuda" else time.process_time
    began = clock()
    while len(found) < 5 or clock() - began < seconds:
        if device == "cuda":
            torch.cuda.synchronize()
        start = clock()
        run()
        if device == "cuda":
            torch.cuda.synchronize()
        found.append(clock() - start)
        if len(found) >= 200:
            break
    return 1e6 * statistics.median(found)


def warm(row: Row) -> None:
    """Compile a row's kernels into Triton's cache."""
    call(row, "cuda")()
    torch.cuda.synchronize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=50.0)
    parser.add_argument("--peers", type=Path, help="folder to import spikingjelly from")
    args = parser.parse_args()
    if args.peers:
        sys.path.append(str(args.peers))
    began = time.perf_counter()
    torch.set_num_threads(1)
    todo = rows(args.device)
    if args.device == "cuda":
        kernels = [row for row in todo if row.way in ("steps", "chunks")]
        with ProcessPoolExecutor(14, get_context("spawn")) as pool:
            list(pool.map(warm, kernels))
    document: dict[str, Any] = {"machine": describe(torch.device(args.device)), "rows": []}
    print(f"ready after {time.perf_counter() - began:.0f} s", flush=True)
    for row in todo:
        if time.perf_counter() - began > args.seconds:
            break
        try:
            run = call(row, args.device)
        except ImportError as error:
            print(f"left out: {row.way}: {error}", flush=True)
            continue
        entry = row._asdict() | {"eager_us": microseconds(run, args.device)}
        if args.device == "cuda" and row.way not in ("pytorch", "newton"):
            entry["graph_us"] = microseconds(recorded(run, 1), args.device)
        document["rows"].append({k: round(v, 1) if isinstance(v, float) else v for k, v in entry.items()})
        print(json.dumps(document["rows"][-1]), flush=True)
        args.out.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
