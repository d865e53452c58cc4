"""Device, thread count and precision of training."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from ultralif.errors import InputError

__all__ = ["arithmetic", "memory", "pick_device"]

SMALL = 20_000_000
"""Number of multiplications per step below which one thread is as fast as two."""


def pick_device(name: str) -> torch.device:
    """Return the named device; ``auto`` is a CUDA or Metal GPU if there is one, otherwise the CPU."""
    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"device {name!r} cannot be used ({reason}); use cpu or auto") from error
    return device


@contextmanager
def arithmetic(device: torch.device, precision: str, work: int) -> Iterator[None]:
    """Set the precision; on the CPU, use one thread if a step is small.

    For small matrix products, a second thread costs more time than it saves, especially on a busy machine.

    Args:
        device: where training runs.
        precision: ``tf32`` allows TF32 in matrix products.
        work: the number of multiplications in one step.
    """
    threads, before = torch.get_num_threads(), torch.get_float32_matmul_precision()
    if device.type == "cpu" and work < SMALL:
        torch.set_num_threads(1)
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.set_float32_matmul_precision(before)


def memory() -> int:
    """Return this machine's memory in bytes."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # not every system reports it
        return 2**63
