"""Write the spikes in an SHD file to standard output as plain arrays; run by `ultralif.data.readers.shd`.

It imports nothing from this package, so that it starts quickly. Its memory is limited in proportion to the
file size.
"""

import contextlib
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np

_SLICE = 256


def main(path: Path) -> None:
    """Check the file's structure and copy lengths, times, units and labels."""
    size = path.stat().st_size
    _limit_memory((1 << 31) + 8 * size)
    with h5py.File(path, "r") as file:
        times, units, labels = (_dataset(file, name) for name in ("spikes/times", "spikes/units", "labels"))
        if not times.shape == units.shape == labels.shape or len(labels.shape) != 1:
            raise ValueError("times, units and labels are not rows of the same length")
        if labels.dtype.kind not in "iu" or not (_row_type(times, "f") and _row_type(units, "iu")):
            raise ValueError("times, units or labels are of the wrong type")
        if labels.size > size:
            raise ValueError("there are more labels than bytes")
        lengths, moments, channels = _copy(times, units, size)
        for array in (lengths, moments, channels, labels[()].astype(np.int64)):
            np.save(sys.stdout.buffer, array, allow_pickle=False)


def _dataset(file: Any, name: str) -> Any:
    """Return a dataset stored in the file itself, without links to other files or external storage."""
    node = file
    for part in name.split("/"):
        link = node.get(part, getlink=True)
        if link is None:
            raise ValueError(f"there is no {name}")
        if not isinstance(link, h5py.HardLink):
            raise ValueError(f"{name} is a {type(link).__name__}, which may lead to another file")
        node = node[part]
    if not isinstance(node, h5py.Dataset) or node.external or node.is_virtual:
        raise ValueError(f"{name} is not stored in the file itself")
    return node


def _row_type(dataset: Any, kinds: str) -> bool:
    inner = h5py.check_vlen_dtype(dataset.dtype)
    return inner is not None and np.dtype(inner).kind in kinds


def _copy(times: Any, units: Any, size: int) -> tuple[Any, Any, Any]:
    """Return the number of spikes in each recording, and all spike times (microseconds) and channels."""
    lengths, moments, channels = [], [], []
    total = 0
    for start in range(0, len(times), _SLICE):
        seconds, cells = times[start : start + _SLICE], units[start : start + _SLICE]
        counts = [len(row) for row in seconds]
        total += sum(counts)
        if counts != [len(row) for row in cells] or total > size:
            raise ValueError("a recording has different numbers of times and units")
        moment = np.concatenate(seconds).astype(np.float64) * 1e6
        cell = np.concatenate(cells).astype(np.int64)
        if moment.size and not (np.isfinite(moment).all() and 0 <= moment.min() <= moment.max() < 1 << 31):
            raise ValueError("a spike time is missing, or later than half an hour")
        if cell.size and not 0 <= cell.min() <= cell.max() < 1 << 16:
            raise ValueError("a spike is in an impossible channel")
        lengths += counts
        moments.append(moment.astype(np.int32))
        channels.append(cell.astype(np.uint16))
    if not lengths:
        raise ValueError("there are no recordings")
    return np.array(lengths, np.int64), np.concatenate(moments), np.concatenate(channels)


def _limit_memory(limit: int) -> None:
    """Limit this process's memory, if the system supports it, so that no file can exhaust the machine."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]))
    except Exception as error:  # the parent shows the message
        sys.exit(" ".join(f"{type(error).__name__}: {error}".split()))
