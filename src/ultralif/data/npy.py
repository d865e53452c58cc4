"""Arrays from ``.npy`` bytes: numbers only, in no more memory than the file has bytes."""

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ultralif.data.files import damaged
from ultralif.files import read_bytes

__all__ = ["parse_npy", "read_npy"]

_MOST = 1 << 34
"""Bytes that a file may have."""

_HEADER = re.compile(
    rb"\{'descr': '([<>|=][biuf][1248])', 'fortran_order': (True|False), 'shape': \(([\dL, ]*)\),? *\}\s*"
)


def read_npy(path: Path) -> NDArray[Any]:
    """Return the array of a ``.npy`` file of plain numbers."""
    return parse_npy(read_bytes(path, _MOST), path)


def parse_npy(data: bytes, path: Path) -> NDArray[Any]:
    """Return the array of a ``.npy`` file of plain numbers.

    Example:
        >>> import io
        >>> np.save(file := io.BytesIO(), np.arange(3, dtype=np.uint8))
        >>> parse_npy(file.getvalue(), Path("a.npy"))
        array([0, 1, 2], dtype=uint8)
    """
    wide = len(data) > 6 and data[6] > 1  # version 2 has a four-byte length
    begin = 12 if wide else 10
    if data[:6] != b"\x93NUMPY" or len(data) < begin:
        raise damaged(path, "does not begin as a .npy file does")
    start = begin + int.from_bytes(data[8:begin], "little")
    header = _HEADER.fullmatch(data[begin : min(start, begin + 10_000)])
    if header is None:
        raise damaged(path, "has no .npy header of a plain array of numbers")
    try:
        kind = np.dtype(header[1].decode())
    except TypeError as error:
        raise damaged(path, f"has values of an unknown type ({error})") from error
    shape = [int(size) for size in re.findall(rb"\d+", header[3])]
    if math.prod(shape) * kind.itemsize != len(data) - start:
        raise damaged(
            path, f"should hold {tuple(shape)} values of type {kind} but has {len(data) - start:,} bytes"
        )
    values = np.frombuffer(data, kind, offset=start)
    try:
        return values.reshape(shape[::-1]).T if header[2] == b"True" else values.reshape(shape)
    except (ValueError, OverflowError) as error:  # an axis is too long, and another empty
        raise damaged(path, f"should hold {tuple(shape)} values ({error})") from error
