"""SHD: HDF5 as published, parity with tonic, and files that would lead elsewhere."""

import io
import lzma
import os
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest

from data.dataset_files import dense, shd, shd_spikes
from ultralif.data import load, table
from ultralif.data.files import SUMS, Folder, hash_of
from ultralif.data.readers.shd import packed_jobs, parse_packed, read_shd, shd_jobs
from ultralif.errors import InputError, JobError

SPIKES = shd_spikes(np.random.default_rng(0), 6)
LABELS = [3, 19, 0, 7, 7, 11]


@pytest.mark.parametrize("timesteps", [1, 10, 30])
def test_frames_equal_those_of_tonic(tmp_path, timesteps):
    tonic = pytest.importorskip("tonic")
    folder = tmp_path / "SHD"
    folder.mkdir()
    shd(folder / "shd_test.h5", SPIKES, LABELS)
    (folder / "shd_test.h5.zip").touch()
    transform = tonic.transforms.ToFrame(sensor_size=tonic.datasets.SHD.sensor_size, n_time_bins=timesteps)
    theirs = tonic.datasets.SHD(str(tmp_path), train=False, transform=transform)
    (job,) = shd_jobs(Folder(folder, {}), "test", timesteps)
    ours = job()
    assert ours.labels.tolist() == LABELS
    for i, frames in enumerate(dense(ours, timesteps, 700)):
        assert np.array_equal(frames, theirs[i][0].reshape(timesteps, 700))


def test_recordings_are_cut_where_they_end(tmp_path):
    spikes = shd_spikes(np.random.default_rng(1), 300)  # more than one slice
    shd(tmp_path / "shd_train.h5", spikes, [0] * 300)
    recordings = read_shd(tmp_path / "shd_train.h5")
    assert recordings.lengths.tolist() == [len(seconds) for seconds, _ in spikes]
    assert np.array_equal(recordings.addresses, np.concatenate([channels for _, channels in spikes]))
    parts = [job() for job in shd_jobs(Folder(tmp_path, {}), "train", 1)]
    kept = [np.count_nonzero(s.astype(float) * 1e6 // 1 < s.astype(float)[-1] * 1e6 // 1) for s, _ in spikes]
    counts = np.concatenate([dense(part, 1, 700).sum((1, 2)) for part in parts])
    assert counts.tolist() == kept


def linked(path, link) -> None:
    shd(path, SPIKES, LABELS)
    with h5py.File(path, "a") as file:
        del file["labels"]
        link(file)


HOSTILE = {
    "external link": lambda file: file.__setitem__("labels", h5py.ExternalLink("/etc/passwd", "labels")),
    "soft link": lambda file: file.__setitem__("labels", h5py.SoftLink("/spikes/units")),
    "external storage": lambda file: file.create_dataset(
        "labels", (6,), np.uint8, external=[("/etc/hostname", 0, 6)]
    ),
    "virtual": lambda file: file.create_virtual_dataset("labels", h5py.VirtualLayout((6,), np.uint8)),
    "group": lambda file: file.create_group("labels"),
    "absent": lambda file: None,
    "words": lambda file: file.__setitem__("labels", np.array([b"zero"] * 6)),
    "too few": lambda file: file.__setitem__("labels", np.zeros(5, np.uint8)),
    "table": lambda file: file.__setitem__("labels", np.zeros((6, 2), np.uint8)),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_files_that_lead_elsewhere_are_refused(tmp_path, kind):
    path = tmp_path / "shd_train.h5"
    linked(path, HOSTILE[kind])
    with pytest.raises(InputError, match=r"shd_train\.h5 cannot be read as SHD \(ValueError.*labels"):
        read_shd(path)


def test_nobody_waits_for_a_pipe(tmp_path):
    os.mkfifo(tmp_path / "shd_train.h5")
    with pytest.raises(InputError, match="not a regular file"):
        read_shd(tmp_path / "shd_train.h5")


@pytest.mark.parametrize(
    ("seconds", "channels", "says"),
    [
        ([0.1, np.nan], [1, 2], "time is missing"),
        ([0.1, -0.5], [1, 2], "time is missing"),
        ([0.1, 0.2], [1, 700], "channel 700 of 700"),
        ([0.1, 0.2], [1], "numbers of times and units"),
    ],
)
def test_impossible_spikes_are_refused(tmp_path, seconds, channels, says):
    path = tmp_path / "shd_train.h5"
    shd(path, [(np.array(seconds), np.array(channels))], [0])
    with pytest.raises(InputError, match=says):
        read_shd(path)


def test_damaged_files_give_an_input_error_or_spikes(tmp_path):
    path = tmp_path / "shd_train.h5"
    shd(path, SPIKES, LABELS)
    sound = path.read_bytes()
    rng = np.random.default_rng(0)
    for round_ in range(12):  # each starts a process; the HDF5 library may crash in it
        data = bytearray(sound[: rng.integers(len(sound))] if round_ % 3 == 0 else sound)
        for at in rng.integers(len(data), size=8):
            data[at] ^= rng.integers(1, 256)
        path.write_bytes(data)
        try:
            recordings = read_shd(path)
        except InputError as error:
            assert "shd_train.h5" in str(error)
        else:
            assert recordings.times.size <= len(sound)


def test_an_installed_file_with_a_flipped_bit_is_found(tmp_path):
    shd(tmp_path / "shd_train.h5", SPIKES, LABELS)
    (tmp_path / SUMS).write_text("0" * 64 + "  shd_train.h5\n")
    with pytest.raises(InputError, match=r"shd_train\.h5 has the wrong content"):
        shd_jobs(Folder(tmp_path, {}), "train", 1)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(JobError, match=r"shd_train\.h5 does not exist"):
        read_shd(tmp_path / "shd_train.h5")


def packed(lengths, counts, units, labels) -> bytes:
    """Return a packed file: units are those of each millisecond, ascending."""
    gaps = np.concatenate([np.diff(part, prepend=0) for part in units])
    arrays = {"duration_ms": np.array(lengths, np.uint16), "counts": np.array(counts, np.uint8)}
    arrays |= {"low": (gaps & 255).astype(np.uint8), "high": (gaps >> 8).astype(np.uint8)}
    np.savez(file := io.BytesIO(), labels=np.array(labels, np.uint8), **arrays)
    return lzma.compress(file.getvalue())


FEW = packed([30, 20], [1, *[0] * 28, 2, *[0] * 5, 3, *[0] * 14], [[699], [0, 300], [4, 4, 5]], [3, 19])


def test_packed_spikes_are_unpacked():
    found = parse_packed(FEW, Path("train-0.npz.xz"))
    assert found.lengths.tolist() == [3, 3]
    assert found.times.tolist() == [0, 29_000, 29_000, 5_000, 5_000, 5_000]
    assert found.addresses.tolist() == [699, 0, 300, 4, 4, 5]
    assert found.labels.tolist() == [3, 19]


def test_steps_have_a_fixed_width_and_channels_are_summed(tmp_path):
    (tmp_path / "train-0.npz.xz").write_bytes(FEW)
    folder = Folder(tmp_path, {"train-0.npz.xz": hash_of(FEW)})
    (job,) = packed_jobs(folder, "train", 3, step_ms=10, channels=140)
    frames = dense(job(), 3, 140)
    assert np.argwhere(frames).tolist() == [[0, 0, 139], [0, 2, 0], [0, 2, 60], [1, 0, 0], [1, 0, 1]]
    assert frames[1, 0, 0] == 2
    (job,) = packed_jobs(folder, "train", 2, step_ms=10)
    assert dense(job(), 2, 700).sum() == 4  # what comes after the last step is dropped


def test_packed_files_need_their_digest(tmp_path):
    (tmp_path / "train-0.npz.xz").write_bytes(FEW)
    with pytest.raises(InputError, match="does not belong to the packed SHD"):
        packed_jobs(Folder(tmp_path, {}), "train", 1)
    (job,) = packed_jobs(Folder(tmp_path, {"train-0.npz.xz": hash_of(b"")}), "train", 1)
    with pytest.raises(InputError, match="wrong content"):
        job()


@pytest.mark.parametrize(
    "arrays",
    [([30], [1] * 29, [[0]] * 29, [0]), ([3], [1, 0, 0], [[700]], [0]), ([3], [1, 0, 0], [[0]], [0, 1])],
)
def test_packed_arrays_must_fit_together(arrays):
    with pytest.raises(InputError, match=r"do not match|channel 700"):
        parse_packed(packed(*arrays), Path("train-0.npz.xz"))


def test_the_packed_form_loads_by_name_and_names_its_version(tmp_path, monkeypatch):
    spec = table.DATASETS["shd"]
    form = replace(spec.forms[1], digests={f"{half}-0.npz.xz": hash_of(FEW) for half in ("train", "test")})
    monkeypatch.setitem(table.DATASETS, "shd", replace(spec, forms=(spec.forms[0], form), sizes=(2, 2)))
    monkeypatch.setenv("ULTRALIF_CACHE", str(tmp_path / "cache"))
    (tmp_path / "shd").mkdir()
    for half in ("train", "test"):
        (tmp_path / "shd" / f"{half}-0.npz.xz").write_bytes(FEW)
    whole = load("shd", 2, tmp_path)
    assert whole.version == "spikes regenerated from the original recordings"
    assert whole.train.batch([0]).sum() == 1  # tonic drops the events of the last moment
    steps = load("shd", 3, tmp_path, step_ms=10, channels=140)
    assert steps.shape == (140,)
    assert steps.test.batch([0, 1]).shape == (3, 2, 140)
    assert steps.test.batch([0, 1]).sum() == 6


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("shd", {"channels": 99}, "channels must divide 700, got 99"),
        ("shd", {"step_ms": 0.0}, "step_ms must be at least 0.001, got 0.0"),
        ("randman", {"step_ms": 1.0}, "are for shd, not for randman"),
    ],
)
def test_wrong_binning_is_refused(name, options, words):
    with pytest.raises(InputError, match=words):
        load(name, 3, **options)


SHARED = Path(__file__).parents[3] / "shared" / "data" / "shd"


@pytest.mark.skipif(not SHARED.exists(), reason="the packed SHD is not on this machine")
def test_the_real_packed_files_are_read():
    name = "test-1.npz.xz"
    (job,) = [
        job
        for job in packed_jobs(
            Folder(SHARED, table.DATASETS["shd"].forms[1].digests), "test", 100, step_ms=10
        )
        if name in job.args  # type: ignore[attr-defined]
    ]
    binned = job()
    assert len(binned.labels) > 1000
    assert set(binned.labels.tolist()) == set(range(20))
    assert 5_000 < binned.counts.sum() / len(binned.labels) < 12_000
