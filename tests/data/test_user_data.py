"""Files of the user's own data: every type of number is read, and every damaged file is named in one line."""

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from ultralif.data.user_data import read_arrays, register_data
from ultralif.errors import InputError

X = np.random.default_rng(0).random((40, 6)).astype("f4")
Y = np.arange(40) % 2
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)
KINDS = ["u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "b1", ">i8", ">i4", ">u2", ">u8", "f2", "f4", "f8"]
KINDS += [">f4", ">f8", "g", "c8", "U3", "S3", "M8[s]", "V4"]


def archive(method: int = zipfile.ZIP_STORED, **arrays: np.ndarray) -> bytes:
    arrays = {"x_train": X, "y_train": Y, "x_test": X, "y_test": Y} | arrays
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", method) as file:
        for name, array in arrays.items():
            np.save(part := io.BytesIO(), array)
            file.writestr(f"{name}.npy", part.getvalue())
    return made.getvalue()


def read(path: Path, content: bytes) -> str:
    path.write_bytes(content)
    train, test, events = read_arrays(path)
    return register_data(train, test, events=events)


@pytest.mark.parametrize("kind", ["u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "b1", ">i8", ">i4", ">u2"])
def test_labels_of_every_whole_type(tmp_path: Path, kind: str) -> None:
    expected = read(tmp_path / "a.npz", archive())
    found = read(tmp_path / "b.npz", archive(y_train=Y.astype(kind), y_test=Y.astype(kind)))
    assert found == expected


@pytest.mark.parametrize(
    "kind", ["u1", "u2", "u4", "u8", "i1", "i8", "b1", "f2", "f8", "g", ">f4", ">f8", ">u2"]
)
def test_samples_of_every_type(tmp_path: Path, kind: str) -> None:
    x = (X * 200).astype(kind)
    train, _, _ = read_arrays_of(tmp_path / "a.npz", archive(x_train=x, x_test=x))
    assert train[0].double().numpy() == pytest.approx(x.astype("f8"))


def read_arrays_of(path: Path, content: bytes):
    path.write_bytes(content)
    return read_arrays(path)


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ({"x_train": np.array(1.0), "y_train": np.array(1)}, r"samples \[N, ...\]"),
        ({"x_train": X[:, 0], "x_test": X[:, 0]}, r"use \[N, 1\]"),
        ({"x_train": np.zeros((40, 0), "f4"), "x_test": np.zeros((40, 0), "f4")}, r"samples \[N, ...\]"),
        ({"y_train": np.r_[Y[:-1], 3_000_000]}, "at most 65,536 classes"),
        ({"y_train": np.r_[Y[:-1], 2**62]}, "at most 65,536 classes"),
        ({"y_train": np.full(40, 2**64 - 1, "u8")}, "one class"),
        ({"y_train": -Y}, "one class"),
        ({"y_train": np.zeros(40)}, "one class"),
        ({"y_train": np.array(["a"] * 40)}, "numeric"),
    ],
)
def test_what_cannot_be_data_is_named(tmp_path: Path, arrays: dict[str, np.ndarray], says: str) -> None:
    with pytest.raises(InputError, match=says):
        read(tmp_path / "a.npz", archive(**arrays))


def damaged(seed: int) -> bytes:
    """Return an archive with numbers of any type, and any damage."""
    draw = np.random.default_rng(seed)
    x, y = (X * 200).astype(draw.choice(KINDS[:18])), Y.astype(draw.choice(KINDS))
    if draw.random() < 0.2:
        y = np.where(draw.random(40) < 0.1, draw.integers(-(2**62), 2**62, 40), Y)
    if draw.random() < 0.2:
        x = x.reshape([(), (40, 6, 1), (40, 1, 2, 3), (240,), (0, 6)][draw.integers(1, 4)])
    content = bytearray(archive(int(draw.choice(METHODS)), x_train=x, x_test=x, y_train=y, y_test=y))
    for _ in range(int(draw.integers(0, 3))):
        kind, at = draw.integers(5), int(draw.integers(len(content)))
        size = int(draw.integers(1, 200))
        if kind == 0:
            content[at : at + size] = draw.bytes(size)
        elif kind == 1:
            content[at] ^= 1 << int(draw.integers(8))
        elif kind == 2:
            del content[at : at + size]
        elif kind == 3:
            content[at:at] = draw.bytes(size)
        else:
            del content[max(1, at) :]
        if not content:
            break
    return bytes(content)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("count", [300, pytest.param(10_000, marks=pytest.mark.slow)])
def test_a_damaged_file_is_read_or_named_in_one_line(tmp_path: Path, count: int) -> None:
    refused = 0
    for seed in range(count):
        try:
            read(tmp_path / "a.npz", damaged(seed))
        except InputError as error:
            refused += 1
            assert "\n" not in str(error) and "None)" not in str(error), error
    assert count / 5 < refused < count
    print(f"{refused} of {count} files were refused, the others read")


def test_a_tensor_of_any_type_is_taken() -> None:
    x, y = torch.rand(8, 3), torch.arange(8) % 2
    names = {register_data((x, y.to(kind)), (x, y)) for kind in (torch.uint8, torch.uint16, torch.uint64)}
    assert names == {register_data((x, y), (x, y))}
    assert register_data((x.numpy().astype(">f4"), y.numpy()), (x, y)) in names
