"""Triton kernel launches: sizes that suit a large GPU, and the tensors for the constants' gradients."""

import math
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ultralif.ops.constants import Form, Learned
from ultralif.ops.layout import Place
from ultralif.ops.rule import BITS, Constants

if TYPE_CHECKING:
    from ultralif.ops.triton.plan import LaunchPlan

__all__ = [
    "EACH",
    "LEFT",
    "READY",
    "ROW",
    "SHARED",
    "Launch",
    "begin",
    "chunk_of",
    "counters",
    "end",
    "is_elsewhere",
    "is_recording",
    "on_device",
    "table_of",
    "way_of",
]

NATIVE = os.environ.get("TRITON_INTERPRET") != "1"
LANES = 1 << 18  # about as many as a large GPU runs at once; more run in rounds
CHUNK = 10  # steps whose trace a lane keeps in registers: more would make compiling slow
PROGRAMS = 264  # two for each multiprocessor of a large GPU
BYTES = 128  # loaded by a warp at once
FULL = 1 << BITS["even"]  # added to the code of a rule: chunks divide the time


def is_recording(device: torch.device) -> bool:
    """Return whether the current stream of a device is being recorded as a graph."""
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()


def is_elsewhere(device: torch.device) -> bool:
    """Return whether a device is a GPU other than the current one, on which Triton launches."""
    return device.type == "cuda" and device.index != torch.cuda.current_device()


def on_device(device: torch.device) -> AbstractContextManager[object]:
    """Return a context in which a GPU is the current one."""
    return torch.cuda.device(device) if is_elsewhere(device) else nullcontext()


class Launch:
    """A kernel with its grid and choices; from the second call on, its compiled code is launched directly."""

    def __init__(
        self,
        kernel: Any,
        grid: tuple[int, ...],
        choices: Sequence[int],
        warps: int,
        registers: int | None = None,
    ) -> None:
        self.kernel, self.grid = kernel, (*grid, 1, 1)[:3]
        self.choices = tuple(choices)
        self.options = {"num_warps": warps, "enable_fp_fusion": True, "maxnreg": registers}
        self.run: Callable[..., None] | None = None

    def __call__(self, *args: Any) -> None:
        """Launch the kernel; the arguments are all but the choices."""
        if self.run is not None:
            self.run(*args, *self.choices)
            return
        compiled = self.kernel[self.grid](*args, *self.choices, **self.options)
        if NATIVE and compiled is not None:
            self.run = compiled[self.grid]


def chunk_of(time: int, longest: int) -> tuple[int, int]:
    """Choose the steps of a chunk, preferably dividing the time; also return `FULL` if they do, else 0."""
    fair = [n for n in range(min(time, longest), max(2, longest // 2) - 1, -1) if time % n == 0]
    chunk = fair[0] if fair else min(time, longest)
    return chunk, FULL if time % chunk == 0 else 0


SHARED, EACH, LEFT = 1, 2, 3  # ways to reduce a gradient: see `common`
READY = SHARED + 256  # the constants and their gradients have a row for each program
ROW = 6  # number of values in a row of a table


def way_of(place: Place, block: int) -> int:
    """Return how programs with this number of lanes reduce the gradient of a constant."""
    if place.entries == 1 or place.run % block == 0:
        return SHARED
    return EACH if place.run == 1 and place.entries % block == 0 else LEFT


def begin(
    plan: "LaunchPlan",
    constants: Constants,
    learned: Sequence[bool],
    ways: tuple[int, ...],
    where: tuple[int, ...],
    region: int,
    spans: int = 1,
) -> tuple[list[Tensor | None], Tensor, Tensor, int]:
    """Return tensors for gradients, partial sums ``[spans, 4 * region]``, counters, and their groups."""
    raws = plan.raws(constants)
    if True not in learned:
        return list(raws), plan.tables[0].reshape(1, -1).expand(spans, -1), plan.tables[0], 0
    grads = [
        _place_of_grad(c, raw) if wanted else raw
        for c, raw, wanted in zip(constants, raws, learned, strict=True)
    ]
    partials = torch.empty((spans, 4 * region), dtype=torch.float32, device=plan.device)
    groups = plan.groups.get((ways, where))
    if groups is None:
        groups = plan.groups[ways, where] = max(
            plan.found[i].entries if way == SHARED else where[4 * i + 3] if way == EACH else 1
            for i, way in enumerate(ways)
        )
    return grads, partials, counters(plan.counters, plan.device, 4 * groups), groups


def end(
    plan: "LaunchPlan",
    constants: Constants,
    grads: list[Tensor | None],
    partials: Tensor,
    learned: Sequence[bool],
    ways: Sequence[int],
    size: int,
) -> list[Tensor | None]:
    """Return the gradients of the constants, after adding the sums that the kernel left."""
    if LEFT not in ways:
        return [g if wanted else None for g, wanted in zip(grads, learned, strict=True)]
    for i, (constant, place) in enumerate(zip(constants, plan.found, strict=True)):
        if ways[i] == LEFT:
            lanes = partials.view(len(partials), 4, -1)[:, i, :size]
            total = lanes.reshape(-1, place.entries, place.run if place.entries > 1 else size).sum((0, 2))
            if isinstance(constant, Learned):
                grads[i] = constant.pull(total.view(constant.raw.shape))
            elif isinstance(constant, Tensor):
                grads[i] = total.view(constant.shape).to(constant.dtype)
    return [g if wanted else None for g, wanted in zip(grads, learned, strict=True)]


def _place_of_grad(constant: Tensor | Learned | float, raw: Tensor) -> Tensor:
    given = constant.grad if isinstance(constant, Learned) else None
    return torch.empty_like(raw) if given is None else given


_kept_tables: dict[object, Tensor] = {}


def table_of(constant: Tensor | Learned | float, device: torch.device) -> Tensor:
    """Return the table that describes how to read a constant: form, number, low, high, inverse, speed."""
    if isinstance(constant, Learned):
        if constant.rows is not None:
            return constant.rows
        row = (float(constant.form), 0.0, *map(float, constant[2:5]), 1.0)
    elif isinstance(constant, Tensor):
        row = (float(Form.VALUE), 0.0, -math.inf, math.inf, 0.0, 1.0)
    else:
        row = (0.0, float(constant), -math.inf, math.inf, 0.0, 1.0)
    kept = _kept_tables.get((row, device))
    if kept is None:
        host = torch.tensor(row, dtype=torch.float32)
        if not is_recording(device):
            kept = host.to(device)
            if len(_kept_tables) < 4096:  # none is ever freed: a recorded graph may still read it
                _kept_tables[row, device] = kept
        else:
            kept = torch.empty(len(row), dtype=torch.float32, device=device)
            for i, number in enumerate(row):
                kept[i].fill_(number)
    return kept


_pools: dict[torch.device, list[Tensor | None]] = {}
POOL = 1 << 18


def counters(kept: dict[object, Tensor], device: torch.device, size: int) -> Tensor:
    """Return zeroed counters for this stream or graph, which no other kernel uses at the same time.

    Kernels reset them to zero. A stream's counters are kept for its next launch of the same kernel.
    """
    if device.type != "cuda" or is_recording(device):
        return _zeros(device, size)
    stream = torch._C._cuda_getCurrentRawStream(device.index)
    found = kept.get(stream)
    if found is None or found.numel() < size:
        found = kept[stream] = _zeros(device, size)
    return found


def _zeros(device: torch.device, size: int) -> Tensor:
    """Take zeros from a pool that was allocated outside any recorded graph; kernels reset them to zero."""
    pool = _pools.get(device)
    if pool is None and not is_recording(device):
        pool = _pools[device] = [torch.zeros(POOL, dtype=torch.int32, device=device), 0]
    if pool is None or pool[1] + size > POOL:
        return torch.zeros(size, dtype=torch.int32, device=device)
    pool[1] += size
    taken: Tensor = pool[0][pool[1] - size : pool[1]]
    return taken
