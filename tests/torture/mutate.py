"""Damage to bytes. It imports little, so that small processes can use it."""

import random
import struct

__all__ = ["mutated"]

TOKENS = (
    b"\0",
    b"\xff",
    b"\xff" * 4,
    b"\x7f\xff\xff\xff",
    b"\0" * 8,
    b"{",
    b"[" * 50,
    b"1e999",
    b"NaN",
    b"-1",
)


def mutated(data: bytes, other: bytes, rng: random.Random) -> bytes:
    """Return data with a few changes: flips, cuts, insertions, numbers at their limits, parts of another."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4, 8))):
        at = rng.randrange(len(out) + 1) if rng.random() < 0.5 else rng.randrange(min(len(out), 128) + 1)
        match rng.randrange(7):
            case 0 if at < len(out):
                out[at] ^= 1 << rng.randrange(8)
            case 1 if at < len(out):
                out[at] = rng.randrange(256)
            case 2:
                del out[at:]
            case 3:
                del out[at : at + rng.randrange(1, 16)]
            case 4:
                out[at:at] = rng.choice(TOKENS)
            case 5:
                number = rng.choice((0, 1, -1, 2**31 - 1, -(2**31), rng.randrange(-(2**31), 2**31)))
                out[at : at + 4] = struct.pack(rng.choice("<>") + "i", number)
            case 6:
                start = rng.randrange(len(other) + 1)
                out[at : at + 16] = other[start : start + rng.randrange(64)]
    return bytes(out)
