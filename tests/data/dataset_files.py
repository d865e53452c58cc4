"""Small files in the published formats, made without the code under test."""

import io
import lzma
import struct
import tarfile
from pathlib import Path

import h5py
import numpy as np

from ultralif.data.readers.frames import Binned

SENSOR = 128


def idx(array: np.ndarray) -> bytes:
    header = bytes([0, 0, 8, array.ndim]) + b"".join(struct.pack(">I", size) for size in array.shape)
    return header + array.astype(np.uint8).tobytes()


def nmnist(x: np.ndarray, y: np.ndarray, p: np.ndarray, t: np.ndarray) -> bytes:
    rows = np.stack([x, y, p << 7 | t >> 16, t >> 8 & 255, t & 255], axis=1)
    return rows.astype(np.uint8).tobytes()


def binned(recordings: list[dict[int, int]], labels: list[int]) -> bytes:
    """Recordings as {key: count} in the 30-bin form."""
    gap, big, count = [], [], []
    for recording in recordings:
        before = 0
        for key in sorted(recording):
            step = key - before
            gap.append(min(step, 255))
            big += [step] if step >= 255 else []
            count.append(recording[key])
            before = key
    file = io.BytesIO()
    np.savez(
        file,
        gap=np.array(gap, np.uint8),
        big=np.array(big, np.uint32),
        count=np.array(count, np.uint8),
        length=np.array([len(r) for r in recordings], np.int32),
        label=np.array(labels, np.uint8),
    )
    return lzma.compress(file.getvalue())


def aedat(events: np.ndarray, *, packet: int = 100, overflow: int = 0) -> bytes:
    """Events in rows of x, y, polarity, time, after a packet of another type as real files have."""
    lines = [
        "#!AER-DAT3.1",
        "#Format: RAW",
        "#Source 1: DVS128",
        "#Start-Time: 2016-07-06 10:20:30",
        "#!END-HEADER",
    ]
    out = ["".join(f"{line}\r\n" for line in lines).encode()]
    out.append(struct.pack("<HHIIIIII", 0, 1, 8, 4, 0, 1, 1, 1) + struct.pack("<II", 1, 0))
    for start in range(0, len(events), packet):
        part = events[start : start + packet]
        out.append(struct.pack("<HHIIIIII", 1, 1, 8, 4, overflow, len(part), len(part), len(part)))
        out += [
            struct.pack("<II", int(x) << 17 | int(y) << 2 | int(p) << 1 | 1, int(t)) for x, y, p, t in part
        ]
    return b"".join(out)


def gesture_events(rng: np.random.Generator, count: int, last: int) -> np.ndarray:
    times = np.sort(rng.integers(0, last, count))
    return np.stack([*rng.integers(0, SENSOR, (2, count)), rng.integers(0, 2, count), times], axis=1)


def shd(path: Path, spikes: list[tuple[np.ndarray, np.ndarray]], labels: list[int]) -> None:
    """Spikes as (seconds, channels) for each recording; times are half floats, as published."""
    with h5py.File(path, "w") as file:
        times = file.create_dataset("spikes/times", (len(spikes),), h5py.vlen_dtype(np.float16))
        units = file.create_dataset("spikes/units", (len(spikes),), h5py.vlen_dtype(np.uint16))
        for i, (seconds, channels) in enumerate(spikes):
            times[i], units[i] = seconds.astype(np.float16), channels.astype(np.uint16)
        file["labels"] = np.array(labels, np.uint16)
        file["extra/keys"] = np.array([b"zero", b"one"])
        file["extra/speaker"] = np.zeros(len(spikes), np.uint16)


def shd_spikes(rng: np.random.Generator, recordings: int) -> list[tuple[np.ndarray, np.ndarray]]:
    return [
        (np.sort(rng.uniform(0, 1.2, n)).astype(np.float16), rng.integers(0, 700, n))
        for n in rng.integers(50, 400, recordings)
    ]


def make_tar(path: Path, members: list[tuple[str, bytes | str | None]], mode: str = "w:gz") -> Path:
    """Write members: bytes are a file, None a folder, a string a type with its link."""
    with tarfile.open(path, mode) as tar:
        for name, content in members:
            info = tarfile.TarInfo(name)
            if isinstance(content, bytes):
                info.size = len(content)
                info.mode = 0o4755
                tar.addfile(info, io.BytesIO(content))
            elif content is None:
                info.type = tarfile.DIRTYPE
                tar.addfile(info)
            else:
                info.type, info.linkname = content[0].encode(), content[1:]
                tar.addfile(info)
    return path


def dense(binned: Binned, timesteps: int, cells: int) -> np.ndarray:
    frames = np.zeros((len(binned.lengths), timesteps * cells), int)
    recording = np.repeat(np.arange(len(binned.lengths)), binned.lengths)
    frames[recording, binned.keys] = binned.counts
    assert (frames > 0).sum() == len(binned.keys), "a key comes twice"
    return frames.reshape(-1, timesteps, cells)
