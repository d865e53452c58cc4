"""Search for datasets on this machine, and the error when one is missing."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from ultralif.data.spec import Form, Spec
from ultralif.errors import InputError, JobError

__all__ = ["Found", "cache_folder", "find", "home", "installed", "missing", "roots", "without_network"]

_SHARED = Path("/usr/share/datasets")
"""The folder in which Debian's packages install datasets."""


class Found(NamedTuple):
    """A dataset on this machine."""

    folder: Path
    form: Form


def cache_folder() -> Path:
    """Return the folder for files that can be made again: ``ULTRALIF_CACHE``, or the user's cache."""
    given = os.environ.get("ULTRALIF_CACHE")
    if not given:
        import platformdirs

        given = platformdirs.user_cache_dir("ultralif")
    return Path(given).expanduser()


def home(data_dir: str | Path | None = None) -> Path:
    """Return the folder that downloads go to: ``data_dir``, else ``ULTRALIF_DATA``, else the user's cache."""
    given = data_dir or os.environ.get("ULTRALIF_DATA")
    return Path(given).expanduser() if given else cache_folder() / "datasets"


def roots(data_dir: str | Path | None = None) -> list[Path]:
    """Return the folders that are searched, in order.

    They are ``data_dir``, ``ULTRALIF_DATA``, the user's cache, ``./data`` (where the examples of torchvision
    and tonic download to) and Debian's ``/usr/share/datasets``.
    """
    given = [data_dir, os.environ.get("ULTRALIF_DATA"), cache_folder() / "datasets", "data", _SHARED]
    folders = [Path(folder).expanduser().absolute() for folder in given if folder]
    return list(dict.fromkeys(folders))


def find(spec: Spec, data_dir: str | Path | None = None, split: str | None = None) -> Found | None:
    """Return the location of a dataset, or None.

    Args:
        spec: the dataset.
        data_dir: a folder to search first; the files may be in it or below it.
        split: only forms that hold this published split; None, any.
    """
    forms = [form for form in spec.forms if split is None or form.split in (None, split)]
    return next((found for found in _places(forms, data_dir) if not _lacking(*found)), None)


def _places(forms: Sequence[Form], data_dir: str | Path | None) -> Iterator[Found]:
    """Yield every folder that may have the files."""
    for root in roots(data_dir):
        direct = [""] if data_dir and root == Path(data_dir).expanduser().absolute() else []
        for form in forms:
            for folder in (*form.folders, *direct):
                yield Found(root / folder, form)


def installed(spec: Spec, folder: Path) -> Found | None:
    """Return the location of a dataset in a folder into which it was unpacked, or None."""
    for form in spec.forms:
        for place in map(PurePosixPath, form.folders):
            inside = folder.joinpath(*place.parts[1:])
            if place.parts[:1] == (spec.name,) and not _lacking(inside, form):
                return Found(inside, form)
    return None


def _lacking(folder: Path, form: Form) -> list[str]:
    """Return the files of a form that a folder lacks."""
    try:
        return [
            pattern
            for pattern in form.files
            if not any(folder.glob(pattern)) and not any(folder.glob(f"{pattern}.gz"))
        ]
    except OSError:  # a folder that may not be entered holds nothing
        return list(form.files)


def missing(spec: Spec, data_dir: str | Path | None, split: str | None) -> InputError | JobError:
    """Return the error for a dataset that was not found, with what to do about it."""
    forms = [form for form in spec.forms if form.split in (None, split)]
    if not forms:
        known = sorted({form.split for form in spec.forms if form.split})
        return InputError(f"split must be one of {', '.join(known)} for {spec.name}, got {split!r}")
    by_hand = _by_hand(forms, data_dir)
    other = find(spec, data_dir)
    if other:
        return JobError(
            f"{spec.name} is in {other.folder} only as the split {other.form.split!r}, not {split!r}; load "
            f"it with split={other.form.split!r}, or {by_hand}"
        )
    if not spec.remotes or forms[0].split not in (None, spec.forms[0].split):
        return JobError(
            f"{spec.name} ({split}) is not on this machine and no program may download it; get it from "
            f"{spec.source} and {by_hand}"
        )
    for folder, form in _places(forms, data_dir):
        lacking = _lacking(folder, form)
        if len(lacking) < len(form.files):
            return JobError(
                f"{spec.name} is in {folder}, but {', '.join(lacking)} is not there; add it, or get all "
                f"with: ultralif data get {spec.name}"
            )
    return JobError(
        f"{spec.name} is not on this machine; get it with: ultralif data get {spec.name}; if you have its "
        f"files, name their folder with --data-dir (data_dir=), see: ultralif data info {spec.name}"
    )


def without_network(spec: Spec, data_dir: str | Path | None, split: str | None) -> str:
    """Say which files of a dataset are put where, for a machine that cannot download it."""
    forms = [form for form in spec.forms if form.split in (None, split)]
    published = ", ".join(f"{remote.file} ({remote.digest})" for remote in spec.remotes)
    return f"without a network, {_by_hand(forms, data_dir)}; the published files are {published}"


def _by_hand(forms: Sequence[Form], data_dir: str | Path | None) -> str:
    wanted = " or ".join(f"{form.folders[0]}/ with {', '.join((*form.files, *form.more))}" for form in forms)
    return f"put {wanted} into one of {', '.join(map(str, roots(data_dir)))}"
