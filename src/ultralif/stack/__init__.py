"""Compute many networks of one shape as one; imported only to train several networks together."""

from ultralif.stack.networks import Stack

__all__ = ["Stack"]
