"""Many networks of one shape computed as one; imported only where several networks are trained together."""

from ultralif.stack.networks import Stack

__all__ = ["Stack"]
