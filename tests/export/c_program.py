"""Build and run an exported folder of C."""

import subprocess
from pathlib import Path

import torch
from torch import Tensor

from ultralif.export.c.plan import make_plan
from ultralif.export.c.source import checksum
from ultralif.export.integer import IntegerNetwork

SANITIZE = "-fsanitize=address,undefined -fno-sanitize-recover=all"


def make(folder: Path, compiler: str, flags: str, *targets: str) -> None:
    subprocess.run(
        ["make", "-s", "-C", folder, f"CC={compiler}", f"CFLAGS={flags}", f"LDFLAGS={flags}", *targets],
        check=True,
    )


def classify(folder: Path, integer: IntegerNetwork, x: Tensor) -> list[list[str]]:
    """Run the example program on counts [T, B, *input], or on levels, of which it takes the first."""
    values = x if integer.levels is None else integer.levels(x[:1])
    stdin = values.transpose(0, 1).to(torch.int16).numpy().astype("u1").tobytes()
    done = subprocess.run([folder / "model", str(len(x))], input=stdin, capture_output=True, check=True)
    assert done.stderr == b""
    return [line.split() for line in done.stdout.decode().splitlines()]


def assert_equal_bit_for_bit(folder: Path, integer: IntegerNetwork, x: Tensor) -> None:
    output = integer.run(x)
    lines = classify(folder, integer, x)
    assert [int(line[0]) for line in lines] == output.scores.argmax(1).tolist()
    assert [int(line[1], 16) for line in lines] == checksum(
        integer, make_plan(integer), output.membranes
    ).tolist()
    assert [[int(score) for score in line[2:]] for line in lines] == output.scores.tolist()
