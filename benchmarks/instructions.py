"""Count the instructions and bytes of a neuron's step on a GPU from compiled code; no GPU is needed.

    python benchmarks/instructions.py --out docs/results/instructions.md

The kernels repeat a step's code for every step of a chunk. Compiling them for two chunk lengths gives the
cost of one step as the difference: one pass in the forward kernel, three in the backward kernel (store the
states, integrate again, walk back), one where spikes determine the membrane. This gives the minimum times for
a layer that is too large for the second-level cache.
"""

import argparse
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import torch
from disassembly import Kernel, compiled
from torch import Tensor

from ultralif import ops
from ultralif.ops.triton import launch
from ultralif.ops.triton import ring as rings

LENGTHS = ({"CHUNK": (10, 5)}, {"CHUNK": (3, 2), "CHUNK_BACK": (3, 2)})
"""Chunk lengths for `launch` and `ring`; the longer one is shipped."""
COUNTED: tuple[tuple[str, ...], ...] = ((), ("MUFU",), ("SHFL",))
"""Instruction names; an empty tuple counts all instructions."""
TIME = 60
CLOCK, UNITS = 1.755e9, 132
PEAKS = {"issue": 128 * UNITS * CLOCK, "special": 16 * UNITS * CLOCK, "bytes": 4.8e12}
"""An H200's rates per second: lane instructions, special functions (exp, log, inverse), bytes of memory."""
BYTES = {"forward": 8, "backward": 16, "spikes": 12}
"""Forward: read the current, write the spike. Backward: read the current twice and the gradient once, write
one gradient. From spikes: read the spikes and their gradient, write one gradient."""

HEAD = """# What a step costs a GPU

This page shows what limits a neuron on an H200: its instructions, its special functions or its
memory traffic. `python benchmarks/instructions.py` counts the instructions in code compiled for compute
capability 9.0, with a learned temperature, float32 and rings of 64. Nothing on this page was timed.

- *special*: exponentials, logarithms and inverses
- *exchanges*: exchanges between the threads of a ring, of four lanes each
- *spikes*: the backward pass that computes the membrane from the spikes
- *issue*, *special* and *bytes ps*: the minimum time per neuron, sample and step, in picoseconds,
  given the GPU's throughput of instructions, special functions and memory
- *limited by*: the largest of these three times

"""

Call = Callable[[Tensor], tuple[Tensor, object]]
NEURONS: dict[str, Call] = {
    "LIF": lambda x: ops.lif(x, leak=0.9, threshold=0.5),
    "SoftLIF": lambda x: ops.softlif(x, eps=_eps(), leak=0.9, threshold=0.5),
    "UltraLIF": lambda x: ops.ultralif(x, eps=_eps(), leak=0.9, threshold=0.5),
    "UltraLIF, hard": lambda x: ops.ultralif(x, eps=_eps(), leak=0.9, threshold=0.5, mode="hard"),
    "UltraDLIF": lambda x: ops.ultradlif(x, eps=_eps(), threshold=0.5),
    "UltraDLIF, hard": lambda x: ops.ultradlif(x, eps=_eps(), threshold=0.5, mode="hard"),
}


class Step(NamedTuple):
    """One step of one neuron in one kernel."""

    instructions: float
    special: float
    exchanges: float
    registers: int
    spills: int


def _eps() -> Tensor:
    return torch.tensor(1.0, requires_grad=True)


def kernels(call: Call, version: int) -> list[Kernel]:
    """Compile a call's forward and backward kernel for one chunk length."""
    with ExitStack() as changed, compiled() as made:
        for module, settings in zip((launch, rings), LENGTHS, strict=True):
            for name, lengths in settings.items():
                changed.enter_context(patch.object(module, name, lengths[version]))
        out, _ = call(torch.zeros(TIME, 1024, 64, requires_grad=True))
        out.backward(torch.zeros_like(out))
    return made


def steps(call: Call, soft: bool) -> list[tuple[str, Step]]:
    """Return the cost of a step, forward and backward."""
    found = []
    for long, short in zip(kernels(call, 0), kernels(call, 1), strict=True):
        ring, back = "spatial" in long.name, "backward" in long.name
        if ring and back and soft:  # its first loop reads spikes; the others run where a spike is 0
            taken = long.lanes * rings.CHUNK_SPIKES
            counts = [sum(long.first_loop[n] for n in names or long.first_loop) / taken for names in COUNTED]
            found.append(("spikes", Step(*counts, long.registers, long.spills)))
            continue
        lengths = LENGTHS[ring]["CHUNK_BACK" if ring and back else "CHUNK"]
        more = long.lanes * (lengths[0] - lengths[1])
        counts = [
            (sum(long.instructions[n] - short.instructions[n] for n in names or long.instructions)) / more
            for names in COUNTED
        ]
        word = "spikes" if "spikes" in long.name else "backward" if back else "forward"
        found.append((word, Step(*counts, long.registers, long.spills)))
    return found


def main() -> None:
    """Count the instructions and write a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    heads = (
        "instructions",
        "special",
        "exchanges",
        "registers",
        "issue ps",
        "special ps",
        "bytes ps",
        "limited by",
    )
    lines = [f"| neuron | pass | {' | '.join(heads)} |", "|---|---|" + "--:|" * 7 + "---|"]
    for name, call in NEURONS.items():
        for word, step in steps(call, "hard" not in name):
            least = {
                "issue": step.instructions / PEAKS["issue"],
                "special": step.special / PEAKS["special"],
                "bytes": BYTES[word] / PEAKS["bytes"],
            }
            numbers = (f"{step.instructions:.0f}", f"{step.special:.0f}", f"{step.exchanges:.1f}")
            times = (f"{1e12 * value:.1f}" for value in least.values())
            cells = (
                *numbers,
                f"{step.registers}" + (f" ({step.spills} spills)" if step.spills else ""),
                *times,
                max(least, key=lambda kind: least[kind]),
            )
            lines.append(f"| {name} | {word} | {' | '.join(cells)} |")
    text = HEAD + "\n".join(lines) + "\n"
    if given.out:
        given.out.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
