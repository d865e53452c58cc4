"""Measure subjects in turn on a layer, and describe the machine."""

import platform
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch

from ultralif.bench.stopwatch import Clock, in_turns, recorded
from ultralif.bench.subjects import OURS, PEERS, BenchSubject, Layer, kept_bytes, peer_versions
from ultralif.errors import JobError
from ultralif.nn import NEURONS

__all__ = ["EVERY", "RATES", "Measurement", "Part", "describe", "measure", "refuse_unless_right"]


class Measurement(NamedTuple):
    """One measurement: forward and backward of one layer."""

    part: str
    subject: str
    time: int
    batch: int
    features: int
    dtype: str
    clock: Clock
    ms: float
    """The median; ``low`` and ``high`` are the lower and upper quartiles."""
    low: float
    high: float
    ns_per_step: float
    """Nanoseconds per neuron, sample and time step."""
    kept: float | None
    """Bytes kept for the backward pass beyond input and output, per neuron, sample and time step."""


class Part(NamedTuple):
    """Subjects measured in turn on one layer."""

    name: str
    subjects: tuple[str, ...]
    layer: Layer
    clock: Clock = "call"
    repetitions: int = 1
    """Number of repetitions of a recorded call in its graph."""


LOOPS = tuple(f"{name} loop" for name in OURS)
RATES = tuple(f"{name} rate" for name in OURS[:3])
EVERY = ("copy", *OURS, *LOOPS, *PEERS)


def measure(
    parts: Sequence[Part],
    device: torch.device,
    *,
    quick: bool = False,
    note: Callable[[str], None] = warnings.warn,
) -> Iterator[Measurement]:
    """Yield a row for each subject of each part.

    Args:
        parts: the layers and subjects to measure.
        device: the device to measure on.
        quick: repeat only three times.
        note: called with a message for each subject that cannot run here.
    """
    for part in parts:
        runs = dict(_runs(part, device, note))
        kept = {name: kept_bytes(run) / part.layer.steps for name, run in runs.items()}
        calls: dict[str, Callable[[], object]] = dict(runs)
        if part.clock == "device":
            calls = dict(_recorded(runs, part, note))
        for name, (median, low, high) in in_turns(calls, device, part.clock, quick=quick).items():
            ms = [1e3 * seconds / part.repetitions for seconds in (median, low, high)]
            yield Measurement(
                part.name,
                name,
                *part.layer,
                part.clock,
                ms[0],
                ms[1],
                ms[2],
                1e6 * ms[0] / part.layer.steps,
                round(kept[name], 3),
            )
        del runs, calls
        if device.type == "cuda":
            torch.cuda.empty_cache()


def _runs(
    part: Part, device: torch.device, note: Callable[[str], None]
) -> Iterator[tuple[str, BenchSubject]]:
    for name in part.subjects:
        try:
            run = BenchSubject(name, part.layer, device)
            run()
        except Exception as error:  # skip a library that fails in any way
            if name.partition(" ")[0] in NEURONS:
                raise
            note(f"{name} on {part.layer} was skipped: {error}".splitlines()[0])
            continue
        yield name, run


def _recorded(
    runs: dict[str, BenchSubject], part: Part, note: Callable[[str], None]
) -> Iterator[tuple[str, Callable[[], object]]]:
    for name, run in runs.items():
        try:
            yield name, recorded(run, part.repetitions)
        except RuntimeError as error:
            if name.partition(" ")[0] in NEURONS:
                raise
            note(f"{name} cannot be recorded in a CUDA graph: {error}".splitlines()[0])


def refuse_unless_right(device: torch.device) -> None:
    """Raise a JobError unless every measured neuron agrees with its definition."""
    for name in OURS:
        torch.manual_seed(0)
        current = torch.randn(31, 3, 70, device=device)
        weight = torch.randn_like(current)
        results = []
        for backend in ("auto", "reference"):
            neuron = NEURONS[name](backend=backend).to(device)
            x = current.clone().requires_grad_()
            out = neuron(x)
            grads = torch.autograd.grad((out * weight).sum(), [x, *neuron.parameters()])
            results.append((out.detach(), *grads))
        for found, expected in zip(*results, strict=True):
            error = (found - expected).abs().max().item()
            if not error <= 1e-4 * max(1.0, expected.abs().max().item()):
                raise JobError(
                    f"{name} differs from its definition by {error:g} on {device}, so its speed is "
                    "meaningless; run the tests in tests/ops"
                )


def describe(device: torch.device) -> dict[str, object]:
    """Describe the machine and the package versions on which a result depends."""
    found: dict[str, object] = {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else _processor(),
        "threads": torch.get_num_threads(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        **peer_versions(),
    }
    if device.type == "cuda":
        import triton

        found["triton"] = triton.__version__
    return found


def _processor() -> str:
    """Return the name of the processor, as Linux reports it."""
    try:
        with open("/proc/cpuinfo") as lines:  # noqa: PTH123
            return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
