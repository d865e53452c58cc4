"""DVS-Gesture: AEDAT 3.1 with its tables, .npy recordings, and damaged ones."""

import io
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.dataset_files import SENSOR, aedat, dense, gesture_events
from ultralif.data.files import Folder, parse_npy
from ultralif.data.readers.gesture import aedat_jobs, npy_jobs, parse_aedat, parse_labels, parse_recording
from ultralif.errors import InputError

HERE = Path("file")
RNG = np.random.default_rng(0)
EVENTS = gesture_events(RNG, 250, 3_000_000)
CELLS = 2 * SENSOR * SENSOR


def address(events: np.ndarray) -> np.ndarray:
    return (events[:, 2] * SENSOR + events[:, 1]) * SENSOR + events[:, 0]


def test_aedat_is_read_as_it_was_written():
    times, addresses = parse_aedat(aedat(EVENTS), HERE)
    assert np.array_equal(times, EVENTS[:, 3])
    assert np.array_equal(addresses, address(EVENTS))


def test_the_clock_goes_on_after_it_overflowed():
    times, _ = parse_aedat(aedat(EVENTS, overflow=1), HERE)
    assert np.array_equal(times, EVENTS[:, 3] + 2**31)


TABLE = "class,startTime_usec,endTime_usec\n2,0,1000000\n8,1500000,2000000\n8,2000000,3000000\n"


def test_trials_are_cut_by_their_table(tmp_path):
    (tmp_path / "trials_to_train.txt").write_text("user01_led.aedat\n\n")
    (tmp_path / "user01_led.aedat").write_bytes(aedat(EVENTS))
    (tmp_path / "user01_led_labels.csv").write_text(TABLE)
    (job,) = aedat_jobs(Folder(tmp_path, {}), "train", 1)
    result = job()
    assert result.labels.tolist() == [1, 7, 7]
    for frames, (start, end) in zip(
        dense(result, 1, CELLS), [(0, 1e6), (1.5e6, 2e6), (2e6, 3e6)], strict=True
    ):
        mine = EVENTS[(EVENTS[:, 3] >= start) & (EVENTS[:, 3] < end)]
        counted = np.bincount(
            address(mine[mine[:, 3] < mine[-1, 3]]), minlength=CELLS
        )  # tonic drops the last
        assert np.array_equal(frames[0], counted)


@pytest.mark.parametrize(
    "table",
    [
        b"",
        b"class,start,end\n1,2,3\n",
        b"class,startTime_usec,endTime_usec\n",
        b"class,startTime_usec,endTime_usec\n1,2\n",
        b"class,startTime_usec,endTime_usec\n12,2,3\n",
        b"class,startTime_usec,endTime_usec\n0,2,3\n",
        b"class,startTime_usec,endTime_usec\n1,5,3\n",
        b"class,startTime_usec,endTime_usec\n1,x,3\n",
        b"class,startTime_usec,endTime_usec\n1,99999999999999999999,3\n",
        b"\xff\xfe",
    ],
)
def test_wrong_tables_are_refused(table):
    with pytest.raises(InputError, match="file "):
        parse_labels(table, HERE)


@pytest.mark.parametrize("listed", ["../../etc/passwd", "a/b.aedat", "user01_led"])
def test_a_list_of_trials_names_files_beside_it(tmp_path, listed):
    (tmp_path / "trials_to_test.txt").write_text(listed)
    with pytest.raises(InputError, match=r"trials_to_test\.txt lists"):
        aedat_jobs(Folder(tmp_path, {}), "test", 1)


@given(st.data())
def test_damaged_aedat_files_give_an_input_error_or_events_of_the_sensor(data):
    content = bytearray(aedat(EVENTS, packet=60))
    del content[data.draw(st.integers(0, len(content))) :]
    for _ in range(data.draw(st.integers(0, 4))):
        if content:
            content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        times, addresses = parse_aedat(bytes(content), HERE)
    except InputError as error:
        assert str(error).startswith("file ")
    else:
        assert len(times) == len(addresses) <= len(content) // 8
        assert not len(addresses) or 0 <= addresses.min() <= addresses.max() < CELLS


def npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


@pytest.mark.parametrize("kind", [np.int32, np.int64, np.uint32, np.float32, np.float64])
def test_npy_recordings_have_milliseconds(kind):
    rows = EVENTS // (1, 1, 1, 1000)
    for layout in (np.ascontiguousarray, np.asfortranarray):
        times, addresses = parse_recording(npy(layout(rows.astype(kind))), HERE)
        assert np.array_equal(times, rows[:, 3] * 1000)
        assert np.array_equal(addresses, address(rows))


@pytest.mark.parametrize(
    ("array", "says"),
    [
        (np.zeros((3, 5)), "shape"),
        (np.zeros((0, 4)), "shape"),
        (np.full((3, 4), np.nan), "not coordinates"),
        (np.full((3, 4), -1), "not coordinates"),
        (np.full((3, 4), 128), "outside the sensor.s 128 x 128 x 2"),
        (np.array([[0, 0, 0, 2**60]]), "not coordinates"),
        (np.array([[None]]), "header"),
    ],
)
def test_wrong_npy_recordings_are_refused(array, says):
    with pytest.raises(InputError, match=says):
        parse_recording(npy(array), HERE)


@given(st.data())
def test_damaged_npy_files_give_an_input_error_or_an_array_of_their_size(data):
    content = bytearray(npy(EVENTS[:9].astype(np.int32)))
    del content[data.draw(st.integers(0, len(content))) :]
    for _ in range(data.draw(st.integers(0, 3))):
        if content:
            content[data.draw(st.integers(0, min(127, len(content) - 1)))] ^= data.draw(st.integers(1, 255))
    try:
        assert parse_npy(bytes(content), HERE).nbytes <= len(content)
    except InputError as error:
        assert str(error).startswith("file ")


def test_an_npy_header_of_another_world_is_refused():
    header = b"{'descr': '<i8', 'fortran_order': False, 'shape': (1000000000000, 4), }\n"
    data = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
    with pytest.raises(InputError, match="claims"):
        parse_npy(data, HERE)


@pytest.mark.parametrize("timesteps", [1, 10])
def test_npy_frames_equal_those_of_tonic(tmp_path, timesteps):
    tonic = pytest.importorskip("tonic")
    folder = tmp_path / "DVSGesture"
    for user in range(1, 11):
        place = folder / "ibmGestureTest" / f"user{user:02d}_led"
        place.mkdir(parents=True)
        for label in range(11):
            rows = gesture_events(RNG, 60, 5000).astype(np.float64)
            np.save(place / f"{label}.npy", rows)
    (folder / "ibmGestureTest.tar.gz").touch()
    theirs = tonic.datasets.DVSGesture(
        str(tmp_path),
        train=False,
        transform=tonic.transforms.ToFrame(sensor_size=(SENSOR, SENSOR, 2), n_time_bins=timesteps),
    )
    expected = {
        (user, label): i for i, (user, label) in enumerate(zip(theirs.users, theirs.targets, strict=True))
    }
    jobs = npy_jobs(Folder(folder, {}), "test", timesteps)
    results = [job() for job in jobs]
    labels = np.concatenate([part.labels for part in results])
    assert labels.tolist() == list(range(11)) * 10
    ours = np.concatenate([dense(part, timesteps, CELLS) for part in results])
    for i in range(0, 110, 7):
        frames, label = theirs[expected[1 + i // 11, i % 11]]
        assert label == labels[i]
        assert np.array_equal(ours[i], frames.reshape(timesteps, -1))


def test_a_recording_is_named_by_its_class(tmp_path):
    place = tmp_path / "ibmGestureTrain" / "user01_led"
    place.mkdir(parents=True)
    (place / "11.npy").touch()
    with pytest.raises(InputError, match=r"11\.npy is named"):
        npy_jobs(Folder(tmp_path, {}), "train", 1)
