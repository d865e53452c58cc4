"""Measure every speed goal of docs/results/performance.md in three minutes, beside a plain copy.

    python benchmarks/fastpath.py --out docs/results/fastpath-h200.json
    python benchmarks/fastpath.py --out ... --peers FOLDER      # folder with spikingjelly, if not installed
    python benchmarks/fastpath.py --out tuning.json --tune      # other kernel settings

Kernels are compiled first, in 14 processes. The file is written after each row, so an interrupted run
resumes; a finished file is refused. `--device cpu` runs small sizes to test the script itself. Times are
medians for forward and backward, and the calls take turns. `ultralif.bench.stopwatch` describes the clocks:
`call` from Python, `host` until the call returns, `device` inside a CUDA graph with a cold cache, `graph`
many repetitions in one graph with a warm cache. `step.py` measures the stacked training step.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ultralif.bench import describe, refuse_unless_right
from ultralif.bench.stopwatch import in_turns, recorded
from ultralif.bench.subjects import BenchSubject, Layer, Skip
from ultralif.nn import NEURONS

OURS = ("copy", "UltraLIF", "UltraDLIF", "LIF", "PLIF")
PEERS = ("SpikingJelly LIF", "SpikingJelly PLIF")
SMALL, LARGE, LONG = (30, 128, 64), (30, 128, 4096), (500, 16, 4096)
RINGS = (64, 256, 1024, 2048, 4096, 16384)
Row = tuple[str, str, Layer, tuple[str, ...]]
Work = tuple[str, Layer, dict[str, int]]
Plan = list[tuple[str, Callable[[], Iterator[dict[str, Any]]]]]


def rows(cuda: bool) -> Iterator[Row]:
    """Yield part, clock, layer and subjects."""
    if not cuda:
        yield "called", "call", Layer(3, 2, 8), OURS
        yield "rings", "call", Layer(3, 2, 16), ("copy", "UltraDLIF")
        return
    everyone = (*OURS, *PEERS)
    for size in (SMALL, LARGE):
        yield "called", "call", Layer(*size), everyone
    yield "host", "host", Layer(*SMALL), everyone
    yield "graph", "graph", Layer(*SMALL), (*everyone, "UltraLIF rate")
    for size in (LARGE, LONG):
        for dtype in ("float32", "bfloat16"):
            peers = PEERS if dtype == "float32" else ()
            yield "device", "device", Layer(*size, dtype), (*OURS, *peers)
    for ring in RINGS:
        yield "rings", "device", Layer(30, 2**19 // ring, ring), ("copy", "UltraDLIF")
    for steps in (10, 100, 1000):
        yield "growth in T", "device", Layer(steps, 16, 4096), ("copy", "UltraLIF", "UltraDLIF")


def measure(row: Row, device: torch.device, note: Callable[[str], None]) -> Iterator[dict[str, Any]]:
    """Time the subjects of a row in turns."""
    part, clock, layer, subjects = row
    runs: dict[str, Callable[[], object]] = {}
    repetitions = 20 if clock == "graph" else 1
    for name in subjects:
        try:
            run = BenchSubject(name, layer, device)
            run()
        except Skip as skip:
            note(str(skip))
            continue
        runs[name] = (
            recorded(run, repetitions) if clock in ("graph", "device") and device.type == "cuda" else run
        )
    found = in_turns(runs, device, "host" if clock == "host" else "call", quick=False)
    base = found["copy"].median
    for name, spread in found.items():
        yield {
            "part": part,
            "clock": clock,
            "subject": name,
            **dict(zip(("time", "batch", "features", "dtype"), layer, strict=True)),
            "ms": 1e3 * spread.median / repetitions,
            "low": 1e3 * spread.low / repetitions,
            "high": 1e3 * spread.high / repetitions,
            "copies": spread.median / base,
        }


def halves(device: torch.device) -> Iterator[dict[str, Any]]:
    """Time the host's share of forward and backward separately, in microseconds."""
    layer = Layer(*SMALL) if device.type == "cuda" else Layer(3, 2, 8)
    for name in OURS:
        run = BenchSubject(name, layer, device)
        run()
        times: dict[str, list[float]] = {"forward": [], "backward": []}
        for _ in range(200):
            began = time.perf_counter()
            out = run.forward(run.x)
            middle = time.perf_counter()
            torch.autograd.grad(out, run.inputs, run.weight)
            ended = time.perf_counter()
            if device.type == "cuda":
                torch.cuda.synchronize()
            times["forward"].append(middle - began)
            times["backward"].append(ended - middle)
        medians = {k: 1e6 * sorted(v)[len(v) // 2] for k, v in times.items()}
        yield {"part": "halves", "clock": "host", "subject": name, **medians}


class _Convolutions(nn.Module):
    """Three layers of a spiking VGG at T=1; ``between`` is a neuron or a ReLU."""

    def __init__(self, between: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Conv2d(a, b, 3, padding=1) for a, b in ((3, 128), (128, 256), (256, 256))
        )
        self.between = nn.ModuleList(between() for _ in self.layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer, between in zip(self.layers, self.between, strict=True):
            x = between(layer(x).unsqueeze(0)).squeeze(0)
        return x


def convolutions(device: torch.device) -> Iterator[dict[str, Any]]:
    """Time a channels-last convolutional step in bfloat16 with neurons and with ReLU."""
    cuda = device.type == "cuda"
    x = torch.randn(500 if cuda else 2, 3, 32, 32, device=device).contiguous(
        memory_format=torch.channels_last
    )
    runs = {}
    for name in ("ReLU", "UltraLIF", "LIF"):
        net = _Convolutions(nn.ReLU if name == "ReLU" else NEURONS[name]).to(device)
        net = net.to(memory_format=torch.channels_last)

        def step(net: nn.Module = net) -> None:
            with torch.autocast(device.type, torch.bfloat16):
                out = net(x)
            torch.autograd.grad(out.float().square().mean(), list(net.parameters()))

        step()
        runs[name] = step
    found = in_turns(runs, device, "call", quick=not cuda)
    for name, spread in found.items():
        yield {
            "part": "channels-last convolutions",
            "clock": "call",
            "subject": name,
            "dtype": "bfloat16",
            "ms": 1e3 * spread.median,
            "relus": spread.median / found["ReLU"].median,
        }


BACK = tuple(
    {"CHUNK_TOLD": chunk, "REGISTERS_TOLD": registers}
    for chunk, registers in ((2, 80), (1, 64), (2, 96), (3, 128))
)
TUNING: tuple[tuple[str, str, Layer, tuple[dict[str, int], ...]], ...] = (
    ("UltraDLIF", "device", Layer(*LARGE), ({"WIDEST": 4096}, {"WIDEST": 2048})),
    (
        "UltraDLIF",
        "device",
        Layer(*LONG),
        (
            {"MARGIN": 4},
            {"MARGIN": 8},
            {"FEW_LONG": 0},
            {"BACK_ALONE": 2},
            {"UNITS": 0},
        ),
    ),
    ("UltraDLIF", "device", Layer(30, 512, 1024), BACK),
    ("UltraDLIF", "device", Layer(30, 256, 2048), ({"MANY": 96}, {"MANY": 512})),
    ("UltraDLIF", "device", Layer(30, 8192, 64), (*BACK, {"CHUNK": 6})),
    ("UltraDLIF", "graph", Layer(*SMALL), ({"FEW_BACK": 3}, {"FEW_BACK": 5}, {"FEW_BACK": 10})),
)
"""Subject, clock, layer, and the settings to try for the modules in `ultralif.ops.triton`."""


@contextmanager
def tuned(subject: str, setting: dict[str, int]) -> Iterator[None]:
    """Change kernel settings temporarily."""
    from ultralif.ops.triton import launch, plan, ring, ring_layout

    module = (
        (ring if hasattr(ring, next(iter(setting), "")) else ring_layout)
        if subject == "UltraDLIF"
        else launch
    )
    shipped = {name: getattr(module, name) for name in setting}
    try:
        for name, value in setting.items():
            setattr(module, name, value)
        plan.forget()
        yield
    finally:
        for name, value in shipped.items():
            setattr(module, name, value)
        plan.forget()


def warm(work: Work) -> None:
    """Compile a subject's kernels into Triton's cache."""
    name, layer, setting = work
    with suppress(Skip), tuned(name, setting):
        BenchSubject(name, layer, torch.device("cuda"))()
        torch.cuda.synchronize()


def warm_all(works: Sequence[Work]) -> None:
    """Compile in parallel processes."""
    with ProcessPoolExecutor(14, get_context("spawn")) as pool:
        for work, done in [(work, pool.submit(warm, work)) for work in works]:
            error = done.exception()
            if error is not None:
                print(f"FAILED {work}: {error}", flush=True)


def tuning(
    device: torch.device, subject: str, clock: str, layer: Layer, setting: dict[str, int]
) -> Iterator[dict[str, Any]]:
    """Time a subject with non-default settings."""
    repetitions = 20 if clock == "graph" else 1
    with tuned(subject, setting):
        runs = {name: recorded(BenchSubject(name, layer, device), repetitions) for name in ("copy", subject)}
        found = in_turns(runs, device, "call", quick=False)
    yield {
        "part": "tuning",
        "clock": clock,
        "subject": subject,
        **dict(zip(("time", "batch", "features", "dtype"), layer, strict=True)),
        **setting,
        "ms": 1e3 * found[subject].median / repetitions,
        "copies": found[subject].median / found["copy"].median,
    }


def plan(device: torch.device, tune: bool, only: str, note: Callable[[str], None]) -> tuple[Plan, list[Work]]:
    """Return the parts whose names start with ``only``, their measurements, and the kernels to compile."""
    if tune:
        parts = [
            (
                f"tuning {row[:3]} {setting}",
                lambda row=row, setting=setting: tuning(device, *row[:3], setting),
            )
            for row in TUNING
            for setting in row[3]
        ]
        return _named(parts, only), [
            (name, layer, setting) for name, _, layer, settings in TUNING for setting in settings
        ]
    listed = [row for row in rows(device.type == "cuda") if f"{row[0]} {row[2]}".startswith(only)]
    parts = [
        ("halves", lambda: halves(device)),
        *((f"{row[0]} {row[2]}", lambda row=row: measure(row, device, note)) for row in listed),
        ("channels-last convolutions", lambda: convolutions(device)),
    ]
    return _named(parts, only), [(name, row[2], {}) for row in listed for name in row[3] if name not in PEERS]


def _named(parts: Plan, only: str) -> Plan:
    return [part for part in parts if part[0].startswith(only)]


def begin(path: Path, device: torch.device, names: set[str]) -> dict[str, Any]:
    """Return a new document, or the unfinished one of an interrupted run."""
    if not path.exists():
        return {"machine": describe(device), "notes": [], "done": [], "rows": []}
    found: dict[str, Any] = json.loads(path.read_text())
    if names <= set(found["done"]):
        raise SystemExit(f"{path} already has all results; remove it, or choose another name")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--peers", type=Path, help="folder to import other libraries from")
    parser.add_argument("--only", default="", help="only the parts with this name")
    parser.add_argument("--tune", action="store_true", help="try other kernel settings instead")
    given = parser.parse_args()
    if given.peers:
        sys.path.append(str(given.peers))
    device = torch.device(given.device)
    torch.set_num_threads(1)
    began = time.perf_counter()
    notes: list[str] = []
    parts, works = plan(device, given.tune, given.only, notes.append)
    document = begin(given.out, device, {name for name, _ in parts})
    refuse_unless_right(device)
    if given.device == "cuda":
        warm_all(works)
        print(f"ready after {time.perf_counter() - began:.0f} s", flush=True)
    for name, run in parts:
        if name in document["done"]:
            continue
        try:
            found = list(run())
        except Exception as error:
            notes.append(f"{name}: {type(error).__name__}: {error}")
            print(f"FAILED {name}: {error}", flush=True)
            continue
        document["rows"] += found
        document["done"].append(name)
        document["notes"] = list(dict.fromkeys((*document["notes"], *notes)))
        document["seconds"] = document.get("seconds", 0) + time.perf_counter() - began
        began = time.perf_counter()
        given.out.write_text(json.dumps(document, indent=1) + "\n")
        for row in found:
            shown = {k: round(v, 4) if isinstance(v, float) else v for k, v in row.items()}
            print(" ".join(f"{k}={v}" for k, v in shown.items()), flush=True)


if __name__ == "__main__":
    main()
