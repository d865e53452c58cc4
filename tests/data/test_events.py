"""N-MNIST: five-byte recordings and the 30-bin form, sound and damaged."""

import importlib.util
import io
import lzma
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.dataset_files import binned, dense, nmnist
from ultralif.data.files import SUMS, Folder, hash_of
from ultralif.data.readers.frames import Binned
from ultralif.data.readers.nmnist import CELLS, binned_jobs, parse_binned, parse_nmnist, raw_jobs
from ultralif.errors import InputError

HERE = Path("file")


def test_overflows_move_the_clock_as_in_tonic():
    tonic_io = pytest.importorskip("tonic.io")
    rng = np.random.default_rng(1)
    paths, parts = [], []
    for n in (6, 40, 9):
        x, p = rng.integers(0, 34, n), rng.integers(0, 2, n)
        y = np.where(rng.random(n) < 0.3, 240, rng.integers(0, 34, n))
        y[0] = 240 if n == 9 else 3
        parts.append(nmnist(x, y, p, np.sort(rng.integers(0, 8000, n))))
        paths.append(Path(f"{n}.bin"))
    ours = parse_nmnist(parts, paths, [0, 1, 2])
    starts = np.cumsum(ours.lengths) - ours.lengths
    kind = np.dtype([("x", int), ("y", int), ("t", int), ("p", int)])
    for part, start, length in zip(parts, starts, ours.lengths, strict=True):
        theirs = tonic_io.read_mnist_file(io.BytesIO(part), dtype=kind, is_stream=True)
        mine = slice(start, start + length)
        assert np.array_equal(ours.times[mine], theirs["t"])
        assert np.array_equal(ours.addresses[mine], theirs["p"] * 34 * 34 + theirs["y"] * 34 + theirs["x"])


@pytest.mark.parametrize(
    ("data", "says"), [(b"", "0 bytes"), (b"1234567", "7 bytes"), (bytes([34, 0, 0, 0, 1]), "x=34, y=0")]
)
def test_wrong_recordings_are_refused_by_name(data, says):
    sound = bytes([1, 2, 3, 4, 5])
    with pytest.raises(InputError, match=rf"b\.bin .*{says}"):
        parse_nmnist([sound, data, sound], [Path("a.bin"), Path("b.bin"), Path("c.bin")], [0, 0, 0])


def raw_folder(folder: Path) -> Path:
    """Six recordings, numbered across the classes as MNIST's are."""
    for number, label in enumerate([5, 0, 4, 1, 9, 2], start=1):
        path = folder / "Train" / str(label) / f"{number:05d}.bin"
        path.parent.mkdir(parents=True)
        t = np.arange(20) * 1000
        path.write_bytes(nmnist(t * 0 + number, t * 0, t * 0, t))
    for label in (3, 6, 7, 8):
        (folder / "Train" / str(label)).mkdir()
    return folder


def test_recordings_come_in_the_order_of_mnist(tmp_path):
    (job,) = raw_jobs(Folder(raw_folder(tmp_path), {}), "train", 2)
    result = job()
    assert result.labels.tolist() == [5, 0, 4, 1, 9, 2]
    assert (dense(result, 2, CELLS).sum(1).argmax(1) == [1, 2, 3, 4, 5, 6]).all()


def test_an_installed_recording_with_a_flipped_bit_is_found(tmp_path):
    path = raw_folder(tmp_path) / "Train" / "4" / "00003.bin"
    names = [p.relative_to(tmp_path).as_posix() for p in tmp_path.glob("Train/*/*.bin")]
    sums = [f"{hash_of((tmp_path / name).read_bytes())[7:]}  {name}\n" for name in names]
    (tmp_path / SUMS).write_text("".join(sums))
    raw_jobs(Folder(tmp_path, {}), "train", 2)[0]()
    data = bytearray(path.read_bytes())
    data[7] ^= 1  # still a possible recording
    path.write_bytes(data)
    with pytest.raises(InputError, match=r"00003\.bin has the wrong content"):
        raw_jobs(Folder(tmp_path, {}), "train", 2)[0]()
    (tmp_path / SUMS).write_text("nonsense")
    with pytest.raises(InputError, match="not a list of SHA-256"):
        Folder(tmp_path, {})


KEYS = st.dictionaries(st.integers(0, 30 * CELLS - 1), st.integers(1, 255), min_size=1, max_size=20)


@given(st.lists(KEYS, min_size=1, max_size=4))
def test_the_binned_form_is_read_as_it_was_written(recordings):
    (part,) = parse_binned(binned(recordings, [1] * len(recordings)), HERE)
    assert part.lengths.tolist() == [len(r) for r in recordings]
    assert part.keys.tolist() == [key for r in recordings for key in sorted(r)]
    assert part.counts.tolist() == [r[key] for r in recordings for key in sorted(r)]


@given(st.data())
def test_damaged_binned_files_give_an_input_error(data):
    content = bytearray(lzma.decompress(binned([{3: 1, 700: 2}, {0: 5}], [1, 2])))
    del content[data.draw(st.integers(0, len(content))) :]
    for _ in range(data.draw(st.integers(0, 4))):
        if content:
            content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    for damaged in (lzma.compress(content), bytes(content)):
        try:
            list(parse_binned(damaged, HERE))
        except InputError as error:
            assert str(error).startswith("file ")


@pytest.mark.parametrize(
    ("recordings", "says"),
    [
        ([{30 * CELLS: 1}], "beyond the last bin"),
        ([{1: 0}], "do not match"),
    ],
)
def test_impossible_binned_files_are_refused(recordings, says):
    with pytest.raises(InputError, match=says):
        list(parse_binned(binned(recordings, [0]), HERE))


def test_a_cut_xz_file_is_refused():
    data = binned([{1: 1}], [0])
    with pytest.raises(InputError, match="truncated"):
        list(parse_binned(data[:-8], HERE))
    with pytest.raises(InputError, match="not a valid xz"):
        list(parse_binned(data[:40] + bytes([data[40] ^ 255]) + data[41:], HERE))


def test_timesteps_must_divide_the_bins(tmp_path):
    with pytest.raises(
        InputError, match=r"must divide the 30 bins .*got 7; choose one of 1, 2, 3, 5, 6, 10, 15, 30"
    ):
        binned_jobs(Folder(tmp_path, {}), "train", 7)


def test_real_binned_recordings_equal_what_their_own_decoder_makes(shared, tmp_path):
    path = shared / "nmnist" / "test-0.npz.xz"
    if not path.exists():
        pytest.skip("no binned N-MNIST")
    part = tmp_path / "test-0.npz.xz"
    part.write_bytes(first_recordings(lzma.decompress(path.read_bytes()), 1030))  # more than one slice
    spec = importlib.util.spec_from_file_location("load_nmnist", shared / "load_nmnist.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    theirs, labels = module.frames(part)
    for timesteps in (1, 10, 30):
        (job,) = binned_jobs(Folder(tmp_path, {}), "test", timesteps)
        ours = job()
        assert np.array_equal(ours.labels, labels)
        begin = int(ours.lengths[:980].sum())
        last = Binned(ours.lengths[980:], ours.keys[begin:], ours.counts[begin:], ours.labels[980:])
        summed = theirs[980:].reshape(50, timesteps, 30 // timesteps, CELLS).sum(2, dtype=int)
        assert np.array_equal(dense(last, timesteps, CELLS), summed)
        assert int(ours.counts.sum(dtype=np.int64)) == int(theirs.sum(dtype=np.int64))


def first_recordings(content: bytes, count: int) -> bytes:
    arrays = dict(np.load(io.BytesIO(content)))
    entries = int(arrays["length"][:count].sum())
    escaped = int((arrays["gap"][:entries] == 255).sum())
    ends = {"gap": entries, "count": entries, "big": escaped, "length": count, "label": count}
    file = io.BytesIO()
    np.savez(file, **{name: arrays[name][:end] for name, end in ends.items()})
    return lzma.compress(file.getvalue(), preset=0)
