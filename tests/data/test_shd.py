"""SHD: HDF5 as published, parity with tonic, and files that would lead elsewhere."""

import os

import h5py
import numpy as np
import pytest

from data.dataset_files import dense, shd, shd_spikes
from ultralif.data.files import SUMS, Folder
from ultralif.data.readers.shd import read_shd, shd_jobs
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
        ([0.1, np.nan], [1, 2], "no time"),
        ([0.1, -0.5], [1, 2], "no time"),
        ([0.1, 0.2], [1, 700], "channel 700 of 700"),
        ([0.1, 0.2], [1], "as many times as units"),
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
    with pytest.raises(JobError, match=r"shd_train\.h5 is not there"):
        read_shd(tmp_path / "shd_train.h5")
