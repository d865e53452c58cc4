"""Dataset descriptions: shape, files, digests, URLs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

__all__ = ["Form", "Kind", "Normalization", "Remote", "Spec"]

Kind = Literal[
    "idx", "cifar-bin", "cifar-py", "nmnist-raw", "nmnist-binned", "gesture-npy", "gesture-aedat", "shd"
]
"""The readers of dataset files, by name."""

Normalization = tuple[tuple[float, ...], tuple[float, ...]]
"""Mean and standard deviation of each channel, for pixels in [0, 1]."""


@dataclass(frozen=True)
class Remote:
    """A file to download, with the digest its publisher or a well-known library states for it."""

    file: str
    urls: tuple[str, ...]
    digest: str
    """``md5:...`` or ``sha256:...`` of the file as it is downloaded."""


@dataclass(frozen=True)
class Form:
    """A layout of a dataset's files on disk."""

    kind: Kind
    folders: tuple[str, ...]
    """Its folder below a searched folder."""
    files: tuple[str, ...]
    """Patterns of the required files; one with ``.gz`` added is accepted."""
    more: tuple[str, ...] = ()
    """Patterns of optional files."""
    digests: Mapping[str, str] = field(default_factory=dict)
    """The digest of each file's content, decompressed."""
    split: str | None = None
    """The published split that this form holds; None, the only one."""
    sizes: tuple[int, int] | None = None
    """Training and test samples, where they differ from the dataset's."""


@dataclass(frozen=True)
class Spec:
    """A dataset: what it is and where it comes from."""

    name: str
    title: str
    shape: tuple[int, ...]
    class_names: tuple[str, ...]
    sizes: tuple[int, int]
    """Training and test samples."""
    is_events: bool
    source: str
    licence: str
    forms: tuple[Form, ...] = ()
    """Empty for a dataset that is generated or comes with a package."""
    remotes: tuple[Remote, ...] = ()
    normalization: Normalization | None = None
    timesteps: int = 10

    @property
    def classes(self) -> int:
        """The number of classes."""
        return len(self.class_names)
