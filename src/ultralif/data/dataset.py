"""Load datasets by name: find the files, read and check them, and move them to the device."""

import hashlib
import os
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from ultralif.data.cache import Arrays, Pieces, cached
from ultralif.data.files import Folder, Found, cache_folder, damaged, find, missing
from ultralif.data.split import Events, Images, Split
from ultralif.data.table import Kind, Normalization, Spec, find_spec
from ultralif.errors import InputError

if TYPE_CHECKING:
    from ultralif.data.readers.frames import Binned
    from ultralif.data.readers.nmnist import Job

__all__ = ["Dataset", "Partition", "Report", "decode", "load", "read_frames", "verify"]

Partition = Literal["tonic", "spikingjelly"]


@dataclass(frozen=True, eq=False)
class Dataset:
    """A dataset in memory.

    Example:
        >>> from ultralif.data import load
        >>> digits = load("digits")
        >>> digits.shape, digits.classes, len(digits.train)
        ((1, 8, 8), 10, 1437)
    """

    name: str
    shape: tuple[int, ...]
    """Shape of one sample at one time step."""
    classes: int
    class_names: tuple[str, ...]
    train: Split
    test: Split
    checksum: str
    """SHA-256 of the loaded data."""
    normalization: Normalization | None
    """Mean and standard deviation of each channel, for pixels in [0, 1]."""
    folder: Path | None
    """The folder it was found in; None if it was generated."""
    version: str = ""
    """How the data differ from the published data, for example by regeneration; empty if they do not."""
    validation: Split | None = None
    """The user's own validation set, if any."""


def load(
    name: str,
    timesteps: int | None = None,
    data_dir: str | Path | None = None,
    device: str | torch.device = "cpu",
    split: Partition = "tonic",
    step_ms: float | None = None,
    channels: int | None = None,
) -> Dataset:
    """Load a dataset from this machine.

    Args:
        name: one of `ultralif.data.DATASETS`.
        timesteps: the number of bins T in which events are counted; None means 10 (randman: 30). Images have
            no time axis until they are encoded.
        data_dir: a folder to search first; `ultralif.data.files.roots` lists the others.
        device: the device to load the samples onto.
        split: for dvs-gesture, ``tonic`` (1077 / 264) or ``spikingjelly`` (1176 / 288).
        step_ms: for shd, the duration of a step; spikes after the last step are dropped. None divides each
            sample's own duration by ``timesteps``.
        channels: for shd, the number of channels after summing neighbours, such as 140. None keeps all 700.

    Example:
        >>> ds = load("randman")
        >>> ds.train.batch([0, 1]).shape
        torch.Size([30, 2, 64])
    """
    spec = find_spec(name)
    steps = spec.timesteps if timesteps is None else timesteps
    if steps < 1:
        raise InputError(f"timesteps must be at least 1, got {steps}")
    if split not in get_args(Partition):
        raise InputError(f"split must be one of {', '.join(get_args(Partition))}, got {split!r}")
    if step_ms is not None or channels is not None:
        spec = _rebinned(spec, step_ms, channels)
    place = _device(device)
    if not spec.forms:
        from ultralif.data.readers import builtin

        return _assemble(spec, builtin.ARRAYS[spec.name](spec, steps), steps, place, None, None)
    found = find(spec, data_dir, split)
    if found is None:
        raise missing(spec, data_dir, split)
    return read(spec, found, steps, place, step_ms)


def _rebinned(spec: Spec, step_ms: float | None, channels: int | None) -> Spec:
    """Check the binning arguments and return SHD with the given number of channels."""
    if spec.name != "shd":
        raise InputError(f"step_ms and channels are for shd, not for {spec.name}; omit them")
    if step_ms is not None and not step_ms >= 0.001:
        raise InputError(f"step_ms must be at least 0.001, got {step_ms}")
    if channels is None:
        return spec
    from ultralif.data.readers.shd import CHANNELS

    if channels < 1 or CHANNELS % channels:
        raise InputError(f"channels must divide {CHANNELS}, got {channels}; try 140")
    return replace(spec, shape=(channels,))


def read(
    spec: Spec, found: Found, timesteps: int, device: torch.device, step_ms: float | None = None
) -> Dataset:
    """Read a dataset from the folder in which it was found."""
    if spec.is_events:
        arrays, checksum = read_frames(found, spec, timesteps, step_ms)
        dataset = _assemble(spec, arrays, timesteps, device, found.folder, checksum)
        return replace(dataset, version=found.form.version)
    from ultralif.data.readers.images import read_images

    halves = read_images(Folder(found.folder, found.form.digests), found.form.kind, spec)
    images = {
        f"{half}.{part}": array
        for half, samples in halves.items()
        for part, array in samples._asdict().items()
    }
    return _assemble(spec, images, timesteps, device, found.folder, None)


def _assemble(
    spec: Spec,
    arrays: Mapping[str, NDArray[Any]],
    timesteps: int,
    device: torch.device,
    folder: Path | None,
    checksum: str | None,
) -> Dataset:
    """Put arrays named ``train.*`` and ``test.*`` on the device."""
    halves = {}
    for half in ("train", "test"):
        parts = {
            name.partition(".")[2]: _tensor(array, device)
            for name, array in arrays.items()
            if name.startswith(half)
        }
        labels = parts.pop("labels").long()
        store = Events(**parts, timesteps=timesteps, shape=spec.shape) if spec.is_events else Images(**parts)
        halves[half] = Split(store, labels, torch.arange(len(labels), device=device))
    return Dataset(
        name=spec.name,
        shape=spec.shape,
        classes=spec.classes,
        class_names=spec.class_names,
        checksum=checksum or _checksum(arrays),
        normalization=spec.normalization,
        folder=folder,
        train=halves["train"],
        test=halves["test"],
    )


def _tensor(array: NDArray[Any], device: torch.device) -> torch.Tensor:
    writable = array if array.flags.writeable else array.copy()
    return torch.from_numpy(np.ascontiguousarray(writable)).to(device)


def _checksum(arrays: Mapping[str, NDArray[Any]]) -> str:
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(array.data)
    return digest.hexdigest()


def _device(device: str | torch.device) -> torch.device:
    try:
        place = torch.device(device)
    except RuntimeError as error:
        raise InputError(f"device must be a name such as cpu or cuda:0, got {device!r}") from error
    if place.type == "cuda" and not torch.cuda.is_available():
        raise InputError(f"device {device!r} is not available: PyTorch found no GPU; use device='cpu'")
    return place


_JOBS: dict[Kind, tuple[str, str]] = {
    "nmnist-raw": ("nmnist", "raw_jobs"),
    "nmnist-binned": ("nmnist", "binned_jobs"),
    "gesture-npy": ("gesture", "npy_jobs"),
    "gesture-aedat": ("gesture", "aedat_jobs"),
    "shd": ("shd", "shd_jobs"),
    "shd-packed": ("shd", "packed_jobs"),
}
"""Each format's reader module and function; readers are imported on first use."""
_VERSION = 1
"""Version of the cached frames; a new version rebuilds all of them."""


def read_frames(found: Found, spec: Spec, timesteps: int, step_ms: float | None = None) -> Arrays:
    """Return the frames of a dataset from the cache, decoding the recordings the first time."""
    binning = f"T{timesteps}"
    if spec.name == "shd":
        binning += f"-{step_ms}ms" * (step_ms is not None) + f"-C{spec.shape[0]}"
    name = f"{spec.name}-{found.form.kind}-{binning}-v{_VERSION}-{_fingerprint(found)}"
    return cached(cache_folder() / "frames" / name, partial(decode, found, spec, timesteps, step_ms))


def decode(found: Found, spec: Spec, timesteps: int, step_ms: float | None = None) -> Pieces:
    """Read all recordings, and yield each set's offsets, keys, counts and labels piece by piece."""
    from ultralif.data.readers.images import check_labels

    reader, name = _JOBS[found.form.kind]
    make_jobs = getattr(import_module(f"ultralif.data.readers.{reader}"), name)
    folder = Folder(found.folder, found.form.digests)
    sizes = found.form.sizes or spec.sizes
    options = {"step_ms": step_ms, "channels": spec.shape[0]} if spec.name == "shd" else {}
    for half, size in zip(("train", "test"), sizes, strict=True):
        jobs = make_jobs(folder, half, timesteps, **options)
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
                found.folder, f"has {recordings:,} recordings for {half}, but {spec.name} has {size:,}"
            )
        kind = np.result_type(*counts).newbyteorder("<")  # their type depends on the largest count
        yield from ((f"{half}.counts", part.astype(kind, copy=False)) for part in counts)
        yield f"{half}.offsets", np.cumsum(np.concatenate(lengths)).astype("<i8", copy=False)
        check_labels(np.concatenate(labels), spec, found.folder)
        yield f"{half}.labels", np.concatenate(labels).astype("<i8")


def _in_order(jobs: Iterable["Job"]) -> Iterator["Binned"]:
    """Run jobs on a few threads and yield their results in order, keeping few results in memory."""
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
    """Hash the files' names, sizes and modification times, without reading their contents."""
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


@dataclass(frozen=True)
class Report:
    """The result of verifying a dataset."""

    folder: Path
    form: str
    sizes: tuple[int, int]
    digests: int
    """Number of files compared with a known digest; 0 means that only their structure was checked."""


def verify(spec: Spec, data_dir: str | Path | None = None, split: str | None = None) -> Report:
    """Read every file of a dataset and raise an InputError that names the first damaged one."""
    found = find(spec, data_dir, split)
    if found is None:
        raise missing(spec, data_dir, split)
    folder = Folder(found.folder, found.form.digests)
    if spec.is_events:
        for _ in decode(found, spec, timesteps=1):
            pass
    else:
        from ultralif.data.readers.images import read_images

        read_images(folder, found.form.kind, spec)
    return Report(found.folder, found.form.kind, found.form.sizes or spec.sizes, len(folder.digests))
