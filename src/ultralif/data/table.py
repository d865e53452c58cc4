"""The table of datasets: sizes, normalisation, file layouts, and where the files are published."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from ultralif.names import find_name

__all__ = ["DATASETS", "PREFIX", "FileForm", "Kind", "Normalization", "Remote", "Spec", "find_spec"]

Kind = Literal[
    "idx", "cifar-bin", "nmnist-raw", "nmnist-binned", "gesture-npy", "gesture-aedat", "shd", "shd-packed"
]
"""The readers of dataset files, by name."""

Normalization = tuple[tuple[float, ...], tuple[float, ...]]
"""Mean and standard deviation of each channel, for pixels in [0, 1]."""


@dataclass(frozen=True)
class Remote:
    """A file to download, with the digest given by its publisher or a well-known library."""

    file: str
    urls: tuple[str, ...]
    digest: str
    """``md5:...`` or ``sha256:...`` of the downloaded file."""


@dataclass(frozen=True)
class FileForm:
    """A layout of a dataset's files on disk."""

    kind: Kind
    folders: tuple[str, ...]
    """Possible paths of its folder, relative to a searched folder."""
    files: tuple[str, ...]
    """Patterns of the required files; ``.gz`` versions are accepted."""
    more: tuple[str, ...] = ()
    """Patterns of optional files."""
    digests: Mapping[str, str] = field(default_factory=dict)
    """The digest of each file's decompressed contents."""
    split: str | None = None
    """The published split that this form contains; None if there is only one."""
    sizes: tuple[int, int] | None = None
    """Numbers of training and test samples, if they differ from the dataset's."""
    version: str = ""
    """How the data in this form differ from the published data; empty if they do not."""


@dataclass(frozen=True)
class Spec:
    """A dataset: what it is and where it comes from."""

    name: str
    title: str
    shape: tuple[int, ...]
    class_names: tuple[str, ...]
    sizes: tuple[int, int]
    """Numbers of training and test samples."""
    is_events: bool
    source: str
    licence: str
    forms: tuple[FileForm, ...] = ()
    """Empty for a dataset that is generated or ships with a package."""
    remotes: tuple[Remote, ...] = ()
    normalization: Normalization | None = None
    timesteps: int = 10
    unread: Mapping[str, str] = field(default_factory=dict)
    """Folders of published but unsupported forms, and the reason."""

    @property
    def classes(self) -> int:
        """The number of classes."""
        return len(self.class_names)


_DIGITS = tuple("0123456789")
_IDX_FILES = tuple(
    f"{part}-{kind}-ubyte" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1")
)


def _idx(folders: tuple[str, ...], sha256: tuple[str, ...]) -> tuple[FileForm, ...]:
    digests = {file: f"sha256:{value}" for file, value in zip(_IDX_FILES, sha256, strict=True)}
    return (FileForm("idx", folders, _IDX_FILES, digests=digests),)


def _idx_remotes(mirrors: tuple[str, ...], md5: tuple[str, ...]) -> tuple[Remote, ...]:
    files = [f"{file}.gz" for file in _IDX_FILES]
    return tuple(
        Remote(file, tuple(mirror + file for mirror in mirrors), f"md5:{value}")
        for file, value in zip(files, md5, strict=True)
    )


_CIFAR_FILES = (*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin")
_CIFAR_ABOVE = ("cifar10/", "CIFAR10/", "cifar-10/", "")
_CIFAR_SHA256 = (
    "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
    "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
    "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
    "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
    "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
    "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
)


_MNIST = Spec(
    name="mnist",
    title="Handwritten digits",
    shape=(1, 28, 28),
    class_names=_DIGITS,
    sizes=(60_000, 10_000),
    is_events=False,
    source="LeCun, Cortes, Burges: http://yann.lecun.com/exdb/mnist",
    licence="see its source",
    normalization=((0.1307,), (0.3081,)),
    forms=_idx(
        ("mnist", "MNIST/raw", "MNIST"),
        (
            "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
            "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
            "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
            "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        ),
    ),
    remotes=_idx_remotes(
        (
            "https://ossci-datasets.s3.amazonaws.com/mnist/",
            "https://storage.googleapis.com/cvdf-datasets/mnist/",
        ),
        (
            "f68b3c2dcbeaaa9fbdd348bbdeb94873",
            "d53e105ee54ea40749a09fcbcd1e9432",
            "9fb629c4189551a2d022fa330f9573f3",
            "ec29112dd5afa0611ce80d1b7f02629c",
        ),
    ),
)

_FASHION = Spec(
    name="fashion-mnist",
    title="Photographs of clothes",
    shape=(1, 28, 28),
    class_names=(
        *("T-shirt", "Trouser", "Pullover", "Dress", "Coat"),
        *("Sandal", "Shirt", "Sneaker", "Bag", "Boot"),
    ),
    sizes=(60_000, 10_000),
    is_events=False,
    source="Xiao, Rasul, Vollgraf 2017: https://github.com/zalandoresearch/fashion-mnist",
    licence="MIT",
    normalization=((0.2860,), (0.3530,)),
    forms=_idx(
        ("fashion-mnist", "FashionMNIST/raw", "FashionMNIST"),
        (
            "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
            "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
            "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
            "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
        ),
    ),
    remotes=_idx_remotes(
        (
            "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
            "https://storage.googleapis.com/tensorflow/tf-keras-datasets/",
        ),
        (
            "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            "25c81989df183df01b3e8a0aad5dffbe",
            "bef4ecab320f06d8554ea6380940ec79",
            "bb300cfdad3c16e7a12a480ee83cd310",
        ),
    ),
)

_CIFAR10 = Spec(
    name="cifar10",
    title="Small natural photographs",
    shape=(3, 32, 32),
    class_names=("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
    sizes=(50_000, 10_000),
    is_events=False,
    source="Krizhevsky 2009: https://www.cs.toronto.edu/~kriz/cifar.html",
    licence="see its source",
    normalization=((0.4914, 0.4822, 0.4465), (0.247, 0.243, 0.262)),
    forms=(
        FileForm(
            "cifar-bin",
            tuple(f"{above}cifar-10-batches-bin" for above in _CIFAR_ABOVE),
            _CIFAR_FILES,
            digests={
                file: f"sha256:{value}" for file, value in zip(_CIFAR_FILES, _CIFAR_SHA256, strict=True)
            },
        ),
    ),
    unread={
        f"{above}cifar-10-batches-py": "the Python version, whose pickles could run code when they are loaded"
        for above in _CIFAR_ABOVE
    },
    remotes=(
        Remote(
            "cifar-10-binary.tar.gz",
            (
                "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
                "https://cave.cs.toronto.edu/kriz/cifar-10-binary.tar.gz",
            ),
            "md5:c32a1d4ab5d03f1284b67883e8d87530",
        ),
    ),
)

_MENDELEY = "https://data.mendeley.com/public-files/datasets/468j46mzdv/files/"
_NMNIST_FOLDERS = ("n-mnist", "nmnist", "NMNIST", "N-MNIST")
_NMNIST = Spec(
    name="n-mnist",
    title="MNIST recorded with an event camera on a saccading mount",
    shape=(2, 34, 34),
    class_names=_DIGITS,
    sizes=(60_000, 10_000),
    is_events=True,
    source="Orchard et al. 2015: https://www.garrickorchard.com/datasets/n-mnist",
    licence="see its source",
    forms=(
        FileForm("nmnist-raw", _NMNIST_FOLDERS, ("Train", "Test")),
        FileForm("nmnist-binned", _NMNIST_FOLDERS, ("train-*.npz.xz", "test-*.npz.xz")),
    ),
    remotes=(
        Remote(
            "Train.zip",
            (f"{_MENDELEY}39c25547-014b-4137-a934-9d29fa53c7a0/file_downloaded",),
            "md5:20959b8e626244a1b502305a9e6e2031",
        ),
        Remote(
            "Test.zip",
            (f"{_MENDELEY}05a4d654-7e03-4c15-bdfa-9bb2bcbea494/file_downloaded",),
            "md5:69ca8762b2fe404d9b9bad1103e97832",
        ),
    ),
)

_GESTURE_FOLDERS = ("dvs-gesture", "DVSGesture", "DVS128Gesture", "DVS128Gesture/extract", "")
_GESTURES = (
    "hand clapping",
    "right hand wave",
    "left hand wave",
    "right arm clockwise",
    "right arm counter-clockwise",
    "left arm clockwise",
    "left arm counter-clockwise",
    "arm roll",
    "air drums",
    "air guitar",
    "other gestures",
)
_GESTURE = Spec(
    name="dvs-gesture",
    title="Hand and arm gestures recorded with an event camera",
    shape=(2, 128, 128),
    class_names=_GESTURES,
    sizes=(1_077, 264),
    is_events=True,
    source="Amir et al. 2017: https://research.ibm.com/interactive/dvsgesture",
    licence="see its source",
    forms=(
        FileForm("gesture-npy", _GESTURE_FOLDERS, ("ibmGestureTrain", "ibmGestureTest"), split="tonic"),
        FileForm(
            "gesture-aedat",
            tuple(f"{above}/DvsGesture".lstrip("/") for above in _GESTURE_FOLDERS),
            ("trials_to_train.txt", "trials_to_test.txt"),
            ("*.aedat", "*_labels.csv"),
            split="spikingjelly",
            sizes=(1_176, 288),
        ),
    ),
    remotes=(
        Remote(
            "ibmGestureTrain.tar.gz",
            (
                "https://figshare.com/ndownloader/files/38022171",
                "https://ndownloader.figshare.com/files/38022171",
            ),
            "md5:3a8f0d4120a166bac7591f77409cb105",
        ),
        Remote(
            "ibmGestureTest.tar.gz",
            (
                "https://figshare.com/ndownloader/files/38020584",
                "https://ndownloader.figshare.com/files/38020584",
            ),
            "md5:56070e45dadaa85fff82e0fbfbc06de5",
        ),
    ),
)

_SHD_PACKED = {
    "test-0.npz.xz": "sha256:6d2e4ef36e1a6120fcabd60bebafccc7e10cce78ce1ef04e17e46eff50283de6",
    "test-1.npz.xz": "sha256:3db79995212979ecba1e4241d49cf0cfe577ebb5f805e21a218420e3ea49a420",
    "train-0.npz.xz": "sha256:5d9023782c27b18f181a4b9d9b50e306c80dca41127124ab65872289d0f22fa5",
    "train-1.npz.xz": "sha256:c8834770f3ce3595d86612ba870f115b7a63b593ea73666861363fa97128424f",
    "train-2.npz.xz": "sha256:01e17cb6b67a75e761a6b0026210b40119a49c77fd85fc9e55749da0f41f53dd",
    "train-3.npz.xz": "sha256:a914db117ab5d44e69cd9461986b37a1fb4d1d317ef413f594cde7b942928c54",
    "train-4.npz.xz": "sha256:1a60cb074c8ac0604ee374c80c3ea16c6811a8674556ac8fee797529e287b808",
    "train-5.npz.xz": "sha256:4197e2a9de53a5e546d59bd1d6a43b41f7fb77674133d7feea3dcfbf55cc72c1",
    "train-6.npz.xz": "sha256:80a9c2bdc36009a77ed5a50b68f52f332d255b0b79163745c651c4e6fe1b5e89",
    "train-7.npz.xz": "sha256:262a5ff1381da39acc1e6b915d8842a8dbea9e07594ee6b7dbf5fb0196691e52",
}

_SHD_FOLDERS = ("shd", "SHD", "hsd", "hdspikes")
_SHD = Spec(
    name="shd",
    title="Spoken digits, as encoded by a model of the inner ear",
    shape=(700,),
    class_names=(
        *["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"],
        *["null", "eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun"],
    ),
    sizes=(8_156, 2_264),
    is_events=True,
    source="Cramer et al. 2020: https://zenkelab.org/resources/spiking-heidelberg-datasets-shd",
    licence="CC BY 4.0",
    forms=(
        FileForm("shd", _SHD_FOLDERS, ("shd_train.h5", "shd_test.h5")),
        FileForm(
            "shd-packed",
            _SHD_FOLDERS,
            ("train-*.npz.xz", "test-*.npz.xz"),
            digests=_SHD_PACKED,
            version="spikes regenerated from the original recordings",
        ),
    ),
    remotes=tuple(
        Remote(
            file,
            (f"https://zenkelab.org/datasets/{file}", f"https://compneuro.net/datasets/{file}"),
            digest,
        )
        for file, digest in (
            ("shd_train.h5.zip", "md5:f3252aeb598ac776c1b526422d90eecb"),
            ("shd_test.h5.zip", "md5:1503a5064faa34311c398fb0a1ed0a6f"),
        )
    ),
)

_BUILTIN_DIGITS = Spec(
    name="digits",
    title="Small handwritten digits from scikit-learn",
    shape=(1, 8, 8),
    class_names=_DIGITS,
    sizes=(1_437, 360),
    is_events=False,
    source="Alpaydin, Kaynak 1998, from scikit-learn",
    licence="CC BY 4.0",
)

_RANDMAN = Spec(
    name="randman",
    title="Spike times on smooth random manifolds, generated",
    shape=(64,),
    class_names=tuple(f"manifold {i}" for i in range(10)),
    sizes=(2_000, 500),
    is_events=True,
    source="after Zenke, Vogels 2021: https://doi.org/10.1162/neco_a_01367",
    licence="none needed",
    timesteps=30,
)

PREFIX = "own:"
"""Prefix of user data names; part of the data's digest follows it."""
DATASETS: dict[str, Spec] = {
    spec.name: spec
    for spec in (_BUILTIN_DIGITS, _RANDMAN, _MNIST, _FASHION, _CIFAR10, _NMNIST, _GESTURE, _SHD)
}
"""All datasets by name."""


def find_spec(name: str) -> Spec:
    """Return the dataset with this name, ignoring case and the difference between ``-`` and ``_``."""
    return DATASETS[find_name("dataset", name, DATASETS)]
