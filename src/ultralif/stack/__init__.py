"""Compute many networks of one shape together; imported only when several are trained together."""

from ultralif.stack.networks import Stack

__all__ = ["Stack"]
