"""The set of correctly classified samples, packed as a short text. Needs no torch."""

import base64
import binascii
import zlib

import numpy as np
from numpy.typing import NDArray

from ultralif.errors import InputError

__all__ = ["pack_hits", "unpack_hits"]

MOST = 1 << 20
"""The most samples in one text."""


def pack_hits(hits: NDArray[np.bool_]) -> str:
    """Return one bit for each sample, compressed, as text, after their number.

    Example:
        >>> unpack_hits(pack_hits(np.array([True, False, True])))
        array([ True, False,  True])
    """
    return f"{len(hits)}:{base64.b64encode(zlib.compress(np.packbits(hits).tobytes(), 9)).decode()}"


def unpack_hits(text: str) -> NDArray[np.bool_]:
    """Return what `pack_hits` packed."""
    size, _, packed = text.partition(":")
    try:
        count = int(size)
        if not 0 <= count <= MOST:
            raise ValueError("too many")
        unpacker = zlib.decompressobj()
        data = unpacker.decompress(base64.b64decode(packed, validate=True), MOST // 8 + 1)
        if len(data) != -(-count // 8):
            raise ValueError("not their number")
    except (ValueError, binascii.Error, zlib.error) as error:
        raise InputError("hits of a result cannot be read; train the run again") from error
    return np.unpackbits(np.frombuffer(data, np.uint8), count=count).astype(bool)
