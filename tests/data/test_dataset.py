"""Datasets as a whole: built-in ones, real ones, and what `load` says when it cannot."""

import dataclasses
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ultralif.data import DATASETS, load
from ultralif.data import files as finding
from ultralif.data.dataset import read
from ultralif.data.files import Found
from ultralif.data.readers import builtin
from ultralif.errors import InputError, JobError


def test_digits_are_those_of_scikit_learn():
    datasets = pytest.importorskip("sklearn.datasets")
    digits = load("digits")
    assert (len(digits.train), len(digits.test)) == (1437, 360)
    assert torch.bincount(digits.test.labels).tolist() == [36] * 10
    images = torch.cat([digits.train.batch(list(range(1437))), digits.test.batch(list(range(360)))])
    ours = sorted(map(bytes, (images.float() * 16 / 255).round().byte().flatten(1).tolist()))
    theirs = sorted(map(bytes, datasets.load_digits().data.astype(int).tolist()))
    assert ours == theirs
    assert images.max() == 255


def ridge_accuracy(
    train: torch.Tensor, test: torch.Tensor, labels: torch.Tensor, truth: torch.Tensor
) -> float:
    """Classify by least squares on all values of a sample."""
    ones = torch.ones(len(train), 1), torch.ones(len(test), 1)
    a, b = torch.cat([train, ones[0]], 1).double(), torch.cat([test, ones[1]], 1).double()
    target = torch.nn.functional.one_hot(labels).double()
    weights = torch.linalg.solve(a.T @ a + 10 * torch.eye(a.shape[1]), a.T @ target)
    return ((b @ weights).argmax(1) == truth).double().mean().item()


def test_randman_is_told_apart_by_time_alone():
    data = load("randman")
    assert (len(data.train), len(data.test)) == DATASETS["randman"].sizes
    train = data.train.batch(torch.arange(len(data.train)))
    test = data.test.batch(torch.arange(len(data.test)))
    assert torch.equal(train.sum(0), torch.ones_like(train[0])), "each unit fires once"

    def shuffled(frames: torch.Tensor) -> torch.Tensor:
        order = torch.rand(frames.shape, generator=torch.Generator().manual_seed(0)).argsort(0)
        return frames.gather(0, order)

    def accuracy(a: torch.Tensor, b: torch.Tensor) -> float:
        first, second = (frames.transpose(0, 1).flatten(1) for frames in (a, b))
        return ridge_accuracy(first, second, data.train.labels, data.test.labels)

    assert accuracy(train, test) > 0.9
    assert accuracy(shuffled(train), shuffled(test)) < 0.15


def test_randman_depends_on_its_seed_alone():
    spec = DATASETS["randman"]
    first, again, other = (builtin.randman(spec, 30, seed=seed) for seed in (0, 0, 1))
    assert all(np.array_equal(first[name], again[name]) for name in first)
    assert not np.array_equal(first["train.keys"], other["train.keys"])
    coarse = builtin.randman(spec, 10)
    merged = {(i // 64, key // 64 // 3, key % 64) for i, key in enumerate(first["train.keys"].tolist())}
    assert merged == {(i // 64, key // 64, key % 64) for i, key in enumerate(coarse["train.keys"].tolist())}


def test_manifolds_are_smooth():
    points = np.linspace(0, 1, 1000)[:, None]
    times = builtin.manifold_times(points, 20, np.random.default_rng(0))
    assert times.min() == 0
    assert 0.99 < times.max() < 1
    assert np.abs(np.diff(times, axis=0)).max() < 0.05


def test_the_checksum_is_of_what_was_loaded():
    assert load("randman").checksum == load("randman").checksum
    assert load("randman").checksum != load("randman", timesteps=10).checksum
    assert len(load("digits").checksum) == 64


def test_missing_scikit_learn_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    monkeypatch.setattr("ultralif.data.readers.builtin.find_spec", lambda name: None)
    with pytest.raises(JobError, match=r"pip install 'ultralif\[demo\]'"):
        load("digits")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"name": "imagenet"}, "dataset 'imagenet' is not known; choose one of digits"),
        ({"name": "randman", "timesteps": 0}, "timesteps must be at least 1, got 0"),
        ({"name": "randman", "device": "tpu9"}, "device must be a name such as cpu"),
        ({"name": "dvs-gesture", "split": "mine"}, "split must be one of tonic, spikingjelly, got 'mine'"),
    ],
)
def test_bad_arguments_are_refused(arguments, says):
    with pytest.raises(InputError, match=says):
        load(**arguments)


def test_a_missing_dataset_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(finding, "_SHARED", tmp_path)
    with pytest.raises(JobError, match="shd is not on this machine; get it with: ultralif data get shd"):
        load("shd")


@pytest.mark.parametrize("timesteps", [1, 10])
def test_raw_recordings_become_the_frames_of_tonic(shared, recordings, timesteps):
    tonic = pytest.importorskip("tonic")
    from tonic.io import read_mnist_file

    folder = shared / "nmnist-raw"
    halves = {
        half: sorted(folder.glob(f"{half}/*/*.bin"), key=lambda p: p.name) for half in ("Train", "Test")
    }
    spec = dataclasses.replace(DATASETS["n-mnist"], sizes=tuple(map(len, halves.values())))
    data = read(spec, Found(folder, spec.forms[0]), timesteps, torch.device("cpu"))
    transform = tonic.transforms.ToFrame(sensor_size=tonic.datasets.NMNIST.sensor_size, n_time_bins=timesteps)
    for split, paths in zip((data.train, data.test), halves.values(), strict=True):
        assert split.labels.tolist() == [int(path.parent.name) for path in paths]
        ours = split.batch(torch.arange(len(split)))
        theirs = [transform(read_mnist_file(str(path), dtype=tonic.datasets.NMNIST.dtype)) for path in paths]
        assert ours.shape == (timesteps, len(paths), 2, 34, 34)
        assert np.array_equal(ours.numpy(), np.stack(theirs, axis=1))
    again = read(spec, Found(folder, spec.forms[0]), timesteps, torch.device("cpu"))
    assert again.checksum == data.checksum


def test_an_incomplete_download_is_not_a_dataset(shared, recordings, cache):
    with pytest.raises(InputError, match="has 40 recordings for train, but n-mnist has 60,000"):
        load("n-mnist", data_dir=shared / "nmnist-raw")
    assert not list((cache / "frames").iterdir())


def test_changed_recordings_are_decoded_anew(tmp_path, shared, recordings):
    folder = tmp_path / "n-mnist"
    for half in ("Train", "Test"):
        for label in range(10):
            (folder / half / str(label)).mkdir(parents=True)
    for half, path in zip(("Train", "Test"), recordings, strict=False):
        (folder / half / "3" / "00001.bin").write_bytes(path.read_bytes())
    spec = dataclasses.replace(DATASETS["n-mnist"], sizes=(1, 1))
    found = Found(folder, spec.forms[0])
    first = read(spec, found, 2, torch.device("cpu")).checksum
    (folder / "Train" / "3" / "00001.bin").write_bytes(recordings[5].read_bytes())
    assert read(spec, found, 2, torch.device("cpu")).checksum != first


@pytest.mark.slow
def test_all_of_n_mnist_in_little_memory_and_quickly_found_again(real, shared):
    found = real("n-mnist")
    spec = DATASETS["n-mnist"]
    data = read(spec, found, 30, torch.device("cpu"))
    assert (len(data.train), len(data.test)) == (60_000, 10_000)
    assert torch.equal(data.train.labels, load("mnist", data_dir=shared).train.labels), "it is MNIST's order"
    events: Any = data.train.store
    stored = sum(tensor.nbytes for tensor in (events.keys, events.counts))
    assert stored < 1 << 30
    started = time.perf_counter()
    again = read(spec, found, 30, torch.device("cpu"))
    assert time.perf_counter() - started < 10
    assert again.checksum == data.checksum
    frames = again.train.batch(torch.arange(128))
    assert frames.shape == (30, 128, 2, 34, 34)


def test_the_paper_s_numbers_stand_in_the_table():
    sizes = {name: DATASETS[name].sizes for name in ("mnist", "fashion-mnist", "cifar10", "n-mnist", "shd")}
    assert sizes == {
        "mnist": (60_000, 10_000),
        "fashion-mnist": (60_000, 10_000),
        "cifar10": (50_000, 10_000),
        "n-mnist": (60_000, 10_000),
        "shd": (8_156, 2_264),
    }
    assert [form.sizes or DATASETS["dvs-gesture"].sizes for form in DATASETS["dvs-gesture"].forms] == [
        (1077, 264),
        (1176, 288),
    ]
    assert DATASETS["mnist"].normalization == ((0.1307,), (0.3081,))
    assert Path(DATASETS["cifar10"].forms[0].folders[-1]) == Path("cifar-10-batches-bin")
