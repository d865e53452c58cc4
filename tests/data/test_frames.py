"""Events to frames: the law, and parity with tonic on real recordings."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.dataset_files import dense
from ultralif.data.readers.frames import Binned, Recordings, bin_events, merge_bins, smallest
from ultralif.data.readers.nmnist import CELLS, parse_nmnist


def by_definition(times: list[int], addresses: list[int], timesteps: int, cells: int) -> np.ndarray:
    """Count with plain loops."""
    frames = np.zeros((timesteps, cells), int)
    if times:
        width = (max(times) - min(times)) // timesteps
        for t, address in zip(times, addresses, strict=True):
            for i in range(timesteps):
                start = min(times) + i * width
                frames[i, address] += start <= t < start + width
    return frames


EVENTS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 4)), max_size=30)


@given(st.lists(EVENTS, min_size=1, max_size=5), st.integers(1, 8))
def test_bins_are_those_of_the_definition(recordings, timesteps):
    lengths = np.array([len(events) for events in recordings])
    flat = np.array([event for events in recordings for event in events], int).reshape(-1, 2)
    binned = bin_events(Recordings(lengths, flat[:, 0], flat[:, 1], lengths * 0), timesteps, cells=5)
    expected = [
        by_definition([t for t, _ in events], [a for _, a in events], timesteps, 5) for events in recordings
    ]
    assert np.array_equal(dense(binned, timesteps, 5), expected)
    for keys in np.split(binned.keys, np.cumsum(binned.lengths)[:-1]):
        assert (np.diff(keys) > 0).all()


@given(st.lists(st.dictionaries(st.integers(0, 6 * 5 - 1), st.integers(1, 255)), min_size=1, max_size=4))
def test_merged_bins_are_sums(recordings):
    lengths = np.array([len(r) for r in recordings])
    keys = np.array([key for r in recordings for key in sorted(r)], np.int32)
    counts = np.array([r[key] for r in recordings for key in sorted(r)], np.uint8)
    merged = merge_bins(Binned(lengths, keys, counts, lengths), 3, 2, cells=5)
    fine = dense(Binned(lengths, keys, counts, lengths), 6, 5)
    assert np.array_equal(dense(merged, 2, 5), fine.reshape(-1, 2, 3, 5).sum(2))


@pytest.mark.parametrize(("top", "kind"), [(255, np.uint8), (256, np.int16), (32_768, np.int32)])
def test_counts_take_the_smallest_type(top, kind):
    assert smallest(np.array([1, top])).dtype == kind


def test_many_events_of_one_cell_are_all_counted():
    times = np.arange(70_001)
    binned = bin_events(Recordings(np.array([70_001]), times, times * 0, np.array([0])), 1, 3)
    assert binned.counts.tolist() == [70_000]


@pytest.mark.parametrize("timesteps", [1, 2, 7, 10, 30, 100])
def test_frames_equal_those_of_tonic_on_real_recordings(recordings, timesteps):
    tonic = pytest.importorskip("tonic")
    from tonic.io import read_mnist_file

    transform = tonic.transforms.ToFrame(sensor_size=tonic.datasets.NMNIST.sensor_size, n_time_bins=timesteps)
    parts = [path.read_bytes() for path in recordings]
    events = parse_nmnist(parts, recordings, [int(path.parent.name) for path in recordings])
    ours = dense(bin_events(events, timesteps, CELLS), timesteps, CELLS)
    for frames, path in zip(ours, recordings, strict=True):
        theirs = transform(read_mnist_file(str(path), dtype=tonic.datasets.NMNIST.dtype))
        assert np.array_equal(frames, theirs.reshape(timesteps, -1)), path
