"""How the machine computes while a stack is trained."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from ultralif.training.build import layer_sizes
from ultralif.training.config import RunConfig

__all__ = ["arithmetic"]

SMALL = 20_000_000
"""Multiplications in one step below which one thread is as fast as two."""


@contextmanager
def arithmetic(configs: Sequence[RunConfig], device: torch.device) -> Iterator[None]:
    """Compute in the precision of a stack, and on the CPU with one thread if it is small.

    A second thread would only wait for small products, above all on a busy machine.
    """
    shared, sizes = configs[0], layer_sizes(configs[0])
    work = len(configs) * shared.timesteps * shared.batch_size * sizes[0] * sizes[1]
    threads, precision = torch.get_num_threads(), torch.get_float32_matmul_precision()
    if device.type == "cpu" and work < SMALL:
        torch.set_num_threads(1)
    torch.set_float32_matmul_precision("high" if shared.precision == "tf32" else "highest")
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.set_float32_matmul_precision(precision)
