"""Compute many networks of the same shape together; imported only when several are trained together."""

from ultralif.stack.networks import Stack

__all__ = ["Stack"]
