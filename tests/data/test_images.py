"""Image sets: formats made by hand, real files, and files that are wrong."""

import gzip
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from data.dataset_files import idx
from ultralif.data import load
from ultralif.data.files import Folder, find, hash_of
from ultralif.data.readers.images import parse_cifar, parse_idx, read_images
from ultralif.data.table import DATASETS
from ultralif.errors import InputError, JobError

HERE = Path("file")
RNG = np.random.default_rng(0)
PIXELS = RNG.integers(0, 256, (5, 3, 32, 32), np.uint8)
LABELS = [6, 9, 0, 4, 1]
CIFAR_BIN = b"".join(bytes([label]) + image.tobytes() for label, image in zip(LABELS, PIXELS, strict=True))


@given(arrays(np.uint8, array_shapes(max_dims=4, max_side=6)))
def test_idx_is_read_as_it_was_written(array):
    assert np.array_equal(parse_idx(idx(array), HERE), array)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "start"),
        (b"\0\0\x0d\x01\0\0\0\x01\0\0\0\0", "start"),
        (b"\0\0\x08\x03\0\0", "header"),
        (idx(np.zeros((3, 4)))[:-1], "should contain"),
        (idx(np.zeros((3, 4))) + b"\0", "should contain"),
        (b"\0\0\x08\x04" + b"\xff" * 16 + b"\0" * 8, "should contain"),
    ],
    ids=["empty", "other type", "cut header", "cut", "too long", "huge"],
)
def test_wrong_idx_files_are_refused(data, says):
    with pytest.raises(InputError, match=f"file .*{says}"):
        parse_idx(data, HERE)


def test_cifar_batches_are_read_as_they_were_written():
    samples = parse_cifar(CIFAR_BIN, HERE)
    assert np.array_equal(samples.pixels, PIXELS)
    assert samples.labels.tolist() == LABELS


def test_pickled_cifar_is_refused_with_a_remedy(tmp_path):
    """It is what torchvision downloads; a pickle may run code, so it is named and never loaded."""
    spec, folder = DATASETS["cifar10"], tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    assert find(spec, tmp_path) is None
    with pytest.raises(JobError, match=f"{folder} .*ultralif data get cifar10"):
        load("cifar10", data_dir=tmp_path)


@given(st.data())
def test_damaged_batches_give_an_input_error_or_other_samples(data):
    sound = idx(PIXELS)
    header = 20
    damaged = bytearray(sound[: data.draw(st.integers(0, len(sound)))])
    for _ in range(data.draw(st.integers(0, 5))):
        if damaged:
            at = data.draw(st.integers(0, min(header, len(damaged)) - 1))
            damaged[at] ^= data.draw(st.integers(1, 255))
    for parse in (parse_cifar, parse_idx):
        try:
            parse(bytes(damaged), HERE)
        except InputError as error:
            assert "file" in str(error)


def mnist_folder(folder: Path, change=None) -> Path:
    """Write sets of the right sizes, so that only ``change`` is wrong with them."""
    for part, size in (("train", 60_000), ("t10k", 10_000)):
        files = {
            f"{part}-images-idx3-ubyte": idx(np.zeros((size, 28, 28), np.uint8)),
            f"{part}-labels-idx1-ubyte": idx(np.arange(size) % 10),
        }
        for name, data in files.items():
            (folder / name).write_bytes(change(name, data) if change else data)
    return folder


def test_sizes_and_labels_are_checked(tmp_path):
    spec = DATASETS["mnist"]
    halves = read_images(Folder(mnist_folder(tmp_path), {}), "idx", spec)
    assert halves["train"].pixels.shape == (60_000, 1, 28, 28)

    def few(name, data):
        return idx(np.zeros((5, 28, 28))) if name == "t10k-images-idx3-ubyte" else data

    with pytest.raises(InputError, match=r"test images \(5, 1, 28, 28\)"):
        read_images(Folder(mnist_folder(tmp_path, few), {}), "idx", spec)

    def eleven(name, data):
        return idx(np.arange(60_000) % 11) if name == "train-labels-idx1-ubyte" else data

    with pytest.raises(InputError, match="labels from 0 to 10, but mnist has 0 to 9"):
        read_images(Folder(mnist_folder(tmp_path, eleven), {}), "idx", spec)


def test_a_flipped_bit_is_found_by_the_digest_and_the_file_is_named(tmp_path):
    data = idx(np.zeros((4, 4), np.uint8))
    name = "train-labels-idx1-ubyte"
    digests = {name: hash_of(data)}
    (tmp_path / name).write_bytes(data[:-1] + b"\x01")
    with pytest.raises(
        InputError, match=f"{name} has the wrong content: its digest is sha256:.* get it again"
    ):
        Folder(tmp_path, digests).read(name, 1000)


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        (lambda data: data[:-9], "cut off"),
        (lambda data: data[:40] + bytes([data[40] ^ 16]) + data[41:], "is not gzip, or is damaged"),
        (lambda _: b"<html>not found</html>", "is not gzip, or is damaged"),
        (lambda _: gzip.compress(bytes(100_001)), "more than 100,000 bytes"),
    ],
    ids=["cut", "flipped", "web page", "bomb"],
)
def test_wrong_gzip_files_are_refused(tmp_path, harm, says):
    sound = gzip.compress(RNG.integers(0, 256, 1000, np.uint8).tobytes())
    (tmp_path / "a.gz").write_bytes(harm(sound))
    with pytest.raises(InputError, match=rf"a\.gz .*{says}"):
        Folder(tmp_path, {}).read("a", 100_000)


@pytest.mark.parametrize(
    ("name", "first"),
    [("mnist", [5, 0, 4, 1, 9]), ("fashion-mnist", [9, 0, 0, 3, 0]), ("cifar10", [6, 9, 9, 4, 1])],
)
def test_real_images_have_the_statistics_that_the_paper_states(real, name, first):
    found = real(name)
    spec = DATASETS[name]
    halves = read_images(Folder(found.folder, found.form.digests), found.form.kind, spec)
    train = halves["train"]
    assert train.labels[:5].tolist() == first
    mean, std = spec.normalization
    values = np.arange(256) / 255
    for channel in range(spec.shape[0]):
        share = (
            np.bincount(train.pixels[:, channel].reshape(-1), minlength=256) / train.pixels[:, channel].size
        )
        assert share @ values == pytest.approx(mean[channel], abs=5e-4)
        assert (share @ (values - share @ values) ** 2) ** 0.5 == pytest.approx(std[channel], abs=1e-3)
    assert np.bincount(halves["test"].labels).sum() == 10_000


def test_a_pipe_in_the_place_of_a_file_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "train-images-idx3-ubyte")
    with pytest.raises(InputError, match=r"is not a regular file; .*ultralif data get"):
        Folder(tmp_path, {}).read("train-images-idx3-ubyte", 100)
