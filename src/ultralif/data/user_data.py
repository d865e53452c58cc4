"""The user's own data: tensors, a Dataset, a DataLoader, ``.npz`` files and folders of ``.npy`` files."""

import hashlib
import io
import lzma
import warnings
import zipfile
import zlib
from collections.abc import Iterable, Mapping, Sequence, Sized
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ultralif.data.dataset import Dataset
from ultralif.data.files import parse_npy, read_npy
from ultralif.data.split import Frames, Images, Split
from ultralif.data.table import DATASETS, Spec
from ultralif.errors import DataWarning, InputError
from ultralif.files import read_bytes, visible

__all__ = ["PREFIX", "find_user_data", "read_arrays", "register_data"]

PREFIX = "own:"
"""Prefix of such datasets' names; a part of their digest follows."""
MOST_CLASSES = 1 << 16
_MOST = 1 << 34
_WRONG = (NotImplementedError, RuntimeError, ValueError, OverflowError, MemoryError)  # from zipfile
_KNOWN: dict[str, Dataset] = {}


def register_data(train: Any, test: Any, *, events: bool = False) -> str:
    """Register data under a name, by which this process can load them and train on them.

    Everything is read once and kept in memory, so that random transforms of a Dataset are drawn once; those
    of a run (``flip``, ``shift``, ``cutout``, ``mixup``) are drawn for every batch.

    Args:
        train: samples and labels: a pair of tensors or arrays, a map-style or iterable Dataset of pairs, or a
            DataLoader. Bytes are pixels from 0 to 255; other numbers are taken as they are.
        test: the same for the test set.
        events: samples have time first, so that tensors are ``[N, T, ...]``.

    Example:
        >>> x, y = torch.rand(20, 4), torch.arange(20) % 2
        >>> register_data((x, y), (x, y)).startswith("own:")
        True
    """
    halves = {name: _collected(name, given) for name, given in (("train", train), ("test", test))}
    shapes = {name: tuple(x.shape[1:]) for name, (x, _) in halves.items()}
    if shapes["train"] != shapes["test"]:
        raise InputError(
            f"train has samples of shape {shapes['train']} and test of {shapes['test']}; make them alike"
        )
    if events and len(shapes["train"]) < 2:
        raise InputError(f"events must be [N, T, ...], got samples of shape {shapes['train']}")
    unseen = sorted(set(halves["test"][1].tolist()) - set(halves["train"][1].tolist()))
    if unseen:
        warnings.warn(
            f"test has labels that never occur in train, so no network can learn them: {unseen[:5]}; check "
            "the labels",
            DataWarning,
            stacklevel=2,
        )
    digest = hashlib.sha256(f"events={events}".encode())
    for x, y in halves.values():
        for part in (x, y):
            digest.update(f"{part.dtype} {tuple(part.shape)}".encode())
            digest.update(part.contiguous().numpy().data)
    name = PREFIX + digest.hexdigest()[:12]
    classes = 1 + max(int(y.max()) for _, y in halves.values())
    names = tuple(map(str, range(classes)))
    splits = {
        half: Split((Frames if events else Images)(x), y, torch.arange(len(y)))
        for half, (x, y) in halves.items()
    }
    shape = splits["train"].shape
    sizes = (len(splits["train"]), len(splits["test"]))
    steps = splits["train"].timesteps or 10
    DATASETS[name] = Spec(name, "data of your own", shape, names, sizes, events, "", "", timesteps=steps)
    _KNOWN[name] = Dataset(
        name, shape, classes, names, splits["train"], splits["test"], digest.hexdigest(), None, None
    )
    return name


def find_user_data(name: str, device: torch.device) -> Dataset:
    """Return data that `register_data` registered, on a device."""
    if name not in _KNOWN:
        raise InputError(
            f"the data {name} of this run are your own and not part of it; give them again, on the command "
            "line with --dataset"
        )
    found = _KNOWN[name]
    return replace(found, train=_moved(found.train, device), test=_moved(found.test, device))


def read_arrays(path: Path) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor], bool]:
    """Return the training set, the test set, and whether they are events, from files of arrays.

    Args:
        path: an ``.npz`` file or a folder of ``.npy`` files with ``x_train`` and ``x_test``, or for events
            ``events_train`` and ``events_test``, ``[N, T, ...]``; and ``y_train`` and ``y_test``.
    """
    read = _read_folder if path.is_dir() else _read_archive
    found = read(path, ("events_train", "events_test", "x_train", "x_test", "y_train", "y_test"))
    kind = "events" if "events_train" in found else "x"
    wanted = (f"{kind}_train", "y_train", f"{kind}_test", "y_test")
    missing = [name for name in wanted if name not in found]
    if missing:
        raise InputError(f"{path} has no {', '.join(missing)}; it must hold {', '.join(wanted)}")
    x_train, y_train, x_test, y_test = (_tensor(found[name]) for name in wanted)
    return (x_train, y_train), (x_test, y_test), kind == "events"


def _read_folder(path: Path, names: Sequence[str]) -> dict[str, NDArray[Any]]:
    return {name: read_npy(path / f"{name}.npy") for name in names if (path / f"{name}.npy").exists()}


def _read_archive(path: Path, names: Sequence[str]) -> dict[str, NDArray[Any]]:
    try:
        with zipfile.ZipFile(io.BytesIO(read_bytes(path, _MOST))) as archive:
            members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
            size = sum(members[name].file_size for name in names if name in members)
            if size > _MOST:
                raise InputError(f"{path} holds {size:,} bytes, more than {_MOST:,}; use a folder of .npy")
            return {name: parse_npy(archive.read(members[name]), path) for name in names if name in members}
    except InputError:
        raise
    except (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError, *_WRONG) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(
            f"{path} is not an .npz file, or is damaged ({visible(reason)}); write it with numpy.savez"
        ) from error


def _tensor(values: Any) -> Tensor:
    """Return numbers as a tensor, which has no big-endian or 128-bit ones."""
    if isinstance(values, np.ndarray):
        kind = values.dtype.newbyteorder("=")
        values = np.array(values, np.float64 if kind.kind == "f" and kind.itemsize > 8 else kind)
    return torch.as_tensor(values).detach().cpu()


def _collected(name: str, source: Any) -> tuple[Tensor, Tensor]:
    """Return all samples and labels of a source."""
    if isinstance(source, tuple | list) and len(source) == 2 and not isinstance(source[0], tuple | list):
        x, y = (_tensor(part) for part in source)
    else:
        x, y = _gathered(name, source)
    if x.dim() < 2 or not x.numel() or x.is_complex():
        raise InputError(
            f"{name} must have samples [N, ...] of real numbers, got {x.dtype} of shape {tuple(x.shape)}; "
            "one number a sample is [N, 1]"
        )
    labels = y.reshape(-1).long()
    if len(x) != len(labels) or y.is_floating_point() or y.is_complex() or int(labels.min()) < 0:
        raise InputError(
            f"{name} must have a class from 0 on, a whole number, for each sample, got {len(x)} samples and "
            f"labels {y.dtype} of shape {tuple(y.shape)}"
        )
    if int(labels.max()) >= MOST_CLASSES:
        raise InputError(
            f"{name} has the label {int(labels.max())}, but there may be {MOST_CLASSES:,} classes at most; "
            "number the classes from 0 on, without gaps"
        )
    kept = x if x.dtype in (torch.uint8, torch.float32) else x.float()
    if not bool(torch.isfinite(kept).all()):
        raise InputError(f"{name} holds NaN or infinite values; leave those samples out")
    return kept, labels


def _is_plain(loader: Any) -> bool:
    """Tell whether a DataLoader only batches and shuffles a Dataset that can be indexed."""
    from torch.utils.data import BatchSampler, RandomSampler, SequentialSampler, default_collate

    samplers = type(loader.batch_sampler) is BatchSampler, type(loader.sampler)
    plain = samplers in [(True, kind) for kind in (RandomSampler, SequentialSampler)]
    drawn = getattr(loader.sampler, "replacement", False) or loader.drop_last
    return plain and not drawn and loader.collate_fn is default_collate and hasattr(loader.dataset, "__len__")


def _same(one: Any, other: Any) -> bool:
    """Tell whether a sample was read twice alike."""
    try:
        return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))
    except (TypeError, ValueError):
        return True  # not samples at all, which is said elsewhere


def _gathered(name: str, source: Any) -> tuple[Tensor, Tensor]:
    from torch.utils.data import DataLoader

    if isinstance(source, Mapping | str) or not (
        hasattr(source, "__iter__") or hasattr(source, "__getitem__")
    ):
        raise InputError(
            f"{name} must be a pair of tensors, a Dataset or a DataLoader, got {type(source).__name__}"
        )
    if isinstance(source, DataLoader) and _is_plain(source):
        source = source.dataset  # in its own order, so that shuffling does not make it other data
    indexed = hasattr(source, "__getitem__") and isinstance(source, Sized)
    if indexed and len(source) and not _same(source[0], source[0]):
        warnings.warn(
            f"{name} has random transforms, which ul.train draws only once, because it keeps all samples in "
            "memory; use its own flip, shift, cutout and mixup, or write the loop yourself",
            stacklevel=2,
        )
    pairs: Iterable[Any] = (source[i] for i in range(len(source))) if indexed else cast(Iterable[Any], source)
    try:
        xs, ys = zip(*((torch.as_tensor(np.asarray(x)), torch.as_tensor(y)) for x, y in pairs), strict=True)
        join = torch.cat if isinstance(source, DataLoader) else torch.stack
        return join(xs), join(ys)
    except (TypeError, ValueError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(
            f"{name} must yield pairs of a sample and its class, all of one shape ({reason})"
        ) from error


def _moved(split: Split, device: torch.device) -> Split:
    store = cast(Images | Frames, split.store)
    return Split(type(store)(store.pixels.to(device)), split.labels.to(device), split.rows.to(device))
