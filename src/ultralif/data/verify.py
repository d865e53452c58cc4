"""Check a dataset on this disk against its description, down to every file."""

from dataclasses import dataclass
from pathlib import Path

from ultralif.data.decode import decode
from ultralif.data.files import Folder
from ultralif.data.find import find, missing
from ultralif.data.spec import Spec
from ultralif.data.static import read_images

__all__ = ["Report", "verify"]


@dataclass(frozen=True)
class Report:
    """Result of a check."""

    folder: Path
    form: str
    sizes: tuple[int, int]
    digests: int
    """Files that were compared with a known digest; 0: only their structure was checked."""


def verify(spec: Spec, data_dir: str | Path | None = None, split: str | None = None) -> Report:
    """Read every file of a dataset and raise an InputError that names the first that is not sound."""
    found = find(spec, data_dir, split)
    if found is None:
        raise missing(spec, data_dir, split)
    folder = Folder(found.folder, found.form.digests)
    if spec.is_events:
        for _ in decode(found, spec, timesteps=1):
            pass
    else:
        read_images(folder, found.form.kind, spec)
    return Report(found.folder, found.form.kind, found.form.sizes or spec.sizes, len(folder.digests))
