"""A launch of a Triton kernel, and the sizes that suit a large GPU."""

import os
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ultralif.ops.recurrence import Rule

__all__ = ["Launch", "chunk_of", "code", "is_recording"]

NATIVE = os.environ.get("TRITON_INTERPRET") != "1"
LANES = 1 << 18  # about as many as a large GPU runs at once; more are taken in rounds
CHUNK = 10  # steps whose trace a lane keeps in registers: more would make compiling slow
PROGRAMS = 264  # two for each multiprocessor of a large GPU
BYTES = 128  # loaded by a warp at once


def is_recording(device: torch.device) -> bool:
    """Tell whether the current stream of a device is recorded as a graph."""
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()


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
    """Choose the steps of a chunk, so that they divide the time if they can; tell whether they do."""
    fair = [n for n in range(min(time, longest), max(2, longest // 2) - 1, -1) if time % n == 0]
    chunk = fair[0] if fair else min(time, longest)
    return chunk, int(time % chunk == 0)


def code(rule: Rule, same: int) -> int:
    """Return the choices of a rule as one number, two bits each, as `triton_parts` reads it.

    ``same`` tells whether all lanes have the same constants: 0, no; 1, yes; 2, those of a program have, and
    they are decoded already.
    """
    choices = (
        rule.membrane,
        rule.soft,
        rule.reset,
        rule.detach,
        rule.curve,
        rule.clipped,
        rule.unit,
        rule.rate,
        rule.centered,
        rule.leak_form,
        rule.at_spike,
        rule.adapt,
        rule.adapt_late,
        rule.sharp,
        same,
    )
    return sum(int(choice) << 2 * i for i, choice in enumerate(choices))
