"""The user's own data: tensors, a Dataset, a DataLoader, ``.npz`` files and folders of ``.npy`` files."""

import hashlib
import io
import lzma
import warnings
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, TensorDataset
from torch.utils.data import Dataset as TorchDataset

from ultralif.data.dataset import Dataset
from ultralif.data.files import parse_npy, read_npy
from ultralif.data.split import Frames, Images, Split
from ultralif.data.stream import Stream, pad_samples
from ultralif.data.table import DATASETS, PREFIX, Spec
from ultralif.errors import DataWarning, InputError
from ultralif.files import read_bytes, visible

__all__ = ["find_user_data", "read_arrays", "register_data"]

MOST_CLASSES = 1 << 16
_MOST = 1 << 34
_WRONG = (NotImplementedError, RuntimeError, ValueError, OverflowError, MemoryError)  # from zipfile
_KNOWN: dict[str, Dataset] = {}


def register_data(
    train: Any,
    test: Any,
    *,
    events: bool = False,
    validation: Any = None,
    has_classes: bool = True,
    timed: bool = False,
    batch_size: int = 128,
    workers: int = 0,
    title: str = "",
) -> str:
    """Register data and return the name under which this process can load them and train on them.

    Pairs of tensors and lists are kept in memory, on the device. A DataLoader is used as it is, with its own
    batches, workers and transforms, and iterated again in every epoch. A Dataset is wrapped in a DataLoader.

    Args:
        train: samples and targets: a pair of tensors or arrays, a Dataset, or a DataLoader. Bytes are pixels
            from 0 to 255; other numbers are used as they are. A third tensor, or a third item of each batch,
            contains each sample's number of steps.
        test: the test set, in the same form.
        events: each sample's first axis is time, so that tensors are ``[N, T, ...]``.
        validation: a validation set in the same form, if there is one.
        has_classes: targets are classes; pass False for regression or multi-label targets.
        timed: there is a target for each step, ``[N, T, ...]``.
        batch_size: batch size for a Dataset.
        workers: number of worker processes that read a Dataset.
        title: a readable name for the data, such as their file name.

    Example:
        >>> x, y = torch.rand(20, 4), torch.arange(20) % 2
        >>> register_data((x, y), (x, y)).startswith("own:")
        True
    """
    sources = {"train": train, "test": test} | ({} if validation is None else {"validation": validation})
    make = partial(_split, events=events, has_classes=has_classes, timed=timed)
    read = partial(_source, events=events, timed=timed, batch_size=batch_size, workers=workers)
    splits = {half: make(half, read(half, given)) for half, given in sources.items()}
    shapes: dict[str, tuple[int | None, ...]] = {half: split.shape for half, split in splits.items()}
    if not any(isinstance(split, Stream) for split in splits.values()):
        shapes = {half: (split.timesteps, *split.shape) for half, split in splits.items()}
    if other := next((half for half in shapes if shapes[half] != shapes["train"]), None):
        raise InputError(
            f"train has samples of shape {shapes['train']} and {other} of {shapes[other]}; pass samples of "
            "the same shape"
        )
    classes = _count_classes(splits) if has_classes and not timed else 0
    digest = hashlib.sha256(f"events={events}".encode())
    for split in splits.values():
        if isinstance(split, Stream):
            digest.update(split.digest().encode())
            continue
        for part in (cast(Images | Frames, split.store).pixels, split.labels):
            digest.update(f"{part.dtype} {tuple(part.shape)}".encode())
            digest.update(part.contiguous().numpy().data)
    name = PREFIX + digest.hexdigest()[:12]
    names = tuple(map(str, range(classes)))
    sizes = cast(tuple[int, int], tuple(len(x) for x in splits.values())[:2])
    shape, steps = splits["train"].shape, splits["train"].timesteps or 10
    about = title or _title(train)
    DATASETS[name] = Spec(name, about, shape, names, sizes, events, "", "", timesteps=steps)
    parts = splits["train"], splits["test"], digest.hexdigest(), None, None
    _KNOWN[name] = Dataset(name, shape, classes, names, *parts, validation=splits.get("validation"))
    return name


def _title(source: Any) -> str:
    """Return a readable name for data: the Dataset's class, or the shape of the tensors."""
    if isinstance(source, DataLoader):
        return type(source.dataset).__name__
    if isinstance(source, tuple | list) and hasattr(source[0], "shape"):
        return f"tensors {list(source[0].shape)}"
    return type(source).__name__


def _count_classes(splits: Mapping[str, Split]) -> int:
    """Return the number of classes, or 0 if finding it would require reading a stream."""
    if any(isinstance(split, Stream) for split in splits.values()):
        return 0
    unseen = sorted(set(splits["test"].labels.tolist()) - set(splits["train"].labels.tolist()))
    if unseen:
        warnings.warn(
            f"test has labels that never occur in train, so no network can learn them: {unseen[:5]}; check "
            "the labels",
            DataWarning,
            stacklevel=3,
        )
    return 1 + max(int(split.labels.max()) for split in splits.values())


def _source(half: str, given: Any, *, events: bool, timed: bool, batch_size: int, workers: int) -> Any:
    """Return tensors unchanged, and wrap a Dataset in a DataLoader."""
    if isinstance(given, TensorDataset):
        given = given.tensors
    tensors = isinstance(given, tuple | list) and all(hasattr(part, "shape") for part in given)
    if tensors and (len(given) == 3 or (timed and len(given) == 2)):
        given = TensorDataset(*(_tensor(part) for part in given))
        return DataLoader(given, batch_size, shuffle=half == "train")
    if not isinstance(given, TorchDataset):
        return given
    collate = pad_samples if events else None
    ordered = isinstance(given, IterableDataset) or half != "train"
    return DataLoader(given, batch_size, shuffle=not ordered, num_workers=workers, collate_fn=collate)


def _split(half: str, source: Any, *, events: bool, has_classes: bool, timed: bool) -> Split:
    """Convert a source to a split."""
    if isinstance(source, DataLoader):
        stream = Stream(half, source, events=events, timed=timed)
        if has_classes and not stream.has_classes and not timed:
            _, targets, _ = stream.first
            raise InputError(
                f"{half} must have one class (an integer, at least 0) for each sample, got {targets.dtype} "
                f"of shape {tuple(targets.shape)}; for other tasks, choose a loss such as loss='mse'"
            )
        return cast(Split, stream)
    x, y = _collected(half, source, has_classes=has_classes and not timed)
    if events and x.dim() < 3:
        raise InputError(f"events must be [N, T, ...], got samples of shape {tuple(x.shape[1:])}")
    return Split((Frames if events else Images)(x), y, torch.arange(len(y)))


def find_user_data(name: str, device: torch.device) -> Dataset:
    """Return data registered with `register_data`, moved to a device."""
    if name not in _KNOWN:
        raise InputError(
            f"this run used your own data {name}, which are not saved with it; pass them again, on the "
            "command line with --dataset"
        )
    found = _KNOWN[name]
    held_out = None if found.validation is None else _moved(found.validation, device)
    train, test = _moved(found.train, device), _moved(found.test, device)
    return replace(found, train=train, test=test, validation=held_out)


def read_arrays(path: Path) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor], bool]:
    """Read array files; return the training set, the test set, and whether they are events.

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
        raise InputError(f"{path} has no {', '.join(missing)}; it must contain {', '.join(wanted)}")
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
                raise InputError(f"{path} contains {size:,} bytes, more than {_MOST:,}; use a folder of .npy")
            return {name: parse_npy(archive.read(members[name]), path) for name in names if name in members}
    except InputError:
        raise
    except (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError, *_WRONG) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(
            f"{path} is not an .npz file, or is damaged ({visible(reason)}); write it with numpy.savez"
        ) from error


def _tensor(values: Any) -> Tensor:
    """Return numbers as a tensor, converting big-endian and 128-bit types, which torch does not support."""
    if isinstance(values, np.ndarray):
        kind = values.dtype.newbyteorder("=")
        values = np.array(values, np.float64 if kind.kind == "f" and kind.itemsize > 8 else kind)
    return torch.as_tensor(values).detach().cpu()


def _collected(name: str, source: Any, *, has_classes: bool) -> tuple[Tensor, Tensor]:
    """Return all samples and labels from a source."""
    if isinstance(source, tuple | list) and len(source) == 2 and not isinstance(source[0], tuple | list):
        x, y = (_tensor(part) for part in source)
    else:
        x, y = _gathered(name, source)
    if x.dim() < 2 or not x.numel() or x.is_complex():
        raise InputError(
            f"{name} must have samples [N, ...] of real numbers, got {x.dtype} of shape {tuple(x.shape)}; "
            "for one number per sample, use [N, 1]"
        )
    kept = x if x.dtype in (torch.uint8, torch.float32) else x.float()
    if not bool(torch.isfinite(kept).all()):
        raise InputError(f"{name} contains NaN or infinite values; remove those samples")
    if not has_classes:
        if len(x) != len(y) or not bool(torch.isfinite(y).all()):
            raise InputError(
                f"{name} must have a finite target for each sample, got {len(x)} samples and targets of "
                f"shape {tuple(y.shape)}"
            )
        return kept, y.float() if y.is_floating_point() else y.long()
    labels = y.reshape(-1).long()
    if len(x) != len(labels) or y.is_floating_point() or y.is_complex() or int(labels.min()) < 0:
        raise InputError(
            f"{name} must have one class (an integer, at least 0) for each sample, got {len(x)} samples and "
            f"labels {y.dtype} of shape {tuple(y.shape)}"
        )
    if int(labels.max()) >= MOST_CLASSES:
        raise InputError(
            f"{name} has the label {int(labels.max())}, but at most {MOST_CLASSES:,} classes are supported; "
            "number the classes from 0, without gaps"
        )
    return kept, labels


def _gathered(name: str, source: Any) -> tuple[Tensor, Tensor]:
    if isinstance(source, Mapping | str) or not hasattr(source, "__iter__"):
        raise InputError(
            f"{name} must be a pair of tensors, a Dataset or a DataLoader, got {type(source).__name__}"
        )
    try:
        xs, ys = zip(*((torch.as_tensor(np.asarray(x)), torch.as_tensor(y)) for x, y in source), strict=True)
        return torch.stack(xs), torch.stack(ys)
    except (TypeError, ValueError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(
            f"{name} must yield pairs of a sample and its class, all of the same shape ({reason})"
        ) from error


def _moved(split: Split, device: torch.device) -> Split:
    if isinstance(split, Stream):
        return cast(Split, split.to(device))
    store = cast(Images | Frames, split.store)
    return Split(type(store)(store.pixels.to(device)), split.labels.to(device), split.rows.to(device))
