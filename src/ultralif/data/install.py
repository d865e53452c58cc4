"""Installation of a dataset: reuse a copy, or download, verify, unpack and rename it into place."""

import shutil
import urllib.request
from contextlib import suppress
from pathlib import Path

from ultralif.data.cache import staging
from ultralif.data.extract import extract
from ultralif.data.fetch import Progress, download
from ultralif.data.files import damaged
from ultralif.data.find import Found, find, home, installed, without_network
from ultralif.data.spec import Spec
from ultralif.errors import InputError, JobError

__all__ = ["get"]

_PACKED = (".zip", ".tar", ".tar.gz")


def get(
    spec: Spec,
    data_dir: str | Path | None = None,
    progress: Progress | None = None,
    opener: urllib.request.OpenerDirector | None = None,
) -> Found:
    """Return the location of a dataset; download it if it is not on this machine.

    Args:
        spec: a dataset that has files.
        data_dir: folder to write to; None: see `ultralif.data.find.home`.
        progress: called with every piece that arrives.
        opener: opens addresses; None: by https alone.
    """
    split = spec.forms[0].split  # the one that is published for programs to download
    found = find(spec, data_dir, split)
    if found is not None:
        return found
    target = home(data_dir) / spec.name
    downloads = target.parent / "downloads" / spec.name
    if target.exists():
        found = find(spec, data_dir, split)
        if found is not None:  # another process has put it there since
            return found
        raise JobError(f"{target} is there, but is not a complete {spec.name}; move it and run this again")
    try:
        return _install(spec, target, downloads, progress, opener)
    except (InputError, JobError) as error:
        found = find(spec, data_dir, split)
        if found is not None:  # another process got it meanwhile, and removed what was downloaded
            shutil.rmtree(downloads, ignore_errors=True)
            return found
        if isinstance(error, JobError):
            raise JobError(f"{error}; {without_network(spec, data_dir, split)}") from error
        raise


def _install(
    spec: Spec,
    target: Path,
    downloads: Path,
    progress: Progress | None,
    opener: urllib.request.OpenerDirector | None,
) -> Found:
    """Download, unpack and put into place."""
    paths = []
    try:
        for remote in spec.remotes:
            paths.append(download(remote, downloads, progress, opener))
        with staging(target) as temporary:
            for path in paths:
                if path.name.endswith(_PACKED):
                    extract(path, temporary)
                else:
                    shutil.copyfile(path, temporary / path.name)
            found = installed(spec, temporary)
            if found is None:
                raise damaged(downloads, f"lacks files of {spec.name}")
        for path in paths:
            path.unlink(missing_ok=True)
        return Found(target / found.folder.relative_to(temporary), found.form)
    finally:
        for folder in (downloads, downloads.parent):
            with suppress(OSError):  # kept if it holds a part of a download, to continue from
                folder.rmdir()
