"""Decoding of event recordings into sparse frames, kept in the cache."""

import hashlib
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ultralif.data.binned import binned_jobs
from ultralif.data.cache import Arrays, Pieces, cached
from ultralif.data.events import Job, raw_jobs
from ultralif.data.files import Folder, damaged
from ultralif.data.find import Found, cache_folder
from ultralif.data.frames import Binned
from ultralif.data.gesture import aedat_jobs, npy_jobs
from ultralif.data.shd import shd_jobs
from ultralif.data.spec import Kind, Spec
from ultralif.data.static import check_labels

__all__ = ["decode", "read_frames"]

_JOBS: dict[Kind, Callable[[Folder, str, int], list[Job]]] = {
    "nmnist-raw": raw_jobs,
    "nmnist-binned": binned_jobs,
    "gesture-npy": npy_jobs,
    "gesture-aedat": aedat_jobs,
    "shd": shd_jobs,
}
_VERSION = 1
"""Version of the cached frames: a change makes them all again."""


def read_frames(found: Found, spec: Spec, timesteps: int) -> Arrays:
    """Return the frames of a dataset from the cache, decoding the recordings the first time."""
    name = f"{spec.name}-{found.form.kind}-T{timesteps}-v{_VERSION}-{_fingerprint(found)}"
    return cached(cache_folder() / "frames" / name, partial(decode, found, spec, timesteps))


def decode(found: Found, spec: Spec, timesteps: int) -> Pieces:
    """Read all recordings; yield pieces of the offsets, keys, counts and labels of each half."""
    folder = Folder(found.folder, found.form.digests)
    sizes = found.form.sizes or spec.sizes
    for half, size in zip(("train", "test"), sizes, strict=True):
        jobs = _JOBS[found.form.kind](folder, half, timesteps)
        lengths: list[NDArray[Any]] = [np.zeros(1, np.int64)]
        counts, labels = [], []
        for binned in _in_order(jobs):
            yield f"{half}.keys", binned.keys.astype("<i4", copy=False)
            lengths.append(binned.lengths)
            counts.append(binned.counts)
            labels.append(binned.labels)
        recordings = sum(map(len, labels))
        if recordings != size:
            raise damaged(
                found.folder, f"has {recordings:,} recordings for {half} where {spec.name} has {size:,}"
            )
        kind = np.result_type(*counts).newbyteorder("<")  # their type depends on the largest count
        yield from ((f"{half}.counts", part.astype(kind, copy=False)) for part in counts)
        yield f"{half}.offsets", np.cumsum(np.concatenate(lengths)).astype("<i8", copy=False)
        check_labels(np.concatenate(labels), spec, found.folder)
        yield f"{half}.labels", np.concatenate(labels).astype("<i8")


def _in_order(jobs: Iterable[Job]) -> Iterator[Binned]:
    """Run jobs on a few threads and yield their results in order, with few results in memory at a time."""
    workers = min(4, os.cpu_count() or 1)
    waiting: deque[Future[Binned]] = deque()
    with ThreadPoolExecutor(workers) as pool:
        try:
            for job in jobs:
                waiting.append(pool.submit(job))
                if len(waiting) > 2 * workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)


def _fingerprint(found: Found) -> str:
    """Name the state of the files, without reading them: their names, sizes and times of change."""
    seen = hashlib.sha256(str(found.folder.resolve()).encode())
    for pattern in (*found.form.files, *found.form.more):
        for path in sorted(found.folder.glob(pattern)):
            for name, size, changed in sorted(_stats(path)):
                seen.update(f"{name}\0{size}\0{changed}\n".encode())
    return seen.hexdigest()[:16]


def _stats(path: Path) -> Iterator[tuple[str, int, int]]:
    if path.is_dir():
        with os.scandir(path) as entries:
            for entry in entries:
                if entry.is_dir():
                    yield from _stats(Path(entry.path))
                else:
                    stat = entry.stat()
                    yield entry.path, stat.st_size, stat.st_mtime_ns
    else:
        stat = path.stat()
        yield str(path), stat.st_size, stat.st_mtime_ns
