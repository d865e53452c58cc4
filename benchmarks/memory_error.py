"""Measure the float32 error of long sequences, and the number of sweeps of Newton's method.

    python benchmarks/memory_error.py --out docs/results/memory-error.json

An error is the largest difference of a membrane from the float64 loop over 8,192 steps without reset, both
step by step in float32 and in parallel over time. Sweeps are counted for soft spikes in float64, until no
membrane changes by more than 1e-6. Currents are normally distributed with standard deviation 0.5.
"""

import argparse
import json
import math
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ultralif.bench import describe
from ultralif.functional import ultralif_step
from ultralif.functional.newton import newton
from ultralif.functional.parallel import membranes

STEPS, EPS = 8192, 0.2
TIME_CONSTANTS = (30, 300, 3000)
LENGTHS = (100, 1000, 8192)
RESETS = ("zero", "subtract")


def membrane(v: Tensor, current: Tensor, **options: Any) -> Tensor:
    """Return the membrane after a step."""
    return ultralif_step(current, v, threshold=0.5, **options)[1]


def loop(current: Tensor, **options: Any) -> Tensor:
    """Return the membranes of all steps, computed one after another."""
    found, v = [], torch.zeros_like(current[0])
    for x in current:
        v = membrane(v, x, **options)
        found.append(v)
    return torch.stack(found)


def draw(steps: int) -> Tensor:
    """Return currents ``[steps, 1, 16]`` that float32 represents exactly."""
    return (0.5 * torch.randn(steps, 1, 16, generator=torch.Generator().manual_seed(0))).double()


def errors() -> list[dict[str, float]]:
    """Return the errors of both methods for each time constant."""
    current, found = draw(STEPS), []
    for constant in TIME_CONSTANTS:
        given = {"eps": EPS, "leak": math.exp(-EPS / constant)}
        exact = loop(current, reset="none", **given)
        ways = {
            "steps": loop(current.float(), reset="none", **given),
            "parallel": membranes(current.float(), torch.zeros(1, 16), **given)[1:],
        }
        apart = {way: float((v - exact).abs().max()) for way, v in ways.items()}
        found.append({"time_constant": constant, "largest_membrane": float(exact.abs().max()), **apart})
    return found


def sweeps() -> list[dict[str, Any]]:
    """Return the number of Newton sweeps for each reset, temperature and length."""
    found = []
    for reset, eps, steps in product(RESETS, (0.1, 0.2, 1.0), LENGTHS):
        step = partial(membrane, eps=eps, leak=0.9, reset=reset)
        _, count = newton(step, draw(steps), torch.zeros(1, 16).double(), tolerance=1e-6)
        found.append({"reset": reset, "eps": eps, "steps": steps, "sweeps": int(count)})
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    torch.set_num_threads(1)
    with torch.no_grad():
        rows = {"machine": describe(torch.device("cpu")), "errors": errors(), "sweeps": sweeps()}
    given.out.write_text(json.dumps(rows, indent=1) + "\n")
    print(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
