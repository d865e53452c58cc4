"""``ultralif bench``: time and memory of a layer of neurons, compared with a copy and other libraries."""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from ultralif.cli.output import echo, number, print_json, print_table, say
from ultralif.errors import InputError, check_range

if TYPE_CHECKING:
    from ultralif.bench.plan import Measurement

__all__ = ["COMMAND"]


MOST = 1 << 32
"""Largest allowed number of currents in a layer: 16 GiB in float32."""


def bench(
    *,
    timesteps: int = 30,
    batch: int = 128,
    features: int = 1024,
    dtype: Literal["float32", "bfloat16", "float16"] = "float32",
    device: str = "auto",
    threads: int = 1,
    json: bool = False,
) -> None:
    """Time a layer forward and backward: our neurons, their plain loop, other libraries, a plain copy.

    Compare only numbers from the same call: they depend on the machine and on other running programs. The
    benchmark refuses to run if a neuron differs from its definition.

    Args:
        timesteps: time steps T.
        batch: samples B.
        features: neurons N.
        dtype: type of the currents; membranes use at least float32.
        device: cpu, cuda, or auto: the GPU if there is one.
        threads: number of CPU threads.
        json: print one JSON document.
    """
    for name, value in (("timesteps", timesteps), ("batch", batch), ("features", features)):
        check_range(name, value, 1, MOST)
    check_range("threads", threads, 1, os.cpu_count() or 1)
    if timesteps * batch * features > MOST:
        raise InputError(f"timesteps x batch x features must be at most {MOST:,}; choose smaller sizes")
    import torch

    from ultralif.bench import Layer, describe, measure, refuse_unless_right
    from ultralif.bench.plan import EVERY, RATES, Part
    from ultralif.training.device import pick_device

    place = pick_device(device)
    torch.set_num_threads(threads)
    refuse_unless_right(place)
    part = Part("layer", (*EVERY, *RATES), Layer(timesteps, batch, features, dtype))
    rows = list(measure([part], place, note=say))
    machine = describe(place)
    if json:
        print_json({"machine": machine, "rows": [row._asdict() for row in rows]})
        return
    title = f"T={timesteps} B={batch} N={features} {dtype}, forward and backward, on {machine['device']}"
    _print_rows(rows, title)


def _print_rows(rows: "Sequence[Measurement]", title: str) -> None:
    copy = next(row.ms for row in rows if row.subject == "copy")
    columns = ("layer", "ms", "quartiles", "ns a step", "x copy", "kept B")
    cells = [
        (
            row.subject,
            number(row.ms, 3),
            f"{row.low:.3f} to {row.high:.3f}",
            number(row.ns_per_step, 3),
            number(row.ms / copy, 1),
            number(row.kept, 1),
        )
        for row in rows
    ]
    print_table(columns, cells, title)
    echo("a step: one neuron of one sample at one time; kept B: bytes for backward beyond input and output")


COMMAND = bench
