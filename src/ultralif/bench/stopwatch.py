"""Time calls in turn: after a warm-up, each is timed many times with a cold cache.

On a GPU, calls are timed with device events, and the L2 cache is flushed before each call. The clock
``device`` first records the call in a CUDA graph, so that its time excludes kernel launches from the host;
the clock ``host`` measures only the launches. On a CPU, CPU time is measured, because other programs on the
machine affect it least.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import torch

__all__ = ["Clock", "Spread", "in_turns", "recorded"]

Clock = Literal["call", "device", "host"]
Call = Callable[[], object]
FLUSH = 256 * 2**20  # bytes; larger than any cache
PATIENCE = 0.4  # seconds for all repetitions of one call
FEWEST, MOST = 5, 50  # repetitions


class Spread(NamedTuple):
    """The duration of a call in seconds: the median, the lower and the upper quartile."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> "Spread":
        """Summarise repetitions."""
        low, median, high = statistics.quantiles(seconds, n=4) if len(seconds) > 1 else [seconds[0]] * 3
        return cls(median, low, high)


def in_turns(calls: dict[str, Call], device: torch.device, clock: Clock, *, quick: bool) -> dict[str, Spread]:
    """Time calls in turn, so that other work on the machine affects all of them equally."""
    stopwatch = _Host() if clock == "host" else _Device(device) if device.type == "cuda" else _Processor()
    counts = {}
    for name, call in calls.items():
        for _ in range(2):
            stopwatch(call)
        once = max(stopwatch(call), 1e-6)
        counts[name] = 3 if quick else int(min(max(PATIENCE / once, FEWEST), MOST))
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(max(counts.values(), default=0)):
        for name, call in calls.items():
            if turn < counts[name]:
                seconds[name].append(stopwatch(call))
    return {name: Spread.of(found) for name, found in seconds.items()}


class _Processor:
    """Measure the CPU time of this process."""

    def __call__(self, call: Call) -> float:
        began = time.process_time()
        call()
        return time.process_time() - began


class _Host:
    """Measure the time until a call returns; the device finishes its work before the next call."""

    def __call__(self, call: Call) -> float:
        torch.cuda.synchronize()
        began = time.perf_counter()
        call()
        return time.perf_counter() - began


class _Device:
    """Measure the time between two device events, with a cold cache."""

    def __init__(self, device: torch.device) -> None:
        self.buffer = torch.empty(FLUSH, dtype=torch.int8, device=device)
        make: Any = torch.cuda.Event
        self.events = [make(enable_timing=True) for _ in range(2)]

    def __call__(self, call: Call) -> float:
        self.buffer.zero_()
        self.events[0].record()
        call()
        self.events[1].record()
        torch.cuda.synchronize()
        return float(self.events[0].elapsed_time(self.events[1])) / 1e3


def recorded(call: Call, repetitions: int) -> Call:
    """Record repetitions of a call in a CUDA graph, and return a function that replays it.

    That function keeps a reference to the call, and thus to the tensors that the graph reads, because
    recording another graph returns unused memory to the driver.
    """
    make: Any = torch.cuda.Stream
    stream = make()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(repetitions):
            call()

    def replay(kept: Call = call) -> None:
        graph.replay()

    return replay
